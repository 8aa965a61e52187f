"""Utility functions of flows, taken apart into pieces that a solver can handle one way.

Every concave utility of the contract is a sum of

    weight · log(1 + ceiling · x)      weight · x ** exponent      slope · min(x, end)

over the subscriptions of the flow; straight lines and caps are ramps of the third kind. Pieces are
ordered by flow; ramps by their end within a flow.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firedex.planning.flow_choice import best_of_flows, finish_pieces, most_to_gain, worth_of_flows
from firedex.wire import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PowerUtility,
)
from firedex_models import UtilityColumns

__all__ = ["UtilityPieces"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
        cls, utilities: UtilityColumns, ceiling: Floats, flow: Integers, flows: int
    ) -> "UtilityPieces":
        """The pieces of subscriptions with these ceilings (ξ), each on its flow."""
        edges = np.zeros((flows, 3))
        for row, _, worths in utilities.points:
            edges[flow[row], 0] += utilities.weight[row] * worths[0]
        start = np.zeros((flows + 1, 3), dtype=np.int64)
        columns = []
        for kind, pieces in enumerate(_take_apart(utilities, ceiling)):
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


def _take_apart(utilities: UtilityColumns, ceiling: Floats) -> tuple[Floats, Floats, Floats]:
    """Logs, powers and ramps, each with its subscription's row and its two numbers.

    What is worth nothing has no pieces.
    """
    weight, parameter = utilities.weight, utilities.parameter
    some = (weight > 0) & (ceiling > 0)

    def rows_of(kind: type) -> Integers:
        rows = utilities.rows[kind]
        return rows[some[rows]]

    logs = rows_of(LogUtility)
    powers = rows_of(PowerUtility)
    straight = np.append(rows_of(LinearUtility), powers[parameter[powers] >= 1])
    powers = powers[parameter[powers] < 1]
    capped = rows_of(CappedUtility)
    enough = parameter[capped]
    ramps = [
        _table(straight, weight[straight] * ceiling[straight], np.ones(len(straight))),
        _table(
            capped,
            weight[capped] * ceiling[capped] / enough,
            np.minimum(enough / ceiling[capped], 1.0),
        ),
        *(
            _ramps(row, rates, worths, weight[row], ceiling[row])
            for row, rates, worths in utilities.points
            if some[row]
        ),
    ]
    return (
        _table(logs, weight[logs], ceiling[logs]),
        _table(powers, weight[powers] * ceiling[powers] ** parameter[powers], parameter[powers]),
        np.concatenate(ramps),
    )


def _table(row: Integers, first: Floats, second: Floats) -> Floats:
    return np.column_stack([row.astype(float), first, second])


def _ramps(row: int, rates: Floats, worths: Floats, weight: float, ceiling: float) -> Floats:
    """Concave lines are the sum of ramps: one for every point at which the slope falls."""
    slopes = np.append(np.diff(worths) / np.diff(rates), 0.0)
    falls = np.maximum(slopes[:-1] - slopes[1:], 0.0)
    kinks = np.flatnonzero(falls > 0)
    return _table(
        np.full(len(kinks), row),
        weight * ceiling * falls[kinks],
        np.minimum(rates[1:][kinks] / ceiling, 1.0),
    )


def _by_flow(table: Floats, flow: Integers, flows: int) -> tuple[Integers, Floats]:
    """Where the pieces of each flow end, and their two numbers in that order."""
    row = table[:, 0].astype(np.int64)
    order = np.lexsort((row, table[:, 2], flow[row]))
    ends = np.cumsum(np.bincount(flow[row], minlength=flows))
    return ends, np.ascontiguousarray(table[order, 1:])
