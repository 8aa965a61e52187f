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
NOTHING = 1e-6
WORK_GRID = np.linspace(0.0, 1.0, 96) ** 2 * 8.0
"""In units of the mean under Poisson arrivals; finer near zero."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Who publishes to each topic: one row for each publisher and topic, sorted by topic.

    ``kept``: the fraction of a source's events that gets here; a clock that loses some of its ticks
    is not a slower clock.
    """

    topic: Integers
    rate: Floats
    kept: Floats
    periodic: NDArray[np.bool_]

    def of(self, topics: Integers) -> tuple[Integers, Integers]:
        """Rows of these sources for ``topics``, and which of ``topics`` each row belongs to."""
        start = np.searchsorted(self.topic, topics, side="left")
        stop = np.searchsorted(self.topic, topics, side="right")
        count = stop - start
        owner = np.repeat(np.arange(len(topics)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return start[owner] + offset, owner


def regularity(traffic: QueueTraffic, sources: Sources) -> tuple[Floats, Floats]:
    """How much less is queued than Poisson publications would queue (queues × classes).

    First the ratio of the means, then that of E[V²]/E[V]²: clockwork also varies less.
    """
    ratio = np.ones((traffic.queues, traffic.classes))
    evenness = np.ones_like(ratio)
    if not sources.periodic.any():
        return ratio, evenness
    batches = traffic.batches
    spare = 1.0 - np.cumsum(traffic.load, axis=1)
    for queue in range(traffic.queues):
        here = np.flatnonzero(batches.queue == queue)
        rows, owner = sources.of(batches.topic[here])
        alive = sources.rate[rows] > 0
        rows, owner = rows[alive], owner[alive]
        if not sources.periodic[rows].any():
            continue
        batch = here[owner]
        for priority in range(traffic.classes):
            if spare[queue, priority] > 0:
                ratio[queue, priority], evenness[queue, priority] = _ratios(
                    batches, batch, sources, rows, priority, float(spare[queue, priority])
                )
    return ratio, evenness


def _ratios(
    batches: Batches, batch: Integers, sources: Sources, rows: Integers, priority: int, spare: float
) -> tuple[float, float]:
    """One queue and class: U / (a₂/2c) with U = σ W + a₂/2, and the evenness of what is found."""
    whole, kept = batches.mean[batch, priority], sources.kept[rows]
    work = kept * whole
    variance = kept * (batches.variance[batch, priority] + whole**2) - work**2
    rate, periodic = sources.rate[rows], sources.periodic[rows]
    second = float((rate * (work**2 + variance)).sum())
    load = float((rate * work).sum())
    if second <= 0 or load <= 0:
        return 1.0, 1.0
    poisson_mean = second / (2 * spare)
    span = poisson_mean / spare
    time = np.geomspace(span / 200, span * 20, TIME_POINTS)
    periods = time * rate[:, None]
    left = periods - np.floor(periods)
    bridge = (work**2)[:, None] * left * (1 - left) + variance[:, None] * periods
    free = (work**2 + variance)[:, None] * periods
    spread = np.where(periodic[:, None], bridge, free).sum(axis=0)

    found = np.zeros(2)
    weight = rate * work / load
    if (~periodic).any():
        found += weight[~periodic].sum() * _moments_found(poisson_mean, spare, time, spread, 0.0)
    share = weight[periodic].sum()
    if share > 0:
        part = (weight[periodic] / share)[:, None]
        own = bridge[periodic] - variance[periodic, None] * np.floor(periods[periodic])
        others = np.maximum(spread - (part * own).sum(axis=0), 0.0)
        gap = (part * work[periodic, None] * left[periodic]).sum(axis=0)
        found += share * _moments_found(poisson_mean, spare, time, others, gap)
    mean, square = float(found[0]), float(found[1])
    evenness = min(square / (2 * mean**2), 1.0) if mean > NOTHING * poisson_mean else 0.5
    return (load * mean + second / 2) / poisson_mean, max(evenness, 0.5)


def _moments_found(
    poisson_mean: float, spare: float, time: Floats, spread: Floats, gap: Floats | float
) -> Floats:
    """∫ P(V > x) dx and ∫ 2x P(V > x) dx.

    ``gap`` is the work that the tagged source has not sent within t.
    """
    level = WORK_GRID * poisson_mean
    with np.errstate(divide="ignore"):
        exponent = ((level[:, None] + spare * time + gap) ** 2 / (2 * spread)).min(axis=1)
    tail = np.exp(-exponent)
    return np.array([np.trapezoid(tail, level), np.trapezoid(2 * level * tail, level)])
