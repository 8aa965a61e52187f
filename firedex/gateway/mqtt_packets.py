"""Cutting an MQTT byte stream into packets, and telling which may be dropped. Pure."""

from collections.abc import Iterator
from enum import IntEnum

from firedex.gateway.errors import MalformedPacket

__all__ = [
    "LARGEST_BYTES",
    "MalformedPacket",
    "PacketCutter",
    "PacketKind",
    "body_start",
    "encoded_length",
    "may_be_dropped",
    "packet",
    "packet_size",
]

LONGEST_LENGTH_BYTES = 4
LARGEST_BYTES = 268_435_455 + 5


class PacketKind(IntEnum):
    """The control packets of MQTT 3.1.1 and 5."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class PacketCutter:
    """Collects bytes and gives back whole packets."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = 2

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of an incomplete packet are held."""
        return len(self._rest)

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Add ``data``; yield every packet that is now complete. Take all before the next call."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        start, end = 0, len(data)
        while start < end:
            size = packet_size(data, start)
            if start + size > end:
                break
            yield data[start : start + size]
            start += size
        if start < end:
            self._needed = packet_size(data, start)
            self._rest += data[start:]


def packet_size(data: bytes | bytearray, start: int, longest_bytes: int = LARGEST_BYTES) -> int:
    """Size of the packet at ``start``; one byte more than there are while it cannot be told."""
    length, last = 0, len(data) - 1
    for place in range(1, LONGEST_LENGTH_BYTES + 1):
        if start + place > last:
            return last - start + 2
        byte = data[start + place]
        length |= (byte & 0x7F) << (7 * (place - 1))
        if byte < 0x80:
            size = place + 1 + length
            if size > longest_bytes:
                raise MalformedPacket(
                    f"a packet of {size} bytes, and at most {longest_bytes} may come here"
                )
            return size
    raise MalformedPacket("a remaining length of more than four bytes")


def may_be_dropped(packet: bytes) -> bool:
    """Whether a packet is an event that a drop rate applies to: QoS 0, not retained."""
    return packet[0] & 0b11110111 == PacketKind.PUBLISH << 4


def body_start(packet: bytes) -> int:
    """Where a whole packet's variable header begins."""
    place = 1
    while packet[place] & 0x80:
        place += 1
    return place + 1


def encoded_length(length: int) -> bytes:
    """A variable byte integer (MQTT 5, §1.5.5)."""
    out = bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)


def packet(kind: PacketKind, flags: int, body: bytes) -> bytes:
    """A whole packet of its fixed header and ``body``."""
    return bytes([kind << 4 | flags]) + encoded_length(len(body)) + body
