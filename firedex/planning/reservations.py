"""Reservations for QoS 1 and 2, which are never dropped, within budgets and bandwidths.

Subscriptions beyond the budget of their role, or beyond the bandwidth of a switch, are served last,
so that QoS 1 does not give priority. Budgets are granted in the order of the ranking.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from firedex.planning.ranking import Ranking
from firedex.wire import Overcommitment, Planning
from firedex_models.broker import InboundTraffic
from firedex_models.columns import Booleans, Floats, Integers
from firedex_models.downlink_loads import loads_on_flows
from firedex_models.site import Demand

__all__ = ["Reservations", "overcommitted_hops", "reserve"]

ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Reservations:
    """The subscriptions without a reservation, and the budgets that are exceeded.

    ``together``: subscribers whose acknowledged filters overlap. Their acknowledged subscriptions
    share one flow, which carries each event once, and are granted or refused as a whole.
    """

    excessive: Booleans
    together: Booleans
    overcommitted: tuple[Overcommitment, ...]


def reserve(
    demand: Demand, inbound: InboundTraffic, planning: Planning, ranking: Ranking
) -> Reservations:
    """Grant reservations to acknowledged subscriptions, in the order of the ranking."""
    excessive = np.zeros(len(demand.subscriptions), dtype=bool)
    together = _subscribers_with_overlap(demand)
    if not demand.acknowledged.any():
        return Reservations(excessive=excessive, together=together, overcommitted=())
    max_load = 1.0 - planning.rho_tolerance
    budgets = {budget.role: budget.share for budget in planning.reserved_budgets}
    requested: dict[tuple[int, str], float] = {}
    granted: dict[tuple[int, str | None], float] = {}
    for subscriptions, role, hop_loads in _requests(demand, inbound, ranking, together):
        fits = True
        for hop, load in hop_loads:
            requested[hop, role] = requested.get((hop, role), 0.0) + load
            by_role = granted.get((hop, role), 0.0) + load
            by_all = granted.get((hop, None), 0.0) + load
            fits = fits and by_role <= budgets.get(role, np.inf) + ROUNDING
            fits = fits and by_all <= max_load + ROUNDING
        excessive[subscriptions] = not fits
        for hop, load in hop_loads if fits else ():
            for owner in (role, None):
                granted[hop, owner] = granted.get((hop, owner), 0.0) + load
    exceeded = [
        _overcommitment(demand, hop, role, load, budgets[role])
        for (hop, role), load in sorted(requested.items())
        if role in budgets and load > budgets[role] + ROUNDING
    ]
    return Reservations(excessive=excessive, together=together, overcommitted=tuple(exceeded))


def overcommitted_hops(
    demand: Demand, undroppable_load: Floats, max_load: float
) -> tuple[Overcommitment, ...]:
    """Return the hops on which traffic that is never dropped has a load above ``max_load``."""
    return tuple(
        _overcommitment(demand, hop, None, float(undroppable_load[hop]), max_load)
        for hop in np.flatnonzero(undroppable_load > max_load + ROUNDING).tolist()
    )


def _subscribers_with_overlap(demand: Demand) -> Booleans:
    """Return the subscribers with a topic that two of their acknowledged filters match."""
    is_acknowledged = demand.acknowledged[demand.member_subscription]
    subscriber = demand.subscriber[demand.member_subscription[is_acknowledged]]
    topics = max(len(demand.scenario.topics), 1)
    pair, count = np.unique(
        subscriber * topics + demand.member_topic[is_acknowledged], return_counts=True
    )
    overlaps = np.zeros(len(demand.scenario.subscribers), dtype=bool)
    overlaps[pair[count > 1] // topics] = True
    return overlaps


def _requests(
    demand: Demand, inbound: InboundTraffic, ranking: Ranking, together: Booleans
) -> Iterator[tuple[Integers, str, list[tuple[int, float]]]]:
    """Yield the units that are granted or refused as a whole, and their load on every hop.

    The order is that of the ranking; a unit of several subscriptions has the best of their ranks.
    """
    acknowledged_rows = np.flatnonzero(demand.acknowledged)
    acknowledged_rows = acknowledged_rows[np.argsort(ranking.global_rank[acknowledged_rows])]
    subscribers = demand.subscriber[acknowledged_rows]
    key = np.where(together[subscribers], -1 - subscribers, acknowledged_rows)
    _, first, unit = np.unique(key, return_index=True, return_inverse=True)
    flow = np.zeros(len(demand.subscriptions), dtype=np.int64)
    flow[acknowledged_rows] = unit
    is_acknowledged = demand.acknowledged[demand.member_subscription]
    acknowledged_demand = replace(
        demand,
        member_subscription=demand.member_subscription[is_acknowledged],
        member_topic=demand.member_topic[is_acknowledged],
    )
    _, loads = loads_on_flows(acknowledged_demand, inbound, flow, subscribers[first])
    loads_of_unit: dict[int, list[tuple[int, float]]] = {}
    for row, hop, load in zip(
        loads.flow.tolist(), loads.hop.tolist(), loads.load.tolist(), strict=True
    ):
        loads_of_unit.setdefault(row, []).append((hop, load))
    for row in np.argsort(first).tolist():
        role = demand.scenario.subscribers[subscribers[first[row]]].role
        yield acknowledged_rows[unit == row], role, loads_of_unit.get(row, [])


def _overcommitment(
    demand: Demand, hop: int, role: str | None, reserved: float, available: float
) -> Overcommitment:
    queue = demand.downlinks.hops[hop]
    excess = float(reserved - available)
    return Overcommitment(
        switch=queue.switch.id,
        queue=queue.name,
        role=role,
        reserved=float(reserved),
        available=float(available),
        excess=excess,
        excess_bits_per_second=excess * queue.bandwidth_bits_per_second,
    )
