"""The default solver: every hop by itself, one price at a time (Karush, Kuhn, Tucker).

At the optimum a hop's load has a price, and every flow takes what is worth it. Load falls with the
price, so the price that just fills the hop is found by a safeguarded secant search in 1/price (with
logarithms alone the load is a straight line in it, piece by piece). Nested limits are taken one by
one: the prefix of classes that needs the highest price is settled, then the classes below it.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.flow_choice import choose, choose_of_logs

__all__ = ["solve_by_prices"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_STEPS = 300
NARROW = 1e-11
"""The relative width of a price bracket within which any price will do: the dual gap is less."""
WORTHLESS = 1e-15
"""A price so small beside what a unit of load is worth here is none."""
SAME = 1.0 + 1e-10
"""Prices that differ by less than this factor are equal."""
FULL = 1e-12
NEARLY_FULL = 1e-10
"""A hop filled up to this part of its limit is full: what is sought, and what will do."""


def solve_by_prices(problem: AllocationProblem) -> Allocation:
    """The optimum of a separable problem."""
    hops, classes = problem.limit.shape
    rows = np.flatnonzero(problem.limited[problem.hop] & (problem.load > 0))
    of = problem.flow[rows]
    order = rows[np.lexsort((of, problem.priority[of], problem.hop[rows]))]
    flow, load, hop = problem.flow[order], problem.load[order], problem.hop[order]
    cells = np.searchsorted(hop * classes + problem.priority[flow], np.arange(hops * classes + 1))
    jumps, jumps_of = _jumps(problem, flow, load, hop)
    passing, price = _fill_hops(
        *problem.pieces, flow, load, cells, jumps, jumps_of, problem.limit, problem.limited
    )
    return Allocation(problem=problem, passing=passing, price=price, solver="kkt")


def _jumps(
    problem: AllocationProblem, flow: Integers, load: Floats, hop: Integers
) -> tuple[Floats, Integers]:
    """The prices at which loads jump, ascending for each hop, and where each hop's begin.

    Flows of nothing but ramps turn there all at once; others give way little by little.
    """
    start, _, _, ramps, edges = problem.pieces
    count = np.where(edges[flow, 1] == 0, start[flow + 1, 2] - start[flow, 2], 0)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    ramp = np.repeat(start[flow, 2], count) + within
    price = ramps[ramp, 2] / np.repeat(load, count)
    where = np.repeat(hop, count)
    order = np.lexsort((price, where))
    return price[order], np.searchsorted(where[order], np.arange(len(problem.limit) + 1))


@njit(cache=True, error_model="numpy")
def _fill_hops(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, cells, jumps, jumps_of, limit, limited
):
    """x of every flow, and the price of every limit (hops × classes)."""
    hops, classes = limit.shape
    passing, bend = np.ones(len(edges)), np.zeros(len(edges))
    price = np.zeros((hops, classes))
    for hop in range(hops):
        if limited[hop]:
            bounds = cells[hop * classes : (hop + 1) * classes + 1]
            rows = slice(bounds[0], bounds[classes])
            _fill_hop(
                start, logs, powers, ramps, edges,
                flow[rows], load[rows], bounds - bounds[0],
                jumps[jumps_of[hop] : jumps_of[hop + 1]], limit[hop], price[hop], passing, bend,
            )  # fmt: skip
    return passing, price


@njit(cache=True, error_model="numpy")
def _fill_hop(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, bounds, jumps, limit, price, passing, bend
):
    """Settle the classes of one hop; those of class k are rows bounds[k] … bounds[k + 1] − 1."""
    classes = len(limit)
    least = WORTHLESS * _mean_worth(start, ramps, edges, flow, load)
    narrowest = limit.copy()  # a class uses no less than those above it
    for k in range(classes - 2, -1, -1):
        narrowest[k] = min(narrowest[k], narrowest[k + 1])
    first, settled = 0, 0.0
    while first < classes:
        dearest, cheaper, at = 0.0, 0.0, -1
        for k in range(first, classes):
            rows = slice(bounds[first], bounds[k + 1])
            if np.isfinite(limit[k]) and bounds[k + 1] > bounds[first]:
                dear, cheap = _search(
                    start, logs, powers, ramps, edges,
                    flow[rows], load[rows], narrowest[k] - settled, jumps, least, passing, bend,
                )  # fmt: skip
                if dear > 0.0 and dear * SAME >= dearest:
                    dearest, cheaper, at = dear, cheap, k
        if at < 0:
            for row in range(bounds[first], bounds[classes]):
                passing[flow[row]] = 1.0
            break
        rows = slice(bounds[first], bounds[at + 1])
        full, load_of_full = _settle(
            start, logs, powers, ramps, edges,
            flow[rows], load[rows], bounds[first : at + 2] - bounds[first],
            narrowest[first : at + 1] - settled, dearest, cheaper, passing,
        )  # fmt: skip
        settled += load_of_full
        if first > 0:  # the classes above pay for their own limit and for those below
            price[first - 1] = max(price[first - 1] - dearest, 0.0)
        price[first + full] = dearest
        first += full + 1


@njit(cache=True, error_model="numpy")
def _load_at(start, logs, powers, ramps, edges, flow, load, price, before, x, bend):  # type: ignore[no-untyped-def]
    """The load at a price, and by how much it falls as the price rises.

    x and U″ were those at the price ``before``; between kinks x is nearly linear in 1/price.
    """
    total, fall = 0.0, 0.0
    moved = (price - before) * (before / price)
    for row in range(len(flow)):
        f = flow[row]
        near = x[f]
        if bend[f] < 0.0:
            near += moved * load[row] / bend[f]
        if start[f, 1] == start[f + 1, 1] and start[f, 2] == start[f + 1, 2]:
            x[f], bend[f] = choose_of_logs(start, logs, edges, f, price * load[row], near)
        else:
            x[f], bend[f] = choose(start, logs, powers, ramps, edges, f, price * load[row], near)
        total += load[row] * x[f]
        if bend[f] < 0.0:
            fall -= load[row] * load[row] / bend[f]
    return total, fall


@njit(cache=True, error_model="numpy")
def _search(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, capacity, jumps, least, x, bend
):
    """The least price at which these flows fit, and the one below it at which they do not.

    Twice the same where they fill it exactly; (0, 0) where they fit for nothing; (∞, ∞) where
    nothing may pass. A price below ``least`` is as good as none.
    """
    if _sum(load) <= capacity:
        return 0.0, 0.0
    if capacity <= 0.0:
        return np.inf, np.inf
    price = max(_mean_worth(start, ramps, edges, flow, load), least)
    cheap, dear = 0.0, np.inf
    width, before = np.inf, price
    for row in range(len(flow)):
        bend[flow[row]] = 0.0
    for step in range(MOST_STEPS):
        now, fall = _load_at(start, logs, powers, ramps, edges, flow, load, price, before, x, bend)
        before = price
        if abs(now - capacity) <= FULL * capacity:
            return price, price
        dear = price if now <= capacity else dear
        cheap = price if now > capacity else cheap
        if dear <= least or (dear < np.inf and dear - cheap <= NARROW * dear):
            break
        # Newton in 1/price; every other step shrinks the bracket whatever the shape
        price = price / (1.0 + (capacity - now) / (price * fall)) if fall > 0.0 else 0.0
        slow = step % 2 == 1 and not (dear - cheap) * 4 <= width
        width = dear - cheap if step % 2 == 1 else width
        if slow or not cheap < price < dear:
            price = _between(cheap, dear, jumps)
        price = max(price, least)
        if not cheap < price < dear:
            break
    return dear, cheap


@njit(cache=True, error_model="numpy")
def _between(cheap, dear, jumps):  # type: ignore[no-untyped-def]
    """A price to try next: the middle one of the jumps, or just below the jump at the upper end."""
    first, beyond = _above(jumps, cheap), _above(jumps, dear)
    while beyond > first and jumps[beyond - 1] == dear:
        beyond -= 1
    if first < beyond:
        return jumps[(first + beyond) // 2]
    if beyond < len(jumps) and jumps[beyond] == dear:
        return dear * (1.0 - NARROW / 2)
    if cheap == 0.0:
        return dear * 1e-3
    if dear == np.inf:
        return cheap * 1e3
    if dear > 2 * cheap:
        return np.sqrt(dear) * np.sqrt(cheap)
    return cheap + (dear - cheap) / 2


@njit(cache=True, error_model="numpy")
def _above(jumps, price):  # type: ignore[no-untyped-def]
    """The first of the jumps that is above a price."""
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
def _mean_worth(start, ramps, edges, flow, load):  # type: ignore[no-untyped-def]
    """Roughly what a unit of load is worth."""
    worth = 0.0
    for row in range(len(flow)):
        f = flow[row]
        worth += edges[f, 2]
        if start[f + 1, 2] > start[f, 2]:
            worth += ramps[start[f, 2], 2]
    return worth / _sum(load) if worth > 0.0 else 1.0


@njit(cache=True, error_model="numpy")
def _settle(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, bounds, room, dear, cheap, x
):
    """Set x at the price found; whoever is indifferent between the two shares what is left.

    ``bounds`` and ``room``: the rows of each class, and what classes up to it may use. Returns the
    lowest class up to which there is no room left, and the load up to there.
    """
    classes = len(room)
    wanted = np.zeros(len(flow))
    used, more = np.zeros(classes), np.zeros(classes)
    for k in range(classes):
        for row in range(bounds[k], bounds[k + 1]):
            f = flow[row]
            x[f] = choose(start, logs, powers, ramps, edges, f, dear * load[row], x[f])[0]
            if cheap < dear:
                most = choose(start, logs, powers, ramps, edges, f, cheap * load[row], x[f])[0]
                wanted[row] = max(most - x[f], 0.0)
            used[k] += load[row] * x[f]
            more[k] += load[row] * wanted[row]
    share = _shares(used, more, room)
    total = 0.0
    for k in range(classes):
        for row in range(bounds[k], bounds[k + 1]):
            x[flow[row]] = min(x[flow[row]] + share[k] * wanted[row], 1.0)
        total += used[k] + share[k] * more[k]
    shrink = min(room[-1] / total, 1.0) if total > 0.0 else 1.0  # the search stops a hair above
    for row in range(len(flow)):
        x[flow[row]] *= shrink
    # where an inner limit is what stops the indifferent, the classes below it are not done yet
    full, load_of_full, total = -1, 0.0, 0.0
    for k in range(classes):
        total += (used[k] + share[k] * more[k]) * shrink
        if total >= room[k] * (1.0 - NEARLY_FULL):
            full, load_of_full = k, total
    return (full, load_of_full) if full >= 0 else (classes - 1, total)


@njit(cache=True, error_model="numpy")
def _shares(used, more, room):  # type: ignore[no-untyped-def]
    """Which part of what it is indifferent about each class gets: all alike, if limits allow."""
    classes = len(room)
    share = np.zeros(classes)
    wanted = _sum(more)
    if wanted <= 0.0:
        return share
    alike = min(max(room[-1] - _sum(used), 0.0) / wanted, 1.0)
    total, fits = 0.0, True
    for k in range(classes):
        share[k] = alike
        total += used[k] + alike * more[k]
        fits = fits and total <= room[k]
    if fits:
        return share
    for k in range(classes):
        share[k] = 0.0
    for k in range(classes):  # else the highest first, as far as all limits below it allow
        free, total = np.inf, 0.0
        for j in range(classes):
            total += used[j] + share[j] * more[j]
            if j >= k:
                free = min(free, room[j] - total)
        if more[k] > 0.0:
            share[k] = min(max(free, 0.0) / more[k], 1.0)
    return share
