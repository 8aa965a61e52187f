"""The compiled port beside an obvious one, in one slice or in many."""

import numpy as np
import pytest
from obvious_link import Packet, departures

from firedex_models.simulation.link_kernel import (
    ENDLESS,
    PER_CLASS,
    SHARED,
    WAITING,
    transmit_plain,
)

KINDS = {"endless": ENDLESS, "shared-push-out": SHARED, "per-class-head-drop": PER_CLASS}
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


def compiled(packets: list[Packet], kind: str, room: int, slices: int) -> list[float | None]:
    arrival = np.array([p.arrival for p in packets])
    priority = np.array([p.priority for p in packets], dtype=np.int32)
    service = np.array([p.service for p in packets])
    bounds = [*np.linspace(0, arrival[-1], slices + 1)[1:-1].tolist(), np.inf]
    left: list[float | None] = [None] * len(packets)
    carried: list[int] = []
    done, free = 0, 0.0
    for until in bounds:
        beyond = int(np.searchsorted(arrival, until))
        rows = [*carried, *range(done, beyond)]
        departure, free, _ = transmit_plain(
            arrival[rows], priority[rows], service[rows], CLASSES, KINDS[kind], room,
            len(carried), until, free,
        )  # fmt: skip
        for row, moment in zip(rows, departure, strict=True):
            left[row] = None if np.isnan(moment) or moment == WAITING else float(moment)
        carried = [row for row, m in zip(rows, departure, strict=True) if m == WAITING]
        done = beyond
    assert not carried
    return left


@pytest.mark.parametrize("slices", [1, 2, 17])
@pytest.mark.parametrize("load", [0.5, 0.9, 1.8])
@pytest.mark.parametrize("room", [1, 3, 20])
@pytest.mark.parametrize("kind", KINDS)
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
