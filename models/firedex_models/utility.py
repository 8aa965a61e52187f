"""The worth of a success rate, for many subscriptions at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from firedex.wire import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PiecewiseLinearUtility,
    PowerUtility,
    Utility,
)

__all__ = ["UtilityColumns", "utility_of"]

Floats = NDArray[np.float64]


def utility_of(utility: Utility, success_rate: float) -> float:
    """The worth of one success rate."""
    return float(UtilityColumns([utility]).of(np.array([success_rate]))[0])


class UtilityColumns:
    """Utility functions side by side, evaluated kind by kind rather than one by one.

    ``rows``: which are of each kind. ``weight``: of all. ``parameter``: ``enough`` of the capped
    and ``exponent`` of the powers. ``points``: row, success rates and worths of the piecewise ones.
    """

    def __init__(self, utilities: Sequence[Utility]) -> None:
        self.weight = np.array([utility.weight for utility in utilities], dtype=float)
        kinds = [LogUtility, LinearUtility, CappedUtility, PowerUtility, PiecewiseLinearUtility]
        number = {kind: row for row, kind in enumerate(kinds)}
        kind_of = np.array([number[type(utility)] for utility in utilities], dtype=np.int64)
        self.rows = {kind: np.flatnonzero(kind_of == n) for n, kind in enumerate(kinds)}
        self.parameter = np.ones(len(utilities))
        self.points: list[tuple[int, Floats, Floats]] = []
        for kind, name in ((CappedUtility, "enough"), (PowerUtility, "exponent")):
            for row in self.rows[kind].tolist():
                self.parameter[row] = getattr(utilities[row], name)
        for row in self.rows[PiecewiseLinearUtility].tolist():
            utility = utilities[row]
            if isinstance(utility, PiecewiseLinearUtility):
                rates, worths = zip(*utility.points, strict=True)
                self.points.append((row, np.array(rates), np.array(worths)))

    def of(self, success_rate: Floats) -> Floats:
        """The worth of each subscription's success rate."""
        shape = np.empty_like(self.weight)
        for kind, rows in self.rows.items():
            rate = success_rate[rows]
            if kind is LogUtility:
                shape[rows] = np.log1p(rate)
            elif kind is LinearUtility:
                shape[rows] = rate
            elif kind is CappedUtility:
                shape[rows] = np.minimum(rate / self.parameter[rows], 1.0)
            elif kind is PowerUtility:
                shape[rows] = rate ** self.parameter[rows]
        for row, rates, worths in self.points:
            shape[row] = np.interp(success_rate[row], rates, worths)
        worth: Floats = self.weight * shape
        return worth

    @property
    def maximum(self) -> Floats:
        """The worth of losing nothing."""
        return self.of(np.ones_like(self.weight))
