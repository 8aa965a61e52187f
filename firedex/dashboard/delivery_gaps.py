"""Subscriptions of which nothing comes, and flows that get much less than was predicted. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import sqrt

from firedex.dashboard.flow_measurements import FlowForecast, FlowKey, FlowMeasurement
from firedex.wire import SubscriptionPrediction

__all__ = [
    "ShortFlow",
    "Silence",
    "SubscriptionKey",
    "TopicShare",
    "forecasts",
    "offered_in_vain",
    "short_flows",
    "silences",
]

SubscriptionKey = tuple[str, str]
"""A subscriber and its filter."""
TopicShare = tuple[str, float]
"""A topic that a filter matches, and which part of the filter's events are of it."""

FEWEST_EXPECTED = 10.0
"""None of so many expected events is no chance (1 in 20 000, if they come at random)."""
FAR_BELOW = 0.1
DEVIATIONS = 4.0
"""A success rate of few events says little: so many standard deviations are still chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Nothing comes of a subscription, or (``topics``) of these that it matches.

    ``part``: of what was predicted for it. ``of_class``: nor of anything else of its subscriber's
    class.
    """

    subscriber: str
    filter: str
    flow: int
    priority: int
    worth: float
    offered_per_second: float
    expected_per_second: float
    topics: tuple[str, ...] = ()
    part: float = 1.0
    of_class: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortFlow:
    """Much less came through than was predicted."""

    subscriber: str
    priority: int
    success_rate: float
    predicted_success_rate: float


def forecasts(rows: Iterable[SubscriptionPrediction]) -> dict[FlowKey, FlowForecast]:
    """The forecast of each flow."""
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


def silences(
    rows: Iterable[SubscriptionPrediction],
    measured: Mapping[FlowKey, FlowMeasurement],
    topics_of: Callable[[str], Sequence[TopicShare]],
    silent_seconds: Callable[[str, str, str], float],
    *,
    least_seconds: float,
    off: Set[str] = frozenset(),
) -> list[Silence]:
    """What does not come, where chance cannot be why: the most worth first.

    Clients name the topics that came and no others: ``silent_seconds`` says for how long one has
    not, to a subscriber and its filter; before ``least_seconds`` nobody can tell. A flow that is
    reported to have brought nothing is told at once. Of clients that are ``off`` nothing is known.
    """
    found: list[Silence] = []
    awaited: Counter[tuple[str, int]] = Counter()
    for row in rows:
        rate = row.offered_events_per_second * row.success_rate
        if row.subscriber in off or rate <= 0:
            continue
        awaited[row.subscriber, row.priority] += 1
        seen = measured.get((row.subscriber, row.flow))
        shares = topics_of(row.filter)
        quiet = {
            topic: (share, share * rate * seconds)
            for topic, share in shares
            if (seconds := silent_seconds(row.subscriber, row.filter, topic)) >= least_seconds
        }
        all_told = seen is not None and not seen.delivered
        told = rate * seen.window_seconds if seen is not None and all_told else 0.0
        missed = sum(events for _, events in quiet.values()) if len(quiet) == len(shares) else 0.0
        gone = [topic for topic, (_, events) in quiet.items() if events >= FEWEST_EXPECTED]
        if max(told, missed) >= FEWEST_EXPECTED:
            found.append(_silence(row, rate, (), 1.0))
        elif gone:
            found.append(_silence(row, rate, tuple(gone), sum(quiet[each][0] for each in gone)))
    whole = Counter((one.subscriber, one.priority) for one in found if not one.topics)
    found = [
        replace(one, of_class=whole[key] == awaited[key])
        for one in found
        for key in [(one.subscriber, one.priority)]
    ]
    return sorted(found, key=lambda one: (-one.worth, one.priority))


def _silence(
    row: SubscriptionPrediction, rate: float, topics: tuple[str, ...], part: float
) -> Silence:
    return Silence(
        subscriber=row.subscriber,
        filter=row.filter,
        flow=row.flow,
        priority=row.priority,
        worth=row.maximum_utility,
        offered_per_second=row.offered_events_per_second * part,
        expected_per_second=rate * part,
        topics=topics,
        part=min(part, 1.0),
    )


def offered_in_vain(
    silent: Iterable[Silence], measured: Mapping[FlowKey, FlowMeasurement]
) -> dict[int, float]:
    """Events a second of each class that are offered and of which nothing comes.

    Without those that clients miss by their numbers, and that are counted so.
    """
    found: dict[int, float] = {}
    for one in silent:
        seen = measured.get((one.subscriber, one.flow))
        if seen is None or seen.delivered or not seen.missing:
            found[one.priority] = found.get(one.priority, 0.0) + one.offered_per_second
    return found


def short_flows(
    predicted: Mapping[FlowKey, FlowForecast], measured: Mapping[FlowKey, FlowMeasurement]
) -> list[ShortFlow]:
    """Flows whose success rate is far below the predicted, the worst first."""
    short = []
    for key, seen in measured.items():
        forecast, success = predicted.get(key), seen.success_rate
        if forecast is None or success is None or not seen.delivered:
            continue
        expected = forecast.success_rate
        events = seen.delivered + seen.missing
        chance = DEVIATIONS * sqrt(max(expected * (1 - expected), 0.25 / events) / events)
        if success < expected - max(FAR_BELOW, chance):
            short.append(
                ShortFlow(
                    subscriber=key[0],
                    priority=forecast.priority,
                    success_rate=success,
                    predicted_success_rate=expected,
                )
            )
    return sorted(short, key=lambda one: one.success_rate - one.predicted_success_rate)
