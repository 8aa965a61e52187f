"""A figure as data: what is plotted, written as CSV, and claimed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Claim", "Figure", "Panel", "Series"]

Verdict = Literal["holds", "holds in part", "does not hold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A curve; ``half_width`` of the 95 % confidence intervals, if it was measured."""

    label: str
    by: Literal["model", "simulation"]
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
    """What the paper says, what was measured here, and whether the one follows from the other."""

    paper: str
    measured: str
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of the paper, anew."""

    name: str
    title: str
    panels: Sequence[Panel]
    claims: Sequence[Claim]
