"""Derived data of an active configuration for the dashboard. Pure.

It is computed once per configuration; measurements are combined with it every second.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firedex.dashboard.alerts import UnpublishedTopic
from firedex.dashboard.delivery_gaps import (
    SILENT_SHARE,
    SilentTopic,
    SubscriptionKey,
    TopicShare,
    forecasts,
)
from firedex.dashboard.flow_measurements import FlowForecast, FlowKey, FlowMeasurement
from firedex.dashboard.links import Port, Shares, planned_shares, ports_on_paths, published_rates
from firedex.wire import Configuration, LinearUtility, Prediction, Scenario, SubscriptionPrediction
from firedex.wire.overview import DeadlineStatus, LateSubscription, UtilityStatus
from firedex_models.topic_index import TopicIndex
from firedex_models.utility import UtilityColumns

__all__ = ["REPORTED_PERCENTILE", "SiteView", "meets_deadline"]

NO_UTILITY = LinearUtility(weight=0.0)
"""Utility of a subscription that was removed after planning."""
COMMAND = "command"
OTHER_PERCENTILE = "the deadline applies to another percentile than the measured 95th"
NO_SILENCE: Mapping[SubscriptionKey, float] = {}


@dataclass(frozen=True, kw_only=True)
class SiteView:
    """An active configuration with its prediction and the scenario that was planned."""

    configuration: Configuration
    prediction: Prediction
    scenario: Scenario

    @cached_property
    def forecasts(self) -> Mapping[FlowKey, FlowForecast]:
        """Forecast of each flow."""
        return forecasts(self.prediction.subscriptions)

    @cached_property
    def shares(self) -> Shares:
        """Planned bits per second of each class on each port."""
        return planned_shares(self.scenario, self.prediction.subscriptions)

    @cached_property
    def paths(self) -> Mapping[str, tuple[Port, ...]]:
        """Ports on the path to each subscriber."""
        return ports_on_paths(self.scenario)

    @cached_property
    def commanders(self) -> Set[str]:
        """Subscribers with the role command."""
        return {each.id for each in self.scenario.subscribers if each.role == COMMAND}

    def missing_subscribers(self, registered: Iterable[str]) -> list[str]:
        """Return the subscribers that the configuration does not include."""
        return [name for name in registered if name not in self._planned_subscribers]

    @cached_property
    def _planned_subscribers(self) -> Set[str]:
        return {row.subscriber for row in self.prediction.subscriptions}

    @cached_property
    def topic_rates(self) -> Mapping[str, float]:
        """Planned rate of each topic."""
        return published_rates(self.scenario)

    def topics_of(self, name: str) -> Sequence[TopicShare]:
        """Return the published topics that a filter matches, with their shares."""
        known = self._shares_of_filter.get(name)
        if known is None:
            names = (self.scenario.topics[n].name for n in self._topic_index.matching(name))
            rates = {
                topic: rate for topic in names if (rate := self.topic_rates.get(topic, 0.0)) > 0
            }
            whole = sum(rates.values())
            known = [(topic, rate / whole) for topic, rate in rates.items()]
            self._shares_of_filter[name] = known
        return known

    def unpublished_topics(self, silent_topics: Sequence[SilentTopic]) -> list[UnpublishedTopic]:
        """Return silent topics with subscribers; a deadline or high utility makes them urgent."""
        if not silent_topics:
            return []
        rows = self.prediction.subscriptions
        index = TopicIndex([each.topic for each in silent_topics])
        average = sum(row.maximum_utility for row in rows) / max(len(rows), 1)
        important: dict[str, bool] = {}
        for row in rows:
            important[row.filter] = (
                important.get(row.filter, False)
                or row.deadline_seconds is not None
                or row.maximum_utility >= average
            )
        urgent: dict[int, bool] = {}
        for name, is_important in important.items():
            for number in index.matching(name).tolist():
                urgent[number] = urgent.get(number, False) or is_important
        return [UnpublishedTopic(topic=silent_topics[n], urgent=urgent[n]) for n in sorted(urgent)]

    def unpublished_shares(
        self, silent_topics: Sequence[SilentTopic], offline: Set[str] = frozenset()
    ) -> dict[SubscriptionKey, float]:
        """Return the share of each subscription that is declared but no longer published.

        Plans do not expect these events any longer, but their utility is lost all the same.
        """
        index = TopicIndex([each.topic for each in silent_topics])
        declared: dict[str, float] = {}
        found = {}
        for row in self.prediction.subscriptions if silent_topics else ():
            if row.filter not in declared:
                matched = index.matching(row.filter).tolist()
                declared[row.filter] = sum(silent_topics[n].declared_per_second for n in matched)
            gone = declared[row.filter]
            if gone > 0 and row.subscriber not in offline:
                part = gone / (gone + row.offered_events_per_second)
                whole = part >= 1 - SILENT_SHARE
                found[row.subscriber, row.filter] = 1.0 if whole else part
        return found

    @cached_property
    def _shares_of_filter(self) -> dict[str, Sequence[TopicShare]]:
        return {}

    @cached_property
    def _topic_index(self) -> TopicIndex:
        return TopicIndex([topic.name for topic in self.scenario.topics])

    @cached_property
    def _utilities(self) -> UtilityColumns:
        known = {
            (subscriber.id, subscription.filter): subscription.utility
            for subscriber in self.scenario.subscribers
            for subscription in subscriber.subscriptions
        }
        return UtilityColumns(
            [
                known.get((row.subscriber, row.filter), NO_UTILITY)
                for row in self.prediction.subscriptions
            ]
        )

    def utility(
        self,
        measured: Mapping[FlowKey, FlowMeasurement],
        silent: Mapping[SubscriptionKey, float] = NO_SILENCE,
    ) -> UtilityStatus:
        """Return the achieved share of the utility, predicted and measured.

        ``silent``: missing share of each subscription. A completely silent subscription counts as
        measured, with utility zero.
        """
        prediction, rows = self.prediction, self.prediction.subscriptions
        most = prediction.maximum_utility
        success = np.zeros(len(rows))
        timely = np.zeros(len(rows))
        known: list[int] = []
        for number, row in enumerate(rows):
            gone = silent.get((row.subscriber, row.filter), 0.0)
            flow = measured.get((row.subscriber, row.flow))
            rate = flow.success_rate if flow else None
            if gone >= 1:
                known.append(number)
            elif flow is not None and rate is not None:
                known.append(number)
                success[number] = rate * (1 - gone)
                timely[number] = self._is_timely(row, flow)
        total = sum(rows[number].maximum_utility for number in known)
        utilities = self._utilities.evaluate(success) if total > 0 else success
        return UtilityStatus(
            predicted=prediction.achieved_utility_rate,
            predicted_timely=_share(
                sum(row.utility for row in rows if row.deadline_met is not False), most
            ),
            measured=_share(float(utilities[known].sum()), total) if total > 0 else None,
            measured_timely=(
                _share(float((utilities * timely)[known].sum()), total) if total > 0 else None
            ),
            measured_subscriptions=len(known) if total > 0 else 0,
            subscriptions=len(rows),
        )

    def deadlines(
        self,
        measured: Mapping[FlowKey, FlowMeasurement],
        silent: Mapping[SubscriptionKey, float] = NO_SILENCE,
    ) -> DeadlineStatus:
        """Count subscriptions with a deadline, and those with a measured result."""
        due = [row for row in self.prediction.subscriptions if row.deadline_seconds is not None]
        known = sum(
            silent.get((row.subscriber, row.filter), 0.0) >= 1
            or self._deadline_met(row, measured.get((row.subscriber, row.flow))) is not None
            for row in due
        )
        return DeadlineStatus(subscriptions=len(due), measured_subscriptions=known)

    def late_subscriptions(
        self,
        measured: Mapping[FlowKey, FlowMeasurement],
        silent: Mapping[SubscriptionKey, float] = NO_SILENCE,
    ) -> list[LateSubscription]:
        """Return subscriptions that miss their deadline, by granted utility, then by lateness.

        Lateness comes from reports of clients, so it must not outrank the utility.
        """
        found = []
        for row in self.prediction.subscriptions:
            gone = silent.get((row.subscriber, row.filter), 0.0) >= 1
            flow = None if gone else measured.get((row.subscriber, row.flow))
            one = self._late_subscription(row, flow, gone=gone)
            if one is not None:
                by = one.late_by_seconds
                found.append(((-row.maximum_utility, by is not None, -(by or 0.0)), one))
        return [one for _, one in sorted(found, key=lambda each: each[0])]

    def _late_subscription(
        self, row: SubscriptionPrediction, flow: FlowMeasurement | None, *, gone: bool
    ) -> LateSubscription | None:
        """Decide by the measurement; if it is inconclusive, by the prediction."""
        deadline, verdict = row.deadline_seconds, self._deadline_met(row, flow)
        predicted = verdict is None and not gone
        if deadline is None or verdict or (predicted and row.deadline_met is not False):
            return None
        p95 = flow.delay_p95_seconds if flow else None
        delay = None if gone else p95
        reason = None
        if predicted:
            delay = _predicted_delay(row, self._percentile(row))
            reason = row.reason if p95 is None else OTHER_PERCENTILE
        return LateSubscription(
            subscriber=row.subscriber,
            filter=row.filter,
            priority=row.priority,
            deadline_seconds=deadline,
            predicted_delay_seconds=row.delay_p95_seconds,
            delay_p95_seconds=p95,
            late_by_seconds=_late_by(deadline, delay),
            predicted=predicted,
            reason=reason,
        )

    def _is_timely(self, row: SubscriptionPrediction, flow: FlowMeasurement) -> bool:
        verdict = self._deadline_met(row, flow)
        return row.deadline_met is not False if verdict is None else verdict

    def _deadline_met(
        self, row: SubscriptionPrediction, flow: FlowMeasurement | None
    ) -> bool | None:
        if row.deadline_seconds is None:
            return True
        p95 = flow.delay_p95_seconds if flow else None
        return meets_deadline(p95, row.deadline_seconds, self._percentile(row))

    def _percentile(self, row: SubscriptionPrediction) -> float:
        return self._percentiles.get((row.subscriber, row.filter), REPORTED_PERCENTILE)

    @cached_property
    def _percentiles(self) -> Mapping[SubscriptionKey, float]:
        return {
            (subscriber.id, subscription.filter): subscription.deadline_percentile
            for subscriber in self.scenario.subscribers
            for subscription in subscriber.subscriptions
        }


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 1.0


def _predicted_delay(row: SubscriptionPrediction, percentile: float) -> float | None:
    """Return the predicted delay at the deadline's percentile; the deadline if not predicted."""
    if row.delay_p95_seconds is None:
        return None
    predicted = {0.5: row.delay_p50_seconds, 0.95: row.delay_p95_seconds}
    return {**predicted, 0.99: row.delay_p99_seconds}.get(percentile, row.deadline_seconds)


def _late_by(deadline: float, delay: float | None) -> float | None:
    return None if delay is None else max(delay - deadline, 0.0)


REPORTED_PERCENTILE = 0.95


def meets_deadline(
    delay_p95_seconds: float | None, deadline_seconds: float, percentile: float
) -> bool | None:
    """Compare the measured 95th percentile with a deadline; None if it is inconclusive.

    A higher percentile is at least as late, a lower one at most as late.
    """
    if delay_p95_seconds is None:
        return None
    if delay_p95_seconds > deadline_seconds:
        return False if percentile >= REPORTED_PERCENTILE else None
    return True if percentile <= REPORTED_PERCENTILE else None
