"""The problem of dividing bandwidth among flows, and a solution with its optimality bound.

Maximise Σ_r U_r(ξ_r x_f) over x_f = 1 − Ω_f ∈ [0, 1], such that on every hop h and for every class
k, the flows of classes 0 … k load the hop with at most ``limit[h, k]`` (paper Eq. 16, with nested
limits). Several subscriptions may share a flow and its x.

Weak duality bounds the optimum. With a price π_hk ≥ 0 on every limit, and p_f the total price of
flow f for a unit of x,

    U(x*) ≤ Σ_f max_x [U_f(x) − p_f x] + Σ_hk π_hk limit_hk.

The distance of a solution from the right-hand side is thus an upper bound on its distance from the
optimum. The inner maxima are bounded by tangents, so the bound does not depend on the accuracy of
the solver.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firedex.planning.flow_utility import UtilityPieces
from firedex.wire import Solver
from firedex_models.columns import Floats, Integers, group_sums

__all__ = ["Allocation", "AllocationProblem"]

MAX_COMPARED_HOPS = 64
"""Maximum number of hops to compare with each other; for more, the comparison costs too much."""


@dataclass(frozen=True, kw_only=True)
class AllocationProblem:
    """The flows, their loads on hops, and the limits.

    ``hop``, ``flow``, ``load``: the load of a flow on a hop at x = 1, one row per pair, ordered by
    hop. ``priority``: the class of each flow. ``limit``: hops × classes; infinite means no limit.
    """

    pieces: UtilityPieces
    priority: Integers
    hop: Integers
    flow: Integers
    load: Floats
    limit: Floats

    @property
    def flows(self) -> int:
        """The number of flows."""
        return len(self.priority)

    def load_at(self, passing: Floats) -> Floats:
        """Return the load of classes 0 … k on each hop (hops × classes)."""
        hops, classes = self.limit.shape
        cell = self.hop * classes + self.priority[self.flow]
        load = group_sums(cell, self.load * passing[self.flow], hops * classes)
        return np.cumsum(load.reshape(hops, classes), axis=1)

    @cached_property
    def binding_limits(self) -> NDArray[np.bool_]:
        """The limits that would be exceeded if nothing were dropped (hops × classes)."""
        can_bind: NDArray[np.bool_] = np.greater(self.load_at(np.ones(self.flows)), self.limit)
        return can_bind

    @cached_property
    def limited_hops(self) -> NDArray[np.bool_]:
        """The hops with a binding limit that is not implied by the limits of another hop."""
        limited = np.array(self.binding_limits.any(axis=1), dtype=bool)
        hops = np.flatnonzero(limited).tolist()
        bounds = np.searchsorted(self.hop, np.arange(len(limited) + 1))
        if self._each_flow_on_one_hop(limited) or len(hops) > MAX_COMPARED_HOPS:
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
        """Return whether the limits of hop ``wide`` imply those of hop ``narrow``."""
        flow, other = self.flow[narrow], self.flow[wide]
        position = np.searchsorted(other, flow)
        if not len(other) or (position >= len(other)).any() or (other[position] != flow).any():
            return False
        narrow_limit, wide_limit = (
            self.limit[self.hop[narrow.start]],
            self.limit[self.hop[wide.start]],
        )
        return bool(
            (
                self.load[narrow, None] * wide_limit
                <= self.load[wide][position][:, None] * narrow_limit
            ).all()
        )

    def _each_flow_on_one_hop(self, limited: NDArray[np.bool_]) -> bool:
        counts = limited[self.hop] & (self.load > 0)
        return bool((np.bincount(self.flow[counts], minlength=1) <= 1).all())

    @cached_property
    def separable(self) -> bool:
        """Whether no flow is limited by more than one hop, so that hops can be solved separately.

        Limits that cannot be exceeded, or that another hop's limits imply, are not counted.
        """
        return self._each_flow_on_one_hop(self.limited_hops)

    def utility_at(self, passing: Floats) -> float:
        """Return the total utility at these x."""
        return float(self.pieces.utilities_at(passing).sum())

    def flow_prices(self, price: Floats) -> Floats:
        """Return the price of each flow for a unit of x, given the prices of limits."""
        price_of_class = np.cumsum(price[:, ::-1], axis=1)[:, ::-1]
        price_here = price_of_class[self.hop, self.priority[self.flow]]
        has_load = self.load > 0  # avoids 0 · ∞ where a limit is 0
        return group_sums(
            self.flow[has_load], self.load[has_load] * price_here[has_load], self.flows
        )


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A solution: x of each flow (``passing``) and the price of each limit.

    ``gap``: the dual gap relative to the utility, or to the maximum utility if the utility is 0.
    ``excess``: the largest load above a limit.
    """

    problem: AllocationProblem
    passing: Floats
    price: Floats
    solver: Solver

    @cached_property
    def utility(self) -> float:
        """The total utility of this solution."""
        return self.problem.utility_at(self.passing)

    @cached_property
    def gap(self) -> float:
        """An upper bound on the relative distance to the optimum."""
        problem, pieces = self.problem, self.problem.pieces
        flow_price = problem.flow_prices(self.price)
        blocked = ~np.isfinite(flow_price)  # there is no capacity for these flows
        flow_price = np.where(blocked, 0.0, flow_price)
        best_x = pieces.best_x(flow_price)
        best_value = (
            pieces.utilities_at(best_x)
            - flow_price * best_x
            + pieces.gain_bound(flow_price, best_x)
        )
        value = pieces.utilities_at(self.passing) - flow_price * self.passing
        price = np.where(np.isfinite(self.price), self.price, 0.0)
        spare = np.where(price > 0, problem.limit - problem.load_at(self.passing), 0.0)
        gap = (
            np.maximum(best_value - value, 0.0)[~blocked].sum()
            + (price * np.maximum(spare, 0.0)).sum()
        )
        reference = self.utility or problem.utility_at(np.ones(problem.flows))
        return float(gap / reference) if gap > 0 and reference > 0 else 0.0

    @cached_property
    def excess(self) -> float:
        """The largest load above a limit: 0 except for rounding."""
        over = self.problem.load_at(self.passing) - self.problem.limit
        return float(max(over.max(initial=0.0), 0.0))
