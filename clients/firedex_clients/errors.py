"""The exceptions of ``firedex_clients``.

::

    ClientError
    ├── ServiceRefused       the configuration service said no
    │   └── ServiceAbsent    it does not answer
    ├── ConnectionRefused    an MQTT connection could not be opened
    │   └── PortInUse        because its local ports are taken
    ├── EventTooLarge        an event does not fit one datagram
    └── Closed               the subscriber or publisher has been left
"""

__all__ = [
    "ClientError",
    "Closed",
    "ConnectionRefused",
    "EventTooLarge",
    "PortInUse",
    "ServiceAbsent",
    "ServiceRefused",
]


class ClientError(Exception):
    """The root of what ``firedex_clients`` raises."""


class ServiceRefused(ClientError):
    """The service refused a request or cannot be reached."""


class ServiceAbsent(ServiceRefused):
    """The service does not answer."""


class ConnectionRefused(ClientError):
    """A broker or gateway does not take the connection."""


class PortInUse(ConnectionRefused):
    """The local ports of a connection are taken."""


class EventTooLarge(ClientError):
    """An event does not fit one datagram."""


class Closed(ClientError):
    """The subscriber or publisher has been left."""
