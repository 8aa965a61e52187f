"""What a timeline makes of parties: who is there when, who publishes when. Pure."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Publisher, Scenario
from firedex.wire.timeline import Join, Leave, Surge, TimelineEvent

__all__ = ["presence", "publication_times"]

Span = tuple[float, float | None]


def presence(scenario: Scenario, subscriber: str) -> tuple[Span, ...]:
    """When a subscriber is there: from and to, the last one without an end if it stays."""
    mine = (
        event
        for event in scenario.timeline
        if isinstance(event, Join | Leave) and event.subscriber == subscriber
    )
    # Sorting is stable: of two at the same time, the one that is written first comes first.
    moves = [
        (event.at_seconds, isinstance(event, Join))
        for event in sorted(mine, key=lambda event: event.at_seconds)
    ]
    began: float | None = None if moves and moves[0][1] else 0.0
    spans: list[Span] = []
    for at, comes in moves:
        if comes:
            began = at
        elif began is not None:
            spans.append((began, at))
            began = None
    if began is not None:
        spans.append((began, None))
    return tuple(spans)


def publication_times(
    publisher: Publisher,
    timeline: Sequence[TimelineEvent],
    seconds: float,
    generator: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Times in order, and the number of the publication that each is of; surges included."""
    times: list[NDArray[np.float64]] = []
    numbers: list[NDArray[np.int64]] = []
    for number, publication in enumerate(publisher.publications):
        surges = [
            event
            for event in timeline
            if isinstance(event, Surge)
            and event.publisher == publisher.id
            and event.topic in (None, publication.topic)
        ]
        for began, ended, factor in _stretches(surges, seconds):
            rate = publication.rate_per_second * factor
            times.append(began + _arrivals(rate, ended - began, publication.arrivals, generator))
            numbers.append(np.full(len(times[-1]), number, dtype=np.int64))
    when = np.concatenate([*times, np.empty(0)])
    what = np.concatenate([*numbers, np.empty(0, dtype=np.int64)])
    order = np.argsort(when, kind="stable")
    return when[order], what[order]


def _stretches(surges: Sequence[Surge], seconds: float) -> list[tuple[float, float, float]]:
    """The run cut where a surge begins or ends, with what each stretch's rate is multiplied by."""
    edges = {0.0, seconds}
    for surge in surges:
        edges |= {surge.at_seconds, surge.at_seconds + surge.for_seconds}
    cuts = sorted(edge for edge in edges if 0 <= edge <= seconds)
    found = []
    for began, ended in pairwise(cuts):
        factor = 1.0
        for surge in surges:
            if surge.at_seconds <= began < surge.at_seconds + surge.for_seconds:
                factor *= surge.factor
        found.append((began, ended, factor))
    return found


def _arrivals(
    rate: float, seconds: float, arrivals: str, generator: np.random.Generator
) -> NDArray[np.float64]:
    if rate <= 0:
        return np.empty(0)
    if arrivals == "periodic":
        return np.arange(generator.uniform(0, 1 / rate), seconds, 1 / rate)
    return np.sort(generator.uniform(0, seconds, generator.poisson(rate * seconds)))
