"""The division of ranked lists into flows that maximises utility.

The paper (§4.2) divides a ranked list into equal parts; this module chooses the parts. At fixed
prices of bandwidth the best cut is a one-dimensional partition, found by dynamic programming.
Prices and cut are computed alternately until the utility does not increase.

For up to ``MAX_EXACT_ITEMS`` subscriptions, branch and bound then finds the best of all cuts. For
more, the cut is a heuristic with a bound on its distance from the optimum: the Lagrangian bound at
the prices, and the utility with a separate flow for every subscription. Long lists are cut between
blocks of neighbours only.

A *segment* is a sequence of neighbouring items on one flow; its value at the prices is
max_x [Σ U(x) − p x].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.flow_split import Kinds
from firedex.planning.flow_utility import (
    UtilityPieces,
    best_x_at_price,
    finish_pieces,
    flow_utility_at,
)
from firedex.planning.ranking import part_number
from firedex_models import UtilityColumns
from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.site import Demand

__all__ = ["OptimalCut", "best_cuts", "optimal_cut", "segment_values"]

MAX_EXACT_ITEMS = 12
MAX_BLOCKS = 48
"""A longer list is first combined into this number of blocks."""
MAX_ROUNDS = 6
ROUNDING = 1e-12
INTERIOR_POINT_TOLERANCE = 1e-7

SolveCut = Callable[[Integers], Allocation]
"""Solve for the drop rates of a cut."""


@dataclass(frozen=True, kw_only=True)
class OptimalCut:
    """A cut, and an upper bound on the relative gain of another cut.

    ``gap`` is None if filters of one subscriber overlap: a flow then carries an event once for
    several subscriptions, which the bounds do not consider.
    """

    cut: Integers
    gap: float | None


def optimal_cut(
    demand: Demand,
    kinds: Kinds,
    equal: Integers,
    separate: Allocation,
    ceiling: Floats,
    solve_cut: SolveCut,
) -> OptimalCut:
    """Return the best cut of droppable subscriptions; the others stay as in ``equal``.

    ``separate``: the solution with a separate flow for every subscription. ``ceiling``: the success
    rate of each subscription if nothing is dropped.
    """
    lists = _RankedLists.build(demand, kinds, separate.problem, ceiling)
    best = _BestCut(solve_cut(equal), equal)
    bound = separate.utility * (1 + separate.gap)
    price = separate.price
    for _ in range(MAX_ROUNDS):
        cut, lagrange = lists.best_cut(price, equal)
        if lists.exact:
            bound = min(bound, lagrange)
        candidate = solve_cut(cut)
        if not best.update(candidate, cut, margin=ROUNDING):
            break
        price = candidate.price
    if lists.exact and lists.items <= MAX_EXACT_ITEMS and not lists.overlapping:
        # smaller gains are below the accuracy of the interior-point solver
        exact = separate.solver == "kkt" and best.allocation.solver == "kkt"
        tolerance = ROUNDING if exact else INTERIOR_POINT_TOLERANCE
        for cut in lists.candidate_cuts(best.allocation.price, equal, best, tolerance):
            best.update(solve_cut(cut), cut)
        return OptimalCut(cut=best.cut, gap=0.0 if exact else tolerance)
    gap = None if lists.overlapping else max(bound - best.utility, 0.0) / max(best.utility, 1e-300)
    return OptimalCut(cut=best.cut, gap=gap)


class _BestCut:
    """The best cut found so far."""

    def __init__(self, allocation: Allocation, cut: Integers) -> None:
        self.allocation, self.cut = allocation, cut

    @property
    def utility(self) -> float:
        return self.allocation.utility

    def update(self, candidate: Allocation, cut: Integers, margin: float = 0.0) -> bool:
        is_better = candidate.utility > self.utility * (1 + margin)
        if is_better:
            self.allocation, self.cut = candidate, cut
        return is_better


@dataclass(frozen=True, kw_only=True)
class _RankedLists:
    """The droppable subscriptions of each subscriber, in ranking order, as items to cut."""

    problem: AllocationProblem
    pieces: UtilityPieces
    item_of: Integers
    droppable: Integers
    bounds: Integers
    max_parts: Integers
    other_utility: float
    exact: bool
    overlapping: bool

    @property
    def items(self) -> int:
        return len(self.pieces.edges)

    @classmethod
    def build(
        cls, demand: Demand, kinds: Kinds, separate: AllocationProblem, ceiling: Floats
    ) -> "_RankedLists":
        droppable = np.flatnonzero(kinds.droppable)
        count = kinds.count.ravel()[kinds.group[droppable]]
        block = part_number(kinds.rank[droppable], count, np.full(len(count), MAX_BLOCKS))
        key, item_of = np.unique(kinds.group[droppable] * MAX_BLOCKS + block, return_inverse=True)
        groups, first = np.unique(key // MAX_BLOCKS, return_index=True)
        utilities = UtilityColumns([demand.subscriptions[r].utility for r in droppable.tolist()])
        topics = max(len(demand.scenario.topics), 1)
        is_droppable = kinds.droppable[demand.member_subscription]
        pair = demand.subscriber[demand.member_subscription] * topics + demand.member_topic
        undroppable = ~kinds.droppable
        return cls(
            problem=separate,
            pieces=UtilityPieces.from_utilities(utilities, ceiling[droppable], item_of, len(key)),
            item_of=item_of,
            droppable=droppable,
            bounds=np.append(first, len(key)),
            max_parts=kinds.flow_count.ravel()[groups],
            other_utility=float(
                separate.pieces.utilities_at(np.ones(separate.flows))[undroppable].sum()
            ),
            exact=len(key) == len(droppable),
            overlapping=len(np.unique(pair[is_droppable])) < int(is_droppable.sum()),
        )

    def item_prices(self, price: Floats) -> Floats:
        """Return the price of each item for a unit of x."""
        item_price = self.problem.flow_prices(price)[self.droppable]
        return group_sums(self.item_of, item_price, self.items)

    def constant_term(self, price: Floats) -> float:
        """Return the part of the Lagrangian bound that does not depend on the cut."""
        counts = (price > 0) & np.isfinite(price)
        return self.other_utility + float((price[counts] * self.problem.limit[counts]).sum())

    def best_cut(self, price: Floats, equal: Integers) -> tuple[Integers, float]:
        """Return the best cut at these prices, and an upper bound on the utility of any cut."""
        part, total = best_cuts(*self.pieces, self.item_prices(price), self.bounds, self.max_parts)
        return self.full_cut(part, equal), total + self.constant_term(price)

    def full_cut(self, part: Integers, equal: Integers) -> Integers:
        cut = equal.copy()
        cut[self.droppable] = part[self.item_of]
        return cut

    def candidate_cuts(
        self, price: Floats, equal: Integers, best: _BestCut, tolerance: float
    ) -> Iterator[Integers]:
        """Yield all cuts whose bound at these prices exceeds the best utility so far."""
        item_price = self.item_prices(price)
        values = [
            segment_values(*self.pieces, item_price, first, end)
            for first, end in zip(self.bounds[:-1], self.bounds[1:], strict=True)
        ]
        best_remaining = [
            _best_values_from(value, int(max_parts))
            for value, max_parts in zip(values, self.max_parts, strict=True)
        ]
        value_of_later_lists = np.append(
            np.cumsum([a[-1, 0] for a in best_remaining][::-1])[::-1], 0.0
        )
        part = np.zeros(self.items, dtype=np.int64)

        def extend(group: int, i: int, used: int, value_so_far: float) -> Iterator[Integers]:
            if group == len(values):
                yield self.full_cut(part, equal)
                return
            value = values[group]
            count = len(value) - 1
            if i == count:
                yield from extend(group + 1, 0, 0, value_so_far)
                return
            left = int(self.max_parts[group]) - used
            for j in range(i + 1, count + 1):
                rest = (
                    0.0
                    if j == count
                    else (best_remaining[group][left - 1, j] if left > 1 else -np.inf)
                )
                bound = value_so_far + value[i, j] + rest + value_of_later_lists[group + 1]
                if bound > best.utility * (1 + tolerance):
                    part[self.bounds[group] + i : self.bounds[group] + j] = used
                    yield from extend(group, j, used + 1, value_so_far + value[i, j])

        yield from extend(0, 0, 0, self.constant_term(price))


def _best_values_from(value: Floats, max_parts: int) -> Floats:
    """Return best[p, i]: the maximum value of items i … in at most p parts."""
    count = len(value) - 1
    best = np.full((max_parts + 1, count + 1), -np.inf)
    best[:, count] = 0.0
    for p in range(1, max_parts + 1):
        for i in range(count - 1, -1, -1):
            best[p, i] = max(value[i, j] + best[p - 1, j] for j in range(i + 1, count + 1))
    return best


@njit(cache=True, error_model="numpy")
def segment_values(start, logs, powers, ramps, edges, price, first, end):  # type: ignore[no-untyped-def]
    """Return values[i, j]: the value of items first + i … first + j − 1 on one flow."""
    count = end - first
    values = np.full((count + 1, count + 1), -np.inf)
    own_start = np.zeros((2, 3), dtype=np.int64)
    own_edges = np.zeros((1, 3))
    scratch = np.empty((start[end, 2] - start[first, 2], 3))
    for i in range(count):
        begin = start[first + i]
        item_price, sorted_ramps = 0.0, 0
        own_edges[0, 0] = 0.0
        for j in range(i + 1, count + 1):
            item = first + j - 1
            item_price += price[item]
            own_edges[0, 0] += edges[item, 0]
            for row in range(start[item, 2], start[item + 1, 2]):
                place = sorted_ramps  # insertion sort by the end of the ramp
                while place > 0 and scratch[place - 1, 1] > ramps[row, 1]:
                    scratch[place, 0] = scratch[place - 1, 0]
                    scratch[place, 1] = scratch[place - 1, 1]
                    place -= 1
                scratch[place, 0], scratch[place, 1] = ramps[row, 0], ramps[row, 1]
                sorted_ramps += 1
            own_start[1, 0] = start[item + 1, 0] - begin[0]
            own_start[1, 1] = start[item + 1, 1] - begin[1]
            own_start[1, 2] = sorted_ramps
            own_logs = logs[begin[0] : start[item + 1, 0]]
            own_powers = powers[begin[1] : start[item + 1, 1]]
            own_ramps = scratch[:sorted_ramps]
            finish_pieces(own_start, own_logs, own_powers, own_ramps, own_edges)
            x = best_x_at_price(
                own_start, own_logs, own_powers, own_ramps, own_edges, 0, item_price, 0.0
            )[0]
            utility = flow_utility_at(own_start, own_logs, own_powers, own_ramps, own_edges, 0, x)
            values[i, j] = utility - item_price * x if x > 0.0 else utility
    return values


@njit(cache=True, error_model="numpy")
def best_cuts(start, logs, powers, ramps, edges, price, bounds, max_parts):  # type: ignore[no-untyped-def]
    """Return the part of each item, and the total value of all lists.

    List g is items bounds[g] … bounds[g + 1] − 1, to be cut into at most max_parts[g] parts.
    """
    part = np.zeros(len(price), dtype=np.int64)
    total = 0.0
    for g in range(len(max_parts)):
        first, end = bounds[g], bounds[g + 1]
        count = end - first
        if count == 0:
            continue
        values = segment_values(start, logs, powers, ramps, edges, price, first, end)
        parts = min(max_parts[g], count)
        best, cut = _best_ends(values, parts)
        used = parts
        for p in range(parts, 0, -1):  # if values are equal, use the largest number of flows
            if best[p, count] > best[used, count]:
                used = p
        total += best[used, count]
        j = count
        for p in range(used, 0, -1):
            for row in range(cut[p, j], j):
                part[first + row] = p - 1
            j = cut[p, j]
    return part, total


@njit(cache=True, error_model="numpy")
def _best_ends(values, parts):  # type: ignore[no-untyped-def]
    """Return best[p, j], the value of the first j items in p parts, and the start of the last."""
    count = len(values) - 1
    best = np.full((parts + 1, count + 1), -np.inf)
    cut = np.zeros((parts + 1, count + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for p in range(1, parts + 1):
        for j in range(p, count + 1):
            for i in range(p - 1, j):
                value = best[p - 1, i] + values[i, j]
                if value > best[p, j]:
                    best[p, j], cut[p, j] = value, i
    return best, cut
