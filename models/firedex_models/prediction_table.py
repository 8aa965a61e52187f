"""A prediction as columns; rows and wire types are created on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firedex.wire import (
    ClassPrediction,
    Method,
    ModelName,
    Prediction,
    QueuePrediction,
    SubscriptionPrediction,
    SwitchPrediction,
)
from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.delay_distribution import Mixture, percentile
from firedex_models.routes import Hop
from firedex_models.site import Site

__all__ = ["FLUID", "UNSTABLE", "PredictionTable", "StreamOutcome", "build_table"]

METHODS: tuple[Method, ...] = (
    "queueing",
    "fluid",
    "unstable",
    "nothing-delivered",
    "nothing-offered",
)
QUEUEING, FLUID, UNSTABLE, NOTHING_DELIVERED, NOTHING_OFFERED = range(5)


@dataclass(frozen=True, kw_only=True)
class StreamOutcome:
    """Delay and success of each stream from publisher to subscriber (arrays over streams)."""

    offered: Floats
    success: Floats
    mean: Floats
    variance: Floats
    fixed: Floats
    blocked_at: Integers
    """The first unstable or overflowing hop: a row of downlinks followed by uplinks, or −1."""


@dataclass(frozen=True, kw_only=True)
class PredictionTable:
    """One prediction, as columns over subscriptions; a delay that does not exist is NaN."""

    site: Site
    model: ModelName
    offered_events_per_second: Floats
    success_rate: Floats
    delay_mean_seconds: Floats
    delay_variance: Floats
    delay_fixed_seconds: Floats
    timely_fraction: Floats
    deadline_met: Floats
    utility: Floats
    maximum_utility: Floats
    timely_utility: float
    method: Integers
    blocked_at: Integers
    queues: Sequence[QueuePrediction]
    hops: Sequence[Hop]
    mixture: Mixture

    @cached_property
    def delay_p50_seconds(self) -> Floats:
        """The median delay of each subscription's delivered events."""
        return self._percentile(0.50)

    @cached_property
    def delay_p95_seconds(self) -> Floats:
        """The 95th percentile of the delay of each subscription's delivered events."""
        return self._percentile(0.95)

    @cached_property
    def delay_p99_seconds(self) -> Floats:
        """The 99th percentile of the delay of each subscription's delivered events."""
        return self._percentile(0.99)

    def _percentile(self, level: float) -> Floats:
        return self.mixture.percentile(level)

    @property
    def priority(self) -> Integers:
        """The class of each subscription."""
        return self.site.flows.priority[self.site.subscription_flow]

    @property
    def achieved_utility_rate(self) -> float:
        """ΣU / ΣÛ, the measure for decisions; 1 if the maximum utility is 0."""
        maximum = float(self.maximum_utility.sum())
        return min(float(self.utility.sum()) / maximum, 1.0) if maximum > 0 else 1.0

    @property
    def achieved_utility_rate_per_subscription(self) -> float:
        """The measure of the paper: the mean of U/Û, in which the weights cancel out."""
        has_utility = self.maximum_utility > 0
        if not has_utility.any():
            return 1.0
        return min(
            float((self.utility[has_utility] / self.maximum_utility[has_utility]).mean()), 1.0
        )

    def classes(self) -> tuple[ClassPrediction, ...]:
        """Return the predictions of all classes with subscriptions."""
        priority = self.priority
        return tuple(self._class(int(k), priority == k) for k in np.unique(priority))

    def _class(self, priority: int, members: NDArray[np.bool_]) -> ClassPrediction:
        offered = self.offered_events_per_second[members]
        success = self.success_rate[members]
        delivered = offered * success
        mean = self.delay_mean_seconds[members]
        has_deliveries = delivered > 0
        delay = p95 = None
        if has_deliveries.any() and np.isfinite(mean[has_deliveries]).all():
            weight = delivered[has_deliveries] / delivered[has_deliveries].sum()
            average = (weight * mean[has_deliveries]).sum()
            square = (
                weight * (self.delay_variance[members][has_deliveries] + mean[has_deliveries] ** 2)
            ).sum()
            delay = float(average)
            fixed = self.delay_fixed_seconds[members][has_deliveries].min()
            p95_array = percentile(
                np.array([average]), np.array([square - average**2]), np.array([fixed]), 0.95
            )
            p95 = float(p95_array[0])
        rate = float(offered.sum())
        return ClassPrediction(
            priority=priority,
            subscriptions=int(members.sum()),
            offered_events_per_second=rate,
            success_rate=float(delivered.sum() / rate) if rate > 0 else float(success.mean()),
            delay_mean_seconds=delay,
            delay_p95_seconds=p95,
        )

    def switches(self) -> tuple[SwitchPrediction, ...]:
        """Return all switches with the load of their busiest port, in the scenario's order."""
        busiest: dict[str, float] = {s.id: 0.0 for s in self.site.scenario.network.switches}
        for queue in self.queues:
            if queue.kind in ("switch-out", "switch-uplink") and queue.switch is not None:
                busiest[queue.switch] = max(busiest[queue.switch], queue.utilization)
        return tuple(
            SwitchPrediction(id=switch, utilization=load) for switch, load in busiest.items()
        )

    @property
    def first_to_saturate(self) -> str:
        """The queue that would saturate first if all rates increased in proportion."""
        busiest = max(self.queues, key=lambda queue: queue.utilization, default=None)
        return busiest.id if busiest is not None and busiest.utilization > 0 else ""

    def rows(self) -> tuple[SubscriptionPrediction, ...]:
        """Return the prediction of each subscription, in the scenario's order."""
        return tuple(self._row(row) for row in range(len(self.success_rate)))

    def _row(self, row: int) -> SubscriptionPrediction:
        site = self.site
        subscription = site.subscriptions[row]
        flow = site.subscription_flow[row]
        met = self.deadline_met[row]
        return SubscriptionPrediction(
            subscriber=site.scenario.subscribers[site.demand.subscriber[row]].id,
            filter=subscription.filter,
            flow=int(site.flows.number[flow]),
            priority=int(site.flows.priority[flow]),
            drop_rate=float(site.flows.drop_rate[flow]),
            offered_events_per_second=float(self.offered_events_per_second[row]),
            success_rate=float(self.success_rate[row]),
            delay_mean_seconds=_finite_or_none(self.delay_mean_seconds[row]),
            delay_p50_seconds=_finite_or_none(self.delay_p50_seconds[row]),
            delay_p95_seconds=_finite_or_none(self.delay_p95_seconds[row]),
            delay_p99_seconds=_finite_or_none(self.delay_p99_seconds[row]),
            utility=float(self.utility[row]),
            maximum_utility=float(self.maximum_utility[row]),
            timely_fraction=float(self.timely_fraction[row]),
            deadline_seconds=subscription.deadline_seconds,
            deadline_met=None if np.isnan(met) else bool(met),
            method=METHODS[self.method[row]],
            reason=self.reason(row),
        )

    def reason(self, row: int) -> str | None:
        """Return why a subscription has no delay or only an approximate one, or None."""
        method = self.method[row]
        if method == QUEUEING:
            return None
        if method == NOTHING_OFFERED:
            return "no publisher publishes a topic that the filter matches"
        blocked = self.blocked_at[row]
        if blocked < 0 and method == NOTHING_DELIVERED:
            return "every event is dropped"
        overloaded = [q for q in self.queues if q.reason]
        if blocked >= 0:
            hop = self.hops[blocked]
            same_hop = [q for q in overloaded if q.id == hop.name]
            overloaded = (
                same_hop or [q for q in overloaded if q.switch == hop.switch.id] or overloaded
            )
        return next((f"{q.id}: {q.reason}" for q in overloaded), None)

    def to_prediction(self) -> Prediction:
        """Return the prediction as a wire type."""
        return Prediction(
            model=self.model,
            subscriptions=self.rows(),
            classes=self.classes(),
            switches=self.switches(),
            queues=tuple(self.queues),
            first_to_saturate=self.first_to_saturate,
            utility=float(self.utility.sum()),
            maximum_utility=float(self.maximum_utility.sum()),
            achieved_utility_rate=self.achieved_utility_rate,
            achieved_utility_rate_per_subscription=self.achieved_utility_rate_per_subscription,
            timely_utility=self.timely_utility,
            deadlines_missed=int((self.deadline_met == 0).sum()),
        )


def _finite_or_none(delay: float) -> float | None:
    return float(delay) if np.isfinite(delay) else None


def build_table(
    site: Site,
    model: ModelName,
    outcome: StreamOutcome,
    queues: Sequence[QueuePrediction],
    hops: Sequence[Hop],
) -> PredictionTable:
    """Combine streams into subscriptions: the delay of a filter is the mixture of its topics."""
    count = len(site.subscriptions)
    subscription, stream = site.member_subscription, site.member_stream

    def total(amount: Floats) -> Floats:
        return group_sums(subscription, amount, count)

    offered = total(outcome.offered[stream])
    weight = np.where(offered[subscription] > 0, outcome.offered[stream], 1.0)
    base = total(weight)
    success = np.divide(
        total(weight * outcome.success[stream]), base, out=np.ones(count), where=base > 0
    )
    success = np.clip(success, 0.0, 1.0)

    delivered_rate = weight * outcome.success[stream]
    delivered = total(delivered_rate)
    part = np.divide(
        delivered_rate,
        delivered[subscription],
        out=np.zeros_like(delivered_rate),
        where=delivered_rate > 0,
    )
    stream_mean = np.where(part > 0, outcome.mean[stream], 0.0)
    with np.errstate(invalid="ignore"):
        mean = total(part * stream_mean)
        square = total(part * np.where(part > 0, outcome.variance[stream] + stream_mean**2, 0.0))
        variance = np.maximum(square - mean**2, 0.0)
    fixed = np.full(count, np.inf)
    np.minimum.at(fixed, subscription, np.where(part > 0, outcome.fixed[stream], np.inf))
    blocked_at = np.full(count, -1, dtype=np.int64)
    np.maximum.at(blocked_at, subscription, outcome.blocked_at[stream])

    infinite_buffer = np.array(
        [hop.switch.buffer is None for hop in hops] + [False]
    )  # the last entry is for −1
    is_unstable = ~np.isfinite(mean) | infinite_buffer[blocked_at]
    method = np.select(
        [offered <= 0, is_unstable, delivered <= 0, blocked_at >= 0],
        [NOTHING_OFFERED, UNSTABLE, NOTHING_DELIVERED, FLUID],
        QUEUEING,
    )
    exists = np.isfinite(mean) & (offered > 0) & (delivered > 0)
    mean = np.where(exists, mean, np.nan)
    variance = np.where(exists, variance, np.nan)
    fixed = np.where(exists, np.minimum(fixed, mean), np.nan)
    deadline, level = site.demand.deadline_seconds, site.demand.deadline_percentile
    is_delivered = part > 0
    mixture = Mixture(
        whole_mean=mean,
        whole_variance=variance,
        whole_fixed=fixed,
        group=subscription[is_delivered],
        weight=part[is_delivered],
        mean=outcome.mean[stream][is_delivered],
        variance=outcome.variance[stream][is_delivered],
        fixed=outcome.fixed[stream][is_delivered],
    )
    timely_share = np.where(exists | (offered <= 0), 1.0, 0.0)
    has_deadline = np.isfinite(deadline) & exists
    if has_deadline.any():
        timely_share[has_deadline] = mixture.fraction_within(deadline)[has_deadline]
    timely = np.where(np.isfinite(deadline), success * timely_share, success)
    utilities = site.demand.utilities
    return PredictionTable(
        site=site,
        model=model,
        offered_events_per_second=offered,
        success_rate=success,
        delay_mean_seconds=mean,
        delay_variance=variance,
        delay_fixed_seconds=fixed,
        timely_fraction=timely,
        deadline_met=np.where(
            np.isfinite(deadline) & (offered > 0), (timely_share >= level).astype(float), np.nan
        ),
        utility=np.where(offered > 0, utilities.evaluate(success), 0.0),
        maximum_utility=np.where(offered > 0, utilities.maximum, 0.0),
        timely_utility=float(utilities.evaluate(timely)[offered > 0].sum()),
        method=method,
        blocked_at=blocked_at,
        queues=queues,
        hops=hops,
        mixture=mixture,
    )
