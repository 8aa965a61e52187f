"""Publisher and subscriber libraries: one MQTT connection per flow. Knows only ``firedex.wire``."""

from firedex_clients.errors import (
    ClientError,
    ConnectionRefused,
    NotAcknowledged,
    ServiceAbsent,
    ServiceRefused,
)
from firedex_clients.event import Event
from firedex_clients.event_stream import EventStream
from firedex_clients.publisher import Publisher
from firedex_clients.subscriber import Subscriber

__all__ = [
    "ClientError",
    "ConnectionRefused",
    "Event",
    "EventStream",
    "NotAcknowledged",
    "Publisher",
    "ServiceAbsent",
    "ServiceRefused",
    "Subscriber",
]
