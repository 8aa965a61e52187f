"""Random allocation problems with every kind of utility, and one or several hops."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from firedex.planning.allocation import AllocationProblem
from firedex.planning.flow_utility import UtilityPieces
from firedex.wire import (
    CappedUtility,
    LinearUtility,
    LogUtility,
    PiecewiseLinearUtility,
    PowerUtility,
    Utility,
)
from firedex_models import UtilityColumns

__all__ = ["KINDS", "random_problem", "random_utility"]

KINDS = ("log", "linear", "capped", "power", "piecewise-linear")


def random_utility(random: np.random.Generator, kinds: Sequence[str] = KINDS) -> Utility:
    kind = random.choice(kinds)
    weight = float(random.exponential()) + 0.01
    if kind == "log":
        return LogUtility(weight=weight)
    if kind == "linear":
        return LinearUtility(weight=weight)
    if kind == "capped":
        return CappedUtility(weight=weight, enough=float(random.uniform(0.05, 1)))
    if kind == "power":
        return PowerUtility(weight=weight, exponent=float(random.uniform(0.1, 1)))
    inner = int(random.integers(1, 4))
    rates = [0.0, *np.sort(random.uniform(0.05, 0.95, inner)).tolist(), 1.0]
    slopes = np.sort(random.uniform(0, 3, inner + 1))[::-1]
    values = [0.0, *np.cumsum(slopes * np.diff(rates)).tolist()]
    return PiecewiseLinearUtility(weight=weight, points=tuple(zip(rates, values, strict=True)))


def random_problem(
    random: np.random.Generator,
    *,
    flows: int,
    hops: int,
    classes: int = 1,
    kinds: Sequence[str] = KINDS,
    hops_per_flow: int = 1,
) -> AllocationProblem:
    """Draw flows of 1-4 subscriptions; the load of a hop is 0.5 to 4 times its capacity."""
    members = random.integers(1, 5, flows)
    flow_of: NDArray[np.int64] = np.repeat(np.arange(flows), members)
    ceiling = np.where(random.random(len(flow_of)) < 0.5, 1.0, random.uniform(0.3, 1, len(flow_of)))
    utilities = [random_utility(random, kinds) for _ in flow_of]
    pair_hop, pair_flow = [], []
    for number in range(flows):
        for hop in random.choice(hops, size=min(hops_per_flow, hops), replace=False):
            pair_hop.append(int(hop))
            pair_flow.append(number)
    order = np.lexsort((pair_flow, pair_hop))
    hop = np.array(pair_hop)[order]
    flow = np.array(pair_flow)[order]
    load = random.uniform(0.2, 2, len(hop)) * members[flow]
    offered = random.uniform(0.5, 4, hops)
    load = load / np.bincount(hop, load, minlength=hops)[hop] * offered[hop]
    limit = np.full((hops, classes), 0.9)
    limit[:, :-1] = random.uniform(0.2, 1.0, (hops, classes - 1))
    return AllocationProblem(
        pieces=UtilityPieces.from_utilities(UtilityColumns(utilities), ceiling, flow_of, flows),
        priority=random.integers(0, classes, flows),
        hop=hop,
        flow=flow,
        load=load,
        limit=limit,
    )
