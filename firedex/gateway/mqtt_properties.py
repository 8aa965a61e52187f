"""The properties of MQTT 5 packets (§2.2.2): reading those that the gateway looks at. Pure."""

from dataclasses import dataclass
from enum import IntEnum

from firedex.gateway.errors import MalformedPacket

__all__ = ["Properties", "PropertyId", "read_properties", "read_variable_integer"]


class PropertyId(IntEnum):
    """Identifiers of the properties that the gateway reads or writes."""

    SESSION_EXPIRY = 0x11
    REASON_STRING = 0x1F
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27


_ONE = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}
_TWO = {0x13, 0x21, 0x22, 0x23}
_FOUR = {0x02, 0x11, 0x18, 0x27}
_TEXT = {0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F}
_SIZES = {**dict.fromkeys(_ONE, 1), **dict.fromkeys(_TWO, 2), **dict.fromkeys(_FOUR, 4)}
_VARIABLE_INTEGER = 0x0B


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What was found: numbers by identifier, where each stands, and the user's pairs."""

    numbers: dict[int, int]
    places: dict[int, int]
    user: tuple[tuple[bytes, bytes], ...]
    end: int


def read_variable_integer(data: bytes, at: int) -> tuple[int, int]:
    """A variable byte integer, and where it ends."""
    number = 0
    for place in range(4):
        if at + place >= len(data):
            raise MalformedPacket("a packet that ends within a length")
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise MalformedPacket("a length of more than four bytes")


def read_properties(data: bytes, at: int) -> Properties:
    """The properties that begin with their length at ``at``."""
    length, at = read_variable_integer(data, at)
    end = at + length
    if end > len(data):
        raise MalformedPacket("properties that end beyond their packet")
    numbers: dict[int, int] = {}
    places: dict[int, int] = {}
    user: list[tuple[bytes, bytes]] = []
    while at < end:
        identifier, start = data[at], at + 1
        size = _SIZES.get(identifier)
        if size is not None:
            at = start + size
            numbers[identifier], places[identifier] = int.from_bytes(data[start:at], "big"), start
        elif identifier == _VARIABLE_INTEGER:
            _, at = read_variable_integer(data, start)
        elif identifier in _TEXT:
            at = _text_end(data, start)
        elif identifier == PropertyId.USER_PROPERTY:
            middle = _text_end(data, start)
            at = _text_end(data, middle)
            user.append((data[start + 2 : middle], data[middle + 2 : at]))
        else:
            raise MalformedPacket(f"an unknown property 0x{identifier:02x}")
        if at > end:
            raise MalformedPacket("a property that ends beyond the others")
    return Properties(numbers=numbers, places=places, user=tuple(user), end=end)


def _text_end(data: bytes, at: int) -> int:
    if at + 2 > len(data):
        raise MalformedPacket("a text without its length")
    return at + 2 + (data[at] << 8 | data[at + 1])
