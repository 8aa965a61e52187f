"""The path of packets from a client to the broker over TCP. No sockets.

CONNECT is read, the QoS of SUBSCRIBE is limited, and all other packets pass unchanged. QoS 1 and 2
events are never dropped, so a subscriber planned at QoS 0 could avoid its drop rate by subscribing
at QoS 1. The gateway therefore lowers the QoS of a SUBSCRIBE packet to the planned one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from firedex.gateway.flow_table import MAX_QOS, ManagedFlow, max_qos
from firedex.gateway.interest_packets import (
    MAX_OBSERVED_BYTES,
    OBSERVED_UPSTREAM,
    ConnectionObserver,
)
from firedex.transport.mqtt.encoding import (
    MAX_PACKET_BYTES,
    MalformedPacket,
    PacketType,
    PropertyId,
    packet_size,
    read_properties,
    read_variable_integer,
    variable_header_start,
)
from firedex.transport.mqtt.version import MQTT_5

__all__ = [
    "MAX_CONNECT_BYTES",
    "MAX_SUBSCRIBE_BYTES",
    "ConnectProperties",
    "Upstream",
    "limit_qos",
    "read_connect",
    "reason_not_mqtt",
]

MAX_CONNECT_BYTES = 6 * 65_537 + 1024
"""Room for client id, user, password, and topic, payload and properties of the will."""
MAX_SUBSCRIBE_BYTES = 1_048_576
"""A SUBSCRIBE packet whose QoS must be limited is held until it is complete."""
QOS_BITS = 0b11
_SUBSCRIBE = PacketType.SUBSCRIBE << 4
_TLS_HANDSHAKE = 0x16
_PROTOCOL_NAMES = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectProperties:
    """The protocol level of a client, and the limits that an MQTT 5 client sets."""

    level: int
    topic_alias_maximum: int = 0
    maximum_packet_bytes: int | None = None


def reason_not_mqtt(first: bytes | bytearray, *, tls: bool = False) -> str | None:
    """Return why the first bytes of a connection cannot be MQTT, or None if they can."""
    if not first or first[0] == PacketType.CONNECT << 4:
        return None
    if first[0] == _TLS_HANDSHAKE and not tls:
        return "this port does not accept TLS (use the port of firedex gateway --tls-listen)"
    return f"not MQTT: the first byte is 0x{first[0]:02x}, but CONNECT starts with 0x10"


def read_connect(packet: bytes) -> ConnectProperties:
    """Read a complete CONNECT packet; the broker checks everything else."""
    at = variable_header_start(packet)
    for name in _PROTOCOL_NAMES:
        if packet.startswith(name, at):
            at += len(name)
            break
    else:
        raise MalformedPacket("the protocol name in CONNECT is not MQTT")
    if len(packet) < at + 4:
        raise MalformedPacket("a CONNECT packet is too short")
    level = packet[at]
    if level != MQTT_5:
        return ConnectProperties(level=level)
    numbers = read_properties(packet, at + 4).numbers
    return ConnectProperties(
        level=level,
        topic_alias_maximum=numbers.get(PropertyId.TOPIC_ALIAS_MAXIMUM, 0),
        maximum_packet_bytes=numbers.get(PropertyId.MAXIMUM_PACKET_SIZE),
    )


class Upstream:
    """The path of one connection from its client to the broker.

    Packets that change subscriptions are shown to ``observer``.
    """

    def __init__(
        self,
        find_flow: Callable[[], ManagedFlow | None],
        *,
        level: int,
        observer: ConnectionObserver | None = None,
    ) -> None:
        self._find_flow, self._level, self._observer = find_flow, level, observer
        self._held = bytearray()
        self._needed_bytes = self._pass_bytes = 0

    def receive(self, data: bytes) -> bytes:
        """Return the bytes to send to the broker for ``data`` received from the client."""
        if self._pass_bytes >= len(data):  # within a large packet
            self._pass_bytes -= len(data)
            return data
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return b""
            data, self._held = bytes(self._held), bytearray()
        start, self._pass_bytes = self._pass_bytes, 0
        out, begin, end = list[bytes](), 0, len(data)
        qos = max_qos(self._find_flow())
        while start < end:
            kind = data[start] & 0xF0
            limited = kind == _SUBSCRIBE and qos < MAX_QOS
            size = packet_size(data, start, MAX_SUBSCRIBE_BYTES if limited else MAX_PACKET_BYTES)
            # Events and their acknowledgements have smaller types.
            observed = kind >= _SUBSCRIBE and self._observes(kind, size)
            is_complete = start + size <= end
            if not is_complete and (limited or observed or not _has_complete_length(data, start)):
                out.append(data[begin:start])
                self._held, self._needed_bytes = bytearray(data[start:]), size
                return b"".join(out)
            if limited or observed:
                packet = data[start : start + size]
                if limited:
                    packet = limit_qos(qos, packet, level=self._level)
                    out += [data[begin:start], packet]
                    begin = start + size
                if self._observer is not None:
                    self._observer.client_sent(packet)
            start += size
        self._pass_bytes = start - end
        out.append(data[begin:])
        return b"".join(out)

    def _observes(self, kind: int, size: int) -> bool:
        if self._observer is None or kind not in OBSERVED_UPSTREAM:
            return False
        if size > MAX_OBSERVED_BYTES:
            self._observer.lose_track()
            return False
        return True


def _has_complete_length(data: bytes, start: int) -> bool:
    return any(byte < 0x80 for byte in data[start + 1 : start + 5])


def limit_qos(qos: int, packet: bytes, *, level: int) -> bytes:
    """Return a complete SUBSCRIBE packet (§3.8) with no requested QoS above ``qos``."""
    changed, at = bytearray(packet), variable_header_start(packet) + 2
    if level == MQTT_5:
        length, at = read_variable_integer(packet, at)
        at += length
    while at < len(packet):
        options = at + 2 + int.from_bytes(packet[at : at + 2], "big")
        if options >= len(packet):
            raise MalformedPacket("a SUBSCRIBE packet is too short")
        if packet[options] & QOS_BITS > qos:
            changed[options] = packet[options] & ~QOS_BITS | qos
        at = options + 1
    return bytes(changed)
