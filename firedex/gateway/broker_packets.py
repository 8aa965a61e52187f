"""The MQTT packets that the gateway itself sends and reads for MQTT-SN clients. Pure.

Level 4 is MQTT 3.1.1, level 5 is MQTT 5.
"""

from dataclasses import dataclass

from firedex.gateway.errors import MalformedPacket
from firedex.gateway.mqtt_packets import PacketKind, body_start, encoded_length, packet
from firedex.gateway.mqtt_properties import PropertyId, read_properties
from firedex.mqtt_level_choice import MQTT_5

__all__ = [
    "BrokerEvent",
    "Will",
    "acknowledge",
    "connect",
    "message_id_of",
    "publish",
    "read_connack",
    "read_publish",
    "read_suback",
    "subscribe",
    "unsubscribe",
]

RECEIVE_MAXIMUM = 0x21
RECEIVE_AT_ONCE = 32
"""Unacknowledged events that the broker may have under way to one MQTT-SN client."""
SESSION_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What the broker publishes when the client is lost."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEvent:
    """A PUBLISH from the broker."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    message_id: int
    user_properties: tuple[tuple[bytes, bytes], ...] = ()


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def connect(
    client_id: str, *, level: int, clean: bool, keep_alive_seconds: int, will: Will | None
) -> bytes:
    """CONNECT."""
    flags = 0x02 if clean else 0
    payload = _text(client_id.encode())
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += b"\x00" if level == MQTT_5 else b""
        payload += _text(will.topic) + _text(will.payload)
    head = b"\x00\x04MQTT" + bytes((level, flags)) + keep_alive_seconds.to_bytes(2, "big")
    if level == MQTT_5:
        expiry = 0 if clean else SESSION_SECONDS
        properties = bytes((PropertyId.SESSION_EXPIRY,)) + expiry.to_bytes(4, "big")
        properties += bytes((RECEIVE_MAXIMUM,)) + RECEIVE_AT_ONCE.to_bytes(2, "big")
        head += encoded_length(len(properties)) + properties
    return packet(PacketKind.CONNECT, 0, head + payload)


def read_connack(found: bytes) -> int:
    """The return or reason code; 0 is yes."""
    at = body_start(found)
    if len(found) < at + 2:
        raise MalformedPacket("a CONNACK cut short")
    return found[at + 1]


def subscribe(message_id: int, name: bytes, qos: int, *, level: int) -> bytes:
    """SUBSCRIBE to one filter."""
    body = message_id.to_bytes(2, "big") + (b"\x00" if level == MQTT_5 else b"")
    return packet(PacketKind.SUBSCRIBE, 0b0010, body + _text(name) + bytes((qos,)))


def unsubscribe(message_id: int, name: bytes, *, level: int) -> bytes:
    """UNSUBSCRIBE from one filter."""
    body = message_id.to_bytes(2, "big") + (b"\x00" if level == MQTT_5 else b"")
    return packet(PacketKind.UNSUBSCRIBE, 0b0010, body + _text(name))


def publish(event: BrokerEvent, *, level: int) -> bytes:
    """PUBLISH."""
    body = _text(event.topic)
    if event.qos:
        body += event.message_id.to_bytes(2, "big")
    if level == MQTT_5:
        properties = b"".join(
            bytes((PropertyId.USER_PROPERTY,)) + _text(key) + _text(value)
            for key, value in event.user_properties
        )
        body += encoded_length(len(properties)) + properties
    flags = event.qos << 1 | event.retain | event.dup << 3
    return packet(PacketKind.PUBLISH, flags, body + event.payload)


def acknowledge(kind: PacketKind, message_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as a success."""
    flags = 0b0010 if kind == PacketKind.PUBREL else 0
    return packet(kind, flags, message_id.to_bytes(2, "big"))


def message_id_of(found: bytes) -> tuple[int, int]:
    """Message id and reason (0 where there is none) of an acknowledgement."""
    at = body_start(found)
    if len(found) < at + 2:
        raise MalformedPacket("an acknowledgement without its id")
    return int.from_bytes(found[at : at + 2], "big"), found[at + 2] if len(found) > at + 2 else 0


def read_suback(found: bytes, *, level: int) -> tuple[int, int]:
    """Message id and the code of the one filter, of a SUBACK or (MQTT 5) an UNSUBACK."""
    message_id, _ = message_id_of(found)
    at = body_start(found) + 2
    if level == MQTT_5:
        at = read_properties(found, at).end
    return message_id, found[at] if len(found) > at else 0


def read_publish(found: bytes, *, level: int) -> BrokerEvent:
    """An event from the broker."""
    at = 2 if found[1] < 0x80 else body_start(found)
    qos = found[0] >> 1 & 0b11
    end = at + 2 + int.from_bytes(found[at : at + 2], "big")
    topic, message_id = found[at + 2 : end], 0
    if qos:
        message_id = int.from_bytes(found[end : end + 2], "big")
        end += 2
    user: tuple[tuple[bytes, bytes], ...] = ()
    if level == MQTT_5:
        if found[end : end + 1] == b"\x00":
            end += 1
        else:
            properties = read_properties(found, end)
            user, end = properties.user, properties.end
    if end > len(found):
        raise MalformedPacket("a PUBLISH cut short")
    return BrokerEvent(
        topic=topic,
        payload=found[end:],
        qos=qos,
        retain=bool(found[0] & 1),
        dup=bool(found[0] & 8),
        message_id=message_id,
        user_properties=user,
    )
