"""Utility functions of flows, as sums of simple pieces, and the best x of a flow at a price.

Every concave utility function is a sum of

    weight · log(1 + ceiling · x)      weight · x ** exponent      slope · min(x, end)

over the subscriptions of the flow; linear and capped functions are ramps (the third form). Pieces
are ordered by flow, and ramps by their end within a flow.

The marginal utility of a flow decreases with x. Between the ends of its ramps it is smooth, and
there the equation marginal(x) = price is solved by Newton's method on 1/marginal. That function is
concave and increasing, so the iteration never passes the root from below, and for a single
logarithm it is exact after one step. The functions are compiled because a solver calls them
millions of times. Their first five arguments are the arrays of ``UtilityPieces``.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from firedex.wire import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PowerUtility,
)
from firedex_models import UtilityColumns
from firedex_models.columns import Floats, Integers

__all__ = [
    "UtilityPieces",
    "best_x_at_price",
    "best_x_of_flows",
    "best_x_of_logs",
    "finish_pieces",
    "flow_utilities_at",
    "flow_utility_at",
    "gain_bound",
]


class UtilityPieces(NamedTuple):
    """The pieces of all flows, in the form that the compiled functions take.

    ``start[f, kind]`` to ``start[f + 1, kind]`` are the rows of flow f among the ``logs`` (weight,
    ceiling, 1/ceiling), ``powers`` (weight, exponent) and ``ramps`` (slope, end, sum of the slopes
    of this and later ramps). ``edges``: each flow's utility at x = 0, and the marginal utility of
    its smooth pieces at x = 0 and 1.
    """

    start: Integers
    logs: Floats
    powers: Floats
    ramps: Floats
    edges: Floats

    @classmethod
    def from_utilities(
        cls, utilities: UtilityColumns, ceiling: Floats, flow: Integers, flows: int
    ) -> "UtilityPieces":
        """Return the pieces of subscriptions with these ceilings (ξ), each on its flow."""
        edges = np.zeros((flows, 3))
        for row, _, values in utilities.points:
            edges[flow[row], 0] += utilities.weight[row] * values[0]
        start = np.zeros((flows + 1, 3), dtype=np.int64)
        columns = []
        for kind, pieces in enumerate(_split_into_pieces(utilities, ceiling)):
            start[1:, kind], column = _order_by_flow(pieces, flow, flows)
            columns.append(column)
        for kind in (0, 2):
            columns[kind] = np.column_stack([columns[kind], np.zeros(len(columns[kind]))])
        result = cls(start, columns[0], columns[1], columns[2], edges)
        finish_pieces(*result)
        return result

    def utilities_at(self, passing: Floats) -> Floats:
        """Return the utility of each flow."""
        utilities: Floats = flow_utilities_at(*self, passing)
        return utilities

    def best_x(self, price: Floats) -> Floats:
        """Return the best x of each flow at a price for a unit of x."""
        best_x: Floats = best_x_of_flows(*self, price)
        return best_x

    def gain_bound(self, price: Floats, passing: Floats) -> Floats:
        """Return an upper bound on what each flow could gain with another x, at its price."""
        gain: Floats = gain_bound(*self, price, passing)
        return gain


def _split_into_pieces(utilities: UtilityColumns, ceiling: Floats) -> tuple[Floats, Floats, Floats]:
    """Return logs, powers and ramps, each with its subscription's row and two parameters.

    A function without utility has no pieces.
    """
    weight, parameter = utilities.weight, utilities.parameter
    has_utility = (weight > 0) & (ceiling > 0)

    def rows_of(kind: type) -> Integers:
        rows = utilities.rows[kind]
        return rows[has_utility[rows]]

    logs = rows_of(LogUtility)
    powers = rows_of(PowerUtility)
    linear = np.append(rows_of(LinearUtility), powers[parameter[powers] >= 1])
    powers = powers[parameter[powers] < 1]
    capped = rows_of(CappedUtility)
    enough = parameter[capped]
    ramps = [
        _piece_rows(linear, weight[linear] * ceiling[linear], np.ones(len(linear))),
        _piece_rows(
            capped,
            weight[capped] * ceiling[capped] / enough,
            np.minimum(enough / ceiling[capped], 1.0),
        ),
        *(
            _ramps(row, rates, values, weight[row], ceiling[row])
            for row, rates, values in utilities.points
            if has_utility[row]
        ),
    ]
    return (
        _piece_rows(logs, weight[logs], ceiling[logs]),
        _piece_rows(
            powers, weight[powers] * ceiling[powers] ** parameter[powers], parameter[powers]
        ),
        np.concatenate(ramps),
    )


def _piece_rows(row: Integers, first: Floats, second: Floats) -> Floats:
    return np.column_stack([row.astype(float), first, second])


def _ramps(row: int, rates: Floats, values: Floats, weight: float, ceiling: float) -> Floats:
    """Return the ramps of a piecewise linear function: one per point where the slope decreases."""
    slopes = np.append(np.diff(values) / np.diff(rates), 0.0)
    decreases = np.maximum(slopes[:-1] - slopes[1:], 0.0)
    kinks = np.flatnonzero(decreases > 0)
    return _piece_rows(
        np.full(len(kinks), row),
        weight * ceiling * decreases[kinks],
        np.minimum(rates[1:][kinks] / ceiling, 1.0),
    )


def _order_by_flow(table: Floats, flow: Integers, flows: int) -> tuple[Integers, Floats]:
    """Return the end of each flow's pieces, and the parameters of the pieces in that order."""
    row = table[:, 0].astype(np.int64)
    order = np.lexsort((row, table[:, 2], flow[row]))
    ends = np.cumsum(np.bincount(flow[row], minlength=flows))
    return ends, np.ascontiguousarray(table[order, 1:])


NEWTON_STEPS = 200
MIN_X = 1e-300
RELATIVE_STEP = 1e-7
"""The relative Newton step at which to stop; the remaining error is about its square."""


@njit(cache=True, error_model="numpy")
def _smooth_marginal(start, logs, powers, f, x):  # type: ignore[no-untyped-def]
    """Return the marginal utility of the smooth pieces of flow f at x > 0, and its derivative."""
    marginal, slope = 0.0, 0.0
    for row in range(start[f, 0], start[f + 1, 0]):
        part = 1.0 / (logs[row, 2] + x)
        term = logs[row, 0] * part
        marginal += term
        slope -= term * part
    for row in range(start[f, 1], start[f + 1, 1]):
        exponent = powers[row, 1]
        term = powers[row, 0] * exponent * x ** (exponent - 1.0)
        marginal += term
        slope -= term * (1.0 - exponent) / x
    return marginal, slope


@njit(cache=True, error_model="numpy")
def _find_root(start, logs, powers, f, price, low, high, guess):  # type: ignore[no-untyped-def]
    """Return the x in (low, high) where the smooth marginal equals ``price``, and its slope."""
    inverse = 1.0 / price
    for row in range(start[f, 0], start[f + 1, 0]):
        # the root of a single piece is a lower bound for the root of the sum
        low = max(low, logs[row, 0] * inverse - logs[row, 2])
    for row in range(start[f, 1], start[f + 1, 1]):
        exponent = powers[row, 1]
        low = max(low, (price / (powers[row, 0] * exponent)) ** (1.0 / (exponent - 1.0)))
    low = min(max(low, MIN_X), high)
    x = min(max(guess, low), high)
    slope = 0.0
    for step_number in range(NEWTON_STEPS):
        marginal, slope = _smooth_marginal(start, logs, powers, f, x)
        low = x if marginal >= price else low
        high = x if marginal <= price else high
        step = (marginal - price) * marginal * inverse / -slope
        next_x = min(max(x + step, low), high)
        if abs(next_x - x) <= RELATIVE_STEP * next_x:
            return next_x, slope
        if step_number % 8 == 7:  # exponents close to 1 can start near 0 and converge slowly
            next_x = np.sqrt(low) * np.sqrt(high)
        x = next_x
    return x, slope


@njit(cache=True, error_model="numpy")
def best_x_at_price(start, logs, powers, ramps, edges, f, price, guess):  # type: ignore[no-untyped-def]
    """Return the smallest optimal x in [0, 1] of flow f at a price, and U″ there (0 at a kink).

    x is 1 if the price is 0. ``guess`` is the initial guess.
    """
    if price <= 0.0:
        return 1.0, 0.0
    first, beyond = start[f, 2], start[f + 1, 2]
    first_ramp, stop = first, beyond
    if edges[f, 1] + (ramps[first, 2] if stop > first_ramp else 0.0) <= price:
        return 0.0, 0.0
    # the first ramp beyond whose end the marginal utility is at most the price
    while first < beyond:
        middle = (first + beyond) // 2
        later = ramps[middle + 1, 2] if middle + 1 < stop else 0.0
        if later + _smooth_marginal(start, logs, powers, f, ramps[middle, 1])[0] <= price:
            beyond = middle
        else:
            first = middle + 1
    low = ramps[first - 1, 1] if first > first_ramp else 0.0
    high = ramps[first, 1] if first < stop else 1.0
    smooth_price = price - (ramps[first, 2] if first < stop else 0.0)
    if low >= high or smooth_price <= 0.0:
        return high, 0.0
    at_high = edges[f, 2] if high >= 1.0 else _smooth_marginal(start, logs, powers, f, high)[0]
    if at_high >= smooth_price:
        return high, 0.0
    at_low = edges[f, 1] if low <= 0.0 else _smooth_marginal(start, logs, powers, f, low)[0]
    if at_low <= smooth_price:
        return low, 0.0
    return _find_root(start, logs, powers, f, smooth_price, low, high, guess)


@njit(cache=True, error_model="numpy")
def best_x_of_logs(start, logs, edges, f, price, guess):  # type: ignore[no-untyped-def]
    """Do the same as ``best_x_at_price`` for a flow with logarithms only, a frequent case."""
    x, slope = 0.0, 0.0
    if edges[f, 2] >= price:
        x = 1.0
    elif edges[f, 1] > price:
        inverse = 1.0 / price
        low = 0.0
        for row in range(start[f, 0], start[f + 1, 0]):
            low = max(low, logs[row, 0] * inverse - logs[row, 2])
        x = min(max(guess, low), 1.0)
        for _ in range(NEWTON_STEPS):
            marginal, slope = 0.0, 0.0
            for row in range(start[f, 0], start[f + 1, 0]):
                part = 1.0 / (logs[row, 2] + x)
                term = logs[row, 0] * part
                marginal += term
                slope -= term * part
            step = (marginal - price) * marginal * inverse / -slope
            x = min(max(x + step, low), 1.0)
            if abs(step) <= RELATIVE_STEP * x:
                break
    return x, slope


@njit(cache=True, error_model="numpy")
def flow_utility_at(start, logs, powers, ramps, edges, f, x):  # type: ignore[no-untyped-def]
    """Return the utility of flow f at x."""
    utility = edges[f, 0]
    for row in range(start[f, 0], start[f + 1, 0]):
        utility += logs[row, 0] * np.log1p(logs[row, 1] * x)
    for row in range(start[f, 1], start[f + 1, 1]):
        utility += powers[row, 0] * x ** powers[row, 1]
    for row in range(start[f, 2], start[f + 1, 2]):
        utility += ramps[row, 0] * min(x, ramps[row, 1])
    return utility


@njit(cache=True, error_model="numpy")
def flow_utilities_at(start, logs, powers, ramps, edges, passing):  # type: ignore[no-untyped-def]
    """Return the utility of every flow at its x."""
    utility = np.empty(len(passing))
    for f in range(len(passing)):
        utility[f] = flow_utility_at(start, logs, powers, ramps, edges, f, passing[f])
    return utility


@njit(cache=True, error_model="numpy")
def best_x_of_flows(start, logs, powers, ramps, edges, price):  # type: ignore[no-untyped-def]
    """Return the best x of every flow at its own price."""
    best = np.empty(len(price))
    for f in range(len(price)):
        best[f] = best_x_at_price(start, logs, powers, ramps, edges, f, price[f], 0.0)[0]
    return best


@njit(cache=True, error_model="numpy")
def gain_bound(start, logs, powers, ramps, edges, price, x):  # type: ignore[no-untyped-def]
    """Return an upper bound on what each flow could gain with another x, at its price.

    A concave function is below its tangents, so the bound holds for any x.
    """
    gain = np.zeros(len(price))
    for f in range(len(price)):
        up, down = edges[f, 1], 0.0  # the marginal to the right, and to the left
        if x[f] > 0.0:
            up = down = _smooth_marginal(start, logs, powers, f, x[f])[0]
        for row in range(start[f, 2], start[f + 1, 2]):
            up += ramps[row, 0] if ramps[row, 1] > x[f] else 0.0
            down += ramps[row, 0] if ramps[row, 1] >= x[f] else 0.0
        if x[f] < 1.0 and up > price[f]:
            gain[f] = (up - price[f]) * (1.0 - x[f])
        elif x[f] > 0.0 and down < price[f]:
            gain[f] = (price[f] - down) * x[f]
    return gain


@njit(cache=True, error_model="numpy")
def finish_pieces(start, logs, powers, ramps, edges):  # type: ignore[no-untyped-def]
    """Compute the derived columns: the last columns of logs, ramps and edges."""
    for f in range(len(start) - 1):
        edges[f, 1], edges[f, 2] = 0.0, 0.0
        for row in range(start[f, 0], start[f + 1, 0]):
            logs[row, 2] = 1.0 / logs[row, 1]
            edges[f, 1] += logs[row, 0] * logs[row, 1]
            edges[f, 2] += logs[row, 0] * logs[row, 1] / (1.0 + logs[row, 1])
        for row in range(start[f, 1], start[f + 1, 1]):
            edges[f, 1] = np.inf
            edges[f, 2] += powers[row, 0] * powers[row, 1]
        total = 0.0
        for row in range(start[f + 1, 2] - 1, start[f, 2] - 1, -1):
            total += ramps[row, 0]
            ramps[row, 2] = total
