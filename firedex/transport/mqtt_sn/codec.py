"""Encoding and decoding of MQTT-SN 1.2 messages (§5.2 to §5.4)."""

import struct
from collections.abc import Callable
from typing import Any

from firedex.transport.mqtt_sn import messages as m
from firedex.transport.mqtt_sn.messages import MalformedMessage

__all__ = ["decode", "encode", "encode_publish"]

DUP, RETAIN, WILL, CLEAN = 0x80, 0x10, 0x08, 0x04
QOS_BITS = {0: 0x00, 1: 0x20, 2: 0x40, -1: 0x60}
QOS_BY_BITS = {bits: qos for qos, bits in QOS_BITS.items()}
KIND_BITS, RESERVED_KIND = 0x03, 3
PROTOCOL_ID = 0x01
MAX_MESSAGE_BYTES = 0xFFFF
_H = struct.Struct(">H")
_HH = struct.Struct(">HH")
_HHB = struct.Struct(">HHB")
_BHH = struct.Struct(">BHH")
_BHHB = struct.Struct(">BHHB")
PUBLISH = 0x0C


def encode_publish(flags: int, topic_id: int, message_id: int, payload: bytes) -> bytes:
    """Return a PUBLISH message with the given flags byte; faster than `encode`."""
    return _add_header(PUBLISH, _BHH.pack(flags, topic_id, message_id) + payload)


def _add_header(kind: int, body: bytes) -> bytes:
    size = len(body) + 2
    if size < 256:
        return bytes((size, kind)) + body
    size += 2
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {size} bytes exceeds the maximum of {MAX_MESSAGE_BYTES}")
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
    """Return a message as a datagram."""
    kind, body = _ENCODERS[type(message)]
    return _add_header(kind, body(message))


# -- decoding --------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a name is not UTF-8: {error}") from error


def _kind(flags: int) -> m.TopicKind:
    if flags & KIND_BITS == RESERVED_KIND:
        raise MalformedMessage("the topic id type is reserved")
    return m.TopicKind(flags & KIND_BITS)


def _qos(flags: int) -> int:
    return QOS_BY_BITS[flags & 0x60]


def _connect(b: bytes) -> m.Connect:
    if b[1] != PROTOCOL_ID:
        raise MalformedMessage(f"protocol id {b[1]} is not 1 (MQTT-SN 1.2)")
    return m.Connect(
        client_id=_text(b[4:]),
        duration_seconds=_H.unpack_from(b, 2)[0],
        clean_session=bool(b[0] & CLEAN),
        will=bool(b[0] & WILL),
    )


def _will_decoder(message_type: type[Any]) -> Callable[[bytes], Any]:
    def read(b: bytes) -> Any:
        if not b:
            return message_type()
        return message_type(topic=_text(b[1:]), qos=max(_qos(b[0]), 0), retain=bool(b[0] & RETAIN))

    return read


def _register(b: bytes) -> m.Register:
    topic_id, message_id = _HH.unpack_from(b)
    return m.Register(topic_id=topic_id, message_id=message_id, topic=_text(b[4:]))


def _ids_and_code_decoder(message_type: type[Any]) -> Callable[[bytes], Any]:
    def read(b: bytes) -> Any:
        topic_id, message_id, code = _HHB.unpack(b)
        return message_type(topic_id=topic_id, message_id=message_id, return_code=code)

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
    fields: dict[str, Any] = {"message_id": _H.unpack_from(b, 1)[0], "kind": kind}
    if kind == m.TopicKind.PREDEFINED:
        fields["topic_id"] = _H.unpack(b[3:])[0]
    else:
        fields["topic"] = _text(b[3:])
    return fields


def _subscribe(b: bytes) -> m.Subscribe:
    return m.Subscribe(qos=max(_qos(b[0]), 0), dup=bool(b[0] & DUP), **_subscription(b))


def _suback(b: bytes) -> m.Suback:
    flags, topic_id, message_id, code = _BHHB.unpack(b)
    return m.Suback(
        topic_id=topic_id, message_id=message_id, return_code=code, qos=max(_qos(flags), 0)
    )


def _message_id_decoder(message_type: type[Any]) -> Callable[[bytes], Any]:
    return lambda b: message_type(message_id=_H.unpack(b)[0])


def _return_code_decoder(message_type: type[Any]) -> Callable[[bytes], Any]:
    return lambda b: message_type(return_code=struct.unpack("B", b)[0])


def _empty_decoder(message_type: type[Any]) -> Callable[[bytes], Any]:
    def read(b: bytes) -> Any:
        if b:
            raise MalformedMessage("the message is too long")
        return message_type()

    return read


def _disconnect(b: bytes) -> m.Disconnect:
    return m.Disconnect(duration_seconds=_H.unpack(b)[0] if b else None)


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    0x00: lambda b: m.Advertise(gateway_id=b[0], duration_seconds=_H.unpack(b[1:])[0]),
    0x01: lambda b: m.SearchGw(radius=struct.unpack("B", b)[0]),
    0x02: lambda b: m.GwInfo(gateway_id=b[0], address=b[1:]),
    0x04: _connect,
    0x05: _return_code_decoder(m.Connack),
    0x06: _empty_decoder(m.WillTopicReq),
    0x07: _will_decoder(m.WillTopic),
    0x08: _empty_decoder(m.WillMsgReq),
    0x09: lambda b: m.WillMsg(payload=b),
    0x0A: _register,
    0x0B: _ids_and_code_decoder(m.Regack),
    PUBLISH: _publish,
    0x0D: _ids_and_code_decoder(m.Puback),
    0x0E: _message_id_decoder(m.Pubcomp),
    0x0F: _message_id_decoder(m.Pubrec),
    0x10: _message_id_decoder(m.Pubrel),
    0x12: _subscribe,
    0x13: _suback,
    0x14: lambda b: m.Unsubscribe(**_subscription(b)),
    0x15: _message_id_decoder(m.Unsuback),
    0x16: lambda b: m.PingReq(client_id=_text(b)),
    0x17: _empty_decoder(m.PingResp),
    0x18: _disconnect,
    0x1A: _will_decoder(m.WillTopicUpd),
    0x1B: _return_code_decoder(m.WillTopicResp),
    0x1C: lambda b: m.WillMsgUpd(payload=b),
    0x1D: _return_code_decoder(m.WillMsgResp),
}


def decode(datagram: bytes) -> m.Message:
    """Return the message in a datagram; raise `MalformedMessage` if it is not valid."""
    if len(datagram) < 2:
        raise MalformedMessage("the datagram has less than two bytes")
    if datagram[0] == 1:
        if len(datagram) < 4:
            raise MalformedMessage("the datagram ends within its length field")
        size, at = _H.unpack_from(datagram, 1)[0], 3
    else:
        size, at = datagram[0], 1
    if size != len(datagram):
        raise MalformedMessage(f"the length field is {size}, not {len(datagram)}")
    kind = datagram[at]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MalformedMessage(f"unknown message type 0x{kind:02x}")
    try:
        message: m.Message = decoder(datagram[at + 1 :])
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"a message of type 0x{kind:02x} has a wrong length") from error
    return message
