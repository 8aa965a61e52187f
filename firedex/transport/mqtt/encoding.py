"""The encoding that all MQTT packets share: fixed header, variable byte integers, properties.

Section numbers are of the MQTT 5 specification.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "MAX_PACKET_BYTES",
    "MalformedPacket",
    "PacketSplitter",
    "PacketType",
    "Properties",
    "PropertyId",
    "encode_packet",
    "encode_text",
    "encode_variable_integer",
    "packet_size",
    "property_end",
    "read_properties",
    "read_variable_integer",
    "variable_header_start",
]

MAX_LENGTH_BYTES = 4
MAX_PACKET_BYTES = 268_435_455 + 5


class MalformedPacket(ValueError):
    """The bytes are not a valid MQTT packet."""


class PacketType(IntEnum):
    """The control packet types of MQTT 3.1.1 and 5 (§2.1.2)."""

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


class PropertyId(IntEnum):
    """Identifiers of the MQTT 5 properties that are read or written (§2.2.2.2)."""

    MESSAGE_EXPIRY = 0x02
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27


# -- packets ---------------------------------------------------------------------------------------


class PacketSplitter:
    """Split a byte stream into packets."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = 2

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes held of a packet that is not complete yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add ``data`` and yield each packet that is now complete.

        The iterator must be exhausted before the next call.
        """
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


def packet_size(data: bytes | bytearray, start: int, max_bytes: int = MAX_PACKET_BYTES) -> int:
    """Return the size of the packet at ``start``.

    While the length field itself is incomplete, the result is one byte more than ``data`` has.
    Raises `MalformedPacket` if the packet is larger than ``max_bytes``.
    """
    length, last = 0, len(data) - 1
    for index in range(1, MAX_LENGTH_BYTES + 1):
        if start + index > last:
            return last - start + 2
        byte = data[start + index]
        length |= (byte & 0x7F) << (7 * (index - 1))
        if byte < 0x80:
            size = index + 1 + length
            if size > max_bytes:
                raise MalformedPacket(
                    f"a packet of {size} bytes is larger than the maximum of {max_bytes}"
                )
            return size
    raise MalformedPacket("the remaining length has more than four bytes")


def variable_header_start(packet: bytes) -> int:
    """Return the offset of the variable header of a complete packet."""
    index = 1
    while packet[index] & 0x80:
        index += 1
    return index + 1


def encode_packet(packet_type: PacketType, flags: int, body: bytes) -> bytes:
    """Return a packet: the fixed header (§2.1), then ``body``."""
    return bytes([packet_type << 4 | flags]) + encode_variable_integer(len(body)) + body


# -- fields ----------------------------------------------------------------------------------------


def encode_variable_integer(number: int) -> bytes:
    """Return a variable byte integer (§1.5.5)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_variable_integer(data: bytes, at: int) -> tuple[int, int]:
    """Return the variable byte integer at offset ``at``, and the offset after it."""
    number = 0
    for index in range(MAX_LENGTH_BYTES):
        if at + index >= len(data):
            raise MalformedPacket("the packet ends within a variable byte integer")
        byte = data[at + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise MalformedPacket("a variable byte integer has more than four bytes")


def encode_text(data: bytes) -> bytes:
    """Return a string or binary field: its length in two bytes, then ``data`` (§1.5.4, §1.5.6)."""
    return len(data).to_bytes(2, "big") + data


# -- properties ------------------------------------------------------------------------------------

_ONE_BYTE = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}
_TWO_BYTES = {0x13, 0x21, 0x22, 0x23}
_FOUR_BYTES = {0x02, 0x11, 0x18, 0x27}
_TEXT = {0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F}
_SIZES = {
    **dict.fromkeys(_ONE_BYTE, 1),
    **dict.fromkeys(_TWO_BYTES, 2),
    **dict.fromkeys(_FOUR_BYTES, 4),
}
_VARIABLE_INTEGER = 0x0B


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """Properties of a packet: integers by identifier, user properties, and the offset after them.

    ``subscriptions`` are the subscription identifiers, ``texts`` the other strings by identifier.
    """

    numbers: dict[int, int]
    texts: dict[int, bytes]
    user: tuple[tuple[bytes, bytes], ...]
    subscriptions: tuple[int, ...]
    end: int


def read_properties(data: bytes, at: int) -> Properties:
    """Read the properties whose length field is at offset ``at``."""
    length, at = read_variable_integer(data, at)
    end = at + length
    if end > len(data):
        raise MalformedPacket("the properties are longer than their packet")
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    user: list[tuple[bytes, bytes]] = []
    subscriptions: tuple[int, ...] = ()
    while at < end:
        identifier, start = data[at], at + 1
        size = _SIZES.get(identifier)
        if size is not None:
            at = start + size
            numbers[identifier] = int.from_bytes(data[start:at], "big")
        elif identifier == _VARIABLE_INTEGER:
            number, at = read_variable_integer(data, start)
            subscriptions += (number,)
        elif identifier in _TEXT:
            at = _text_end(data, start)
            texts[identifier] = data[start + 2 : at]
        elif identifier == PropertyId.USER_PROPERTY:
            middle = _text_end(data, start)
            at = _text_end(data, middle)
            user.append((data[start + 2 : middle], data[middle + 2 : at]))
        else:
            raise MalformedPacket(f"unknown property 0x{identifier:02x}")
        if at > end:
            raise MalformedPacket("a property is longer than the property section")
    return Properties(
        numbers=numbers, texts=texts, user=tuple(user), subscriptions=subscriptions, end=end
    )


def property_end(data: bytes, at: int) -> int:
    """Return the offset after the property that begins at offset ``at``."""
    identifier, start = data[at], at + 1
    size = _SIZES.get(identifier)
    if size is not None:
        return start + size
    if identifier == _VARIABLE_INTEGER:
        return read_variable_integer(data, start)[1]
    if identifier in _TEXT:
        return _text_end(data, start)
    if identifier == PropertyId.USER_PROPERTY:
        return _text_end(data, _text_end(data, start))
    raise MalformedPacket(f"unknown property 0x{identifier:02x}")


def _text_end(data: bytes, at: int) -> int:
    if at + 2 > len(data):
        raise MalformedPacket("the packet ends within the length of a string")
    return at + 2 + (data[at] << 8 | data[at + 1])
