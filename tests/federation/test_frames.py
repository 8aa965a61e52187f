"""Frames and events between federators: every value survives, and no bytes cause another error."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.federation.events import (
    Event,
    Publication,
    decode_event,
    encode_event,
    encode_publication,
    read_publication,
    reduce_lifetime,
)
from firedex.federation.frames import (
    Destination,
    FrameSplitter,
    FrameType,
    MalformedFrame,
    RoutedFrame,
    decode_json,
    decode_message,
    decode_routed,
    encode_forwarded,
    encode_frame,
    encode_message,
    encode_routed,
    only_destination,
)
from firedex.transport.mqtt.encoding import MalformedPacket

NUMBERS = st.integers(0, 2**64 - 1)
SITES = st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=20)
EVENTS = st.builds(
    Event,
    origin=SITES,
    id=st.tuples(NUMBERS, NUMBERS),
    stamp=NUMBERS,
    topic=st.binary(min_size=1, max_size=50),
    payload=st.binary(max_size=200),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    state=st.booleans(),
    properties=st.binary(max_size=50),
    lifetime_milliseconds=st.none() | st.integers(0, 2**32 - 2),
)


@given(EVENTS)
def test_event_survives_encoding(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


@given(
    st.lists(st.builds(Destination, SITES, st.tuples(NUMBERS, NUMBERS)), max_size=10),
    st.integers(0, 255),
    st.binary(max_size=100),
)
def test_routed_frame_survives_encoding(
    destinations: list[Destination], hops_left: int, rest: bytes
) -> None:
    frame = RoutedFrame(FrameType.EVENT, tuple(destinations), hops_left, 3, True, rest)
    ((kind, body),) = FrameSplitter(1 << 20).feed(encode_routed(frame))
    assert decode_routed(FrameType(kind), body) == frame


@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(1, 20))
def test_splitter_returns_whole_frames_for_any_cut(bodies: list[bytes], size: int) -> None:
    stream = b"".join(encode_frame(FrameType.EVENT, body) for body in bodies)
    splitter = FrameSplitter(1000)
    found = [
        body
        for start in range(0, len(stream), size)
        for _, body in splitter.feed(stream[start : start + size])
    ]
    assert found == bodies


def test_frame_over_the_limit_is_refused_before_it_is_complete() -> None:
    with pytest.raises(MalformedFrame, match="the maximum is 100"):
        list(FrameSplitter(100).feed((101).to_bytes(4, "big") + b"x"))


@settings(max_examples=500)
@given(st.builds(Destination, SITES, st.tuples(NUMBERS, NUMBERS)), st.booleans(), st.binary())
def test_frame_is_forwarded_with_one_hop_less(
    destination: Destination, reliable: bool, rest: bytes
) -> None:
    if not reliable:
        destination = Destination(destination.site)
    frame = RoutedFrame(FrameType.EVENT, (destination,), 7, 1, reliable, rest)
    body = encode_routed(frame)[5:]
    assert only_destination(body) == destination.site.encode()
    assert encode_forwarded(FrameType.EVENT, body) == encode_routed(frame._replace(hops_left=6))


def test_only_destination_needs_a_complete_frame_with_one_destination() -> None:
    sites = (Destination("a"), Destination("b"))
    for several in (sites, ()):
        frame = RoutedFrame(FrameType.EVENT, several, 7, 0, False, b"")
        assert only_destination(encode_routed(frame)[5:]) is None
    body = encode_routed(RoutedFrame(FrameType.EVENT, sites[:1], 7, 0, True, b""))[5:]
    assert only_destination(body) == b"a"
    assert [only_destination(body[:size]) for size in range(len(body))] == [None] * len(body)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_malformed(data: bytes) -> None:
    for decode in (
        lambda: list(FrameSplitter(1000).feed(data)),
        lambda: decode_event(data),
        lambda: decode_routed(FrameType.EVENT, data),
        lambda: decode_message(data),
        lambda: decode_json(data),
    ):
        with suppress(MalformedFrame):
            decode()


@pytest.mark.parametrize(("before", "after"), [(None, None), (1500, 500), (700, 0)])
def test_lifetime_is_reduced_without_decoding(before: int | None, after: int | None) -> None:
    event = Event(
        origin="port", id=(1, 2), stamp=3, topic=b"t", payload=b"p", lifetime_milliseconds=before
    )
    reduced = reduce_lifetime(encode_event(event), 1000)
    assert decode_event(reduced) == event._replace(lifetime_milliseconds=after)


def test_message_names_its_source() -> None:
    frame = encode_message("port", ["fire"], {"kind": "ack", "last": [1, 2]})
    assert decode_message(frame.rest) == ("port", {"kind": "ack", "last": [1, 2]})


@given(
    st.builds(
        Publication,
        topic=st.binary(min_size=1, max_size=30),
        payload=st.binary(max_size=300),
        qos=st.just(1),
        retain=st.booleans(),
        packet_id=st.integers(1, 65_535),
        properties=st.sampled_from([b"", b"\x26\x00\x01a\x00\x01b", b"\x03\x00\x04text\x01\x01"]),
        expiry_seconds=st.none() | st.integers(0, 2**32 - 1),
        subscriptions=st.just(()),
    )
)
def test_publication_survives_mqtt_encoding(publication: Publication) -> None:
    assert read_publication(encode_publication(publication, level=5), level=5) == publication


def test_subscription_identifiers_and_topic_alias_are_not_passed_on() -> None:
    properties = b"\x0b\x07\x0b\x81\x01\x23\x00\x05\x26\x00\x01a\x00\x01b"
    packet = b"\x30" + bytes((3 + 1 + len(properties),)) + b"\x00\x01t"
    packet += bytes((len(properties),)) + properties
    found = read_publication(packet, level=5)
    assert found.subscriptions == (7, 129)
    assert found.properties == b"\x26\x00\x01a\x00\x01b"


@given(st.binary(min_size=2, max_size=60))
def test_random_publish_packets_are_read_or_refused(data: bytes) -> None:
    packet = bytes((0x30 | data[0] & 0x0D,)) + bytes((len(data) - 1,)) + data[1:]
    with suppress(MalformedPacket, IndexError):
        read_publication(packet, level=5)
