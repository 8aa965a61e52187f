"""Several cases of the same are one alert, and nobody has so many that others go unseen. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["by_name", "few_of_each"]

T = TypeVar("T")
MOST_ALERTS = 5
MOST_OF_ONE = 2


def by_name(named: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """What goes by each name, in the order given."""
    groups: dict[str, list[T]] = {}
    for name, one in named:
        groups.setdefault(name, []).append(one)
    return groups


def few_of_each(said: Sequence[tuple[str, str]]) -> list[str]:
    """The first names, each with whom it is of: few of anybody, and not many in all."""
    chosen: list[str] = []
    whose: Counter[str] = Counter()
    for name, subscriber in said:
        whose[subscriber] += 1
        if whose[subscriber] <= MOST_OF_ONE and len(chosen) < MOST_ALERTS:
            chosen.append(name)
    return chosen
