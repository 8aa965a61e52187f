"""Topic aliases, flow buffers, duplicates and the MQTT-SN codec: whatever order things come in."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_parts import coins

from firedex.event_stamp import EventStamp, read_stamp, split_header
from firedex.gateway.downstream import Downstream
from firedex.gateway.event_counts import Totals
from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer
from firedex.gateway.flow_table import ManagedFlow
from firedex.gateway.mqtt_packets import PacketCutter, PacketKind, body_start, packet
from firedex.gateway.topic_aliases import TopicAliases
from firedex.mqtt_sn import MalformedMessage, decode, encode
from firedex.mqtt_sn import messages as m
from firedex.wire.packet_sizes import STAMP_BYTES, mqtt_sn_publish_bytes
from firedex_clients.duplicates import Seen

# -- topic aliases ---------------------------------------------------------------------------------


class Sink:
    """A socket that can be full."""

    def __init__(self) -> None:
        self.data, self.congested = b"", False

    def write(self, data: bytes) -> None:
        self.data += data


def aliased(topic: bytes, alias: int, payload: bytes, qos: int = 0) -> bytes:
    properties = b"\x23" + alias.to_bytes(2, "big") if alias else b""
    mid = b"\x00\x07" if qos else b""
    body = len(topic).to_bytes(2, "big") + topic + mid + bytes([len(properties)]) + properties
    return packet(PacketKind.PUBLISH, qos << 1, body + payload)


def as_client_sees(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Topic and payload of every event, aliases resolved as a client would; independent of ours."""
    known: dict[int, bytes] = {}
    found = []
    for each in PacketCutter().cut(stream):
        at = body_start(each)
        length = int.from_bytes(each[at : at + 2], "big")
        topic, rest = each[at + 2 : at + 2 + length], each[at + 2 + length :]
        rest = rest[2:] if each[0] & 0b0110 else rest
        properties, payload = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
        if properties:
            alias = int.from_bytes(properties[1:3], "big")
            if topic:
                known[alias] = topic
            topic = known[alias]  # KeyError: an alias that the client was never told
        found.append((topic, payload))
    return found


sent_events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 0, 0, 1]), st.booleans()),
    max_size=60,
)


@given(events=sent_events, seed=st.integers(0, 1000), drop_rate=st.sampled_from([0.0, 0.5, 0.9]))
def test_aliases_survive_drops_and_sheds(
    events: list[tuple[int, int, int, bool]], seed: int, drop_rate: float
) -> None:
    sink, named = Sink(), dict[int, bytes]()
    flow = ManagedFlow("crew", 0, drop_rate)
    down = Downstream(
        sink,
        lambda: flow,
        level=5,
        aliases=TopicAliases(),
        limits=BufferLimits(bytes=60, seconds=10.0),
        coins=coins(seed),
        unmanaged=Totals(),
    )
    expected, sure = [], []
    for number, (topic_number, alias, qos, congested) in enumerate(events):
        topic, payload = b"topic/%d" % topic_number, b"%d" % number
        sink.congested = congested
        if not congested:
            down.drain(0.0)
        on_wire = b"" if alias and named.get(alias) == topic else topic
        if alias:
            named[alias] = topic
        expected.append((topic, payload))
        sure += [(topic, payload)] if qos else []
        down.received(aliased(on_wire, alias, payload, qos), 0.0)
    sink.congested = False
    down.drain(0.0)
    seen = as_client_sees(sink.data)
    assert set(sure) <= set(seen)
    places = [expected.index(each) for each in seen]
    assert places == sorted(set(places)), "order, and none twice"
    totals = flow.counts.totals
    assert totals.offered == totals.delivered + totals.dropped + totals.shed


def test_an_event_is_delivered_in_the_window_in_which_it_leaves() -> None:
    sink, flow = Sink(), ManagedFlow("crew", 0, 0.0)
    down = Downstream(
        sink,
        lambda: flow,
        level=5,
        aliases=None,
        limits=BufferLimits(),
        coins=coins(),
        unmanaged=Totals(),
    )
    sink.congested = True
    down.received(aliased(b"t", 0, b"x"), 0.0)
    assert flow.counts.take_window()[b"t"].delivered == 0
    sink.congested = False
    down.drain(0.1)
    assert flow.counts.take_window()[b"t"].delivered == 1


def test_an_event_grown_by_its_topic_beyond_what_the_client_takes_is_not_sent() -> None:
    aliases = TopicAliases(maximum_packet_bytes=30)
    aliases.received(aliased(b"t" * 40, 1, b""))
    assert aliases.to_send(aliases.received(aliased(b"", 1, b"x"))) is None
    assert aliases.to_send(aliases.received(aliased(b"s", 1, b"x"))) is not None


# -- buffers ---------------------------------------------------------------------------------------

waiting = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "take"]), st.integers(1, 50), st.booleans()),
    max_size=100,
)


@given(waiting)
def test_a_buffer_keeps_to_its_limit_and_sheds_the_oldest(steps: list[Any]) -> None:
    buffer: FlowBuffer[int] = FlowBuffer(BufferLimits(bytes=100, seconds=1e9))
    held: list[tuple[int, int, bool]] = []
    for number, (what, size, sheddable) in enumerate(steps):
        if what == "add":
            shed = buffer.add(number, size, sheddable=sheddable, now=0.0)
            held.append((number, size, sheddable))
            for gone in shed:
                oldest = next(each for each in held if each[2])
                assert oldest[0] == gone, "the oldest that may be shed"
                held.remove(oldest)
            unsheddable = sum(each[1] for each in held if not each[2])
            assert sum(each[1] for each in held) <= max(100, unsheddable + size)
        else:
            item, _ = buffer.take(0.0)
            assert item == (held.pop(0)[0] if held else None)
        assert buffer.waiting_bytes == sum(each[1] for each in held)
        assert len(buffer) == len(held)


def test_what_is_stale_is_shed_when_its_turn_comes() -> None:
    buffer: FlowBuffer[str] = FlowBuffer(BufferLimits(bytes=1000, seconds=1.0))
    buffer.add("old", 1, sheddable=True, now=0.0)
    buffer.add("sure", 1, sheddable=False, now=0.0)
    buffer.add("new", 1, sheddable=True, now=1.5)
    assert buffer.take(2.0) == ("sure", ["old"])
    assert buffer.take(2.0) == ("new", [])
    assert buffer.take(2.0) == (None, [])


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(0, 3))
def test_what_is_taken_out_of_the_midst_leaves_the_rest_in_order(
    added: list[tuple[int, bool]], wanted: int
) -> None:
    buffer: FlowBuffer[tuple[int, int]] = FlowBuffer(BufferLimits(bytes=1000, seconds=10.0))
    for place, (key, sheddable) in enumerate(added):
        buffer.add((key, place), 1, sheddable=sheddable, now=0.0)
    taken = buffer.take_all(lambda item: item[0] == wanted)
    rest = [item for item, _ in (buffer.take(0.0) for _ in range(len(buffer)))]
    assert taken == [(key, n) for n, (key, _) in enumerate(added) if key == wanted]
    assert rest == [(key, n) for n, (key, _) in enumerate(added) if key != wanted]
    assert (buffer.waiting_bytes, buffer.full) == (0, False)


# -- duplicates ------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), max_size=80))
def test_an_event_is_new_exactly_once(numbers: list[int]) -> None:
    seen, known = Seen(), set[int]()
    for number in numbers:
        assert seen.is_new("t", b"origin", number) is (number not in known)
        known.add(number)
    if numbers:
        expected = set(range(numbers[0], max(known) + 1)) - known
        assert seen.missing == len(expected)


def test_far_gaps_are_counted_in_bounded_memory() -> None:
    seen = Seen()
    for number in (1, 1_000_000, 2_000_000):
        assert seen.is_new("t", b"o", number)
    assert seen.missing == 2_000_000 - 3
    assert seen.is_new("t", b"o", 1) is False


def test_a_forged_number_silences_nobody() -> None:
    seen = Seen()
    assert seen.is_new("t", b"o", 7)
    assert seen.is_new("of others", b"o", 1000), "another topic is another stream"
    assert seen.is_new("t", b"o", 7 + 2**20 + 1) is None, "and nobody jumps so far"
    assert seen.is_new("t", b"o", 8)
    assert seen.missing == 0


def test_after_a_long_absence_numbers_count_again() -> None:
    seen, there = Seen(), 2**30
    assert seen.is_new("t", b"o", 7)
    assert seen.is_new("t", b"o", 2**40) is None, "forged"
    assert seen.is_new("t", b"o", there) is None, "who knows?"
    assert [seen.is_new("t", b"o", there + n) for n in (1, 1, 3)] == [True, False, True]
    assert seen.missing == 1
    assert seen.is_new("t", b"o", 8), "and if that was forged, no harm is done"


# -- MQTT-SN ---------------------------------------------------------------------------------------

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
def test_messages_survive_the_wire(message: m.Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedMessage:
        return
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_a_cut_message_is_malformed(message: m.Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(MalformedMessage):
        decode(cut)


@pytest.mark.parametrize(
    ("message", "bytes_"),
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
def test_bytes_of_the_specification(message: m.Message, bytes_: str) -> None:
    """Written down by hand from §5.4."""
    assert encode(message).hex(" ") == bytes_


@pytest.mark.parametrize("size", [0, 248, 249, 1463])
def test_sizes_are_what_the_model_counts(size: int) -> None:
    message = m.Publish(topic_id=1, payload=bytes(size))
    assert len(encode(message)) == mqtt_sn_publish_bytes(size)


# -- stamps ----------------------------------------------------------------------------------------


@given(st.binary(max_size=50), st.integers(0, 2**48 - 1))
def test_a_stamp_goes_before_a_payload_and_comes_off_again(payload: bytes, sequence: int) -> None:
    stamp = EventStamp(
        origin=b"12345678", sequence=sequence, published_at_nanoseconds=time.time_ns()
    )
    assert len(stamp.to_header()) == STAMP_BYTES["udp"]
    assert split_header(stamp.to_header() + payload) == (stamp, payload)
    found = read_stamp([("other", "x"), stamp.to_property()])
    assert found == (stamp.origin, sequence, stamp.published_at_nanoseconds)


@given(st.binary(max_size=100))
def test_payloads_of_others_are_left_alone(payload: bytes) -> None:
    assert split_header(payload) == (None, payload)
    assert split_header(b"\xfd\xe8" + bytes(40)) == (None, b"\xfd\xe8" + bytes(40))
