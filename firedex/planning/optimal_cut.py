"""Cuts of ranked lists into flows that let the drop rates earn the most.

The ranked list need not be cut into equal parts (paper §4.2 does). At fixed prices of bandwidth the
best cut is a one-dimensional partition; prices follow from the cut and the cut from prices, turn by
turn. Up to ``EXACT`` subscriptions the best of all cuts is then found by branch and bound. Beyond
that the cut is a heuristic, and how far it can be from the best is stated: the bounds are that of
Lagrange at the prices, and that of a flow for every subscription. Long lists are cut between blocks
of neighbours only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.flow_split import Kinds
from firedex.planning.parts import part_of
from firedex.planning.segment_choice import best_cuts, segment_values
from firedex.planning.utility_pieces import UtilityPieces
from firedex_models import UtilityColumns
from firedex_models.demand import Demand
from firedex_models.grouping import group_sums

__all__ = ["OptimalCut", "optimal_cut"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
EXACT = 12
LONGEST = 48
"""A list of more items is put together into so many blocks first."""
ROUNDS = 6
ROUNDING = 1e-12
INTERIOR = 1e-7

Try = Callable[[Integers], Allocation]
"""Solve for the drop rates of a cut."""


@dataclass(frozen=True, kw_only=True)
class OptimalCut:
    """A cut, and by how much, relatively, another could be better; none where that is unknown.

    Unknown: where filters of one subscriber overlap, since an event then travels once for all on a
    flow, which the bounds do not count.
    """

    cut: Integers
    gap: float | None


def optimal_cut(
    demand: Demand,
    kinds: Kinds,
    equal: Integers,
    alone: Allocation,
    ceiling: Floats,
    attempt: Try,
) -> OptimalCut:
    """The best cut of what may be dropped; the rest stays as in ``equal``.

    ``alone``: the solution with a flow for every subscription; ``ceiling``: the success rate of
    each if nothing is dropped.
    """
    lists = _Lists.of(demand, kinds, alone.problem, ceiling)
    best = _Best(attempt(equal), equal)
    bound = alone.worth * (1 + alone.gap)
    price = alone.price
    for _ in range(ROUNDS):
        cut, lagrange = lists.best(price, equal)
        if lists.exact:
            bound = min(bound, lagrange)
        tried = attempt(cut)
        if not best.replaced_by(tried, cut, margin=ROUNDING):
            break
        price = tried.price
    if lists.exact and lists.items <= EXACT and not lists.overlapping:
        # an interior point is only so good: what it could gain by less is not looked for
        exact = alone.solver == "kkt" and best.allocation.solver == "kkt"
        tolerance = ROUNDING if exact else INTERIOR
        for cut in lists.promising(best.allocation.price, equal, best, tolerance):
            best.replaced_by(attempt(cut), cut)
        return OptimalCut(cut=best.cut, gap=0.0 if exact else tolerance)
    gap = None if lists.overlapping else max(bound - best.worth, 0.0) / max(best.worth, 1e-300)
    return OptimalCut(cut=best.cut, gap=gap)


class _Best:
    """The best cut so far."""

    def __init__(self, allocation: Allocation, cut: Integers) -> None:
        self.allocation, self.cut = allocation, cut

    @property
    def worth(self) -> float:
        return self.allocation.worth

    def replaced_by(self, tried: Allocation, cut: Integers, margin: float = 0.0) -> bool:
        better = tried.worth > self.worth * (1 + margin)
        if better:
            self.allocation, self.cut = tried, cut
        return better


@dataclass(frozen=True, kw_only=True)
class _Lists:
    """What may be dropped of each subscriber, in the order of its ranking, as items to cut."""

    problem: AllocationProblem
    pieces: UtilityPieces
    item_of: Integers
    droppable: Integers
    bounds: Integers
    most: Integers
    rest_worth: float
    exact: bool
    overlapping: bool

    @property
    def items(self) -> int:
        return len(self.pieces.edges)

    @classmethod
    def of(
        cls, demand: Demand, kinds: Kinds, alone: AllocationProblem, ceiling: Floats
    ) -> "_Lists":
        droppable = np.flatnonzero(kinds.droppable)
        count = kinds.count.ravel()[kinds.group[droppable]]
        block = part_of(kinds.place[droppable], count, np.full(len(count), LONGEST))
        key, item_of = np.unique(kinds.group[droppable] * LONGEST + block, return_inverse=True)
        groups, first = np.unique(key // LONGEST, return_index=True)
        utilities = UtilityColumns([demand.subscriptions[r].utility for r in droppable.tolist()])
        topics = max(len(demand.scenario.topics), 1)
        wanted = kinds.droppable[demand.member_subscription]
        pair = demand.subscriber[demand.member_subscription] * topics + demand.member_topic
        kept = ~kinds.droppable
        return cls(
            problem=alone,
            pieces=UtilityPieces.of(utilities, ceiling[droppable], item_of, len(key)),
            item_of=item_of,
            droppable=droppable,
            bounds=np.append(first, len(key)),
            most=kinds.allotted.ravel()[groups],
            rest_worth=float(alone.pieces.worth(np.ones(alone.flows))[kept].sum()),
            exact=len(key) == len(droppable),
            overlapping=len(np.unique(pair[wanted])) < int(wanted.sum()),
        )

    def prices(self, price: Floats) -> Floats:
        """What each item pays for a unit of x."""
        pays = self.problem.prices_of_flows(price)[self.droppable]
        return group_sums(self.item_of, pays, self.items)

    def constant(self, price: Floats) -> float:
        """What Lagrange's bound has besides the items' values."""
        counts = (price > 0) & np.isfinite(price)
        return self.rest_worth + float((price[counts] * self.problem.limit[counts]).sum())

    def best(self, price: Floats, equal: Integers) -> tuple[Integers, float]:
        """The best cut at these prices, and a bound on what any cut can earn."""
        part, total = best_cuts(*self.pieces, self.prices(price), self.bounds, self.most)
        return self.whole(part, equal), total + self.constant(price)

    def whole(self, part: Integers, equal: Integers) -> Integers:
        cut = equal.copy()
        cut[self.droppable] = part[self.item_of]
        return cut

    def promising(
        self, price: Floats, equal: Integers, best: _Best, tolerance: float
    ) -> Iterator[Integers]:
        """All cuts whose bound at these prices exceeds what has been reached so far."""
        pays = self.prices(price)
        values = [
            segment_values(*self.pieces, pays, first, beyond)
            for first, beyond in zip(self.bounds[:-1], self.bounds[1:], strict=True)
        ]
        ahead = [
            _best_from(value, int(most)) for value, most in zip(values, self.most, strict=True)
        ]
        later = np.append(np.cumsum([a[-1, 0] for a in ahead][::-1])[::-1], 0.0)
        part = np.zeros(self.items, dtype=np.int64)

        def extend(group: int, i: int, used: int, earned: float) -> Iterator[Integers]:
            if group == len(values):
                yield self.whole(part, equal)
                return
            value = values[group]
            count = len(value) - 1
            if i == count:
                yield from extend(group + 1, 0, 0, earned)
                return
            left = int(self.most[group]) - used
            for j in range(i + 1, count + 1):
                rest = 0.0 if j == count else (ahead[group][left - 1, j] if left > 1 else -np.inf)
                hope = earned + value[i, j] + rest + later[group + 1]
                if hope > best.worth * (1 + tolerance):
                    part[self.bounds[group] + i : self.bounds[group] + j] = used
                    yield from extend(group, j, used + 1, earned + value[i, j])

        yield from extend(0, 0, 0, self.constant(price))


def _best_from(value: Floats, most: int) -> Floats:
    """best[p, i]: what items i … are worth at the best, in at most p parts."""
    count = len(value) - 1
    best = np.full((most + 1, count + 1), -np.inf)
    best[:, count] = 0.0
    for p in range(1, most + 1):
        for i in range(count - 1, -1, -1):
            best[p, i] = max(value[i, j] + best[p - 1, j] for j in range(i + 1, count + 1))
    return best
