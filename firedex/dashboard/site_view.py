"""A configuration in force, made ready to be looked at again and again. Pure.

Made once for each configuration; what clients and switches say is laid over it every second.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firedex.dashboard.deadline_verdict import REPORTED_PERCENTILE, meets_deadline
from firedex.dashboard.delivery_alerts import Unpublished
from firedex.dashboard.delivery_gaps import (
    SubscriptionKey,
    TopicShare,
    forecasts,
)
from firedex.dashboard.flow_measurements import FlowForecast, FlowKey, FlowMeasurement
from firedex.dashboard.link_shares import (
    Port,
    Shares,
    planned_shares,
    ports_on_way,
    published_rates,
)
from firedex.dashboard.quiet_topics import NEAR_NOTHING, QuietTopic
from firedex.wire import Configuration, LinearUtility, Prediction, Scenario, SubscriptionPrediction
from firedex.wire.overview import DeadlinesNow, LateSubscription, UtilityNow
from firedex_models.topic_index import TopicIndex
from firedex_models.utility import UtilityColumns

__all__ = ["SiteView"]

WORTHLESS = LinearUtility(weight=0.0)
"""Of what has been removed since it was planned for."""
COMMAND = "command"
UNTOLD = "what is measured cannot be told from the 95th percentile"
NOBODY: Mapping[SubscriptionKey, float] = {}


@dataclass(frozen=True, kw_only=True)
class SiteView:
    """``scenario``: what was planned for, utilities as the phase and budgets make them."""

    configuration: Configuration
    prediction: Prediction
    scenario: Scenario

    @cached_property
    def forecasts(self) -> Mapping[FlowKey, FlowForecast]:
        """What each flow is predicted to bring."""
        return forecasts(self.prediction.subscriptions)

    @cached_property
    def shares(self) -> Shares:
        """What classes take of each port, as planned."""
        return planned_shares(self.scenario, self.prediction.subscriptions)

    @cached_property
    def ways(self) -> Mapping[str, tuple[Port, ...]]:
        """The ports to each subscriber."""
        return ports_on_way(self.scenario)

    @cached_property
    def commanders(self) -> Set[str]:
        """The subscribers of command."""
        return {each.id for each in self.scenario.subscribers if each.role == COMMAND}

    def not_planned_for(self, registered: Iterable[str]) -> list[str]:
        """Those that have no place in it."""
        return [name for name in registered if name not in self._planned_for]

    @cached_property
    def _planned_for(self) -> Set[str]:
        return {row.subscriber for row in self.prediction.subscriptions}

    @cached_property
    def published(self) -> Mapping[str, float]:
        """Events a second of each topic, as planned with."""
        return published_rates(self.scenario)

    def topics_of(self, name: str) -> Sequence[TopicShare]:
        """The published topics that a filter matches."""
        known = self._shares_of_filter.get(name)
        if known is None:
            names = (self.scenario.topics[n].name for n in self._topic_index.matching(name))
            rates = {topic: rate for topic in names if (rate := self.published.get(topic, 0.0)) > 0}
            whole = sum(rates.values())
            known = [(topic, rate / whole) for topic, rate in rates.items()]
            self._shares_of_filter[name] = known
        return known

    def unpublished(self, quiet: Sequence[QuietTopic]) -> list[Unpublished]:
        """Those that somebody wants: urgent with a deadline, or if worth what is usual or more."""
        if not quiet:
            return []
        rows, index = self.prediction.subscriptions, TopicIndex([each.topic for each in quiet])
        usual = sum(row.maximum_utility for row in rows) / max(len(rows), 1)
        matters: dict[str, bool] = {}
        for row in rows:
            matters[row.filter] = (
                matters.get(row.filter, False)
                or row.deadline_seconds is not None
                or row.maximum_utility >= usual
            )
        urgent: dict[int, bool] = {}
        for name, matter in matters.items():
            for number in index.matching(name).tolist():
                urgent[number] = urgent.get(number, False) or matter
        return [Unpublished(topic=quiet[n], urgent=urgent[n]) for n in sorted(urgent)]

    def without_publisher(
        self, quiet: Sequence[QuietTopic], off: Set[str] = frozenset()
    ) -> dict[SubscriptionKey, float]:
        """Which part of a subscription is declared and not published any more.

        Plans no longer expect it, and so nobody misses it; it is worth nothing all the same.
        """
        index = TopicIndex([each.topic for each in quiet])
        declared: dict[str, float] = {}
        found = {}
        for row in self.prediction.subscriptions if quiet else ():
            if row.filter not in declared:
                matched = index.matching(row.filter).tolist()
                declared[row.filter] = sum(quiet[n].declared_per_second for n in matched)
            gone = declared[row.filter]
            if gone > 0 and row.subscriber not in off:
                part = gone / (gone + row.offered_events_per_second)
                whole = part >= 1 - NEAR_NOTHING
                found[row.subscriber, row.filter] = 1.0 if whole else part
        return found

    @cached_property
    def _shares_of_filter(self) -> dict[str, Sequence[TopicShare]]:
        return {}

    @cached_property
    def _topic_index(self) -> TopicIndex:
        return TopicIndex([topic.name for topic in self.scenario.topics])

    @cached_property
    def _worth(self) -> UtilityColumns:
        known = {
            (subscriber.id, subscription.filter): subscription.utility
            for subscriber in self.scenario.subscribers
            for subscription in subscriber.subscriptions
        }
        return UtilityColumns(
            [
                known.get((row.subscriber, row.filter), WORTHLESS)
                for row in self.prediction.subscriptions
            ]
        )

    def utility(
        self,
        measured: Mapping[FlowKey, FlowMeasurement],
        silent: Mapping[SubscriptionKey, float] = NOBODY,
    ) -> UtilityNow:
        """Shares of all utility: predicted, and of those that were measured, measured.

        ``silent``: which part of a subscription does not come though it should; what is wholly
        silent is measured, and worth nothing.
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
                timely[number] = self._in_time(row, flow)
        asked = sum(rows[number].maximum_utility for number in known)
        worth = self._worth.of(success) if asked > 0 else success
        return UtilityNow(
            predicted=prediction.achieved_utility_rate,
            predicted_timely=_share(
                sum(row.utility for row in rows if row.deadline_met is not False), most
            ),
            measured=_share(float(worth[known].sum()), asked) if asked > 0 else None,
            measured_timely=(
                _share(float((worth * timely)[known].sum()), asked) if asked > 0 else None
            ),
            measured_subscriptions=len(known) if asked > 0 else 0,
            subscriptions=len(rows),
        )

    def deadlines(
        self,
        measured: Mapping[FlowKey, FlowMeasurement],
        silent: Mapping[SubscriptionKey, float] = NOBODY,
    ) -> DeadlinesNow:
        """How many there are, and of how many it was measured whether they are met."""
        due = [row for row in self.prediction.subscriptions if row.deadline_seconds is not None]
        known = sum(
            silent.get((row.subscriber, row.filter), 0.0) >= 1
            or self._verdict(row, measured.get((row.subscriber, row.flow))) is not None
            for row in due
        )
        return DeadlinesNow(subscriptions=len(due), measured_subscriptions=known)

    def late(
        self,
        measured: Mapping[FlowKey, FlowMeasurement],
        silent: Mapping[SubscriptionKey, float] = NOBODY,
    ) -> list[LateSubscription]:
        """Those that miss their deadline, by the utility that they were granted, then the latest.

        What a client reports is its own affair: it must not come before what others are worth.
        """
        found = []
        for row in self.prediction.subscriptions:
            gone = silent.get((row.subscriber, row.filter), 0.0) >= 1
            flow = None if gone else measured.get((row.subscriber, row.flow))
            one = self._late_one(row, flow, gone=gone)
            if one is not None:
                by = one.late_by_seconds
                found.append(((-row.maximum_utility, by is not None, -(by or 0.0)), one))
        return [one for _, one in sorted(found, key=lambda each: each[0])]

    def _late_one(
        self, row: SubscriptionPrediction, flow: FlowMeasurement | None, *, gone: bool
    ) -> LateSubscription | None:
        """By what is measured; where that cannot tell, by what is predicted."""
        deadline, verdict = row.deadline_seconds, self._verdict(row, flow)
        predicted = verdict is None and not gone
        if deadline is None or verdict or (predicted and row.deadline_met is not False):
            return None
        p95 = flow.delay_p95_seconds if flow else None
        delay = None if gone else p95
        reason = None
        if predicted:
            delay = _predicted_delay(row, self._percentile(row))
            reason = row.reason if p95 is None else UNTOLD
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

    def _in_time(self, row: SubscriptionPrediction, flow: FlowMeasurement) -> bool:
        verdict = self._verdict(row, flow)
        return row.deadline_met is not False if verdict is None else verdict

    def _verdict(self, row: SubscriptionPrediction, flow: FlowMeasurement | None) -> bool | None:
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
    """At the deadline's percentile, if that is one of those that are predicted; else just late."""
    if row.delay_p95_seconds is None:
        return None
    predicted = {0.5: row.delay_p50_seconds, 0.95: row.delay_p95_seconds}
    return {**predicted, 0.99: row.delay_p99_seconds}.get(percentile, row.deadline_seconds)


def _late_by(deadline: float, delay: float | None) -> float | None:
    return None if delay is None else max(delay - deadline, 0.0)
