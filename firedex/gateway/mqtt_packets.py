"""Cutting an MQTT byte stream into packets, and telling which may be dropped. Pure."""

from collections.abc import Iterator

__all__ = ["MalformedPacket", "PacketCutter", "may_be_dropped"]

PUBLISH = 3
LONGEST_LENGTH_BYTES = 4


class MalformedPacket(Exception):
    """The bytes are not MQTT."""


class PacketCutter:
    """Collects bytes and gives back whole packets."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Add ``data``; yield every packet that is now complete."""
        self._bytes += data
        while (size := self._packet_size()) is not None and size <= len(self._bytes):
            packet = bytes(self._bytes[:size])
            del self._bytes[:size]
            yield packet

    def _packet_size(self) -> int | None:
        """Size of the first packet, or None while its length is not complete."""
        length = 0
        for place in range(LONGEST_LENGTH_BYTES):
            if place + 1 >= len(self._bytes):
                return None
            byte = self._bytes[place + 1]
            length |= (byte & 0x7F) << (7 * place)
            if not byte & 0x80:
                return place + 2 + length
        raise MalformedPacket("a remaining length of more than four bytes")


def may_be_dropped(packet: bytes) -> bool:
    """Whether a packet is an event that a drop rate applies to: QoS 0, not retained."""
    kind, flags = packet[0] >> 4, packet[0] & 0x0F
    quality, retained = (flags >> 1) & 0b11, flags & 1
    return kind == PUBLISH and quality == 0 and not retained
