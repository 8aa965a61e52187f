"""The default solver: it solves each hop separately by the Karush-Kuhn-Tucker conditions.

At the optimum the load of a hop has a price, and every flow chooses the x that maximises utility
minus price. The load decreases with the price, so a safeguarded secant search in 1/price finds the
price at which the hop is full (with logarithmic utilities only, the load is piecewise linear in
1/price). Nested limits are solved in turn: first the prefix of classes that needs the highest
price, then the classes below it.
"""

import numpy as np
from numba import njit

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.flow_utility import best_x_at_price, best_x_of_logs
from firedex_models.columns import Floats, Integers

__all__ = ["solve_by_prices"]

MAX_STEPS = 300
BRACKET_WIDTH = 1e-11
"""The relative width of a price bracket at which the search stops; the dual gap is smaller."""
NEGLIGIBLE_PRICE = 1e-15
"""A price below this fraction of the mean utility per unit of load is treated as 0."""
EQUAL_FACTOR = 1.0 + 1e-10
"""Prices that differ by less than this factor are equal."""
FULL = 1e-12
NEARLY_FULL = 1e-10
"""The relative distances from the limit at which a hop is full: aimed at, and accepted."""


def solve_by_prices(problem: AllocationProblem) -> Allocation:
    """Return the optimum of a separable problem."""
    hops, classes = problem.limit.shape
    rows = np.flatnonzero(problem.limited_hops[problem.hop] & (problem.load > 0))
    row_flow = problem.flow[rows]
    order = rows[np.lexsort((row_flow, problem.priority[row_flow], problem.hop[rows]))]
    flow, load, hop = problem.flow[order], problem.load[order], problem.hop[order]
    cells = np.searchsorted(hop * classes + problem.priority[flow], np.arange(hops * classes + 1))
    jumps, first_jump = _jumps(problem, flow, load, hop)
    passing, price = _solve_hops(
        *problem.pieces, flow, load, cells, jumps, first_jump, problem.limit, problem.limited_hops
    )
    return Allocation(problem=problem, passing=passing, price=price, solver="kkt")


def _jumps(
    problem: AllocationProblem, flow: Integers, load: Floats, hop: Integers
) -> tuple[Floats, Integers]:
    """Return the prices at which loads jump, ascending per hop, and the first row of each hop.

    The load of a flow with ramps only jumps at these prices; that of other flows is continuous.
    """
    start, _, _, ramps, edges = problem.pieces
    count = np.where(edges[flow, 1] == 0, start[flow + 1, 2] - start[flow, 2], 0)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    ramp = np.repeat(start[flow, 2], count) + offset
    price = ramps[ramp, 2] / np.repeat(load, count)
    jump_hop = np.repeat(hop, count)
    order = np.lexsort((price, jump_hop))
    return price[order], np.searchsorted(jump_hop[order], np.arange(len(problem.limit) + 1))


@njit(cache=True, error_model="numpy")
def _solve_hops(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, cells, jumps, first_jump, limit, limited
):
    """Return x of every flow, and the price of every limit (hops × classes)."""
    hops, classes = limit.shape
    passing, curvature = np.ones(len(edges)), np.zeros(len(edges))
    price = np.zeros((hops, classes))
    for hop in range(hops):
        if limited[hop]:
            bounds = cells[hop * classes : (hop + 1) * classes + 1]
            rows = slice(bounds[0], bounds[classes])
            _solve_hop(
                start, logs, powers, ramps, edges,
                flow[rows], load[rows], bounds - bounds[0],
                jumps[first_jump[hop] : first_jump[hop + 1]],
                limit[hop], price[hop], passing, curvature,
            )  # fmt: skip
    return passing, price


@njit(cache=True, error_model="numpy")
def _solve_hop(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, bounds, jumps, limit, price, passing, curvature
):
    """Solve one hop; the flows of class k are rows bounds[k] … bounds[k + 1] − 1."""
    classes = len(limit)
    min_price = NEGLIGIBLE_PRICE * _mean_utility(start, ramps, edges, flow, load)
    # the load of classes 0 … k is not larger than that of classes 0 … k + 1
    effective_limit = limit.copy()
    for k in range(classes - 2, -1, -1):
        effective_limit[k] = min(effective_limit[k], effective_limit[k + 1])
    first, used_load = 0, 0.0
    while first < classes:
        highest_price, lower_price, at = 0.0, 0.0, -1
        for k in range(first, classes):
            rows = slice(bounds[first], bounds[k + 1])
            if np.isfinite(limit[k]) and bounds[k + 1] > bounds[first]:
                upper, lower = _search_price(
                    start, logs, powers, ramps, edges,
                    flow[rows], load[rows], effective_limit[k] - used_load, jumps, min_price,
                    passing, curvature,
                )  # fmt: skip
                if upper > 0.0 and upper * EQUAL_FACTOR >= highest_price:
                    highest_price, lower_price, at = upper, lower, k
        if at < 0:
            for row in range(bounds[first], bounds[classes]):
                passing[flow[row]] = 1.0
            break
        rows = slice(bounds[first], bounds[at + 1])
        full, full_load = _set_passing(
            start, logs, powers, ramps, edges,
            flow[rows], load[rows], bounds[first : at + 2] - bounds[first],
            effective_limit[first : at + 1] - used_load, highest_price, lower_price, passing,
        )  # fmt: skip
        used_load += full_load
        if first > 0:  # the prices of lower limits are included in the price of the classes above
            price[first - 1] = max(price[first - 1] - highest_price, 0.0)
        price[first + full] = highest_price
        first += full + 1


@njit(cache=True, error_model="numpy")
def _load_at_price(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, price, previous_price, x, curvature
):
    """Return the load at a price, and its negative derivative with respect to the price.

    x and U″ are those at the price ``previous_price``; between kinks x is nearly linear in 1/price.
    """
    total, slope = 0.0, 0.0
    change = (price - previous_price) * (previous_price / price)
    for row in range(len(flow)):
        f = flow[row]
        guess = x[f]
        if curvature[f] < 0.0:
            guess += change * load[row] / curvature[f]
        if start[f, 1] == start[f + 1, 1] and start[f, 2] == start[f + 1, 2]:
            x[f], curvature[f] = best_x_of_logs(start, logs, edges, f, price * load[row], guess)
        else:
            x[f], curvature[f] = best_x_at_price(
                start, logs, powers, ramps, edges, f, price * load[row], guess
            )
        total += load[row] * x[f]
        if curvature[f] < 0.0:
            slope -= load[row] * load[row] / curvature[f]
    return total, slope


@njit(cache=True, error_model="numpy")
def _search_price(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, capacity, jumps, min_price, x, curvature
):
    """Return the lowest price at which these flows fit, and a lower price at which they do not.

    The two are equal if the flows fill the capacity exactly, (0, 0) if they fit without a price,
    and (∞, ∞) if there is no capacity. A price below ``min_price`` is treated as 0.
    """
    if _sum(load) <= capacity:
        return 0.0, 0.0
    if capacity <= 0.0:
        return np.inf, np.inf
    price = max(_mean_utility(start, ramps, edges, flow, load), min_price)
    lower, upper = 0.0, np.inf
    width, previous_price = np.inf, price
    for row in range(len(flow)):
        curvature[flow[row]] = 0.0
    for step in range(MAX_STEPS):
        now, slope = _load_at_price(
            start,
            logs,
            powers,
            ramps,
            edges,
            flow,
            load,
            price,
            previous_price,
            x,
            curvature,
        )
        previous_price = price
        if abs(now - capacity) <= FULL * capacity:
            return price, price
        upper = price if now <= capacity else upper
        lower = price if now > capacity else lower
        if upper <= min_price or (upper < np.inf and upper - lower <= BRACKET_WIDTH * upper):
            break
        # Newton's method in 1/price; every second step shrinks the bracket in any case
        price = price / (1.0 + (capacity - now) / (price * slope)) if slope > 0.0 else 0.0
        slow = step % 2 == 1 and not (upper - lower) * 4 <= width
        width = upper - lower if step % 2 == 1 else width
        if slow or not lower < price < upper:
            price = _next_price(lower, upper, jumps)
        price = max(price, min_price)
        if not lower < price < upper:
            break
    return upper, lower


@njit(cache=True, error_model="numpy")
def _next_price(lower, upper, jumps):  # type: ignore[no-untyped-def]
    """Return the next price to try: the middle jump, or just below a jump at the upper end."""
    first, beyond = _first_jump_above(jumps, lower), _first_jump_above(jumps, upper)
    while beyond > first and jumps[beyond - 1] == upper:
        beyond -= 1
    if first < beyond:
        return jumps[(first + beyond) // 2]
    if beyond < len(jumps) and jumps[beyond] == upper:
        return upper * (1.0 - BRACKET_WIDTH / 2)
    if lower == 0.0:
        return upper * 1e-3
    if upper == np.inf:
        return lower * 1e3
    if upper > 2 * lower:
        return np.sqrt(upper) * np.sqrt(lower)
    return lower + (upper - lower) / 2


@njit(cache=True, error_model="numpy")
def _first_jump_above(jumps, price):  # type: ignore[no-untyped-def]
    """Return the position of the first jump above a price."""
    first, beyond = 0, len(jumps)
    while first < beyond:
        middle = (first + beyond) // 2
        if jumps[middle] <= price:
            first = middle + 1
        else:
            beyond = middle
    return first


@njit(cache=True, error_model="numpy")
def _sum(amounts):  # type: ignore[no-untyped-def]
    total = 0.0
    for amount in amounts:
        total += amount
    return total


@njit(cache=True, error_model="numpy")
def _mean_utility(start, ramps, edges, flow, load):  # type: ignore[no-untyped-def]
    """Return an estimate of the utility per unit of load."""
    utility = 0.0
    for row in range(len(flow)):
        f = flow[row]
        utility += edges[f, 2]
        if start[f + 1, 2] > start[f, 2]:
            utility += ramps[start[f, 2], 2]
    return utility / _sum(load) if utility > 0.0 else 1.0


@njit(cache=True, error_model="numpy")
def _set_passing(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, bounds, capacity_up_to, upper, lower, x
):
    """Set x at the price found; flows that are indifferent share the remaining capacity.

    ``bounds``: the rows of each class. ``capacity_up_to``: the capacity of classes 0 … k.
    Returns the lowest class up to which the capacity is used, and the load up to that class.
    """
    classes = len(capacity_up_to)
    possible_gain = np.zeros(len(flow))
    used, extra = np.zeros(classes), np.zeros(classes)
    for k in range(classes):
        for row in range(bounds[k], bounds[k + 1]):
            f = flow[row]
            x[f] = best_x_at_price(start, logs, powers, ramps, edges, f, upper * load[row], x[f])[0]
            if lower < upper:
                max_x = best_x_at_price(
                    start, logs, powers, ramps, edges, f, lower * load[row], x[f]
                )[0]
                possible_gain[row] = max(max_x - x[f], 0.0)
            used[k] += load[row] * x[f]
            extra[k] += load[row] * possible_gain[row]
    share = _shares(used, extra, capacity_up_to)
    total = 0.0
    for k in range(classes):
        for row in range(bounds[k], bounds[k + 1]):
            x[flow[row]] = min(x[flow[row]] + share[k] * possible_gain[row], 1.0)
        total += used[k] + share[k] * extra[k]
    scale = (
        min(capacity_up_to[-1] / total, 1.0) if total > 0.0 else 1.0
    )  # removes the rounding excess
    for row in range(len(flow)):
        x[flow[row]] *= scale
    # if an inner limit binds, the classes below it still have to be solved
    full, full_load, total = -1, 0.0, 0.0
    for k in range(classes):
        total += (used[k] + share[k] * extra[k]) * scale
        if total >= capacity_up_to[k] * (1.0 - NEARLY_FULL):
            full, full_load = k, total
    return (full, full_load) if full >= 0 else (classes - 1, total)


@njit(cache=True, error_model="numpy")
def _shares(used, extra, capacity_up_to):  # type: ignore[no-untyped-def]
    """Return the share of the remaining capacity of each class: equal shares if limits allow."""
    classes = len(capacity_up_to)
    share = np.zeros(classes)
    possible_gain = _sum(extra)
    if possible_gain <= 0.0:
        return share
    equal_share = min(max(capacity_up_to[-1] - _sum(used), 0.0) / possible_gain, 1.0)
    total, fits = 0.0, True
    for k in range(classes):
        share[k] = equal_share
        total += used[k] + equal_share * extra[k]
        fits = fits and total <= capacity_up_to[k]
    if fits:
        return share
    for k in range(classes):
        share[k] = 0.0
    for k in range(classes):  # otherwise the highest class first, within all lower limits
        free, total = np.inf, 0.0
        for j in range(classes):
            total += used[j] + share[j] * extra[j]
            if j >= k:
                free = min(free, capacity_up_to[j] - total)
        if extra[k] > 0.0:
            share[k] = min(max(free, 0.0) / extra[k], 1.0)
    return share
