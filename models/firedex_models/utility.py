"""Evaluation of utility functions, for many subscriptions at once."""

from collections.abc import Sequence

import numpy as np

from firedex.wire import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PiecewiseLinearUtility,
    PowerUtility,
    Utility,
)
from firedex_models.columns import Floats

__all__ = ["UtilityColumns", "utility_of"]


def utility_of(utility: Utility, success_rate: float) -> float:
    """Return the utility of one success rate."""
    return float(UtilityColumns([utility]).evaluate(np.array([success_rate]))[0])


class UtilityColumns:
    """Many utility functions, evaluated by kind rather than one by one.

    ``rows``: the rows of each kind. ``weight``: the weight of each function. ``parameter``:
    ``enough`` of capped functions, ``exponent`` of power functions. ``points``: row, success rates
    and utilities of piecewise linear functions.
    """

    def __init__(self, utilities: Sequence[Utility]) -> None:
        self.weight = np.array([utility.weight for utility in utilities], dtype=float)
        kinds = [LogUtility, LinearUtility, CappedUtility, PowerUtility, PiecewiseLinearUtility]
        number = {kind: row for row, kind in enumerate(kinds)}
        kinds_by_row = np.array([number[type(utility)] for utility in utilities], dtype=np.int64)
        self.rows = {kind: np.flatnonzero(kinds_by_row == n) for n, kind in enumerate(kinds)}
        self.parameter = np.ones(len(utilities))
        self.points: list[tuple[int, Floats, Floats]] = []
        for kind, name in ((CappedUtility, "enough"), (PowerUtility, "exponent")):
            for row in self.rows[kind].tolist():
                self.parameter[row] = getattr(utilities[row], name)
        for row in self.rows[PiecewiseLinearUtility].tolist():
            utility = utilities[row]
            if isinstance(utility, PiecewiseLinearUtility):
                rates, values = zip(*utility.points, strict=True)
                self.points.append((row, np.array(rates), np.array(values)))

    def evaluate(self, success_rate: Floats) -> Floats:
        """Return the utility of each subscription's success rate."""
        unweighted = np.empty_like(self.weight)
        for kind, rows in self.rows.items():
            rate = success_rate[rows]
            if kind is LogUtility:
                unweighted[rows] = np.log1p(rate)
            elif kind is LinearUtility:
                unweighted[rows] = rate
            elif kind is CappedUtility:
                unweighted[rows] = np.minimum(rate / self.parameter[rows], 1.0)
            elif kind is PowerUtility:
                unweighted[rows] = rate ** self.parameter[rows]
        for row, rates, values in self.points:
            unweighted[row] = np.interp(success_rate[row], rates, values)
        utility: Floats = self.weight * unweighted
        return utility

    @property
    def maximum(self) -> Floats:
        """The utility at a success rate of 1."""
        return self.evaluate(np.ones_like(self.weight))
