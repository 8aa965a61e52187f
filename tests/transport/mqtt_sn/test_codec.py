"""Encoding and decoding of MQTT-SN messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.transport.mqtt_sn import MalformedMessage, decode, encode
from firedex.transport.mqtt_sn import messages as m
from firedex.wire.packet_sizes import mqtt_sn_publish_bytes

ids, codes, flags = st.integers(0, 0xFFFF), st.integers(0, 255), st.booleans()
text = st.text(min_size=1, max_size=300).filter(lambda s: s.isprintable())
payloads = st.binary(max_size=600)
kinds, sub_kinds = st.sampled_from(list(m.TopicKind)), st.just(m.TopicKind.NORMAL)
qos_sub = st.integers(0, 2)
messages = st.one_of(
    st.builds(m.Advertise, gateway_id=codes, duration_seconds=ids),
    st.builds(m.SearchGw, radius=codes),
    st.builds(m.GwInfo, gateway_id=codes, address=st.binary(max_size=8)),
    st.builds(m.Connect, client_id=text, duration_seconds=ids, clean_session=flags, will=flags),
    st.builds(m.Connack, return_code=codes),
    st.builds(m.WillTopic, topic=text, qos=qos_sub, retain=flags),
    st.builds(m.WillMsg, payload=payloads),
    st.builds(m.Register, topic_id=ids, message_id=ids, topic=text),
    st.builds(m.Regack, topic_id=ids, message_id=ids, return_code=codes),
    st.builds(
        m.Publish,
        topic_id=ids,
        payload=payloads,
        kind=kinds,
        message_id=ids,
        qos=st.integers(-1, 2),
        retain=flags,
        dup=flags,
    ),
    st.builds(m.Puback, topic_id=ids, message_id=ids, return_code=codes),
    st.builds(m.Pubrec, message_id=ids),
    st.builds(m.Subscribe, message_id=ids, topic=text, kind=sub_kinds, qos=qos_sub, dup=flags),
    st.builds(
        m.Subscribe, message_id=ids, topic_id=ids, kind=st.just(m.TopicKind.PREDEFINED), qos=qos_sub
    ),
    st.builds(m.Suback, topic_id=ids, message_id=ids, return_code=codes, qos=qos_sub),
    st.builds(m.Unsubscribe, message_id=ids, topic=text),
    st.builds(m.PingReq, client_id=st.one_of(st.just(""), text)),
    st.builds(m.Disconnect, duration_seconds=st.one_of(st.none(), ids)),
    st.builds(m.WillMsgUpd, payload=payloads),
    st.sampled_from([m.WillTopicReq(), m.WillMsgReq(), m.PingResp(), m.WillTopic()]),
)


@given(messages)
def test_decoding_an_encoded_message_returns_it(message: m.Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedMessage:
        return
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_truncated_message_is_malformed(message: m.Message, data: st.DataObject) -> None:
    complete = encode(message)
    truncated = complete[: data.draw(st.integers(0, len(complete) - 1))]
    with pytest.raises(MalformedMessage):
        decode(truncated)


@pytest.mark.parametrize(
    ("message", "expected_bytes"),
    [
        (m.Connect(client_id="ab", duration_seconds=30), "08 04 04 01 00 1e 61 62"),
        (m.Publish(topic_id=1, payload=b"hi", qos=1, message_id=2), "09 0c 20 00 01 00 02 68 69"),
        (
            m.Publish(topic_id=1, payload=b"", qos=-1, kind=m.TopicKind.SHORT),
            "07 0c 62 00 01 00 00",
        ),
        (m.Subscribe(message_id=3, topic="a/#"), "08 12 00 00 03 61 2f 23"),
        (m.Disconnect(), "02 18"),
    ],
)
def test_encoding_matches_the_specification(message: m.Message, expected_bytes: str) -> None:
    """The expected bytes were derived by hand from §5.4."""
    assert encode(message).hex(" ") == expected_bytes


@pytest.mark.parametrize("size", [0, 248, 249, 1463])
def test_encoded_size_equals_the_size_in_the_model(size: int) -> None:
    message = m.Publish(topic_id=1, payload=bytes(size))
    assert len(encode(message)) == mqtt_sn_publish_bytes(size)
