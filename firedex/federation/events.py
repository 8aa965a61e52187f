"""Events as they travel between federators: identity, time stamp and content. Pure.

Publications and events are named tuples: creating a frozen dataclass takes more than twice as long,
and each event needs several of them.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from firedex.federation.frames import EventId, MalformedFrame
from firedex.transport.mqtt.encoding import (
    MalformedPacket,
    PacketType,
    PropertyId,
    encode_packet,
    encode_variable_integer,
    property_end,
    read_variable_integer,
    variable_header_start,
)
from firedex.transport.mqtt.version import MQTT_5

__all__ = [
    "Event",
    "Publication",
    "check_publishable",
    "decode_event",
    "encode_event",
    "encode_event_as_publish",
    "encode_publication",
    "read_publication",
    "reduce_lifetime",
]

NEVER = 0xFFFF_FFFF
MAX_QOS = 2
MAX_NUMBER = 2**63 - 1
"""The journal stores numbers with 64 bits and a sign."""
_HEAD = struct.Struct(">QQQBIBHHB")
_LIFETIME = struct.Struct(">I")
_LIFETIME_AT = struct.calcsize(">QQQB")
_RETAIN = 0x04
_MAX_CACHED_SECTION = 7
"""Bytes of a property section that holds a subscription identifier and nothing else, at most."""
_PAYLOAD_FORMAT, _CONTENT_TYPE, _RESPONSE_TOPIC, _CORRELATION_DATA = 0x01, 0x03, 0x08, 0x09
_NOT_FORWARDED = {
    PropertyId.TOPIC_ALIAS,
    PropertyId.MESSAGE_EXPIRY,
    PropertyId.SUBSCRIPTION_IDENTIFIER,
}


class Publication(NamedTuple):
    """A PUBLISH packet of the local broker.

    ``properties`` are the MQTT 5 properties to pass on unchanged: all except topic alias,
    subscription identifiers and message expiry.
    """

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0
    properties: bytes = b""
    expiry_seconds: int | None = None
    subscriptions: tuple[int, ...] = ()


class Event(NamedTuple):
    """An event with its identity.

    ``stamp`` is the hybrid logical time at the origin. ``lifetime_milliseconds`` is what is left of
    the message expiry interval when the event is sent; it does not depend on clocks.
    """

    origin: str
    id: EventId
    stamp: int
    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    state: bool = False
    """A retained value that is sent for synchronisation, not a new publication."""
    properties: bytes = b""
    lifetime_milliseconds: int | None = None

    def with_qos(self, qos: int) -> "Event":
        """Return the event with another QoS."""
        return self if qos == self.qos else self._replace(qos=qos)


def encode_event(event: Event) -> bytes:
    """Return an event as the rest of an EVENT frame."""
    origin = event.origin.encode()
    lifetime = NEVER if event.lifetime_milliseconds is None else event.lifetime_milliseconds
    flags = event.qos | (_RETAIN if event.retain else 0) | (0x08 if event.state else 0)
    head = _HEAD.pack(
        *event.id,
        event.stamp,
        flags,
        min(lifetime, NEVER),
        len(origin),
        len(event.topic),
        len(event.properties),
        0,
    )
    return b"".join((head, origin, event.topic, event.properties, event.payload))


def decode_event(rest: bytes) -> Event:
    """Return the event of an EVENT frame."""
    try:
        epoch, number, stamp, flags, lifetime, origin, topic, properties, _ = _HEAD.unpack_from(
            rest
        )
    except struct.error as error:
        raise MalformedFrame(f"an event is too short: {error}") from error
    at = _HEAD.size
    topic_at = at + origin
    properties_at = topic_at + topic
    payload_at = properties_at + properties
    qos = flags & 0x03
    if payload_at > len(rest) or qos > MAX_QOS or not origin or not topic:
        raise MalformedFrame("an event is not valid")
    try:
        name = rest[at:topic_at].decode()
    except UnicodeDecodeError as error:
        raise MalformedFrame("the origin of an event is not text") from error
    return Event(
        origin=name,
        id=(epoch, number),
        stamp=stamp,
        topic=rest[topic_at:properties_at],
        payload=rest[payload_at:],
        qos=qos,
        retain=bool(flags & _RETAIN),
        state=bool(flags & 0x08),
        properties=rest[properties_at:payload_at],
        lifetime_milliseconds=None if lifetime == NEVER else lifetime,
    )


def reduce_lifetime(content: bytes, milliseconds: int) -> bytes:
    """Return an encoded event with its lifetime reduced by ``milliseconds``, if it has one."""
    (lifetime,) = _LIFETIME.unpack_from(content, _LIFETIME_AT)
    if lifetime == NEVER:
        return content
    left = _LIFETIME.pack(max(0, lifetime - milliseconds))
    return content[:_LIFETIME_AT] + left + content[_LIFETIME_AT + _LIFETIME.size :]


def check_publishable(event: Event) -> None:
    """Raise MalformedFrame if the journal or a broker does not accept this event.

    A broker ends the session because of an invalid packet. The event would be published again at
    each reconnection, so the session would never be up.
    """
    if max(*event.id, event.stamp) > MAX_NUMBER:
        raise MalformedFrame(f"an event of {event.origin} has a number of more than 63 bits")
    topic = event.topic
    if not _is_topic(topic):
        raise MalformedFrame(f"an event of {event.origin} has the topic {topic[:100]!r}")
    if not event.properties:
        return
    at, seen = 0, set[int]()
    try:
        while at < len(event.properties):
            identifier, start = event.properties[at], at + 1
            at = property_end(event.properties, at)
            is_repeated = identifier in seen and identifier != PropertyId.USER_PROPERTY
            seen.add(identifier)
            _check_property(
                identifier,
                event.properties[start:at],
                is_allowed=at <= len(event.properties) and not is_repeated,
            )
    except (MalformedPacket, IndexError) as error:
        raise MalformedFrame(
            f"an event of {event.origin} has properties that are not valid: {error}"
        ) from error


def _check_property(identifier: int, content: bytes, *, is_allowed: bool) -> None:
    if identifier == PropertyId.USER_PROPERTY:
        middle = 2 + int.from_bytes(content[:2], "big")
        is_valid = _is_text(content[2:middle]) and _is_text(content[middle + 2 :])
    elif identifier == _PAYLOAD_FORMAT:
        is_valid = content in (b"\x00", b"\x01")
    elif identifier == _CONTENT_TYPE:
        is_valid = _is_text(content[2:])
    elif identifier == _RESPONSE_TOPIC:
        is_valid = _is_text(content[2:]) and b"+" not in content[2:] and b"#" not in content[2:]
    else:
        is_valid = identifier == _CORRELATION_DATA
    if not is_valid or not is_allowed:
        raise MalformedPacket(f"property 0x{identifier:02x}")


@lru_cache(maxsize=16_384)
def _is_topic(name: bytes) -> bool:
    """Return whether a client may publish on a topic."""
    return b"+" not in name and b"#" not in name and _is_text(name)


def _is_text(content: bytes) -> bool:
    """Return whether MQTT accepts these bytes as a string (§1.5.4)."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def read_publication(packet: bytes, *, level: int) -> Publication:
    """Return the content of a PUBLISH packet with its properties as bytes."""
    at = 2 if packet[1] < 0x80 else variable_header_start(packet)
    qos = packet[0] >> 1 & 0b11
    end = at + 2 + int.from_bytes(packet[at : at + 2], "big")
    topic, packet_id = packet[at + 2 : end], 0
    if qos:
        packet_id = int.from_bytes(packet[end : end + 2], "big")
        end += 2
    properties, expiry = b"", None
    subscriptions: tuple[int, ...] = ()
    if level == MQTT_5:
        length, start = read_variable_integer(packet, end)
        end = start + length
        if length:
            section = packet[start:end]
            read = _read_short_section if length <= _MAX_CACHED_SECTION else _read_section
            properties, expiry, subscriptions = read(section)
    if end > len(packet):
        raise MalformedPacket("a PUBLISH packet is too short")
    return Publication(
        topic=topic,
        payload=packet[end:],
        qos=qos,
        retain=bool(packet[0] & 1),
        duplicate=bool(packet[0] & 8),
        packet_id=packet_id,
        properties=properties,
        expiry_seconds=expiry,
        subscriptions=subscriptions,
    )


def _read_section(section: bytes) -> tuple[bytes, int | None, tuple[int, ...]]:
    """Return the properties to pass on, the expiry interval and the subscription identifiers."""
    at, end = 0, len(section)
    passed: list[bytes] = []
    expiry: int | None = None
    subscriptions: list[int] = []
    while at < end:
        identifier, start = section[at], at
        at = property_end(section, at)
        if at > end:
            raise MalformedPacket("a property is longer than the property section")
        if identifier == PropertyId.MESSAGE_EXPIRY:
            expiry = int.from_bytes(section[start + 1 : at], "big")
        elif identifier == PropertyId.SUBSCRIPTION_IDENTIFIER:
            subscriptions.append(read_variable_integer(section, start + 1)[0])
        elif identifier not in _NOT_FORWARDED:
            passed.append(section[start:at])
    return b"".join(passed), expiry, tuple(subscriptions)


_read_short_section = lru_cache(maxsize=4096)(_read_section)
"""Most events of a filter have the same section: its subscription identifier."""


def encode_publication(publication: Publication, *, level: int) -> bytes:
    """Return the PUBLISH packet of a publication; MQTT 3.1.1 has no properties."""
    return _encode_publish(
        publication, publication.packet_id, publication.expiry_seconds, publication.duplicate, level
    )


def encode_event_as_publish(event: Event, packet_id: int, level: int) -> bytes:
    """Return the PUBLISH packet of an event; its lifetime is rounded up to seconds."""
    lifetime = event.lifetime_milliseconds
    expiry_seconds = None if lifetime is None else max(1, -(-lifetime // 1000))
    return _encode_publish(event, packet_id, expiry_seconds, False, level)


def _encode_publish(
    message: Publication | Event,
    packet_id: int,
    expiry_seconds: int | None,
    duplicate: bool,
    level: int,
) -> bytes:
    body = [len(message.topic).to_bytes(2, "big"), message.topic]
    if message.qos:
        body.append(packet_id.to_bytes(2, "big"))
    if level == MQTT_5:
        properties = message.properties
        if expiry_seconds is not None:
            expiry = bytes((PropertyId.MESSAGE_EXPIRY,)) + expiry_seconds.to_bytes(4, "big")
            properties = expiry + properties
        if properties:
            body += [encode_variable_integer(len(properties)), properties]
        else:
            body.append(b"\x00")
    body.append(message.payload)
    flags = message.qos << 1 | message.retain | duplicate << 3
    return encode_packet(PacketType.PUBLISH, flags, b"".join(body))
