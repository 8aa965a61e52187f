"""Dividing bandwidth among flows: the problem, and what a solution must prove.

Maximise Σ_r U_r(ξ_r x_f) over x_f = 1 − Ω_f ∈ [0, 1], such that on every hop h and for every class
k, the flows of classes 0 … k load the hop with no more than ``limit[h, k]`` (paper Eq. 16; DESIGN's
nested limits). Several subscriptions may ride on one flow and share its x.

Weak duality gives the certificate. With a price π_hk ≥ 0 on every limit, and p_f the sum of what
flow f pays for a unit of x,

    U(x*) ≤ Σ_f max_x [U_f(x) − p_f x] + Σ_hk π_hk limit_hk,

so a solution that comes close to the right-hand side is proved to be that close to the optimum. The
inner maxima are bounded by tangents: the proof does not rest on the solver's own arithmetic.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firedex.planning.utility_pieces import UtilityPieces
from firedex.wire import Solver
from firedex_models.grouping import group_sums

__all__ = ["Allocation", "AllocationProblem"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_COMPARED = 64
"""Hops that are compared with each other; beyond, that would take longer than it saves."""


@dataclass(frozen=True, kw_only=True)
class AllocationProblem:
    """What is to be divided.

    ``hop``, ``flow``, ``load``: how much a flow loads a hop at x = 1, ordered by hop; one row for
    each pair. ``priority``: the class of each flow. ``limit``: hops × classes; infinite where there
    is none.
    """

    pieces: UtilityPieces
    priority: Integers
    hop: Integers
    flow: Integers
    load: Floats
    limit: Floats

    @property
    def flows(self) -> int:
        """How many flows there are."""
        return len(self.priority)

    def used(self, passing: Floats) -> Floats:
        """The load of classes 0 … k on each hop (hops × classes)."""
        hops, classes = self.limit.shape
        cell = self.hop * classes + self.priority[self.flow]
        load = group_sums(cell, self.load * passing[self.flow], hops * classes)
        return np.cumsum(load.reshape(hops, classes), axis=1)

    @cached_property
    def binding(self) -> NDArray[np.bool_]:
        """Limits that could be exceeded at all (hops × classes)."""
        can_bind: NDArray[np.bool_] = np.greater(self.used(np.ones(self.flows)), self.limit)
        return can_bind

    @cached_property
    def limited(self) -> NDArray[np.bool_]:
        """Hops with a limit that could be exceeded, and that no other hop's limits imply."""
        limited = np.array(self.binding.any(axis=1), dtype=bool)
        hops = np.flatnonzero(limited).tolist()
        bounds = np.searchsorted(self.hop, np.arange(len(limited) + 1))
        if self._each_flow_on_one(limited) or len(hops) > MOST_COMPARED:
            return limited
        for hop in hops:
            rows = slice(bounds[hop], bounds[hop + 1])
            limited[hop] = not any(
                self._implies(slice(bounds[other], bounds[other + 1]), rows)
                for other in hops
                if other != hop and limited[other]
            )
        return limited

    def _implies(self, wide: slice, narrow: slice) -> bool:
        """Whether keeping one hop's limits keeps another's: each flow fills it no less."""
        flow, other = self.flow[narrow], self.flow[wide]
        at = np.searchsorted(other, flow)
        if not len(other) or (at >= len(other)).any() or (other[at] != flow).any():
            return False
        here, there = self.limit[self.hop[narrow.start]], self.limit[self.hop[wide.start]]
        return bool((self.load[narrow, None] * there <= self.load[wide][at][:, None] * here).all())

    def _each_flow_on_one(self, limited: NDArray[np.bool_]) -> bool:
        counts = limited[self.hop] & (self.load > 0)
        return bool((np.bincount(self.flow[counts], minlength=1) <= 1).all())

    @cached_property
    def separable(self) -> bool:
        """Whether no flow is limited by more than one hop: then every hop is a problem of its own.

        Limits that nothing can exceed, and those that another hop's imply, do not count.
        """
        return self._each_flow_on_one(self.limited)

    def worth(self, passing: Floats) -> float:
        """ΣU at these x."""
        return float(self.pieces.worth(passing).sum())

    def prices_of_flows(self, price: Floats) -> Floats:
        """What each flow pays for a unit of x, with a price on every limit (hops × classes)."""
        to_lower = np.cumsum(price[:, ::-1], axis=1)[:, ::-1]
        price_here = to_lower[self.hop, self.priority[self.flow]]
        loads = self.load > 0  # what loads nothing pays nothing, even where there is no room
        return group_sums(self.flow[loads], self.load[loads] * price_here[loads], self.flows)


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A solution: what passes of each flow, at which prices, and how far from the optimum at most.

    ``gap``: the dual gap, relative to the utility (to all there is, where that is 0). ``excess``:
    the largest load above a limit.
    """

    problem: AllocationProblem
    passing: Floats
    price: Floats
    solver: Solver

    @cached_property
    def worth(self) -> float:
        """ΣU of this solution."""
        return self.problem.worth(self.passing)

    @cached_property
    def gap(self) -> float:
        """By how much, relatively, the best solution could be better: proved, not estimated."""
        problem, pieces = self.problem, self.problem.pieces
        pays = problem.prices_of_flows(self.price)
        barred = ~np.isfinite(pays)  # no room at all: nothing passes, and nothing could
        pays = np.where(barred, 0.0, pays)
        best = pieces.best(pays)
        more = pieces.worth(best) - pays * best + pieces.most_to_gain(pays, best)
        less = pieces.worth(self.passing) - pays * self.passing
        price = np.where(np.isfinite(self.price), self.price, 0.0)
        spare = np.where(price > 0, problem.limit - problem.used(self.passing), 0.0)
        gap = np.maximum(more - less, 0.0)[~barred].sum() + (price * np.maximum(spare, 0.0)).sum()
        earned = self.worth or problem.worth(np.ones(problem.flows))
        return float(gap / earned) if gap > 0 and earned > 0 else 0.0

    @cached_property
    def excess(self) -> float:
        """The largest load above a limit: 0 but for rounding."""
        over = self.problem.used(self.passing) - self.problem.limit
        return float(max(over.max(initial=0.0), 0.0))
