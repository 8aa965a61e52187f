"""Publications that come like clockwork queue less than Poisson ones: by how much.

Work that arrives within a time t has mean σt and variance v(t). For Poisson sources v(t) = a₂t; a
periodic source of period T with batch work X adds only X² f (1−f), f the fraction of a period left
over in t. Treating arrivals as Gaussian with this variance at *every* time scale,

    P(V > x) ≈ exp(− min_t (x + ct)² / 2 v(t)),

which is exact for Poisson traffic in heavy load (an exponential with mean a₂/2c) and for equal
periods (a Brownian bridge). What a publication finds is not what a random observer finds: its own
source's previous events are a whole number of periods ago, so they are taken out of v and counted
as they fall. The mean work in the queue follows from the work found, σ W + a₂/2, and its ratio to
Poisson's a₂/2c is what this module returns. Error against simulation: ``docs/model.md``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.queue_traffic import Batches, QueueTraffic

__all__ = ["Sources", "regularity"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TIME_POINTS = 96
WORK_GRID = np.linspace(0.0, 1.0, 96) ** 2 * 8.0
"""In units of the mean under Poisson arrivals; finer near zero."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Who publishes to each topic: one row for each publisher and topic, sorted by topic."""

    topic: Integers
    rate: Floats
    periodic: NDArray[np.bool_]

    def of(self, topics: Integers) -> tuple[Integers, Integers]:
        """Rows of these sources for ``topics``, and which of ``topics`` each row belongs to."""
        start = np.searchsorted(self.topic, topics, side="left")
        stop = np.searchsorted(self.topic, topics, side="right")
        count = stop - start
        owner = np.repeat(np.arange(len(topics)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return start[owner] + offset, owner


def regularity(traffic: QueueTraffic, sources: Sources) -> Floats:
    """Mean queued work over what Poisson publications would queue (queues × classes)."""
    ratio = np.ones((traffic.queues, traffic.classes))
    if not sources.periodic.any():
        return ratio
    batches = traffic.batches
    spare = 1.0 - np.cumsum(traffic.load, axis=1)
    for queue in range(traffic.queues):
        here = np.flatnonzero(batches.queue == queue)
        rows, owner = sources.of(batches.topic[here])
        if not sources.periodic[rows].any():
            continue
        batch = here[owner]
        for priority in range(traffic.classes):
            if spare[queue, priority] > 0:
                ratio[queue, priority] = _ratio(
                    batches, batch, sources, rows, priority, float(spare[queue, priority])
                )
    return ratio


def _ratio(
    batches: Batches, batch: Integers, sources: Sources, rows: Integers, priority: int, spare: float
) -> float:
    """One queue and class: U / (a₂/2c) with U = σ W + a₂/2."""
    work, variance = batches.mean[batch, priority], batches.variance[batch, priority]
    rate, periodic = sources.rate[rows], sources.periodic[rows]
    second = float((rate * (work**2 + variance)).sum())
    load = float((rate * work).sum())
    if second <= 0 or load <= 0:
        return 1.0
    poisson_mean = second / (2 * spare)
    span = poisson_mean / spare
    time = np.geomspace(span / 200, span * 20, TIME_POINTS)
    periods = time * rate[:, None]
    left = periods - np.floor(periods)
    bridge = (work**2)[:, None] * left * (1 - left) + variance[:, None] * periods
    free = (work**2 + variance)[:, None] * periods
    spread = np.where(periodic[:, None], bridge, free).sum(axis=0)

    found = 0.0
    weight = rate * work / load
    if (~periodic).any():
        found += weight[~periodic].sum() * _mean_found(poisson_mean, spare, time, spread, 0.0)
    share = weight[periodic].sum()
    if share > 0:
        part = (weight[periodic] / share)[:, None]
        own = bridge[periodic] - variance[periodic, None] * np.floor(periods[periodic])
        others = np.maximum(spread - (part * own).sum(axis=0), 0.0)
        gap = (part * work[periodic, None] * left[periodic]).sum(axis=0)
        found += share * _mean_found(poisson_mean, spare, time, others, gap)
    return (load * found + second / 2) / poisson_mean


def _mean_found(
    poisson_mean: float, spare: float, time: Floats, spread: Floats, gap: Floats | float
) -> float:
    """∫ P(V > x) dx, where ``gap`` is the work that the tagged source has not sent within t."""
    level = WORK_GRID * poisson_mean
    with np.errstate(divide="ignore"):
        exponent = ((level[:, None] + spare * time + gap) ** 2 / (2 * spread)).min(axis=1)
    return float(np.trapezoid(np.exp(-exponent), level))
