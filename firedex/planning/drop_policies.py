"""Drop rates that follow from the class alone (paper Eqs. 12-15): flat, linear, exponential.

Each is a family with one parameter for every hop, and the least that brings the hop's load down to
1 − ρ̃ is found by bisection. A flow that crosses several hops takes the strongest.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from firedex.planning.errors import LoadCannotBeMet
from firedex.planning.flow_split import FlowSplit
from firedex_models.downlink_loads import DownlinkLoads
from firedex_models.network_hops import Route

__all__ = ["CLASS_RULES", "passing_by_class"]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
STEPS = 60
ROUNDING = 1e-12

Rule = Callable[[Integers, Floats], Floats]
"""What passes of a class at a strength in [0, 1]; less, the greater the strength."""

CLASS_RULES: dict[str, Rule] = {
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
    """What passes of each flow: the most that leaves no hop above ``limit``.

    What is over its budget does not count: it takes what is left. Where reservations alone exceed
    the limit, as much is dropped as the policy can; where what the policy never drops exceeds it,
    that is an error.
    """
    priority, kept = split.priority, split.kept
    rule = CLASS_RULES[policy]
    strength = np.zeros(len(priority))

    def passing(flow: Integers, at: Floats) -> Floats:
        return np.where(kept[flow], 1.0, rule(priority[flow], at))

    # from the subscribers' end up: what is dropped for a hop relieves all hops before it
    depth = np.array([np.flatnonzero((route.stage == hop).any(axis=0)).max(initial=0)
                      for hop in range(len(route.hops))], dtype=np.int64)  # fmt: skip
    bounds = np.searchsorted(loads.hop, np.arange(len(route.hops) + 1))
    for hop in np.argsort(-depth, kind="stable"):
        rows = slice(bounds[hop], bounds[hop + 1])
        flow = loads.flow[rows]
        load = np.where(split.excessive[flow], 0.0, loads.load[rows])

        def used(least: float, flow: Integers = flow, load: Floats = load) -> float:
            return float((load * passing(flow, np.maximum(strength[flow], least))).sum())

        low, high = 0.0, 1.0
        if used(low) <= limit + ROUNDING:
            continue
        rest = used(high)
        if rest > limit + ROUNDING:
            if load[kept[flow]].sum() <= limit + ROUNDING:
                raise LoadCannotBeMet(policy, route.hops[hop].name, rest, limit)
        else:
            for _ in range(STEPS):
                middle = (low + high) / 2
                low, high = (low, middle) if used(middle) <= limit else (middle, high)
        strength[flow] = np.maximum(strength[flow], high)
    return passing(np.arange(len(priority)), strength)
