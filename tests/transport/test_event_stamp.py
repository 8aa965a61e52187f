"""The event stamp, as an MQTT 5 user property and before a payload."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.transport.event_stamp import (
    PROPERTY,
    EventStamp,
    new_origin,
    read_stamp,
    split_header,
)
from firedex.wire.packet_sizes import STAMP_BYTES

stamps = st.builds(
    EventStamp,
    origin=st.binary(min_size=8, max_size=8),
    sequence=st.integers(0, 2**48 - 1),
    published_at_nanoseconds=st.integers(0, 2**64 - 1),
)
STAMP = EventStamp(origin=bytes(range(8)), sequence=17, published_at_nanoseconds=1_700_000_000)


@given(stamps)
def test_stamp_is_read_from_its_property(stamp: EventStamp) -> None:
    assert EventStamp.from_properties([("other", "x"), stamp.to_property()]) == stamp


@given(stamps)
def test_property_size_equals_the_size_in_the_model(stamp: EventStamp) -> None:
    key, text = stamp.to_property()
    identifier, length = 1, 2
    assert (len(key), len(text)) == (3, 30)
    property_bytes = identifier + length + len(key.encode()) + length + len(text.encode())
    assert property_bytes == STAMP_BYTES["tcp"]


@pytest.mark.parametrize(
    "text", ["", "x", "!" * 30, "é" * 30, "A" * 29, "A" * 31, "A" * 30 + "==", "A" * 64, "=" * 30]
)
def test_invalid_property_is_ignored(text: str) -> None:
    assert EventStamp.from_properties([(PROPERTY, text)]) is None


def test_properties_without_stamp_return_none() -> None:
    assert EventStamp.from_properties([]) is None
    assert EventStamp.from_properties([("other", "A" * 30)]) is None


def test_valid_property_after_an_invalid_one_is_read() -> None:
    assert EventStamp.from_properties([(PROPERTY, "junk"), STAMP.to_property()]) == STAMP


def test_event_id_contains_origin_and_sequence() -> None:
    assert STAMP.event_id == "0001020304050607-17"


def test_new_origins_are_unique() -> None:
    origins = {new_origin() for _ in range(100)}
    assert len(origins) == 100
    assert {len(origin) for origin in origins} == {8}


@given(st.binary(max_size=50), st.integers(0, 2**48 - 1))
def test_split_header_returns_stamp_and_payload(payload: bytes, sequence: int) -> None:
    stamp = EventStamp(
        origin=b"12345678", sequence=sequence, published_at_nanoseconds=time.time_ns()
    )
    assert len(stamp.to_header()) == STAMP_BYTES["udp"]
    assert split_header(stamp.to_header() + payload) == (stamp, payload)
    fields = read_stamp([("other", "x"), stamp.to_property()])
    assert fields == (stamp.origin, sequence, stamp.published_at_nanoseconds)


@given(st.binary(max_size=100))
def test_payload_without_stamp_is_unchanged(payload: bytes) -> None:
    assert split_header(payload) == (None, payload)
    assert split_header(b"\xfd\xe8" + bytes(40)) == (None, b"\xfd\xe8" + bytes(40))
