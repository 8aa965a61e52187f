"""Since when nothing was heard of a subscription: over several plans, and longer than one window.

A plan is replaced every now and then, and a slow topic is silent for minutes: what counts is when
a subscription was first planned for, and when its subscriber last reported one of its topics.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from firedex.dashboard.flow_measurements import FlowKey
from firedex.wire import Statistics, SubscriptionPrediction

__all__ = ["LastHeard"]

MUCH_MORE = 2.0
"""Where so many times as much is expected as before, waiting begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    since_seconds: float
    per_second: float


class LastHeard:
    """Remembers what it is told. Not for several threads at once."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[str, str], _Awaited] = {}
        self._topics: dict[tuple[str, str], float] = {}
        self._version, self._flows = 0, dict[FlowKey, float]()

    def plan(
        self, version: int, rows: Iterable[SubscriptionPrediction], since_seconds: float
    ) -> None:
        """These are to be delivered since then; those that were before, since before."""
        self._version, self._flows = version, {}
        awaited: dict[tuple[str, str], _Awaited] = {}
        for row in rows:
            key, rate = (row.subscriber, row.filter), _delivered(row)
            before = self._awaited.get(key)
            if before is None or rate > MUCH_MORE * before.per_second:
                before = _Awaited(since_seconds=since_seconds, per_second=rate)
            awaited[key] = before
        self._awaited = awaited
        there = {subscriber for subscriber, _ in awaited}
        self._topics = {key: at for key, at in self._topics.items() if key[0] in there}

    def report(self, reports: Iterable[tuple[float, Statistics]]) -> None:
        """What clients reported, and when, under whichever plan."""
        for at_seconds, report in reports:
            for count in report.topics:
                if not count.delivered_events:
                    continue
                self._topics[report.subscriber, count.topic] = at_seconds
                if report.configuration_version == self._version:
                    self._flows[report.subscriber, report.flow] = at_seconds

    def expected_events(
        self,
        rows: Iterable[SubscriptionPrediction],
        topics_of: Callable[[str], Iterable[str]],
        now_seconds: float,
        least_seconds: float,
    ) -> float:
        """What should have come of ``rows`` since they were heard, if that is ``least_seconds``.

        ``topics_of``: those that a filter matches.
        """
        expected = 0.0
        for row in rows:
            known = self._awaited.get((row.subscriber, row.filter))
            if known is None:
                continue
            heard = [
                self._topics.get((row.subscriber, name), 0.0) for name in topics_of(row.filter)
            ]
            heard.append(self._flows.get((row.subscriber, row.flow), 0.0))
            silent = now_seconds - max(known.since_seconds, *heard)
            if silent >= least_seconds:
                expected += _delivered(row) * silent
        return expected


def _delivered(row: SubscriptionPrediction) -> float:
    return row.offered_events_per_second * row.success_rate
