"""The estimate of one parameter of a scenario, and the overlay that estimates make. Pure."""

from dataclasses import dataclass
from typing import Any

__all__ = ["ParameterEstimate", "make_overlay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterEstimate:
    """A parameter: the declared value, the estimate and its 95 % interval.

    ``path``: its place in a scenario, if it has one. ``chance``: p-value of the difference if the
    declared value is right. ``applied``: whether it is in the overlay. ``as_declared``: it is not,
    because the difference is not significant; otherwise ``note`` gives the reason.
    """

    kind: str
    name: str
    path: str | None
    declared: float | str | None
    estimated: float | str
    interval: tuple[float, float] | None
    applied: bool
    chance: float | None = None
    as_declared: bool = False
    note: str = ""


def make_overlay(estimates: list[ParameterEstimate]) -> dict[str, Any]:
    """Return the values that the estimates replace, by path (``scenario_paths``)."""
    return {
        one.path: int(one.estimated) if one.kind == "event_bytes" else one.estimated
        for one in estimates
        if one.applied and one.path is not None
    }
