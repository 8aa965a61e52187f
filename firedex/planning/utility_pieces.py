"""Utility functions of flows, taken apart into pieces that a solver can handle one way.

Every concave utility of the contract is a sum of

    weight · log(1 + ceiling · x)      weight · x ** exponent      slope · min(x, end)

over the subscriptions of the flow; straight lines and caps are ramps of the third kind. Pieces are
ordered by flow; ramps by their end within a flow.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firedex.planning.flow_choice import best_of_flows, finish_pieces, most_to_gain, worth_of_flows
from firedex.wire import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PiecewiseLinearUtility,
    PowerUtility,
    Utility,
)

__all__ = ["UtilityPieces"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Piece = tuple[int, float, float]
"""Which subscription, and the two numbers of the piece."""


class UtilityPieces(NamedTuple):
    """The pieces of all flows, as the compiled functions take them.

    ``start[f, kind]`` to ``start[f + 1, kind]`` are the rows of flow f among the ``logs`` (weight,
    ceiling, 1/ceiling), ``powers`` (weight, exponent) and ``ramps`` (slope, end, slopes of this and
    those that end later).
    ``edges``: each flow's worth at x = 0, and the marginal of its smooth pieces at x = 0 and 1.
    """

    start: Integers
    logs: Floats
    powers: Floats
    ramps: Floats
    edges: Floats

    @classmethod
    def of(
        cls, utilities: Sequence[Utility], ceiling: Floats, flow: Integers, flows: int
    ) -> "UtilityPieces":
        """The pieces of subscriptions with these ceilings (ξ), each on its flow."""
        logs: list[Piece] = []
        powers: list[Piece] = []
        ramps: list[Piece] = []
        edges = np.zeros((flows, 3))
        for row, (utility, most) in enumerate(zip(utilities, ceiling.tolist(), strict=True)):
            weight = utility.weight
            if isinstance(utility, PiecewiseLinearUtility):
                edges[flow[row], 0] += weight * utility.points[0][1]
            if weight <= 0 or most <= 0:
                continue
            if isinstance(utility, LogUtility):
                logs.append((row, weight, most))
            elif isinstance(utility, PowerUtility) and utility.exponent < 1:
                powers.append((row, weight * most**utility.exponent, utility.exponent))
            else:
                ramps += [(row, *ramp) for ramp in _ramps(utility, weight, most)]
        start = np.zeros((flows + 1, 3), dtype=np.int64)
        columns = []
        for kind, pieces in enumerate((logs, powers, ramps)):
            start[1:, kind], column = _by_flow(pieces, flow, flows)
            columns.append(column)
        for kind in (0, 2):
            columns[kind] = np.column_stack([columns[kind], np.zeros(len(columns[kind]))])
        made = cls(start, columns[0], columns[1], columns[2], edges)
        finish_pieces(*made)
        return made

    def worth(self, passing: Floats) -> Floats:
        """U of each flow."""
        worth: Floats = worth_of_flows(*self, passing)
        return worth

    def best(self, price: Floats) -> Floats:
        """The x of each flow that is worth most at a price for a unit of x."""
        best: Floats = best_of_flows(*self, price)
        return best

    def most_to_gain(self, price: Floats, passing: Floats) -> Floats:
        """A bound on what each flow could gain, at its price, over its x."""
        gain: Floats = most_to_gain(*self, price, passing)
        return gain


def _ramps(utility: Utility, weight: float, ceiling: float) -> list[tuple[float, float]]:
    """(slope, end) in units of x; concave lines are the sum of ramps with falling ends."""
    if isinstance(utility, LinearUtility | PowerUtility):
        return [(weight * ceiling, 1.0)]
    if isinstance(utility, CappedUtility):
        return [(weight * ceiling / utility.enough, min(utility.enough / ceiling, 1.0))]
    if not isinstance(utility, PiecewiseLinearUtility):
        raise TypeError(type(utility).__name__)
    rates, worths = np.array(utility.points).T
    slopes = np.append(np.diff(worths) / np.diff(rates), 0.0)
    falls = np.maximum(slopes[:-1] - slopes[1:], 0.0)
    return [
        (weight * ceiling * fall, min(end / ceiling, 1.0))
        for fall, end in zip(falls.tolist(), rates[1:].tolist(), strict=True)
        if fall > 0
    ]


def _by_flow(pieces: Sequence[Piece], flow: Integers, flows: int) -> tuple[Integers, Floats]:
    """Where the pieces of each flow end, and their two numbers in that order."""
    table = np.array(pieces, dtype=float).reshape(-1, 3)
    row = table[:, 0].astype(np.int64)
    order = np.lexsort((row, table[:, 2], flow[row]))
    ends = np.cumsum(np.bincount(flow[row], minlength=flows))
    return ends, np.ascontiguousarray(table[order, 1:])
