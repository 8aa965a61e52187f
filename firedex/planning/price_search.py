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
    limited = problem.binding.any(axis=1)
    rows = np.flatnonzero(limited[problem.hop] & (problem.load > 0))
    of = problem.flow[rows]
    order = rows[np.lexsort((of, problem.priority[of], problem.hop[rows]))]
    flow, load = problem.flow[order], problem.load[order]
    cell = problem.hop[order] * classes + problem.priority[flow]
    start = np.searchsorted(cell, np.arange(hops * classes + 1))
    passing, price = _fill_hops(*problem.pieces, flow, load, start, problem.limit, limited)
    return Allocation(problem=problem, passing=passing, price=price, solver="kkt")


@njit(cache=True, error_model="numpy")
def _fill_hops(  # type: ignore[no-untyped-def]
    start, logs, powers, ramps, edges, flow, load, classes_start, limit, limited
):
    """x of every flow, and the price of every limit (hops × classes)."""
    hops, classes = limit.shape
    passing, bend = np.ones(len(edges)), np.zeros(len(edges))
    price = np.zeros((hops, classes))
    for hop in range(hops):
        if not limited[hop]:
            continue
        bounds = classes_start[hop * classes : (hop + 1) * classes + 1]
        narrowest = limit[hop].copy()  # a class uses no less than those above it
        for k in range(classes - 2, -1, -1):
            narrowest[k] = min(narrowest[k], narrowest[k + 1])
        everything = slice(bounds[0], bounds[classes])
        least = WORTHLESS * _mean_worth(start, ramps, edges, flow[everything], load[everything])
        first, settled = 0, 0.0
        while first < classes:
            dearest, cheaper, at = 0.0, 0.0, -1
            begin = bounds[first]
            for k in range(first, classes):
                rows = slice(begin, bounds[k + 1])
                if np.isfinite(limit[hop, k]) and bounds[k + 1] > begin:
                    dear, cheap = _search(
                        start,
                        logs,
                        powers,
                        ramps,
                        edges,
                        flow[rows],
                        load[rows],
                        narrowest[k] - settled,
                        least,
                        passing,
                        bend,
                    )
                    if dear > 0.0 and dear * SAME >= dearest:
                        dearest, cheaper, at = dear, cheap, k
            if at < 0:
                for row in range(begin, bounds[classes]):
                    passing[flow[row]] = 1.0
                break
            rows = slice(begin, bounds[at + 1])
            full, load_of_full = _settle(
                start,
                logs,
                powers,
                ramps,
                edges,
                flow[rows],
                load[rows],
                bounds[first : at + 2] - begin,
                narrowest[first : at + 1] - settled,
                dearest,
                cheaper,
                passing,
            )
            at = first + full
            settled += load_of_full
            if first > 0:  # the classes above pay for their own limit and for those below
                price[hop, first - 1] = max(price[hop, first - 1] - dearest, 0.0)
            price[hop, at] = dearest
            first = at + 1
    return passing, price


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
def _search(start, logs, powers, ramps, edges, flow, load, capacity, least, x, bend):  # type: ignore[no-untyped-def]
    """The least price at which these flows fit, and the one below it at which they do not.

    Twice the same where they fill it exactly; (0, 0) where they fit for nothing; (∞, ∞) where
    nothing may pass. A price below ``least`` is as good as none.
    """
    if load.sum() <= capacity:
        return 0.0, 0.0
    if capacity <= 0.0:
        return np.inf, np.inf
    jumps = _jumps(start, ramps, edges, flow, load)
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
        if now <= capacity:
            dear = price
        else:
            cheap = price
        if dear <= least or (dear < np.inf and dear - cheap <= NARROW * dear):
            break
        # Newton in 1/price; every other step shrinks the bracket whatever the shape
        price = price / (1.0 + (capacity - now) / (price * fall)) if fall > 0.0 else 0.0
        slow = step % 2 == 1 and not (dear - cheap) * 4 <= width
        if step % 2 == 1:
            width = dear - cheap
        if slow or not cheap < price < dear:
            price = _between(cheap, dear, jumps)
        price = max(price, least)
        if not cheap < price < dear:
            break
    return dear, cheap


@njit(cache=True, error_model="numpy")
def _jumps(start, ramps, edges, flow, load):  # type: ignore[no-untyped-def]
    """The prices at which the load jumps, ascending: flows of nothing but ramps turn there."""
    prices = np.empty(len(ramps))
    count = 0
    for row in range(len(flow)):
        f = flow[row]
        if edges[f, 1] == 0.0:
            for ramp in range(start[f, 2], start[f + 1, 2]):
                prices[count] = ramps[ramp, 2] / load[row]
                count += 1
    return np.sort(prices[:count])


@njit(cache=True, error_model="numpy")
def _between(cheap, dear, jumps):  # type: ignore[no-untyped-def]
    """A price to try next: the middle one of the jumps, or just below the jump at the upper end."""
    first = np.searchsorted(jumps, cheap, side="right")
    beyond = np.searchsorted(jumps, dear, side="left")
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
def _mean_worth(start, ramps, edges, flow, load):  # type: ignore[no-untyped-def]
    """Roughly what a unit of load is worth."""
    worth = 0.0
    for row in range(len(flow)):
        f = flow[row]
        worth += edges[f, 2]
        if start[f + 1, 2] > start[f, 2]:
            worth += ramps[start[f, 2], 2]
    return worth / load.sum() if worth > 0.0 else 1.0


@njit(cache=True, error_model="numpy")
def _settle(start, logs, powers, ramps, edges, flow, load, bounds, room, dear, cheap, x):  # type: ignore[no-untyped-def]
    """Set x at the price found; whoever is indifferent between the two shares what is left.

    ``bounds`` and ``room``: the rows of each class, and what classes up to it may use. Returns the
    lowest class up to which there is no room left, and the load up to there.
    """
    classes = len(room)
    if dear == np.inf:
        for row in range(len(flow)):
            x[flow[row]] = 0.0
        return classes - 1, 0.0
    wanted = np.empty(len(flow))
    used = np.zeros(classes)
    more = np.zeros(classes)
    for k in range(classes):
        for row in range(bounds[k], bounds[k + 1]):
            f = flow[row]
            x[f] = choose(start, logs, powers, ramps, edges, f, dear * load[row], x[f])[0]
            most = x[f]
            if cheap < dear:
                most = choose(start, logs, powers, ramps, edges, f, cheap * load[row], x[f])[0]
            wanted[row] = max(most - x[f], 0.0)
            used[k] += load[row] * x[f]
            more[k] += load[row] * wanted[row]
    left = room[-1] - used.sum()
    share = np.full(classes, min(max(left, 0.0) / more.sum(), 1.0) if more.sum() > 0.0 else 0.0)
    if (np.cumsum(used + share * more) > room).any():  # not all alike, then the highest first
        for k in range(classes):
            share[k] = 0.0
        for k in range(classes):
            if more[k] > 0.0:
                free = (room - np.cumsum(used + share * more))[k:].min()
                share[k] = min(max(free, 0.0) / more[k], 1.0)
    used += share * more
    for k in range(classes):
        for row in range(bounds[k], bounds[k + 1]):
            x[flow[row]] = min(x[flow[row]] + share[k] * wanted[row], 1.0)
    if used.sum() > room[-1]:
        for row in range(len(flow)):
            x[flow[row]] *= room[-1] / used.sum()
        used *= room[-1] / used.sum()
    # where an inner limit is what stops the indifferent, the classes below it are not done yet
    for k in range(classes - 1, -1, -1):
        if used[: k + 1].sum() >= room[k] * (1.0 - NEARLY_FULL):
            return k, used[: k + 1].sum()
    return classes - 1, used.sum()
