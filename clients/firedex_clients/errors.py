"""The exceptions of ``firedex_clients``.

::

    ClientError
    ├── ServiceRefused       the configuration service said no, or did not answer
    └── ConnectionRefused    an MQTT connection could not be opened
"""

__all__ = ["ClientError", "ConnectionRefused", "ServiceRefused"]


class ClientError(Exception):
    """The root of what ``firedex_clients`` raises."""


class ServiceRefused(ClientError):
    """The service refused a request or cannot be reached."""


class ConnectionRefused(ClientError):
    """A broker or gateway does not take the connection."""
