"""The packets that open, change and close a client's session, read by a relay between the two.

Every function takes a complete packet and raises `MalformedPacket` if the packet is not valid.
Section numbers are of the MQTT 5 specification.
"""

from dataclasses import dataclass

from firedex.transport.mqtt.encoding import (
    MalformedPacket,
    PropertyId,
    read_properties,
    variable_header_start,
)
from firedex.transport.mqtt.version import MQTT_5

__all__ = [
    "MQTT_31",
    "NEVER_EXPIRES",
    "SessionAnswer",
    "SessionRequest",
    "read_acknowledged_codes",
    "read_disconnect_expiry",
    "read_session_answer",
    "read_session_request",
    "read_subscribe",
    "read_unsubscribe",
]

MQTT_31 = 3
"""Protocol level of MQTT 3.1, whose CONNACK does not say whether the session is present."""
NEVER_EXPIRES = 0xFFFF_FFFF
"""Session expiry interval of a session that does not expire (§3.1.2.11.2)."""
_LEVEL_BITS = 0x7F
"""Mosquitto marks a bridge by the highest bit of the protocol level."""
_CLEAN_START = 0x02
_SESSION_PRESENT = 0x01
_QOS_BITS = 0b11


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The session that a CONNECT packet asks for (§3.1).

    Before MQTT 5, ``expiry_seconds`` follows from the clean session flag: 0 with it, otherwise
    `NEVER_EXPIRES`.
    """

    level: int
    client_id: str
    clean_start: bool
    expiry_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAnswer:
    """The session that a CONNACK packet grants (§3.2); ``code`` 0 is success.

    ``client_id`` and ``expiry_seconds`` are None unless the broker chose them.
    """

    code: int
    session_present: bool
    client_id: str | None = None
    expiry_seconds: int | None = None


def read_session_request(packet: bytes) -> SessionRequest:
    """Read a CONNECT packet."""
    _, at = _read_text(packet, variable_header_start(packet))
    if at + 4 > len(packet):
        raise MalformedPacket("a CONNECT packet is too short")
    level, flags = packet[at] & _LEVEL_BITS, packet[at + 1]
    clean_start = bool(flags & _CLEAN_START)
    expiry_seconds = 0 if clean_start else NEVER_EXPIRES
    at += 4
    if level == MQTT_5:
        properties = read_properties(packet, at)
        expiry_seconds = properties.numbers.get(PropertyId.SESSION_EXPIRY, 0)
        at = properties.end
    client_id, _ = _read_text(packet, at)
    return SessionRequest(
        level=level,
        client_id=client_id,
        clean_start=clean_start,
        expiry_seconds=expiry_seconds,
    )


def read_session_answer(packet: bytes, *, level: int) -> SessionAnswer:
    """Read a CONNACK packet."""
    at = variable_header_start(packet)
    if at + 2 > len(packet):
        raise MalformedPacket("a CONNACK is too short")
    code, session_present = packet[at + 1], bool(packet[at] & _SESSION_PRESENT)
    if level != MQTT_5 or at + 2 == len(packet):
        return SessionAnswer(code=code, session_present=session_present)
    properties = read_properties(packet, at + 2)
    assigned = properties.texts.get(PropertyId.ASSIGNED_CLIENT_ID)
    return SessionAnswer(
        code=code,
        session_present=session_present,
        client_id=None if assigned is None else _decode(assigned),
        expiry_seconds=properties.numbers.get(PropertyId.SESSION_EXPIRY),
    )


def read_subscribe(packet: bytes, *, level: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return the packet identifier of a SUBSCRIBE, and its filters with the requested QoS."""
    packet_id, at = _packet_id(packet, level)
    filters = list[tuple[str, int]]()
    while at < len(packet):
        name, at = _read_text(packet, at)
        if at >= len(packet):
            raise MalformedPacket("a SUBSCRIBE packet is too short")
        filters.append((name, packet[at] & _QOS_BITS))
        at += 1
    return packet_id, tuple(filters)


def read_unsubscribe(packet: bytes, *, level: int) -> tuple[int, tuple[str, ...]]:
    """Return the packet identifier of an UNSUBSCRIBE, and its filters."""
    packet_id, at = _packet_id(packet, level)
    filters = list[str]()
    while at < len(packet):
        name, at = _read_text(packet, at)
        filters.append(name)
    return packet_id, tuple(filters)


def read_acknowledged_codes(packet: bytes, *, level: int) -> tuple[int, bytes]:
    """Return the packet identifier and the codes of a SUBACK or UNSUBACK, one for each filter.

    Before MQTT 5, an UNSUBACK has no codes.
    """
    packet_id, at = _packet_id(packet, level)
    return packet_id, packet[at:]


def read_disconnect_expiry(packet: bytes, *, level: int) -> int | None:
    """Return the session expiry interval in a DISCONNECT packet, or None if it has none."""
    at = variable_header_start(packet) + 1
    if level != MQTT_5 or at >= len(packet):
        return None
    return read_properties(packet, at).numbers.get(PropertyId.SESSION_EXPIRY)


def _packet_id(packet: bytes, level: int) -> tuple[int, int]:
    at = variable_header_start(packet)
    if at + 2 > len(packet):
        raise MalformedPacket("the packet has no packet identifier")
    packet_id = packet[at] << 8 | packet[at + 1]
    at += 2
    if level == MQTT_5 and at < len(packet):
        at = read_properties(packet, at).end
    return packet_id, at


def _read_text(packet: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(packet[at : at + 2], "big")
    if at + 2 > len(packet) or end > len(packet):
        raise MalformedPacket("the packet ends within a string")
    return _decode(packet[at + 2 : end]), end


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"a string is not valid UTF-8: {error.reason}") from None
