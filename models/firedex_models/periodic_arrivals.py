"""How much shorter queues are with periodic publications than with Poisson publications.

Work that arrives within a time t has mean σt and variance v(t). For Poisson sources v(t) = a₂t; a
periodic source of period T with batch work X adds only X² f (1−f), where f is the fractional part
of t/T. If arrivals are treated as Gaussian with this variance at *every* time scale, then

    P(V > x) ≈ exp(− min_t (x + ct)² / 2 v(t)).

This is exact for Poisson traffic in heavy load (an exponential with mean a₂/2c) and for equal
periods (a Brownian bridge). A publication does not see the queue of a random observer: the previous
events of its own source were a whole number of periods ago, so they are removed from v and counted
exactly. The mean work in the queue is σ W + a₂/2, where W is the mean work that an arrival finds;
this module returns its ratio to the Poisson value a₂/2c. ``docs/concepts/model.md`` lists the
errors against simulation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.columns import Floats, Integers
from firedex_models.queue_traffic import Batches, QueueTraffic

__all__ = ["Sources", "periodic_ratios"]


TIME_POINTS = 96
NEGLIGIBLE = 1e-6
WORK_GRID = np.linspace(0.0, 1.0, 96) ** 2 * 8.0
"""Amounts of work, in units of the mean with Poisson arrivals; finer near zero."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources of each topic: one row per publisher and topic, sorted by topic.

    ``arriving_fraction``: the fraction of a source's events that arrive. It is separate from
    ``rate``, because a periodic source that loses events is not one with a lower rate.
    """

    topic: Integers
    rate: Floats
    arriving_fraction: Floats
    periodic: NDArray[np.bool_]

    def rows_of(self, topics: Integers) -> tuple[Integers, Integers]:
        """Return the rows of the sources of ``topics``, and the topic of each row."""
        start = np.searchsorted(self.topic, topics, side="left")
        stop = np.searchsorted(self.topic, topics, side="right")
        count = stop - start
        owner = np.repeat(np.arange(len(topics)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return start[owner] + offset, owner


def periodic_ratios(traffic: QueueTraffic, sources: Sources) -> tuple[Floats, Floats]:
    """Return ratios of the work in queues to that with Poisson publications (queues × classes).

    The first is the ratio of the means, the second that of E[V²]/E[V]².
    """
    ratio = np.ones((traffic.queues, traffic.classes))
    moment_ratio = np.ones_like(ratio)
    if not sources.periodic.any():
        return ratio, moment_ratio
    batches = traffic.batches
    spare = 1.0 - np.cumsum(traffic.load, axis=1)
    for queue in range(traffic.queues):
        here = np.flatnonzero(batches.queue == queue)
        rows, owner = sources.rows_of(batches.topic[here])
        active = sources.rate[rows] > 0
        rows, owner = rows[active], owner[active]
        if not sources.periodic[rows].any():
            continue
        batch = here[owner]
        for priority in range(traffic.classes):
            if spare[queue, priority] > 0:
                ratio[queue, priority], moment_ratio[queue, priority] = _ratios(
                    batches, batch, sources, rows, priority, float(spare[queue, priority])
                )
    return ratio, moment_ratio


def _ratios(
    batches: Batches, batch: Integers, sources: Sources, rows: Integers, priority: int, spare: float
) -> tuple[float, float]:
    """Return U / (a₂/2c) with U = σ W + a₂/2, and the second ratio, for one queue and class."""
    batch_work, arriving_fraction = batches.mean[batch, priority], sources.arriving_fraction[rows]
    work = arriving_fraction * batch_work
    variance = arriving_fraction * (batches.variance[batch, priority] + batch_work**2) - work**2
    rate, periodic = sources.rate[rows], sources.periodic[rows]
    second = float((rate * (work**2 + variance)).sum())
    load = float((rate * work).sum())
    if second <= 0 or load <= 0:
        return 1.0, 1.0
    poisson_mean = second / (2 * spare)
    span = poisson_mean / spare
    time = np.geomspace(span / 200, span * 20, TIME_POINTS)
    periods = time * rate[:, None]
    fraction = periods - np.floor(periods)
    bridge = (work**2)[:, None] * fraction * (1 - fraction) + variance[:, None] * periods
    poisson = (work**2 + variance)[:, None] * periods
    spread = np.where(periodic[:, None], bridge, poisson).sum(axis=0)

    found_work = np.zeros(2)
    weight = rate * work / load
    if (~periodic).any():
        found_work += weight[~periodic].sum() * _work_moments_at_arrival(
            poisson_mean, spare, time, spread, 0.0
        )
    share = weight[periodic].sum()
    if share > 0:
        part = (weight[periodic] / share)[:, None]
        own = bridge[periodic] - variance[periodic, None] * np.floor(periods[periodic])
        others = np.maximum(spread - (part * own).sum(axis=0), 0.0)
        gap = (part * work[periodic, None] * fraction[periodic]).sum(axis=0)
        found_work += share * _work_moments_at_arrival(poisson_mean, spare, time, others, gap)
    mean, square = float(found_work[0]), float(found_work[1])
    moment_ratio = min(square / (2 * mean**2), 1.0) if mean > NEGLIGIBLE * poisson_mean else 0.5
    return (load * mean + second / 2) / poisson_mean, max(moment_ratio, 0.5)


def _work_moments_at_arrival(
    poisson_mean: float, spare: float, time: Floats, spread: Floats, gap: Floats | float
) -> Floats:
    """Return ∫ P(V > x) dx and ∫ 2x P(V > x) dx.

    ``gap`` is the work that the source itself has not sent within t.
    """
    level = WORK_GRID * poisson_mean
    with np.errstate(divide="ignore"):
        exponent = ((level[:, None] + spare * time + gap) ** 2 / (2 * spread)).min(axis=1)
    tail = np.exp(-exponent)
    return np.array([np.trapezoid(tail, level), np.trapezoid(2 * level * tail, level)])
