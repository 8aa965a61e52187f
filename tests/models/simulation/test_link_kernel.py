"""The compiled link kernels, compared with the reference link, in one time slice or many."""

from typing import Any

import numpy as np
import pytest

from firedex_models.simulation.kernels import (
    PER_CLASS,
    SHARED,
    WAITING,
    transmit_finite,
    transmit_infinite,
)
from tests.models.simulation.reference_link import Packet, departures

KINDS = {"shared-push-out": SHARED, "per-class-head-drop": PER_CLASS}
CLASSES = 4


def draw_packets(random: np.random.Generator, count: int, load: float) -> list[Packet]:
    """Draw batches of packets that arrive at the same time; some classes are rare."""
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
    """Call the kernel for this kind of buffer."""
    arrival, priority, service, carried, until, free = packets
    if kind not in KINDS:
        return transmit_infinite(arrival, priority, service, CLASSES, carried, until, free)
    return transmit_finite(
        arrival, priority, service, CLASSES, KINDS[kind], room, carried, until, free
    )


def compiled_departures(
    packets: list[Packet], kind: str, room: int, slices: int
) -> list[float | None]:
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
@pytest.mark.parametrize("kind", ["infinite", *KINDS])
def test_compiled_link_agrees_with_reference_link(
    kind: str, room: int, load: float, slices: int
) -> None:
    random = np.random.default_rng([room, round(load * 10), slices])
    packets = draw_packets(random, 300, load)
    expected = departures(packets, kind=kind, room=room)
    result = compiled_departures(packets, kind, room, slices)
    assert [m is None for m in result] == [e is None for e in expected]
    assert [m for m in result if m is not None] == pytest.approx(
        [e for e in expected if e is not None]
    )
    if kind == "infinite":
        assert None not in result
    elif load > 1:
        assert None in result


@pytest.mark.parametrize("carried", [0, 7])
@pytest.mark.parametrize("load", [0.5, 0.9, 1.8])
def test_infinite_buffer_kernel_equals_kernel_with_large_buffer(load: float, carried: int) -> None:
    arrival, priority, service = columns(draw_packets(np.random.default_rng(carried), 500, load))
    until, free = arrival[-1] - 20.0, arrival[carried]
    count = int(np.searchsorted(arrival, until))
    columns_before = arrival[:count], priority[:count], service[:count]
    departure, next_free, found = transmit("infinite", 0, *columns_before, carried, until, free)
    reference = transmit("shared-push-out", len(arrival), *columns_before, carried, until, free)
    np.testing.assert_array_equal(departure, reference[0])
    assert (next_free, found) == reference[1:]
    if load > 1:
        assert (departure == WAITING).any()
