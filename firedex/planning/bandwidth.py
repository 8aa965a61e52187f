"""From a site's flows to the allocation problem, and to whoever solves it."""

import numpy as np
from numpy.typing import NDArray

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.convex_solver import solve_with_cvxpy
from firedex.planning.flow_split import FlowSplit
from firedex.planning.price_search import solve_by_prices
from firedex.planning.utility_pieces import UtilityPieces
from firedex.wire import Solver
from firedex_models.downlink_loads import DownlinkLoads
from firedex_models.grouping import group_sums
from firedex_models.site import Site

__all__ = ["allocation_problem", "reserved_load", "solve"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]


def allocation_problem(
    site: Site,
    loads: DownlinkLoads,
    split: FlowSplit,
    limit: Floats,
    closed: Booleans | None = None,
) -> AllocationProblem:
    """What is to be divided among the flows that are not kept whole.

    ``limit``: hops × classes, of the whole load; what is reserved is taken off. One column
    alone limits all classes together. ``closed``: flows that are left out, and earn nothing.
    """
    flows = len(site.flows.number)
    classes = limit.shape[1]
    priority = site.flows.priority if classes > 1 else np.zeros(flows, dtype=np.int64)
    out = np.zeros(flows, dtype=bool) if closed is None else closed
    free = ~(split.kept | out)[loads.flow]
    return AllocationProblem(
        pieces=UtilityPieces.of(
            site.demand.utilities,
            np.where(out[site.subscription_flow], 0.0, loads.ceiling),
            site.subscription_flow,
            flows,
        ),
        priority=priority,
        hop=loads.hop[free],
        flow=loads.flow[free],
        load=loads.load[free],
        limit=np.maximum(limit - reserved_load(site, loads, split, classes), 0.0),
    )


def reserved_load(
    site: Site, loads: DownlinkLoads, split: FlowSplit, classes: int, *, excess: bool = False
) -> Floats:
    """What is reserved on every hop in classes 0 … k; with the ``excess``, what is kept at all."""
    hops = len(site.downlinks.hops)
    held = (split.kept if excess else split.kept & ~split.excessive)[loads.flow]
    priority = np.minimum(site.flows.priority[loads.flow[held]], classes - 1)
    load = group_sums(loads.hop[held] * classes + priority, loads.load[held], hops * classes)
    return np.cumsum(load.reshape(hops, classes), axis=1)


def solve(problem: AllocationProblem, solver: Solver = "kkt") -> Allocation:
    """The optimum; what does not separate goes to CVXPY whoever was asked for."""
    if solver == "kkt" and problem.separable:
        return solve_by_prices(problem)
    return solve_with_cvxpy(problem)
