"""The exceptions of ``firedex_clients``.

::

    ClientError
    ├── ServiceRefused       the configuration service said no
    │   ├── ServiceAbsent    it does not answer
    │   └── NotInForce       it keeps a registration, which did not come into force in time
    ├── ConnectionRefused    an MQTT connection could not be opened
    │   └── PortInUse        because its local ports are taken
    ├── EventTooLarge        an event does not fit one datagram
    ├── TooManyWaiting       no more events at QoS 1 or 2 can be kept until the broker is back
    ├── NotAcknowledged      what was published at QoS 1 or 2 may not have reached the broker
    └── Closed               the subscriber or publisher has been left
"""

__all__ = [
    "ClientError",
    "Closed",
    "ConnectionRefused",
    "EventTooLarge",
    "NotAcknowledged",
    "NotInForce",
    "PortInUse",
    "ServiceAbsent",
    "ServiceRefused",
    "TooManyWaiting",
]


class ClientError(Exception):
    """The root of what ``firedex_clients`` raises."""


class ServiceRefused(ClientError):
    """The service refused a request or cannot be reached."""


class ServiceAbsent(ServiceRefused):
    """The service does not answer."""


class NotInForce(ServiceRefused):
    """The service keeps a registration, but it did not come into force in time."""


class ConnectionRefused(ClientError):
    """A broker or gateway does not take the connection."""


class PortInUse(ConnectionRefused):
    """The local ports of a connection are taken."""


class EventTooLarge(ClientError):
    """An event does not fit one datagram."""


class TooManyWaiting(ClientError):
    """As many events at QoS 1 and 2 wait for the broker as MQTT has numbers for."""


class NotAcknowledged(ClientError):
    """Events at QoS 1 or 2 were left behind; ``events`` says how many."""

    def __init__(self, events: int) -> None:
        super().__init__(f"{events} events at QoS 1 or 2 were not acknowledged by the broker")
        self.events = events


class Closed(ClientError):
    """The subscriber or publisher has been left."""
