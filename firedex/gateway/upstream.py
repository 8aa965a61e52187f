"""From client to broker: everything as it is, but no flow subscribes above its quality. No sockets.

Events at QoS 1 and 2 are never dropped. A subscriber that was planned for at QoS 0 and asks the
broker for more would so get past its drop rate; it is granted what was planned.
"""

from collections.abc import Callable

from firedex.gateway.errors import MalformedPacket
from firedex.gateway.flow_table import HIGHEST_QOS, ManagedFlow, highest_qos
from firedex.gateway.mqtt_packets import LARGEST_BYTES, PacketKind, body_start, packet_size
from firedex.gateway.mqtt_properties import read_variable_integer

__all__ = ["LONGEST_SUBSCRIBE_BYTES", "Upstream", "with_qos_at_most"]

LONGEST_SUBSCRIBE_BYTES = 1_048_576
"""One that must be looked at is held until it is whole."""
LEVEL_FIVE = 5
SUBSCRIBE = PacketKind.SUBSCRIBE << 4
QOS_BITS = 0b11


class Upstream:
    """One connection's way from its client to the broker."""

    def __init__(self, find_flow: Callable[[], ManagedFlow | None], *, level: int) -> None:
        self._find_flow, self._level = find_flow, level
        self._held = bytearray()
        self._needed_bytes = self._pass_bytes = 0

    def passed(self, data: bytes) -> bytes:
        """What of the client's bytes goes to the broker now."""
        if self._pass_bytes >= len(data):  # within a large event
            self._pass_bytes -= len(data)
            return data
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return b""
            data, self._held = bytes(self._held), bytearray()
        start, self._pass_bytes = self._pass_bytes, 0
        out, begin, end = list[bytes](), 0, len(data)
        cap = highest_qos(self._find_flow())
        while start < end:
            capped = cap < HIGHEST_QOS and data[start] & 0xF0 == SUBSCRIBE
            size = packet_size(data, start, LONGEST_SUBSCRIBE_BYTES if capped else LARGEST_BYTES)
            is_whole = start + size <= end
            if not is_whole and (capped or not _has_whole_length(data, start)):
                out.append(data[begin:start])
                self._held, self._needed_bytes = bytearray(data[start:]), size
                return b"".join(out)
            if capped:
                packet = data[start : start + size]
                out += [data[begin:start], with_qos_at_most(cap, packet, level=self._level)]
                begin = start + size
            start += size
        self._pass_bytes = start - end
        out.append(data[begin:])
        return b"".join(out)


def _has_whole_length(data: bytes, start: int) -> bool:
    return any(byte < 0x80 for byte in data[start + 1 : start + 5])


def with_qos_at_most(qos: int, packet: bytes, *, level: int) -> bytes:
    """A whole SUBSCRIBE (§3.8 of MQTT 3.1.1 and of 5) that asks for no more than ``qos``."""
    changed, at = bytearray(packet), body_start(packet) + 2
    if level == LEVEL_FIVE:
        length, at = read_variable_integer(packet, at)
        at += length
    while at < len(packet):
        options = at + 2 + int.from_bytes(packet[at : at + 2], "big")
        if options >= len(packet):
            raise MalformedPacket("a SUBSCRIBE that ends too early")
        if packet[options] & QOS_BITS > qos:
            changed[options] = packet[options] & ~QOS_BITS | qos
        at = options + 1
    return bytes(changed)
