"""The results of replications: counts, sums and histograms of fixed size."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import stdtrit

from firedex.wire import (
    NotificationCounts,
    SimulatedClass,
    SimulatedQueue,
    SimulatedSubscription,
    SimulatedSwitch,
    SimulationReport,
)
from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.routes import Hop
from firedex_models.simulation.batch import AT_BUFFER, AT_GATEWAY, AT_METER, DELIVERED, ON_LINK
from firedex_models.site import Site

__all__ = [
    "BINS",
    "Estimate",
    "GroupEstimates",
    "SimulationSummary",
    "Tally",
    "bin_edges",
    "count_packets",
    "simulation_report",
]

BINS = 1200
SHORTEST, LONGEST = 1e-6, 1e4
"""Range of the histogram of delays in seconds; its bins have equal ratios (1.9 %)."""


def bin_edges() -> Floats:
    """Return the bounds of the bins; the first and last bins include delays outside."""
    return np.geomspace(SHORTEST, LONGEST, BINS + 1)


@dataclass(kw_only=True)
class Tally:
    """Counts of one replication.

    ``outcomes`` counts all notifications; the other counts omit warm-up and cool-down. ``offered``,
    ``delivered``, ``delay`` and ``histogram`` have one row per stream; ``timely`` has one per
    subscription. ``hop_load``: offered work divided by time. ``hop_waiting``: mean number of
    packets that an arrival finds waiting.
    """

    offered: Integers
    delivered: Integers
    delay: Floats
    histogram: NDArray[np.int32]
    timely: Integers
    outcomes: Integers
    hop_load: dict[str, float] = field(default_factory=dict)
    hop_waiting: dict[str, float] = field(default_factory=dict)
    publications: int = 0
    notifications: int = 0

    @classmethod
    def empty(cls, streams: int, subscriptions: int) -> "Tally":
        """Return a tally in which all counts are 0."""
        return cls(
            offered=np.zeros(streams, dtype=np.int64),
            delivered=np.zeros(streams, dtype=np.int64),
            delay=np.zeros(streams),
            histogram=np.zeros((streams, BINS), dtype=np.int32),
            timely=np.zeros(subscriptions, dtype=np.int64),
            outcomes=np.zeros(5, dtype=np.int64),
        )


@njit(cache=True)
def count_packets(  # type: ignore[no-untyped-def]
    stream, outcome, delay, evaluated, first_subscription, subscription_of, deadline,
    offered, delivered, total, histogram, timely, outcomes,
):  # fmt: skip
    """Add packets to the counts per stream, per subscription (timely) and per outcome."""
    scale = BINS / np.log(LONGEST / SHORTEST)
    for row in range(len(stream)):
        outcomes[outcome[row]] += 1
        if not evaluated[row]:
            continue
        s = stream[row]
        offered[s] += 1
        if outcome[row] != DELIVERED:
            continue
        d = delay[row]
        delivered[s] += 1
        total[s] += d
        cell = int(np.log(max(d, SHORTEST) / SHORTEST) * scale)
        histogram[s, min(cell, BINS - 1)] += 1
        for member in range(first_subscription[s], first_subscription[s + 1]):
            if d <= deadline[subscription_of[member]]:
                timely[subscription_of[member]] += 1


CONFIDENCE = 0.95
LEVELS = (0.50, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Means over replications, and the half-widths of their confidence intervals.

    A mean without values is NaN; a half-width needs two replications.
    """

    mean: Floats
    half_width: Floats

    @classmethod
    def from_replications(cls, values: Floats) -> "Estimate":
        """Estimate from one row per replication; NaN values are ignored."""
        is_known = np.isfinite(values)
        count = is_known.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            total = np.where(is_known, values, 0.0).sum(axis=0)
            mean = np.where(count > 0, total / count, np.nan)
            spread = np.where(is_known, (values - mean) ** 2, 0.0).sum(axis=0)
            error = np.sqrt(spread / (count - 1) / count)
        factor = stdtrit(np.maximum(count - 1, 1), (1 + CONFIDENCE) / 2)
        return cls(mean=mean, half_width=np.where(count > 1, factor * error, np.nan))


@dataclass(frozen=True, kw_only=True)
class GroupEstimates:
    """Estimates with one row per subscription, or one per class."""

    offered: Floats
    success_rate: Estimate
    delay_mean_seconds: Estimate
    delay_p50_seconds: Estimate
    delay_p95_seconds: Estimate
    delay_p99_seconds: Estimate
    timely_fraction: Estimate


@dataclass(frozen=True, kw_only=True)
class SimulationSummary:
    """The results of all replications of one site."""

    site: Site
    uplinks: Sequence[Hop]
    tallies: Sequence[Tally]

    @cached_property
    def priority(self) -> Integers:
        """The class of each subscription."""
        return self.site.flows.priority[self.site.subscription_flow]

    @cached_property
    def subscriptions(self) -> GroupEstimates:
        """The estimates of each subscription."""
        return self._estimate_groups(
            np.arange(len(self.site.subscriptions)), len(self.site.subscriptions)
        )

    @cached_property
    def classes(self) -> GroupEstimates:
        """The estimates of each class, including classes without subscriptions."""
        return self._estimate_groups(self.priority, int(self.priority.max(initial=-1)) + 1)

    def _estimate_groups(self, group: Integers, groups: int) -> GroupEstimates:
        member = group[self.site.member_subscription]
        stream = self.site.member_stream
        rows: dict[str, list[Floats]] = {}
        total_offered = np.zeros(groups)
        for tally in self.tallies:
            offered = group_sums(member, tally.offered[stream].astype(float), groups)
            delivered = group_sums(member, tally.delivered[stream].astype(float), groups)
            delay = group_sums(member, tally.delay[stream], groups)
            timely = group_sums(group, tally.timely.astype(float), groups)
            histogram = np.zeros((groups, tally.histogram.shape[1]))
            np.add.at(histogram, member, tally.histogram[stream])
            total_offered += offered
            with np.errstate(invalid="ignore", divide="ignore"):
                rows.setdefault("success", []).append(delivered / offered)
                rows.setdefault("timely", []).append(timely / offered)
                rows.setdefault("mean", []).append(delay / delivered)
            for level in LEVELS:
                rows.setdefault(f"p{level:.2f}", []).append(_percentile(histogram, level))
        estimate = {
            name: Estimate.from_replications(np.array(values)) for name, values in rows.items()
        }
        return GroupEstimates(
            offered=total_offered,
            success_rate=estimate["success"],
            delay_mean_seconds=estimate["mean"],
            delay_p50_seconds=estimate["p0.50"],
            delay_p95_seconds=estimate["p0.95"],
            delay_p99_seconds=estimate["p0.99"],
            timely_fraction=estimate["timely"],
        )

    def _total_utility(self, fraction: Floats) -> float:
        has_events = self.subscriptions.offered > 0
        utility = self.site.demand.utilities.evaluate(np.nan_to_num(fraction, nan=0.0))
        return float(utility[has_events].sum())

    @property
    def utility(self) -> float:
        """ΣU of the success rates."""
        return self._total_utility(self.subscriptions.success_rate.mean)

    @property
    def timely_utility(self) -> float:
        """ΣU of the fractions that arrive within their deadlines."""
        return self._total_utility(self.subscriptions.timely_fraction.mean)

    @property
    def maximum_utility(self) -> float:
        """ΣU at a success rate of 1."""
        return self._total_utility(np.ones(len(self.site.subscriptions)))

    @property
    def achieved_utility_rate(self) -> float:
        """ΣU / ΣÛ; 1 if the maximum utility is 0."""
        maximum = self.maximum_utility
        return min(self.utility / maximum, 1.0) if maximum > 0 else 1.0

    @property
    def achieved_utility_rate_per_subscription(self) -> float:
        """The measure of the paper: the mean of U/Û."""
        utilities = self.site.demand.utilities
        has_utility = (self.subscriptions.offered > 0) & (utilities.maximum > 0)
        if not has_utility.any():
            return 1.0
        success = np.nan_to_num(self.subscriptions.success_rate.mean, nan=0.0)
        return float(
            (utilities.evaluate(success)[has_utility] / utilities.maximum[has_utility]).mean()
        )

    @property
    def outcomes(self) -> Integers:
        """The number of notifications with each outcome, over all replications."""
        total: Integers = np.sum([tally.outcomes for tally in self.tallies], axis=0)
        return total

    def hop_load(self) -> dict[str, float]:
        """Return the mean offered load of every hop."""
        return _mean_by_name([tally.hop_load for tally in self.tallies])

    def hop_waiting(self) -> dict[str, float]:
        """Return the mean number of packets that an arrival finds waiting at every hop."""
        return _mean_by_name([tally.hop_waiting for tally in self.tallies])


def _mean_by_name(values: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name: None for each in values for name in each}
    return {name: float(np.mean([each.get(name, 0.0) for each in values])) for name in names}


def _percentile(histogram: Floats, level: float) -> Floats:
    """Return the delay that a fraction ``level`` does not exceed; linear within a bin."""
    edges = bin_edges()
    total = histogram.sum(axis=1)
    below = np.cumsum(histogram, axis=1)
    target = level * total
    cell = np.minimum((below < target[:, None]).sum(axis=1), histogram.shape[1] - 1)
    row = np.arange(len(total))
    before = np.where(cell > 0, below[row, np.maximum(cell - 1, 0)], 0.0)
    in_cell = histogram[row, cell]
    fraction = np.divide(target - before, in_cell, out=np.zeros(len(total)), where=in_cell > 0)
    value = edges[cell] + fraction * (edges[cell + 1] - edges[cell])
    return np.where(total > 0, value, np.nan)


def simulation_report(summary: SimulationSummary) -> SimulationReport:
    """Return all results as a wire type."""
    outcomes = summary.outcomes.tolist()
    return SimulationReport(
        replications=len(summary.tallies),
        publications=sum(tally.publications for tally in summary.tallies),
        notifications=NotificationCounts(
            delivered=outcomes[DELIVERED],
            dropped_at_gateway=outcomes[AT_GATEWAY],
            dropped_at_meter=outcomes[AT_METER],
            dropped_at_buffer=outcomes[AT_BUFFER],
            lost_on_link=outcomes[ON_LINK],
        ),
        subscriptions=_subscriptions(summary),
        classes=_classes(summary),
        switches=_switches(summary),
        queues=_queues(summary),
        utility=summary.utility,
        maximum_utility=summary.maximum_utility,
        achieved_utility_rate=summary.achieved_utility_rate,
        achieved_utility_rate_per_subscription=summary.achieved_utility_rate_per_subscription,
        timely_utility=summary.timely_utility,
    )


def _subscriptions(summary: SimulationSummary) -> tuple[SimulatedSubscription, ...]:
    site, flows = summary.site, summary.site.flows
    rows = []
    for row, subscription in enumerate(site.subscriptions):
        flow = site.subscription_flow[row]
        rows.append(
            SimulatedSubscription(
                subscriber=site.scenario.subscribers[site.demand.subscriber[row]].id,
                filter=subscription.filter,
                flow=int(flows.number[flow]),
                priority=int(flows.priority[flow]),
                drop_rate=float(flows.drop_rate[flow]),
                **_estimate_fields(summary.subscriptions, row),
            )
        )
    return tuple(rows)


def _classes(summary: SimulationSummary) -> tuple[SimulatedClass, ...]:
    return tuple(
        SimulatedClass(
            priority=int(k),
            subscriptions=int((summary.priority == k).sum()),
            **_estimate_fields(summary.classes, int(k)),
        )
        for k in np.unique(summary.priority)
    )


def _estimate_fields(estimates: GroupEstimates, row: int) -> dict[str, Any]:
    return {
        "success_rate": _finite_or_none(estimates.success_rate.mean[row]),
        "success_rate_half_width": _finite_or_none(estimates.success_rate.half_width[row]),
        "delay_mean_seconds": _finite_or_none(estimates.delay_mean_seconds.mean[row]),
        "delay_mean_half_width_seconds": _finite_or_none(
            estimates.delay_mean_seconds.half_width[row]
        ),
        "delay_p50_seconds": _finite_or_none(estimates.delay_p50_seconds.mean[row]),
        "delay_p95_seconds": _finite_or_none(estimates.delay_p95_seconds.mean[row]),
        "delay_p95_half_width_seconds": _finite_or_none(
            estimates.delay_p95_seconds.half_width[row]
        ),
        "delay_p99_seconds": _finite_or_none(estimates.delay_p99_seconds.mean[row]),
        "timely_fraction": _finite_or_none(estimates.timely_fraction.mean[row]),
    }


def _switches(summary: SimulationSummary) -> tuple[SimulatedSwitch, ...]:
    load = summary.hop_load()
    busiest = {switch.id: 0.0 for switch in summary.site.scenario.network.switches}
    for hop in [*summary.site.downlinks.hops, *summary.uplinks]:
        busiest[hop.switch.id] = max(busiest[hop.switch.id], load.get(hop.name, 0.0))
    return tuple(SimulatedSwitch(id=name, utilization=load) for name, load in busiest.items())


def _queues(summary: SimulationSummary) -> tuple[SimulatedQueue, ...]:
    load, waiting = summary.hop_load(), summary.hop_waiting()
    return tuple(
        SimulatedQueue(id=name, utilization=load[name], waiting_packets=waiting[name])
        for name in load
    )


def _finite_or_none(figure: float) -> float | None:
    return float(figure) if np.isfinite(figure) else None
