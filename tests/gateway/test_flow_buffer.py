"""The bounded buffer of a flow."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer

steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "take"]), st.integers(1, 50), st.booleans()),
    max_size=100,
)


@given(steps)
def test_full_buffer_sheds_the_oldest_items(steps: list[Any]) -> None:
    buffer: FlowBuffer[int] = FlowBuffer(BufferLimits(bytes=100, seconds=1e9))
    expected: list[tuple[int, int, bool]] = []
    for number, (action, size, sheddable) in enumerate(steps):
        if action == "add":
            shed = buffer.add(number, size, sheddable=sheddable, now=0.0)
            expected.append((number, size, sheddable))
            for removed in shed:
                oldest = next(each for each in expected if each[2])
                assert oldest[0] == removed, "the oldest sheddable item"
                expected.remove(oldest)
            unsheddable = sum(each[1] for each in expected if not each[2])
            assert sum(each[1] for each in expected) <= max(100, unsheddable + size)
        else:
            item, _ = buffer.take(0.0)
            assert item == (expected.pop(0)[0] if expected else None)
        assert buffer.waiting_bytes == sum(each[1] for each in expected)
        assert len(buffer) == len(expected)


def test_take_sheds_stale_items() -> None:
    buffer: FlowBuffer[str] = FlowBuffer(BufferLimits(bytes=1000, seconds=1.0))
    buffer.add("old", 1, sheddable=True, now=0.0)
    buffer.add("kept", 1, sheddable=False, now=0.0)
    buffer.add("new", 1, sheddable=True, now=1.5)
    assert buffer.take(2.0) == ("kept", ["old"])
    assert buffer.take(2.0) == ("new", [])
    assert buffer.take(2.0) == (None, [])


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(0, 3))
def test_take_matching_keeps_the_order_of_the_other_items(
    added: list[tuple[int, bool]], taken_key: int
) -> None:
    buffer: FlowBuffer[tuple[int, int]] = FlowBuffer(BufferLimits(bytes=1000, seconds=10.0))
    for position, (key, sheddable) in enumerate(added):
        buffer.add((key, position), 1, sheddable=sheddable, now=0.0)
    taken = buffer.take_matching(lambda item: item[0] == taken_key)
    rest = [item for item, _ in (buffer.take(0.0) for _ in range(len(buffer)))]
    assert taken == [(key, n) for n, (key, _) in enumerate(added) if key == taken_key]
    assert rest == [(key, n) for n, (key, _) in enumerate(added) if key != taken_key]
    assert (buffer.waiting_bytes, buffer.full) == (0, False)
