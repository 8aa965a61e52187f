"""Missing deliveries: silent subscriptions, flows with high loss, and silent topics. Pure.

Plans are replaced often, and a topic with a low rate can be silent for minutes. So silence counts
from the time when a subscription was first planned or its subscriber last reported the topic. A
plan uses measured rates: once it expects nothing of a dead sensor, no delivery is missing. So
silent topics are found by their declared rates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import sqrt

from firedex.dashboard.flow_measurements import FlowForecast, FlowKey, FlowMeasurement
from firedex.wire import Statistics, SubscriptionPrediction

__all__ = [
    "SILENT_SHARE",
    "CountedRate",
    "LastDeliveries",
    "LossyFlow",
    "SilentDelivery",
    "SilentTopic",
    "SilentTopics",
    "SubscriptionKey",
    "TopicShare",
    "forecasts",
    "lossy_flows",
    "silent_deliveries",
    "undelivered_rates",
]

SubscriptionKey = tuple[str, str]
"""A subscriber and its filter."""
TopicShare = tuple[str, float]
"""A topic that a filter matches, and its share of the filter's events."""

FEWEST_EXPECTED = 10.0
"""With this many expected events, zero deliveries are not chance (probability 1 in 20 000)."""
LEAST_SHORTFALL = 0.1
DEVIATIONS = 4.0
"""A difference of up to this many standard deviations can be chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentDelivery:
    """A subscription without any delivery, or without deliveries of the given ``topics``.

    ``part``: the missing share of the predicted events. ``whole_class``: no subscription of this
    subscriber in this class has deliveries.
    """

    subscriber: str
    filter: str
    flow: int
    priority: int
    utility: float
    offered_per_second: float
    expected_per_second: float
    topics: tuple[str, ...] = ()
    part: float = 1.0
    whole_class: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyFlow:
    """A flow with a success rate far below the predicted one."""

    subscriber: str
    priority: int
    success_rate: float
    predicted_success_rate: float


def forecasts(rows: Iterable[SubscriptionPrediction]) -> dict[FlowKey, FlowForecast]:
    """Return the forecast of each flow."""
    found: dict[FlowKey, FlowForecast] = {}
    for row in rows:
        key = (row.subscriber, row.flow)
        before = found.get(key)
        offered = row.offered_events_per_second
        found[key] = FlowForecast(
            priority=row.priority,
            offered_per_second=offered + (before.offered_per_second if before else 0.0),
            delivered_per_second=offered * row.success_rate
            + (before.delivered_per_second if before else 0.0),
        )
    return found


def silent_deliveries(
    rows: Iterable[SubscriptionPrediction],
    measured: Mapping[FlowKey, FlowMeasurement],
    topics_of: Callable[[str], Sequence[TopicShare]],
    silent_seconds: Callable[[str, str, str], float],
    *,
    least_seconds: float,
    offline: Set[str] = frozenset(),
) -> list[SilentDelivery]:
    """Return missing deliveries that are not chance, the highest utility first.

    Clients report only topics with deliveries. ``silent_seconds`` returns how long a subscriber
    and filter had no delivery of a topic; shorter silence than ``least_seconds`` is ignored. A flow
    that reports zero deliveries counts at once. ``offline``: clients that are skipped.
    """
    found: list[SilentDelivery] = []
    expected: Counter[tuple[str, int]] = Counter()
    for row in rows:
        rate = row.offered_events_per_second * row.success_rate
        if row.subscriber in offline or rate <= 0:
            continue
        expected[row.subscriber, row.priority] += 1
        seen = measured.get((row.subscriber, row.flow))
        shares = topics_of(row.filter)
        silent_topics = {
            topic: (share, share * rate * seconds)
            for topic, share in shares
            if (seconds := silent_seconds(row.subscriber, row.filter, topic)) >= least_seconds
        }
        reported_none = seen is not None and not seen.delivered
        reported = rate * seen.window_seconds if seen is not None and reported_none else 0.0
        missed = (
            sum(events for _, events in silent_topics.values())
            if len(silent_topics) == len(shares)
            else 0.0
        )
        missing = [
            topic for topic, (_, events) in silent_topics.items() if events >= FEWEST_EXPECTED
        ]
        if max(reported, missed) >= FEWEST_EXPECTED:
            found.append(_silent_delivery(row, rate, (), 1.0))
        elif missing:
            share = sum(silent_topics[topic][0] for topic in missing)
            found.append(_silent_delivery(row, rate, tuple(missing), share))
    whole = Counter((one.subscriber, one.priority) for one in found if not one.topics)
    found = [
        replace(one, whole_class=whole[key] == expected[key])
        for one in found
        for key in [(one.subscriber, one.priority)]
    ]
    return sorted(found, key=lambda one: (-one.utility, one.priority))


def _silent_delivery(
    row: SubscriptionPrediction, rate: float, topics: tuple[str, ...], part: float
) -> SilentDelivery:
    return SilentDelivery(
        subscriber=row.subscriber,
        filter=row.filter,
        flow=row.flow,
        priority=row.priority,
        utility=row.maximum_utility,
        offered_per_second=row.offered_events_per_second * part,
        expected_per_second=rate * part,
        topics=topics,
        part=min(part, 1.0),
    )


def undelivered_rates(
    silent: Iterable[SilentDelivery], measured: Mapping[FlowKey, FlowMeasurement]
) -> dict[int, float]:
    """Return the offered rate of each class without any delivery.

    Events that clients report as missing by sequence number are counted elsewhere.
    """
    found: dict[int, float] = {}
    for one in silent:
        seen = measured.get((one.subscriber, one.flow))
        if seen is None or seen.delivered or not seen.missing:
            found[one.priority] = found.get(one.priority, 0.0) + one.offered_per_second
    return found


def lossy_flows(
    predicted: Mapping[FlowKey, FlowForecast], measured: Mapping[FlowKey, FlowMeasurement]
) -> list[LossyFlow]:
    """Return flows whose success rate is far below the predicted one, the worst first."""
    short = []
    for key, seen in measured.items():
        forecast, success = predicted.get(key), seen.success_rate
        if forecast is None or success is None or not seen.delivered:
            continue
        expected = forecast.success_rate
        events = seen.delivered + seen.missing
        chance = DEVIATIONS * sqrt(max(expected * (1 - expected), 0.25 / events) / events)
        if success < expected - max(LEAST_SHORTFALL, chance):
            short.append(
                LossyFlow(
                    subscriber=key[0],
                    priority=forecast.priority,
                    success_rate=success,
                    predicted_success_rate=expected,
                )
            )
    return sorted(short, key=lambda one: one.success_rate - one.predicted_success_rate)


GROWTH_FACTOR = 2.0
"""If the expected rate grows by this factor, the time of silence starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpectedRate:
    since_seconds: float
    per_second: float


class LastDeliveries:
    """Remembers the last delivery of each topic to each subscriber; not thread-safe."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], _ExpectedRate] = {}
        self._published_rates: dict[str, _ExpectedRate] = {}
        self._last_delivery_seconds: dict[tuple[str, str], float] = {}

    def plan(
        self,
        rows: Iterable[SubscriptionPrediction],
        published: Mapping[str, float],
        since_seconds: float,
    ) -> None:
        """Set the planned subscriptions; those that were planned before keep their time.

        ``published``: planned rate of each topic.
        """
        self._expected = {
            (row.subscriber, row.filter): _keep_or_restart(
                self._expected.get((row.subscriber, row.filter)),
                row.offered_events_per_second * row.success_rate,
                since_seconds,
            )
            for row in rows
        }
        self._published_rates = {
            topic: _keep_or_restart(self._published_rates.get(topic), rate, since_seconds)
            for topic, rate in published.items()
        }
        there = {subscriber for subscriber, _ in self._expected}
        self._last_delivery_seconds = {
            key: at for key, at in self._last_delivery_seconds.items() if key[0] in there
        }

    def report(self, reports: Iterable[tuple[float, Statistics]]) -> None:
        """Add reports of clients with their times, under any configuration."""
        for at_seconds, report in reports:
            for count in report.topics:
                if count.delivered_events:
                    self._last_delivery_seconds[report.subscriber, count.topic] = at_seconds

    def silent_seconds(self, subscriber: str, name: str, topic: str, now_seconds: float) -> float:
        """Return how long a subscriber with the filter ``name`` had no delivery of a topic."""
        expected = self._expected.get((subscriber, name))
        published = self._published_rates.get(topic)
        if expected is None or published is None:
            return 0.0
        heard = self._last_delivery_seconds.get((subscriber, topic), 0.0)
        return now_seconds - max(expected.since_seconds, published.since_seconds, heard)


def _keep_or_restart(
    before: _ExpectedRate | None, per_second: float, since_seconds: float
) -> _ExpectedRate:
    if before is None or per_second > GROWTH_FACTOR * before.per_second:
        return _ExpectedRate(since_seconds=since_seconds, per_second=per_second)
    return before


SILENT_SHARE = 0.05
"""A topic is silent if its rate is below this share of its declared rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRate:
    """Events per second before any drop, counted over about ``seconds``."""

    per_second: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentTopic:
    """A declared topic that is hardly published, or not at all."""

    topic: str
    declared_per_second: float
    counted_per_second: float


class SilentTopics:
    """Remembers since when each topic has been silent; not thread-safe."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(
        self,
        declared: Mapping[str, float],
        counted: Mapping[str, CountedRate],
        now_seconds: float,
    ) -> tuple[SilentTopic, ...]:
        """Return the topics that miss ten or more events according to their declared rates."""
        silent_topics = {
            topic: (rate, seen)
            for topic, rate in declared.items()
            if rate > 0
            and (seen := counted.get(topic)) is not None
            and seen.per_second < SILENT_SHARE * rate
        }
        self._since = {topic: self._since.get(topic, now_seconds) for topic in silent_topics}
        return tuple(
            SilentTopic(topic=topic, declared_per_second=rate, counted_per_second=seen.per_second)
            for topic, (rate, seen) in silent_topics.items()
            if rate * (seen.seconds + now_seconds - self._since[topic]) >= FEWEST_EXPECTED
        )
