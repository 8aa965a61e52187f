"""MQTT-SN 1.2 messages to bytes and back (§5.2-5.4). What cannot be read is a MalformedMessage."""

import struct
from collections.abc import Callable
from typing import Any

from firedex.mqtt_sn import messages as m
from firedex.mqtt_sn.errors import MalformedMessage

__all__ = ["decode", "encode", "encode_publish"]

DUP, RETAIN, WILL, CLEAN = 0x80, 0x10, 0x08, 0x04
QOS_BITS = {0: 0x00, 1: 0x20, 2: 0x40, -1: 0x60}
QOS_OF = {bits: qos for qos, bits in QOS_BITS.items()}
KIND_BITS, RESERVED_KIND = 0x03, 3
PROTOCOL_ID = 0x01
LONGEST = 0xFFFF
_H = struct.Struct(">H")
_HH = struct.Struct(">HH")
_HHB = struct.Struct(">HHB")
_BHH = struct.Struct(">BHH")
_BHHB = struct.Struct(">BHHB")
PUBLISH = 0x0C


def encode_publish(flags: int, topic_id: int, message_id: int, payload: bytes) -> bytes:
    """A PUBLISH, of the flags as they are on the wire."""
    return _framed(PUBLISH, _BHH.pack(flags, topic_id, message_id) + payload)


def _framed(kind: int, body: bytes) -> bytes:
    size = len(body) + 2
    if size < 256:
        return bytes((size, kind)) + body
    size += 2
    if size > LONGEST:
        raise ValueError(f"a message of {size} bytes; MQTT-SN has at most {LONGEST}")
    return b"\x01" + _H.pack(size) + bytes((kind,)) + body


def _event_flags(qos: int, retain: bool, dup: bool, kind: int) -> int:
    return QOS_BITS[qos] | (RETAIN if retain else 0) | (DUP if dup else 0) | kind


def _topic_or_id(message: m.Subscribe | m.Unsubscribe) -> bytes:
    if message.kind == m.TopicKind.PREDEFINED:
        return _H.pack(message.topic_id)
    return message.topic.encode()


def _encode_connect(v: m.Connect) -> bytes:
    flags = (WILL if v.will else 0) | (CLEAN if v.clean_session else 0)
    return bytes((flags, PROTOCOL_ID)) + _H.pack(v.duration_seconds) + v.client_id.encode()


def _encode_will(v: m.WillTopic | m.WillTopicUpd) -> bytes:
    if not v.topic:
        return b""
    return bytes((_event_flags(v.qos, v.retain, False, 0),)) + v.topic.encode()


_ENCODERS: dict[type[Any], tuple[int, Callable[[Any], bytes]]] = {
    m.Advertise: (0x00, lambda v: bytes((v.gateway_id,)) + _H.pack(v.duration_seconds)),
    m.SearchGw: (0x01, lambda v: bytes((v.radius,))),
    m.GwInfo: (0x02, lambda v: bytes((v.gateway_id,)) + v.address),
    m.Connect: (0x04, _encode_connect),
    m.Connack: (0x05, lambda v: bytes((v.return_code,))),
    m.WillTopicReq: (0x06, lambda _: b""),
    m.WillTopic: (0x07, _encode_will),
    m.WillMsgReq: (0x08, lambda _: b""),
    m.WillMsg: (0x09, lambda v: v.payload),
    m.Register: (0x0A, lambda v: _HH.pack(v.topic_id, v.message_id) + v.topic.encode()),
    m.Regack: (0x0B, lambda v: _HHB.pack(v.topic_id, v.message_id, v.return_code)),
    m.Publish: (
        PUBLISH,
        lambda v: (
            _BHH.pack(_event_flags(v.qos, v.retain, v.dup, v.kind), v.topic_id, v.message_id)
            + v.payload
        ),
    ),
    m.Puback: (0x0D, lambda v: _HHB.pack(v.topic_id, v.message_id, v.return_code)),
    m.Pubcomp: (0x0E, lambda v: _H.pack(v.message_id)),
    m.Pubrec: (0x0F, lambda v: _H.pack(v.message_id)),
    m.Pubrel: (0x10, lambda v: _H.pack(v.message_id)),
    m.Subscribe: (
        0x12,
        lambda v: (
            bytes((_event_flags(v.qos, False, v.dup, v.kind),))
            + _H.pack(v.message_id)
            + _topic_or_id(v)
        ),
    ),
    m.Suback: (
        0x13,
        lambda v: _BHHB.pack(QOS_BITS[v.qos], v.topic_id, v.message_id, v.return_code),
    ),
    m.Unsubscribe: (
        0x14,
        lambda v: bytes((int(v.kind),)) + _H.pack(v.message_id) + _topic_or_id(v),
    ),
    m.Unsuback: (0x15, lambda v: _H.pack(v.message_id)),
    m.PingReq: (0x16, lambda v: v.client_id.encode()),
    m.PingResp: (0x17, lambda _: b""),
    m.Disconnect: (
        0x18,
        lambda v: b"" if v.duration_seconds is None else _H.pack(v.duration_seconds),
    ),
    m.WillTopicUpd: (0x1A, _encode_will),
    m.WillTopicResp: (0x1B, lambda v: bytes((v.return_code,))),
    m.WillMsgUpd: (0x1C, lambda v: v.payload),
    m.WillMsgResp: (0x1D, lambda v: bytes((v.return_code,))),
}


def encode(message: m.Message) -> bytes:
    """A message as a datagram."""
    kind, body = _ENCODERS[type(message)]
    return _framed(kind, body(message))


# -- back ------------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a name that is not UTF-8: {error}") from error


def _kind(flags: int) -> m.TopicKind:
    if flags & KIND_BITS == RESERVED_KIND:
        raise MalformedMessage("a reserved kind of topic id")
    return m.TopicKind(flags & KIND_BITS)


def _qos(flags: int) -> int:
    return QOS_OF[flags & 0x60]


def _connect(b: bytes) -> m.Connect:
    if b[1] != PROTOCOL_ID:
        raise MalformedMessage(f"protocol id {b[1]}, and MQTT-SN 1.2 has 1")
    return m.Connect(
        client_id=_text(b[4:]),
        duration_seconds=_H.unpack_from(b, 2)[0],
        clean_session=bool(b[0] & CLEAN),
        will=bool(b[0] & WILL),
    )


def _will(of: type[Any]) -> Callable[[bytes], Any]:
    def read(b: bytes) -> Any:
        if not b:
            return of()
        return of(topic=_text(b[1:]), qos=max(_qos(b[0]), 0), retain=bool(b[0] & RETAIN))

    return read


def _register(b: bytes) -> m.Register:
    topic_id, message_id = _HH.unpack_from(b)
    return m.Register(topic_id=topic_id, message_id=message_id, topic=_text(b[4:]))


def _with_code(of: type[Any]) -> Callable[[bytes], Any]:
    def read(b: bytes) -> Any:
        topic_id, message_id, code = _HHB.unpack(b)
        return of(topic_id=topic_id, message_id=message_id, return_code=code)

    return read


def _publish(b: bytes) -> m.Publish:
    flags, topic_id, message_id = _BHH.unpack_from(b)
    return m.Publish(
        topic_id=topic_id,
        payload=b[5:],
        kind=_kind(flags),
        message_id=message_id,
        qos=_qos(flags),
        retain=bool(flags & RETAIN),
        dup=bool(flags & DUP),
    )


def _subscription(b: bytes) -> dict[str, Any]:
    kind = _kind(b[0])
    found: dict[str, Any] = {"message_id": _H.unpack_from(b, 1)[0], "kind": kind}
    if kind == m.TopicKind.PREDEFINED:
        found["topic_id"] = _H.unpack(b[3:])[0]
    else:
        found["topic"] = _text(b[3:])
    return found


def _subscribe(b: bytes) -> m.Subscribe:
    return m.Subscribe(qos=max(_qos(b[0]), 0), dup=bool(b[0] & DUP), **_subscription(b))


def _suback(b: bytes) -> m.Suback:
    flags, topic_id, message_id, code = _BHHB.unpack(b)
    return m.Suback(
        topic_id=topic_id, message_id=message_id, return_code=code, qos=max(_qos(flags), 0)
    )


def _only_id(of: type[Any]) -> Callable[[bytes], Any]:
    return lambda b: of(message_id=_H.unpack(b)[0])


def _only_code(of: type[Any]) -> Callable[[bytes], Any]:
    return lambda b: of(return_code=struct.unpack("B", b)[0])


def _nothing(of: type[Any]) -> Callable[[bytes], Any]:
    def read(b: bytes) -> Any:
        if b:
            raise MalformedMessage("more bytes than the message has")
        return of()

    return read


def _disconnect(b: bytes) -> m.Disconnect:
    return m.Disconnect(duration_seconds=_H.unpack(b)[0] if b else None)


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    0x00: lambda b: m.Advertise(gateway_id=b[0], duration_seconds=_H.unpack(b[1:])[0]),
    0x01: lambda b: m.SearchGw(radius=struct.unpack("B", b)[0]),
    0x02: lambda b: m.GwInfo(gateway_id=b[0], address=b[1:]),
    0x04: _connect,
    0x05: _only_code(m.Connack),
    0x06: _nothing(m.WillTopicReq),
    0x07: _will(m.WillTopic),
    0x08: _nothing(m.WillMsgReq),
    0x09: lambda b: m.WillMsg(payload=b),
    0x0A: _register,
    0x0B: _with_code(m.Regack),
    PUBLISH: _publish,
    0x0D: _with_code(m.Puback),
    0x0E: _only_id(m.Pubcomp),
    0x0F: _only_id(m.Pubrec),
    0x10: _only_id(m.Pubrel),
    0x12: _subscribe,
    0x13: _suback,
    0x14: lambda b: m.Unsubscribe(**_subscription(b)),
    0x15: _only_id(m.Unsuback),
    0x16: lambda b: m.PingReq(client_id=_text(b)),
    0x17: _nothing(m.PingResp),
    0x18: _disconnect,
    0x1A: _will(m.WillTopicUpd),
    0x1B: _only_code(m.WillTopicResp),
    0x1C: lambda b: m.WillMsgUpd(payload=b),
    0x1D: _only_code(m.WillMsgResp),
}


def decode(datagram: bytes) -> m.Message:
    """A datagram as a message."""
    if len(datagram) < 2:
        raise MalformedMessage("fewer than two bytes")
    if datagram[0] == 1:
        if len(datagram) < 4:
            raise MalformedMessage("a long message without its length")
        size, at = _H.unpack_from(datagram, 1)[0], 3
    else:
        size, at = datagram[0], 1
    if size != len(datagram):
        raise MalformedMessage(f"{len(datagram)} bytes that say they are {size}")
    kind = datagram[at]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MalformedMessage(f"unknown message type 0x{kind:02x}")
    try:
        message: m.Message = decoder(datagram[at + 1 :])
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"a message of type 0x{kind:02x} cut short or too long") from error
    return message
