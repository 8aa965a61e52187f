"""What a success rate is worth to a subscriber: concave, non-decreasing functions on [0, 1].

The types only say which function is meant; ``firedex_models.utility`` evaluates them.
"""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from firedex.wire.values import NonNegative, not_vanishing, value

__all__ = [
    "CappedUtility",
    "LinearUtility",
    "LogUtility",
    "PiecewiseLinearUtility",
    "PowerUtility",
    "Utility",
]

Fraction = Annotated[float, Field(strict=True, gt=0, le=1), AfterValidator(not_vanishing)]
Point = tuple[NonNegative, NonNegative]
SLOPE_TOLERANCE = 1e-9


@value
class LogUtility:
    """``weight · log(1 + success)``: the paper's base function (Eq. 8)."""

    kind: Literal["log"] = "log"
    weight: NonNegative


@value
class LinearUtility:
    """``weight · success``: every event is worth the same."""

    kind: Literal["linear"] = "linear"
    weight: NonNegative


@value
class CappedUtility:
    """``weight · min(success / enough, 1)``: nothing is gained beyond ``enough``."""

    kind: Literal["capped"] = "capped"
    weight: NonNegative
    enough: Fraction


@value
class PowerUtility:
    """``weight · success ** exponent`` with an exponent in (0, 1]."""

    kind: Literal["power"] = "power"
    weight: NonNegative
    exponent: Fraction


@value
class PiecewiseLinearUtility:
    """``weight`` times straight lines through ``points`` (success, worth), from 0 to 1."""

    kind: Literal["piecewise-linear"] = "piecewise-linear"
    weight: NonNegative
    points: Annotated[tuple[Point, ...], Field(min_length=2)]

    @field_validator("points")
    @classmethod
    def _increasing_and_concave(cls, points: tuple[Point, ...]) -> tuple[Point, ...]:
        if points[0][0] != 0 or points[-1][0] != 1:
            raise ValueError("points must begin at success 0 and end at success 1")
        if any(right[0] <= left[0] for left, right in pairwise(points)):
            raise ValueError("the success rates of points must rise strictly")
        if any(right[1] < left[1] for left, right in pairwise(points)):
            raise ValueError("not increasing: more events must never be worth less")
        slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(points)]
        if any(later > earlier * (1 + SLOPE_TOLERANCE) for earlier, later in pairwise(slopes)):
            raise ValueError("not concave: the slope between points must never rise")
        return points


Utility = Annotated[
    LogUtility | LinearUtility | CappedUtility | PowerUtility | PiecewiseLinearUtility,
    Field(discriminator="kind"),
]
