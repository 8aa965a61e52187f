"""Drop rates: the allocation problem of a site, its solution, and policies by class.

The policies ``flat``, ``linear`` and ``exponential`` (paper Eqs. 12-15) depend on the class alone.
Each has one parameter per hop; bisection finds the smallest value that reduces the load of the hop
to 1 − ρ̃. A flow that crosses several hops has the highest of their drop rates.
"""

from collections.abc import Callable

import numpy as np

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.convex_solver import solve_with_cvxpy
from firedex.planning.errors import LoadLimitNotReachable
from firedex.planning.flow_split import FlowSplit
from firedex.planning.flow_utility import UtilityPieces
from firedex.planning.price_search import solve_by_prices
from firedex.wire import Solver
from firedex_models.columns import Booleans, Floats, Integers, group_sums
from firedex_models.downlink_loads import DownlinkLoads
from firedex_models.routes import Route
from firedex_models.site import Site

__all__ = ["CLASS_RULES", "allocation_problem", "passing_by_class", "reserved_load", "solve"]


def allocation_problem(
    site: Site,
    loads: DownlinkLoads,
    split: FlowSplit,
    limit: Floats,
    closed: Booleans | None = None,
) -> AllocationProblem:
    """Return the allocation problem of the flows that may be dropped.

    ``limit``: limits of the total load (hops × classes); reserved load is subtracted. A single
    column limits all classes together. ``closed``: flows that are dropped completely.
    """
    flows = len(site.flows.number)
    classes = limit.shape[1]
    priority = site.flows.priority if classes > 1 else np.zeros(flows, dtype=np.int64)
    is_closed = np.zeros(flows, dtype=bool) if closed is None else closed
    is_open = ~(split.undroppable | is_closed)[loads.flow]
    return AllocationProblem(
        pieces=UtilityPieces.from_utilities(
            site.demand.utilities,
            np.where(is_closed[site.subscription_flow], 0.0, loads.ceiling),
            site.subscription_flow,
            flows,
        ),
        priority=priority,
        hop=loads.hop[is_open],
        flow=loads.flow[is_open],
        load=loads.load[is_open],
        limit=np.maximum(limit - reserved_load(site, loads, split, classes), 0.0),
    )


def reserved_load(
    site: Site, loads: DownlinkLoads, split: FlowSplit, classes: int, *, excess: bool = False
) -> Floats:
    """Return the reserved load of classes 0 … k on every hop.

    With ``excess``, undroppable flows without a reservation are included.
    """
    hops = len(site.downlinks.hops)
    is_reserved = (split.undroppable if excess else split.undroppable & ~split.excessive)[
        loads.flow
    ]
    priority = np.minimum(site.flows.priority[loads.flow[is_reserved]], classes - 1)
    load = group_sums(
        loads.hop[is_reserved] * classes + priority, loads.load[is_reserved], hops * classes
    )
    return np.cumsum(load.reshape(hops, classes), axis=1)


def solve(problem: AllocationProblem, solver: Solver = "kkt") -> Allocation:
    """Return the optimum; a problem that is not separable is always solved by CVXPY."""
    if solver == "kkt" and problem.separable:
        return solve_by_prices(problem)
    return solve_with_cvxpy(problem)


BISECTION_STEPS = 60
ROUNDING = 1e-12

PassingRule = Callable[[Integers, Floats], Floats]
"""The fraction of a class that passes, which decreases with the strength in [0, 1]."""

CLASS_RULES: dict[str, PassingRule] = {
    "flat": lambda _priority, strength: 1.0 - strength,
    "linear": lambda priority, strength: np.maximum(1.0 - strength * priority, 0.0),
    # the strength is 1 − 1/β: from β = 1 (nothing dropped) to β → ∞ (only class 0 passes)
    "exponential": lambda priority, strength: (1.0 - strength) ** priority,
}


def passing_by_class(
    policy: str,
    loads: DownlinkLoads,
    route: Route,
    split: FlowSplit,
    limit: float,
) -> Floats:
    """Return the largest fraction of each flow that keeps every hop at or below ``limit``.

    Excessive flows are not counted, because they get only the remaining capacity. If reservations
    alone exceed the limit, the policy drops as much as it can. If other traffic that the policy
    never drops exceeds it, LoadLimitNotReachable is raised.
    """
    priority, undroppable = split.priority, split.undroppable
    rule = CLASS_RULES[policy]
    strength = np.zeros(len(priority))

    def passing(flow: Integers, at: Floats) -> Floats:
        return np.where(undroppable[flow], 1.0, rule(priority[flow], at))

    # from the subscribers towards the broker: a drop for one hop reduces the load of earlier hops
    depth = np.array([np.flatnonzero((route.stage == hop).any(axis=0)).max(initial=0)
                      for hop in range(len(route.hops))], dtype=np.int64)  # fmt: skip
    bounds = np.searchsorted(loads.hop, np.arange(len(route.hops) + 1))
    for hop in np.argsort(-depth, kind="stable"):
        rows = slice(bounds[hop], bounds[hop + 1])
        flow = loads.flow[rows]
        load = np.where(split.excessive[flow], 0.0, loads.load[rows])

        def load_with(min_strength: float, flow: Integers = flow, load: Floats = load) -> float:
            return float((load * passing(flow, np.maximum(strength[flow], min_strength))).sum())

        low, high = 0.0, 1.0
        if load_with(low) <= limit + ROUNDING:
            continue
        min_load = load_with(high)
        if min_load > limit + ROUNDING:
            if load[undroppable[flow]].sum() <= limit + ROUNDING:
                raise LoadLimitNotReachable(policy, route.hops[hop].name, min_load, limit)
        else:
            for _ in range(BISECTION_STEPS):
                middle = (low + high) / 2
                low, high = (low, middle) if load_with(middle) <= limit else (middle, high)
        strength[flow] = np.maximum(strength[flow], high)
    return passing(np.arange(len(priority)), strength)
