"""The event stamp as an MQTT 5 user property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.event_stamp import PROPERTY, EventStamp, new_origin
from firedex.wire.packet_sizes import STAMP_BYTES

stamps = st.builds(
    EventStamp,
    origin=st.binary(min_size=8, max_size=8),
    sequence=st.integers(0, 2**48 - 1),
    published_at_nanoseconds=st.integers(0, 2**64 - 1),
)
STAMP = EventStamp(origin=bytes(range(8)), sequence=17, published_at_nanoseconds=1_700_000_000)


@given(stamps)
def test_a_stamp_survives_the_property(stamp: EventStamp) -> None:
    assert EventStamp.from_properties([("other", "x"), stamp.to_property()]) == stamp


@given(stamps)
def test_its_size_is_what_the_model_counts(stamp: EventStamp) -> None:
    key, text = stamp.to_property()
    identifier, length = 1, 2
    assert (len(key), len(text)) == (3, 30)
    counted = identifier + length + len(key.encode()) + length + len(text.encode())
    assert counted == STAMP_BYTES["tcp"]


@pytest.mark.parametrize(
    "text", ["", "x", "!" * 30, "é" * 30, "A" * 29, "A" * 31, "A" * 30 + "==", "A" * 64, "=" * 30]
)
def test_what_cannot_be_read_is_no_stamp(text: str) -> None:
    assert EventStamp.from_properties([(PROPERTY, text)]) is None


def test_without_properties_there_is_no_stamp() -> None:
    assert EventStamp.from_properties([]) is None
    assert EventStamp.from_properties([("other", "A" * 30)]) is None


def test_an_unreadable_property_does_not_hide_a_readable_one() -> None:
    assert EventStamp.from_properties([(PROPERTY, "junk"), STAMP.to_property()]) == STAMP


def test_ids_tell_origin_and_sequence() -> None:
    assert STAMP.event_id == "0001020304050607-17"


def test_origins_differ() -> None:
    origins = {new_origin() for _ in range(100)}
    assert len(origins) == 100
    assert {len(origin) for origin in origins} == {8}
