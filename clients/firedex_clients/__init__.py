"""Publisher and subscriber libraries: one MQTT connection per flow. Knows only ``firedex.wire``."""

from firedex_clients.errors import ClientError, ConnectionRefused, ServiceRefused
from firedex_clients.publisher import Publisher
from firedex_clients.subscriber import Event, Subscriber

__all__ = [
    "ClientError",
    "ConnectionRefused",
    "Event",
    "Publisher",
    "ServiceRefused",
    "Subscriber",
]
