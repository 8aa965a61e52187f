"""Detection of duplicate and missing events."""

from hypothesis import given
from hypothesis import strategies as st

from firedex_clients.duplicates import ReceivedEvents


@given(st.lists(st.integers(1, 40), max_size=80))
def test_each_event_is_new_once(numbers: list[int]) -> None:
    received, received_numbers = ReceivedEvents(), set[int]()
    for number in numbers:
        assert received.is_new("t", b"origin", number) is (number not in received_numbers)
        received_numbers.add(number)
    if numbers:
        expected = set(range(numbers[0], max(received_numbers) + 1)) - received_numbers
        assert received.missing == len(expected)


def test_large_gaps_are_counted() -> None:
    received = ReceivedEvents()
    for number in (1, 1_000_000, 2_000_000):
        assert received.is_new("t", b"o", number)
    assert received.missing == 2_000_000 - 3
    assert received.is_new("t", b"o", 1) is False


def test_forged_sequence_number_does_not_affect_other_events() -> None:
    received = ReceivedEvents()
    assert received.is_new("t", b"o", 7)
    assert received.is_new("other topic", b"o", 1000), "another topic is another stream"
    assert received.is_new("t", b"o", 7 + 2**20 + 1) is None, (
        "a jump beyond the limit is not accepted"
    )
    assert received.is_new("t", b"o", 8)
    assert received.missing == 0


def test_events_after_a_long_gap_are_counted_again() -> None:
    received, far_ahead = ReceivedEvents(), 2**30
    assert received.is_new("t", b"o", 7)
    assert received.is_new("t", b"o", 2**40) is None, "forged"
    assert received.is_new("t", b"o", far_ahead) is None, (
        "not accepted before a second number near it"
    )
    assert [received.is_new("t", b"o", far_ahead + n) for n in (1, 1, 3)] == [True, False, True]
    assert received.missing == 1
    assert received.is_new("t", b"o", 8), "the stream before the jump continues"
