"""QoS 1 and 2: never dropped, so their load is reserved, as far as budgets and switches go.

Whoever reserves beyond the budget of its role, or beyond what the switch has, is served last
instead: asking for QoS 1 does not buy priority. The worthiest are served within the budget first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firedex.planning.lone_flows import on_flows
from firedex.planning.ranking import Ranking
from firedex.wire import Overcommitment, Planning
from firedex_models.demand import Demand
from firedex_models.inbound import Inbound

__all__ = ["Reservations", "overcommitted_hops", "reserve"]

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Reservations:
    """Which subscriptions reserve more than they may, and whose budgets are exceeded where.

    ``together``: subscribers whose acknowledged filters overlap. They ride on one flow, where an
    event travels once, and are granted or refused as a whole.
    """

    excessive: Booleans
    together: Booleans
    overcommitted: tuple[Overcommitment, ...]


def reserve(demand: Demand, inbound: Inbound, planning: Planning, ranking: Ranking) -> Reservations:
    """Hold what is acknowledged against budgets and bandwidths, the worthiest first."""
    excessive = np.zeros(len(demand.subscriptions), dtype=bool)
    together = _overlapping(demand)
    if not demand.acknowledged.any():
        return Reservations(excessive=excessive, together=together, overcommitted=())
    most = 1.0 - planning.rho_tolerance
    budgets = {budget.role: budget.share for budget in planning.reserved_budgets}
    asked: dict[tuple[int, str], float] = {}
    granted: dict[tuple[int, str | None], float] = {}
    for subscriptions, role, ways in _requests(demand, inbound, ranking, together):
        fits = True
        for hop, load in ways:
            asked[hop, role] = asked.get((hop, role), 0.0) + load
            by_role = granted.get((hop, role), 0.0) + load
            by_all = granted.get((hop, None), 0.0) + load
            fits = fits and by_role <= budgets.get(role, np.inf) + ROUNDING
            fits = fits and by_all <= most + ROUNDING
        excessive[subscriptions] = not fits
        for hop, load in ways if fits else ():
            for whose in (role, None):
                granted[hop, whose] = granted.get((hop, whose), 0.0) + load
    over = [
        _over(demand, hop, role, load, budgets[role])
        for (hop, role), load in sorted(asked.items())
        if role in budgets and load > budgets[role] + ROUNDING
    ]
    return Reservations(excessive=excessive, together=together, overcommitted=tuple(over))


def overcommitted_hops(demand: Demand, kept: Floats, most: float) -> tuple[Overcommitment, ...]:
    """Hops that what is never dropped loads above ``most`` by itself (one figure for each hop)."""
    return tuple(
        _over(demand, hop, None, float(kept[hop]), most)
        for hop in np.flatnonzero(kept > most + ROUNDING).tolist()
    )


def _overlapping(demand: Demand) -> Booleans:
    """Subscribers with a topic that two of their acknowledged filters match."""
    wanted = demand.acknowledged[demand.member_subscription]
    subscriber = demand.subscriber[demand.member_subscription[wanted]]
    topics = max(len(demand.scenario.topics), 1)
    pair, count = np.unique(subscriber * topics + demand.member_topic[wanted], return_counts=True)
    found = np.zeros(len(demand.scenario.subscribers), dtype=bool)
    found[pair[count > 1] // topics] = True
    return found


def _requests(
    demand: Demand, inbound: Inbound, ranking: Ranking, together: Booleans
) -> Iterator[tuple[Integers, str, list[tuple[int, float]]]]:
    """What is granted or refused as a whole, and the load of each on every hop.

    The worthiest first; several subscriptions count as the worthiest of them.
    """
    everybody = np.flatnonzero(demand.acknowledged)
    everybody = everybody[np.argsort(ranking.global_place[everybody])]
    whose = demand.subscriber[everybody]
    key = np.where(together[whose], -1 - whose, everybody)
    _, first, unit = np.unique(key, return_index=True, return_inverse=True)
    flow = np.zeros(len(demand.subscriptions), dtype=np.int64)
    flow[everybody] = unit
    wanted = demand.acknowledged[demand.member_subscription]
    only = replace(
        demand,
        member_subscription=demand.member_subscription[wanted],
        member_topic=demand.member_topic[wanted],
    )
    _, loads = on_flows(only, inbound, flow, whose[first])
    ways: dict[int, list[tuple[int, float]]] = {}
    for row, hop, load in zip(
        loads.flow.tolist(), loads.hop.tolist(), loads.load.tolist(), strict=True
    ):
        ways.setdefault(row, []).append((hop, load))
    for row in np.argsort(first).tolist():
        role = demand.scenario.subscribers[whose[first[row]]].role
        yield everybody[unit == row], role, ways.get(row, [])


def _over(
    demand: Demand, hop: int, role: str | None, reserved: float, available: float
) -> Overcommitment:
    where = demand.downlinks.hops[hop]
    excess = float(reserved - available)
    return Overcommitment(
        switch=where.switch.id,
        queue=where.name,
        role=role,
        reserved=float(reserved),
        available=float(available),
        excess=excess,
        excess_bits_per_second=excess * where.bandwidth_bits_per_second,
    )
