"""The compiled port beside an obvious one, in one slice or in many."""

from typing import Any

import numpy as np
import pytest
from obvious_link import Packet, departures

from firedex_models.simulation.endless_kernel import transmit_endless
from firedex_models.simulation.link_kernel import (
    PER_CLASS,
    SHARED,
    WAITING,
    transmit_plain,
)

KINDS = {"shared-push-out": SHARED, "per-class-head-drop": PER_CLASS}
CLASSES = 4


def drawn(random: np.random.Generator, count: int, load: float) -> list[Packet]:
    """Batches of packets: several arrive at one instant, some classes are rare."""
    moments = np.cumsum(random.exponential(1.0, count))
    packets: list[Packet] = []
    for moment in moments:
        for _ in range(int(random.integers(1, 5))):
            priority = min(int(random.geometric(0.4)) - 1, CLASSES - 1)
            packets.append(Packet(float(moment), priority, float(random.exponential(load / 2.5))))
    return packets


def columns(packets: list[Packet]) -> tuple[Any, Any, Any]:
    return (
        np.array([p.arrival for p in packets]),
        np.array([p.priority for p in packets], dtype=np.int32),
        np.array([p.service for p in packets]),
    )


def transmit(kind: str, room: int, *packets: Any) -> Any:
    """By the kernel that a port with such a buffer uses."""
    *columns, carried, until, free = packets
    if kind not in KINDS:
        return transmit_endless(*columns, CLASSES, carried, until, free)
    return transmit_plain(*columns, CLASSES, KINDS[kind], room, carried, until, free)


def compiled(packets: list[Packet], kind: str, room: int, slices: int) -> list[float | None]:
    arrival, priority, service = columns(packets)
    bounds = [*np.linspace(0, arrival[-1], slices + 1)[1:-1].tolist(), np.inf]
    left: list[float | None] = [None] * len(packets)
    carried: list[int] = []
    done, free = 0, 0.0
    for until in bounds:
        beyond = int(np.searchsorted(arrival, until))
        rows = [*carried, *range(done, beyond)]
        departure, free, _ = transmit(
            kind, room, arrival[rows], priority[rows], service[rows], len(carried), until, free
        )
        for row, moment in zip(rows, departure, strict=True):
            left[row] = None if np.isnan(moment) or moment == WAITING else float(moment)
        carried = [row for row, m in zip(rows, departure, strict=True) if m == WAITING]
        done = beyond
    assert not carried
    return left


@pytest.mark.parametrize("slices", [1, 2, 17])
@pytest.mark.parametrize("load", [0.5, 0.9, 1.8])
@pytest.mark.parametrize("room", [1, 3, 20])
@pytest.mark.parametrize("kind", ["endless", *KINDS])
def test_the_compiled_port_does_what_the_obvious_one_does(
    kind: str, room: int, load: float, slices: int
) -> None:
    random = np.random.default_rng([room, round(load * 10), slices])
    packets = drawn(random, 300, load)
    expected = departures(packets, kind=kind, room=room)
    measured = compiled(packets, kind, room, slices)
    assert [m is None for m in measured] == [e is None for e in expected]
    assert [m for m in measured if m is not None] == pytest.approx(
        [e for e in expected if e is not None]
    )
    if kind == "endless":
        assert None not in measured
    elif load > 1:
        assert None in measured


@pytest.mark.parametrize("carried", [0, 7])
@pytest.mark.parametrize("load", [0.5, 0.9, 1.8])
def test_an_endless_buffer_is_one_that_never_fills_to_the_last_bit(
    load: float, carried: int
) -> None:
    arrival, priority, service = columns(drawn(np.random.default_rng(carried), 500, load))
    until, free = arrival[-1] - 20.0, arrival[carried]
    come = int(np.searchsorted(arrival, until))
    there = arrival[:come], priority[:come], service[:come]
    departure, next_free, found = transmit("endless", 0, *there, carried, until, free)
    reference = transmit("shared-push-out", len(arrival), *there, carried, until, free)
    np.testing.assert_array_equal(departure, reference[0])
    assert (next_free, found) == reference[1:]
    if load > 1:
        assert (departure == WAITING).any()
