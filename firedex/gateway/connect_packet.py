"""What the gateway needs to know of a client's CONNECT. Pure."""

from dataclasses import dataclass

from firedex.gateway.errors import MalformedPacket
from firedex.gateway.mqtt_packets import PacketKind, body_start
from firedex.gateway.mqtt_properties import PropertyId, read_properties

__all__ = ["LONGEST_CONNECT_BYTES", "ConnectFacts", "read_connect", "why_not_mqtt"]

LONGEST_CONNECT_BYTES = 6 * 65_537 + 1024
"""Client id, user, password, will's topic, payload and properties, each at its longest."""

_TLS_HANDSHAKE = 0x16
_NAMES = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_FIVE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectFacts:
    """The protocol's level, and what an MQTT 5 client can take."""

    level: int
    topic_alias_maximum: int = 0
    maximum_packet_bytes: int | None = None


def why_not_mqtt(first: bytes | bytearray, *, tls: bool = False) -> str | None:
    """Why a connection that begins with these bytes is no MQTT client's; None while it may be."""
    if not first or first[0] == PacketKind.CONNECT << 4:
        return None
    if first[0] == _TLS_HANDSHAKE and not tls:
        return "TLS, which this port does not speak (firedex gateway --tls-listen does)"
    return f"not MQTT: it begins with 0x{first[0]:02x}, and CONNECT with 0x10"


def read_connect(packet: bytes) -> ConnectFacts:
    """Read a whole CONNECT; what only the broker can judge is left to it."""
    at = body_start(packet)
    for name in _NAMES:
        if packet.startswith(name, at):
            at += len(name)
            break
    else:
        raise MalformedPacket("a CONNECT of another protocol than MQTT")
    if len(packet) < at + 4:
        raise MalformedPacket("a CONNECT that ends too early")
    level = packet[at]
    if level != _FIVE:
        return ConnectFacts(level=level)
    numbers = read_properties(packet, at + 4).numbers
    return ConnectFacts(
        level=level,
        topic_alias_maximum=numbers.get(PropertyId.TOPIC_ALIAS_MAXIMUM, 0),
        maximum_packet_bytes=numbers.get(PropertyId.MAXIMUM_PACKET_SIZE),
    )
