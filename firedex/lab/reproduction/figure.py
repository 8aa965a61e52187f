"""A reproduced figure as data: its panels, its series, and the claims of the paper about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["FULL", "QUICK", "Claim", "Effort", "Figure", "Panel", "Series"]

Verdict = Literal["holds", "holds in part", "does not hold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve; ``half_width`` is that of the 95 % confidence intervals of simulated values."""

    label: str
    by: Literal["model", "simulation", "measurement"]
    x: Sequence[float]
    y: Sequence[float | None]
    half_width: Sequence[float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot of a figure."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool = False
    bars: bool = False
    ticks: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim of the paper, the result measured here, the verdict, and the reason for it."""

    paper: str
    measured: str
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A reproduced figure of the paper."""

    name: str
    title: str
    panels: Sequence[Panel]
    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to simulate.

    ``seeds`` is the number of random scenarios, each simulated once with ``publications``;
    ``subscribers`` are the numbers of Fig. 6 and ``factors`` the weights of Fig. 10.
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
