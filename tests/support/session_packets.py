"""MQTT packets of both sides of a session, for tests that have neither client nor broker."""

from collections.abc import Iterable

from firedex.transport.mqtt.encoding import (
    PacketType,
    PropertyId,
    encode_packet,
    encode_text,
    encode_variable_integer,
)

__all__ = ["connack", "connect", "disconnect", "suback", "subscribe", "unsuback", "unsubscribe"]


def _properties(level: int, content: bytes = b"") -> bytes:
    return encode_variable_integer(len(content)) + content if level == 5 else b""


def _expiry(seconds: int | None) -> bytes:
    if seconds is None:
        return b""
    return bytes((PropertyId.SESSION_EXPIRY,)) + seconds.to_bytes(4, "big")


def connect(
    client_id: str, *, level: int = 5, clean: bool = True, expiry: int | None = None
) -> bytes:
    name = b"\x00\x06MQIsdp" if level == 3 else b"\x00\x04MQTT"
    head = name + bytes((level, 0x02 if clean else 0)) + b"\x00\x3c"
    body = head + _properties(level, _expiry(expiry)) + encode_text(client_id.encode())
    return encode_packet(PacketType.CONNECT, 0, body)


def connack(
    *,
    level: int = 5,
    present: bool = False,
    code: int = 0,
    expiry: int | None = None,
    assigned: str | None = None,
) -> bytes:
    properties = _expiry(expiry)
    if assigned is not None:
        properties += bytes((PropertyId.ASSIGNED_CLIENT_ID,)) + encode_text(assigned.encode())
    body = bytes((present, code)) + _properties(level, properties)
    return encode_packet(PacketType.CONNACK, 0, body)


def subscribe(packet_id: int, filters: Iterable[tuple[str, int]], *, level: int = 5) -> bytes:
    body = packet_id.to_bytes(2, "big") + _properties(level)
    body += b"".join(encode_text(name.encode()) + bytes((qos,)) for name, qos in filters)
    return encode_packet(PacketType.SUBSCRIBE, 2, body)


def suback(packet_id: int, codes: Iterable[int], *, level: int = 5) -> bytes:
    body = packet_id.to_bytes(2, "big") + _properties(level) + bytes(codes)
    return encode_packet(PacketType.SUBACK, 0, body)


def unsubscribe(packet_id: int, filters: Iterable[str], *, level: int = 5) -> bytes:
    body = packet_id.to_bytes(2, "big") + _properties(level)
    body += b"".join(encode_text(name.encode()) for name in filters)
    return encode_packet(PacketType.UNSUBSCRIBE, 2, body)


def unsuback(packet_id: int, codes: Iterable[int], *, level: int = 5) -> bytes:
    body = packet_id.to_bytes(2, "big") + _properties(level)
    return encode_packet(PacketType.UNSUBACK, 0, body + (bytes(codes) if level == 5 else b""))


def disconnect(*, level: int = 5, expiry: int | None = None) -> bytes:
    body = b"" if level != 5 or expiry is None else b"\x00" + _properties(level, _expiry(expiry))
    return encode_packet(PacketType.DISCONNECT, 0, body)
