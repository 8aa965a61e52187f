"""The packets of an MQTT session, encoded and decoded at protocol level 4 (3.1.1) or 5.

Used for sessions with a broker that choose their own packet identifiers.
"""

from dataclasses import dataclass

from firedex.transport.mqtt.encoding import (
    MAX_PACKET_BYTES,
    MalformedPacket,
    PacketType,
    PropertyId,
    encode_packet,
    encode_text,
    encode_variable_integer,
    read_properties,
    variable_header_start,
)
from firedex.transport.mqtt.version import MQTT_5

__all__ = [
    "DISCONNECT",
    "PINGREQ",
    "Connack",
    "PublishPacket",
    "Will",
    "encode_acknowledgement",
    "encode_connect",
    "encode_publish",
    "encode_subscribe",
    "encode_unsubscribe",
    "read_acknowledgement",
    "read_connack",
    "read_publish",
    "read_suback",
]

PINGREQ = bytes((PacketType.PINGREQ << 4, 0))
DISCONNECT = bytes((PacketType.DISCONNECT << 4, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """The message that the broker publishes if the client disappears."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPacket:
    """The content of a PUBLISH packet; ``packet_id`` is 0 at QoS 0.

    ``subscriptions`` are the subscription identifiers; `encode_publish` does not write them.
    """

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    user_properties: tuple[tuple[bytes, bytes], ...] = ()
    subscriptions: tuple[int, ...] = ()


def encode_connect(
    client_id: str,
    *,
    level: int,
    clean_start: bool = True,
    keep_alive_seconds: int,
    will: Will | None = None,
    session_expiry_seconds: int = 0,
    receive_maximum: int = 65_535,
) -> bytes:
    """Return a CONNECT packet; session expiry and receive maximum exist at level 5 only."""
    flags = 0x02 if clean_start else 0
    payload = encode_text(client_id.encode())
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += b"\x00" if level == MQTT_5 else b""
        payload += encode_text(will.topic) + encode_text(will.payload)
    head = b"\x00\x04MQTT" + bytes((level, flags)) + keep_alive_seconds.to_bytes(2, "big")
    if level == MQTT_5:
        properties = bytes((PropertyId.SESSION_EXPIRY,))
        properties += session_expiry_seconds.to_bytes(4, "big")
        properties += bytes((PropertyId.RECEIVE_MAXIMUM,)) + receive_maximum.to_bytes(2, "big")
        head += encode_variable_integer(len(properties)) + properties
    return encode_packet(PacketType.CONNECT, 0, head + payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connack:
    """The content of a CONNACK: the return code (level 4) or reason code (level 5); 0 is success.

    ``receive_maximum`` is the number of QoS 1 and 2 packets that the broker accepts at once, and
    ``maximum_packet_bytes`` the size of the largest packet that it accepts.
    """

    code: int
    session_present: bool = False
    receive_maximum: int = 65_535
    maximum_packet_bytes: int = MAX_PACKET_BYTES


def read_connack(packet: bytes, *, level: int) -> Connack:
    """Return the content of a CONNACK."""
    at = variable_header_start(packet)
    if len(packet) < at + 2:
        raise MalformedPacket("a CONNACK is too short")
    receive_maximum, maximum_packet_bytes = 65_535, MAX_PACKET_BYTES
    if level == MQTT_5 and len(packet) > at + 2:
        numbers = read_properties(packet, at + 2).numbers
        receive_maximum = numbers.get(PropertyId.RECEIVE_MAXIMUM, receive_maximum)
        maximum_packet_bytes = numbers.get(PropertyId.MAXIMUM_PACKET_SIZE, maximum_packet_bytes)
    return Connack(
        code=packet[at + 1],
        session_present=bool(packet[at] & 1),
        receive_maximum=receive_maximum,
        maximum_packet_bytes=maximum_packet_bytes,
    )


def encode_subscribe(
    packet_id: int, topic_filter: bytes, options: int, *, level: int, identifier: int | None = None
) -> bytes:
    """Return a SUBSCRIBE packet for one topic filter.

    ``options`` are the QoS and, at level 5, the other subscription options (§3.8.3.1);
    ``identifier`` is the subscription identifier of level 5.
    """
    properties = b""
    if level == MQTT_5:
        if identifier is not None:
            number = encode_variable_integer(identifier)
            properties = bytes((PropertyId.SUBSCRIPTION_IDENTIFIER,)) + number
        properties = encode_variable_integer(len(properties)) + properties
    body = packet_id.to_bytes(2, "big") + properties
    body += encode_text(topic_filter) + bytes((options,))
    return encode_packet(PacketType.SUBSCRIBE, 0b0010, body)


def encode_unsubscribe(packet_id: int, topic_filter: bytes, *, level: int) -> bytes:
    """Return an UNSUBSCRIBE packet for one topic filter."""
    body = packet_id.to_bytes(2, "big") + (b"\x00" if level == MQTT_5 else b"")
    return encode_packet(PacketType.UNSUBSCRIBE, 0b0010, body + encode_text(topic_filter))


def encode_publish(message: PublishPacket, *, level: int) -> bytes:
    """Return a PUBLISH packet; user properties exist at level 5 only."""
    body = encode_text(message.topic)
    if message.qos:
        body += message.packet_id.to_bytes(2, "big")
    if level == MQTT_5:
        properties = b"".join(
            bytes((PropertyId.USER_PROPERTY,)) + encode_text(key) + encode_text(value)
            for key, value in message.user_properties
        )
        body += encode_variable_integer(len(properties)) + properties
    flags = message.qos << 1 | message.retain | message.dup << 3
    return encode_packet(PacketType.PUBLISH, flags, body + message.payload)


def encode_acknowledgement(packet_type: PacketType, packet_id: int) -> bytes:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP packet that reports success."""
    flags = 0b0010 if packet_type == PacketType.PUBREL else 0
    return encode_packet(packet_type, flags, packet_id.to_bytes(2, "big"))


def read_acknowledgement(packet: bytes) -> tuple[int, int]:
    """Return the packet identifier and the reason code (0 if absent) of an acknowledgement."""
    at = variable_header_start(packet)
    if len(packet) < at + 2:
        raise MalformedPacket("an acknowledgement has no packet identifier")
    packet_id = int.from_bytes(packet[at : at + 2], "big")
    return packet_id, packet[at + 2] if len(packet) > at + 2 else 0


def read_suback(packet: bytes, *, level: int) -> tuple[int, int]:
    """Return the packet identifier and the reason code of the first filter of a SUBACK.

    An UNSUBACK of level 5 has the same format.
    """
    packet_id, _ = read_acknowledgement(packet)
    at = variable_header_start(packet) + 2
    if level == MQTT_5:
        at = read_properties(packet, at).end
    return packet_id, packet[at] if len(packet) > at else 0


def read_publish(packet: bytes, *, level: int) -> PublishPacket:
    """Return the content of a PUBLISH packet."""
    at = 2 if packet[1] < 0x80 else variable_header_start(packet)
    qos = packet[0] >> 1 & 0b11
    end = at + 2 + int.from_bytes(packet[at : at + 2], "big")
    topic, packet_id = packet[at + 2 : end], 0
    if qos:
        packet_id = int.from_bytes(packet[end : end + 2], "big")
        end += 2
    user: tuple[tuple[bytes, bytes], ...] = ()
    subscriptions: tuple[int, ...] = ()
    if level == MQTT_5:
        if packet[end : end + 1] == b"\x00":
            end += 1
        else:
            properties = read_properties(packet, end)
            user, end = properties.user, properties.end
            subscriptions = properties.subscriptions
    if end > len(packet):
        raise MalformedPacket("a PUBLISH packet is too short")
    return PublishPacket(
        topic=topic,
        payload=packet[end:],
        qos=qos,
        retain=bool(packet[0] & 1),
        dup=bool(packet[0] & 8),
        packet_id=packet_id,
        user_properties=user,
        subscriptions=subscriptions,
    )
