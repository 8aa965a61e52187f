"""What one replication came to: counts, sums and histograms, small whatever its length."""

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from firedex_models.simulation.batch import DELIVERED

__all__ = ["BINS", "Tally", "bin_edges", "count"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BINS = 1200
SHORTEST, LONGEST = 1e-6, 1e4
"""Delays are counted in bins of equal ratio (1.9 %) between these, in seconds."""


def bin_edges() -> Floats:
    """The bounds of the bins; what is outside is counted in the first or the last."""
    return np.geomspace(SHORTEST, LONGEST, BINS + 1)


@dataclass(kw_only=True)
class Tally:
    """Of the publications that were looked at; ``fates`` of all.

    ``offered`` … ``delay`` and ``histogram`` for each stream; ``timely`` for each subscription.
    ``hop_load``: work offered over time; ``hop_waiting``: packets that an arrival finds waiting.
    """

    offered: Integers
    delivered: Integers
    delay: Floats
    histogram: NDArray[np.int32]
    timely: Integers
    fates: Integers
    hop_load: dict[str, float] = field(default_factory=dict)
    hop_waiting: dict[str, float] = field(default_factory=dict)
    publications: int = 0
    notifications: int = 0

    @classmethod
    def blank(cls, streams: int, subscriptions: int) -> "Tally":
        """Nothing counted yet."""
        return cls(
            offered=np.zeros(streams, dtype=np.int64),
            delivered=np.zeros(streams, dtype=np.int64),
            delay=np.zeros(streams),
            histogram=np.zeros((streams, BINS), dtype=np.int32),
            timely=np.zeros(subscriptions, dtype=np.int64),
            fates=np.zeros(5, dtype=np.int64),
        )


@njit(cache=True)
def count(  # type: ignore[no-untyped-def]
    stream, fate, delay, looked_at, first_subscription, subscription_of, deadline,
    offered, delivered, total, histogram, timely, fates,
):  # fmt: skip
    """Add packets up: per stream, per subscription (timely) and per fate (of all packets)."""
    scale = BINS / np.log(LONGEST / SHORTEST)
    for row in range(len(stream)):
        fates[fate[row]] += 1
        if not looked_at[row]:
            continue
        s = stream[row]
        offered[s] += 1
        if fate[row] != DELIVERED:
            continue
        d = delay[row]
        delivered[s] += 1
        total[s] += d
        cell = int(np.log(max(d, SHORTEST) / SHORTEST) * scale)
        histogram[s, min(cell, BINS - 1)] += 1
        for member in range(first_subscription[s], first_subscription[s + 1]):
            if d <= deadline[subscription_of[member]]:
                timely[subscription_of[member]] += 1
