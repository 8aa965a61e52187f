"""What a single flow would choose at a price: compiled, since it is asked millions of times.

The marginal worth of a flow falls with x. Between the ends of its ramps it is smooth, and there the
equation marginal(x) = price is solved by Newton's method on 1/marginal: concave and rising (every
piece's reciprocal is), so that the iteration never passes the root from below and is exact in one
step for a single logarithm.

The five arrays that every function takes first are those of ``UtilityPieces``.
"""

import numpy as np
from numba import njit

__all__ = [
    "best_of_flows",
    "choose",
    "choose_of_logs",
    "finish_pieces",
    "most_to_gain",
    "worth_of_flow",
    "worth_of_flows",
]

NEWTON_STEPS = 200
SMALLEST = 1e-300
CLOSE = 1e-7
"""A Newton step so small, relatively, leaves an error of about its square."""


@njit(cache=True, error_model="numpy")
def _smooth(start, logs, powers, f, x):  # type: ignore[no-untyped-def]
    """Marginal worth of the smooth pieces of flow f at x > 0, and its derivative."""
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
def _root(start, logs, powers, f, price, low, high, near):  # type: ignore[no-untyped-def]
    """The x in (low, high) at which the smooth marginal is ``price``, and its slope there."""
    inverse = 1.0 / price
    for row in range(start[f, 0], start[f + 1, 0]):
        # alone each piece would stop earlier than all together
        low = max(low, logs[row, 0] * inverse - logs[row, 2])
    for row in range(start[f, 1], start[f + 1, 1]):
        exponent = powers[row, 1]
        low = max(low, (price / (powers[row, 0] * exponent)) ** (1.0 / (exponent - 1.0)))
    low = min(max(low, SMALLEST), high)
    x = min(max(near, low), high)
    slope = 0.0
    for turn in range(NEWTON_STEPS):
        marginal, slope = _smooth(start, logs, powers, f, x)
        low = x if marginal >= price else low
        high = x if marginal <= price else high
        step = (marginal - price) * marginal * inverse / -slope
        moved = min(max(x + step, low), high)
        if abs(moved - x) <= CLOSE * moved:
            return moved, slope
        if turn % 8 == 7:  # powers close to one start from next to nothing
            moved = np.sqrt(low) * np.sqrt(high)
        x = moved
    return x, slope


@njit(cache=True, error_model="numpy")
def choose(start, logs, powers, ramps, edges, f, price, near):  # type: ignore[no-untyped-def]
    """The smallest x in [0, 1] that is worth most to flow f at a price, and U″ there (0 at a kink).

    All of it where the price is 0. ``near`` is a guess.
    """
    if price <= 0.0:
        return 1.0, 0.0
    first, beyond = start[f, 2], start[f + 1, 2]
    begin, stop = first, beyond
    if edges[f, 1] + (ramps[first, 2] if stop > begin else 0.0) <= price:
        return 0.0, 0.0
    # the first ramp beyond whose end the next unit is not worth its price
    while first < beyond:
        middle = (first + beyond) // 2
        later = ramps[middle + 1, 2] if middle + 1 < stop else 0.0
        if later + _smooth(start, logs, powers, f, ramps[middle, 1])[0] <= price:
            beyond = middle
        else:
            first = middle + 1
    low = ramps[first - 1, 1] if first > begin else 0.0
    high = ramps[first, 1] if first < stop else 1.0
    rest = price - (ramps[first, 2] if first < stop else 0.0)
    if low >= high or rest <= 0.0:
        return high, 0.0
    at_high = edges[f, 2] if high >= 1.0 else _smooth(start, logs, powers, f, high)[0]
    if at_high >= rest:
        return high, 0.0
    at_low = edges[f, 1] if low <= 0.0 else _smooth(start, logs, powers, f, low)[0]
    if at_low <= rest:
        return low, 0.0
    return _root(start, logs, powers, f, rest, low, high, near)


@njit(cache=True, error_model="numpy")
def choose_of_logs(start, logs, edges, f, price, near):  # type: ignore[no-untyped-def]
    """The same for a flow of nothing but logarithms, without the cost of a call: most flows are."""
    x, slope = 0.0, 0.0
    if edges[f, 2] >= price:
        x = 1.0
    elif edges[f, 1] > price:
        inverse = 1.0 / price
        low = 0.0
        for row in range(start[f, 0], start[f + 1, 0]):
            low = max(low, logs[row, 0] * inverse - logs[row, 2])
        x = min(max(near, low), 1.0)
        for _ in range(NEWTON_STEPS):
            marginal, slope = 0.0, 0.0
            for row in range(start[f, 0], start[f + 1, 0]):
                part = 1.0 / (logs[row, 2] + x)
                term = logs[row, 0] * part
                marginal += term
                slope -= term * part
            step = (marginal - price) * marginal * inverse / -slope
            x = min(max(x + step, low), 1.0)
            if abs(step) <= CLOSE * x:
                break
    return x, slope


@njit(cache=True, error_model="numpy")
def worth_of_flow(start, logs, powers, ramps, edges, f, x):  # type: ignore[no-untyped-def]
    """U of flow f at x."""
    worth = edges[f, 0]
    for row in range(start[f, 0], start[f + 1, 0]):
        worth += logs[row, 0] * np.log1p(logs[row, 1] * x)
    for row in range(start[f, 1], start[f + 1, 1]):
        worth += powers[row, 0] * x ** powers[row, 1]
    for row in range(start[f, 2], start[f + 1, 2]):
        worth += ramps[row, 0] * min(x, ramps[row, 1])
    return worth


@njit(cache=True, error_model="numpy")
def worth_of_flows(start, logs, powers, ramps, edges, passing):  # type: ignore[no-untyped-def]
    """U of every flow at its x."""
    worth = np.empty(len(passing))
    for f in range(len(passing)):
        worth[f] = worth_of_flow(start, logs, powers, ramps, edges, f, passing[f])
    return worth


@njit(cache=True, error_model="numpy")
def best_of_flows(start, logs, powers, ramps, edges, price):  # type: ignore[no-untyped-def]
    """The best x of every flow at its own price."""
    best = np.empty(len(price))
    for f in range(len(price)):
        best[f] = choose(start, logs, powers, ramps, edges, f, price[f], 0.0)[0]
    return best


@njit(cache=True, error_model="numpy")
def most_to_gain(start, logs, powers, ramps, edges, price, x):  # type: ignore[no-untyped-def]
    """How much more each flow could be worth at its price than at its x, at the very most.

    A concave function stays below its tangents: whatever x is, this holds.
    """
    gain = np.zeros(len(price))
    for f in range(len(price)):
        up, down = edges[f, 1], 0.0  # the marginal to the right, and to the left
        if x[f] > 0.0:
            up = down = _smooth(start, logs, powers, f, x[f])[0]
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
    """Fill in what follows from the rest: the last columns of logs, ramps and edges."""
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
