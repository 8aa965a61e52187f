"""How much to simulate."""

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Effort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """``seeds``: scenarios drawn, each simulated once. ``publications`` in each simulation.

    ``subscribers``: the sizes of Fig. 6; ``factors``: the weights of Fig. 10.
    """

    seeds: int
    publications: int
    subscribers: tuple[int, ...]
    factors: tuple[float, ...]


FULL = Effort(
    seeds=10,
    publications=250_000,
    subscribers=(1, 10, 20, 50, 100),
    factors=(1, 2, 4, 8, 16),
)
QUICK = Effort(seeds=2, publications=40_000, subscribers=(1, 10, 20), factors=(1, 4, 16))
