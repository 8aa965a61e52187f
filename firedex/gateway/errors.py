"""The exceptions of ``firedex.gateway``.

::

    GatewayError
    ├── ProtocolViolation        a peer sent what its protocol does not allow
    │   └── MalformedPacket      the bytes are not MQTT
    └── BrokerRefused            the broker does not answer, or says no
"""

__all__ = ["BrokerRefused", "GatewayError", "MalformedPacket", "ProtocolViolation"]


class GatewayError(Exception):
    """The root of what the gateway raises."""


class ProtocolViolation(GatewayError):
    """A peer sent what its protocol does not allow."""


class MalformedPacket(ProtocolViolation):
    """The bytes are not MQTT."""


class BrokerRefused(GatewayError):
    """The broker does not answer, or refuses the connection."""
