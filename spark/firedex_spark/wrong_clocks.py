"""Whose delays say nothing, because clocks disagree. Pure.

A row that was received before it was published is refused. Where there are more than a few, those
that were not refused are wrong by as much, and what is left is not the delays but their tail.
"""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Arrived", "WrongClock", "wrong_clocks"]

WrongClock = tuple[str, int, str]
"""Site, configuration version, subscriber."""
MOST = 0.01
"""Of what arrived at a subscriber in a run, before a clock is taken to be wrong."""
FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What arrived at a subscriber in a run, as far as it counts; and what came too early to."""

    site: str
    configuration_version: int
    run: str
    subscriber: str
    counted: int
    early: int


def wrong_clocks(parts: Iterable[Arrived]) -> frozenset[WrongClock]:
    """Who has too much that came too early, in any run."""
    sums: dict[tuple[str, int, str, str], tuple[int, int]] = {}
    for part in parts:
        of = (part.site, part.configuration_version, part.subscriber, part.run)
        counted, early = sums.get(of, (0, 0))
        sums[of] = counted + part.counted, early + part.early
    return frozenset(
        of[:3]
        for of, (counted, early) in sums.items()
        if early >= FEWEST and early > MOST * (counted + early)
    )
