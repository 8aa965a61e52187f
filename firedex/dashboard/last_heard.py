"""Since when nothing was heard of a topic: over several plans, and longer than one window.

A plan is replaced every now and then, and a slow topic is silent for minutes: what counts is when
a subscription and a topic were first planned for, and when the subscriber last reported the topic.
What else a connection brings says nothing of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
        self._published: dict[str, _Awaited] = {}
        self._heard: dict[tuple[str, str], float] = {}

    def plan(
        self,
        rows: Iterable[SubscriptionPrediction],
        published: Mapping[str, float],
        since_seconds: float,
    ) -> None:
        """These are to be delivered since then; those that were before, since before.

        ``published``: events a second of each topic, as planned with.
        """
        self._awaited = {
            (row.subscriber, row.filter): _still(
                self._awaited.get((row.subscriber, row.filter)),
                row.offered_events_per_second * row.success_rate,
                since_seconds,
            )
            for row in rows
        }
        self._published = {
            topic: _still(self._published.get(topic), rate, since_seconds)
            for topic, rate in published.items()
        }
        there = {subscriber for subscriber, _ in self._awaited}
        self._heard = {key: at for key, at in self._heard.items() if key[0] in there}

    def report(self, reports: Iterable[tuple[float, Statistics]]) -> None:
        """What clients reported, and when, under whichever plan."""
        for at_seconds, report in reports:
            for count in report.topics:
                if count.delivered_events:
                    self._heard[report.subscriber, count.topic] = at_seconds

    def silent_seconds(self, subscriber: str, name: str, topic: str, now_seconds: float) -> float:
        """How long nothing has come of a topic that the subscriber's filter ``name`` matches."""
        awaited, published = self._awaited.get((subscriber, name)), self._published.get(topic)
        if awaited is None or published is None:
            return 0.0
        heard = self._heard.get((subscriber, topic), 0.0)
        return now_seconds - max(awaited.since_seconds, published.since_seconds, heard)


def _still(before: _Awaited | None, per_second: float, since_seconds: float) -> _Awaited:
    if before is None or per_second > MUCH_MORE * before.per_second:
        return _Awaited(since_seconds=since_seconds, per_second=per_second)
    return before
