"""The exceptions of ``firedex_clients``.

::

    ClientError
    ├── ServiceRefused          the configuration service refused a request
    │   ├── ServiceUnreachable  the service did not respond
    │   └── NotActivated        the service stored a registration, but did not activate it in time
    ├── ConnectionRefused       an MQTT connection could not be opened
    │   └── PortInUse           the local ports of the connection are in use
    ├── EventTooLarge           an event does not fit into one datagram
    ├── QueueFull               too many events at QoS 1 or 2 wait for the broker
    └── NotAcknowledged         events at QoS 1 or 2 may not have reached the broker
"""

__all__ = [
    "ClientError",
    "ConnectionRefused",
    "EventTooLarge",
    "NotAcknowledged",
    "NotActivated",
    "PortInUse",
    "QueueFull",
    "ServiceRefused",
    "ServiceUnreachable",
]


class ClientError(Exception):
    """Base class of all errors of ``firedex_clients``."""


class ServiceRefused(ClientError):
    """The service refused a request or is unreachable."""


class ServiceUnreachable(ServiceRefused):
    """The service did not respond."""


class NotActivated(ServiceRefused):
    """The service stored a registration, but did not activate it in time."""


class ConnectionRefused(ClientError):
    """A broker or gateway refused the connection, or is unreachable."""


class PortInUse(ConnectionRefused):
    """The local ports of a connection are in use."""


class EventTooLarge(ClientError):
    """An event does not fit into one datagram."""


class QueueFull(ClientError):
    """All MQTT packet identifiers are used by events that wait for the broker."""


class NotAcknowledged(ClientError):
    """The broker did not acknowledge ``events`` events at QoS 1 or 2."""

    def __init__(self, events: int) -> None:
        super().__init__(f"{events} events at QoS 1 or 2 were not acknowledged by the broker")
        self.events = events
