"""The exceptions of ``firedex_clients``.

::

    ClientError
    ├── ServiceRefused       the configuration service said no, or did not answer
    └── ConnectionRefused    an MQTT connection could not be opened
        └── PortInUse        because its local port is taken
"""

__all__ = ["ClientError", "ConnectionRefused", "PortInUse", "ServiceRefused"]


class ClientError(Exception):
    """The root of what ``firedex_clients`` raises."""


class ServiceRefused(ClientError):
    """The service refused a request or cannot be reached."""


class ConnectionRefused(ClientError):
    """A broker or gateway does not take the connection."""


class PortInUse(ConnectionRefused):
    """The local port of a connection is taken."""
