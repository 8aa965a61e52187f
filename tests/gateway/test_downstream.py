"""Packets from the broker to a subscriber: drops, waiting packets and topic aliases."""

from hypothesis import given
from hypothesis import strategies as st

from firedex.gateway.downstream import Downstream, TopicAliases, is_droppable
from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import EventTotals, ManagedFlow
from firedex.transport.mqtt.encoding import (
    PacketSplitter,
    PacketType,
    encode_packet,
    variable_header_start,
)
from tests.support.loopback_parts import seeded_random


class FakeSink:
    """A socket that can be congested."""

    def __init__(self) -> None:
        self.data, self.congested = b"", False

    def write(self, data: bytes) -> None:
        self.data += data


def encode_event(topic: bytes, alias: int, payload: bytes, qos: int = 0) -> bytes:
    properties = b"\x23" + alias.to_bytes(2, "big") if alias else b""
    packet_id = b"\x00\x07" if qos else b""
    body = len(topic).to_bytes(2, "big") + topic + packet_id + bytes([len(properties)]) + properties
    return encode_packet(PacketType.PUBLISH, qos << 1, body + payload)


def events_as_client_reads_them(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Return topic and payload of each event; aliases are resolved as a client does it."""
    known: dict[int, bytes] = {}
    events = []
    for each in PacketSplitter().feed(stream):
        at = variable_header_start(each)
        length = int.from_bytes(each[at : at + 2], "big")
        topic, rest = each[at + 2 : at + 2 + length], each[at + 2 + length :]
        rest = rest[2:] if each[0] & 0b0110 else rest
        properties, payload = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
        if properties:
            alias = int.from_bytes(properties[1:3], "big")
            if topic:
                known[alias] = topic
            topic = known[alias]  # KeyError: the client does not know the alias
        events.append((topic, payload))
    return events


sent_events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 0, 0, 1]), st.booleans()),
    max_size=60,
)


@given(events=sent_events, seed=st.integers(0, 1000), drop_rate=st.sampled_from([0.0, 0.5, 0.9]))
def test_topic_aliases_stay_valid_after_drops_and_shedding(
    events: list[tuple[int, int, int, bool]], seed: int, drop_rate: float
) -> None:
    sink, topics_by_alias = FakeSink(), dict[int, bytes]()
    flow = ManagedFlow("crew", 0, drop_rate)
    down = Downstream(
        sink,
        lambda: flow,
        level=5,
        aliases=TopicAliases(),
        limits=BufferLimits(bytes=60, seconds=10.0),
        generator=seeded_random(seed),
        unmanaged=EventTotals(),
    )
    expected, guaranteed = [], []
    for number, (topic_number, alias, qos, congested) in enumerate(events):
        topic, payload = b"topic/%d" % topic_number, b"%d" % number
        sink.congested = congested
        if not congested:
            down.drain(0.0)
        on_wire = b"" if alias and topics_by_alias.get(alias) == topic else topic
        if alias:
            topics_by_alias[alias] = topic
        expected.append((topic, payload))
        guaranteed += [(topic, payload)] if qos else []
        down.receive(encode_event(on_wire, alias, payload, qos), 0.0)
    sink.congested = False
    down.drain(0.0)
    delivered = events_as_client_reads_them(sink.data)
    assert set(guaranteed) <= set(delivered)
    positions = [expected.index(each) for each in delivered]
    assert positions == sorted(set(positions)), "events are in order, without duplicates"
    totals = flow.counts.totals
    assert totals.offered == totals.delivered + totals.dropped + totals.shed


def test_delivery_counts_in_the_window_in_which_the_event_is_sent() -> None:
    sink, flow = FakeSink(), ManagedFlow("crew", 0, 0.0)
    down = Downstream(
        sink,
        lambda: flow,
        level=5,
        aliases=None,
        limits=BufferLimits(),
        generator=seeded_random(),
        unmanaged=EventTotals(),
    )
    sink.congested = True
    down.receive(encode_event(b"t", 0, b"x"), 0.0)
    assert flow.counts.take_counts()[b"t"].delivered == 0
    sink.congested = False
    down.drain(0.1)
    assert flow.counts.take_counts()[b"t"].delivered == 1


def test_event_above_the_maximum_packet_size_of_the_client_is_not_sent() -> None:
    aliases = TopicAliases(maximum_packet_bytes=30)
    aliases.resolve(encode_event(b"t" * 40, 1, b""))
    assert aliases.packet_for_client(aliases.resolve(encode_event(b"", 1, b"x"))) is None
    assert aliases.packet_for_client(aliases.resolve(encode_event(b"s", 1, b"x"))) is not None


@given(st.integers(1, 15), st.integers(0, 15), st.binary(max_size=40))
def test_only_qos_0_events_that_are_not_retained_are_droppable(
    kind: int, flags: int, body: bytes
) -> None:
    qos, retained = flags >> 1 & 3, flags & 1
    expected = kind == PacketType.PUBLISH and qos == 0 and retained == 0
    assert is_droppable(encode_packet(PacketType(kind), flags, body)) is expected
