"""The exceptions of ``firedex.gateway``.

::

    GatewayError
    ├── ProtocolViolation        a peer sent what its protocol does not allow
    │   └── MalformedPacket      the bytes are not MQTT
    └── CannotListen             an address is taken, or not of this machine
"""

__all__ = ["CannotListen", "GatewayError", "MalformedPacket", "ProtocolViolation"]


class GatewayError(Exception):
    """The root of what the gateway raises."""


class ProtocolViolation(GatewayError):
    """A peer sent what its protocol does not allow."""


class MalformedPacket(ProtocolViolation):
    """The bytes are not MQTT."""


class CannotListen(GatewayError):
    """An address is taken, or not of this machine."""
