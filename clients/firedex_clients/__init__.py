"""The client library: publishers, and subscribers with one MQTT connection for each flow.

It imports no other package than ``firedex.wire``, ``firedex.transport`` and ``firedex.system``.
"""

from firedex.transport.mqtt_security import MqttSecurity
from firedex_clients.errors import (
    ClientError,
    ConnectionRefused,
    NotAcknowledged,
    ServiceRefused,
    ServiceUnreachable,
)
from firedex_clients.events import Event, EventStream
from firedex_clients.publisher import Publisher
from firedex_clients.subscriber import Subscriber

__all__ = [
    "ClientError",
    "ConnectionRefused",
    "Event",
    "EventStream",
    "MqttSecurity",
    "NotAcknowledged",
    "Publisher",
    "ServiceRefused",
    "ServiceUnreachable",
    "Subscriber",
]
