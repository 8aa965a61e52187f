"""Topics that are declared and wanted, and that the gateway no longer sees.

A plan counts with what is measured: once it expects nothing of a dead sensor, nobody misses what
does not come. What was declared still says that it should.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["NEAR_NOTHING", "CountedRate", "QuietTopic", "QuietTopics"]

NEAR_NOTHING = 0.05
"""Of the declared rate."""
FEWEST_EXPECTED = 10.0
"""As for deliveries: none of so many is no chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRate:
    """Events a second before any drop, as counted over the last ``seconds`` or so."""

    per_second: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietTopic:
    """A topic that is hardly published, or not at all."""

    topic: str
    declared_per_second: float
    counted_per_second: float


class QuietTopics:
    """Remembers since when each topic has been quiet. Not for several threads at once."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def now(
        self,
        declared: Mapping[str, float],
        counted: Mapping[str, CountedRate],
        now_seconds: float,
    ) -> tuple[QuietTopic, ...]:
        """Those of which ten events or more are missed, by their declared rates."""
        quiet = {
            topic: (rate, seen)
            for topic, rate in declared.items()
            if rate > 0
            and (seen := counted.get(topic)) is not None
            and seen.per_second < NEAR_NOTHING * rate
        }
        self._since = {topic: self._since.get(topic, now_seconds) for topic in quiet}
        return tuple(
            QuietTopic(topic=topic, declared_per_second=rate, counted_per_second=seen.per_second)
            for topic, (rate, seen) in quiet.items()
            if rate * (seen.seconds + now_seconds - self._since[topic]) >= FEWEST_EXPECTED
        )
