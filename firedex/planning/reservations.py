"""QoS 1 and 2: never dropped, so their load is reserved, as far as budgets and switches go.

Whoever reserves beyond the budget of its role, or beyond what the switch has, is served last
instead: asking for QoS 1 does not buy priority. The worthiest are served within the budget first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firedex.planning.lone_flows import on_lone_flows
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
    """Which subscriptions reserve more than they may, and whose budgets are exceeded where."""

    excessive: Booleans
    overcommitted: tuple[Overcommitment, ...]


def reserve(demand: Demand, inbound: Inbound, planning: Planning, ranking: Ranking) -> Reservations:
    """Hold what is acknowledged against budgets and bandwidths, the worthiest first."""
    excessive = np.zeros(len(demand.subscriptions), dtype=bool)
    if not demand.acknowledged.any():
        return Reservations(excessive=excessive, overcommitted=())
    most = 1.0 - planning.rho_tolerance
    budgets = {budget.role: budget.share for budget in planning.reserved_budgets}
    asked: dict[tuple[int, str], float] = {}
    granted: dict[tuple[int, str | None], float] = {}
    for subscription, role, ways in _requests(demand, inbound, ranking):
        fits = True
        for hop, load in ways:
            asked[hop, role] = asked.get((hop, role), 0.0) + load
            by_role = granted.get((hop, role), 0.0) + load
            by_all = granted.get((hop, None), 0.0) + load
            fits = fits and by_role <= budgets.get(role, np.inf) + ROUNDING
            fits = fits and by_all <= most + ROUNDING
        excessive[subscription] = not fits
        for hop, load in ways if fits else ():
            for whose in (role, None):
                granted[hop, whose] = granted.get((hop, whose), 0.0) + load
    over = [
        _over(demand, hop, role, load, budgets[role])
        for (hop, role), load in sorted(asked.items())
        if role in budgets and load > budgets[role] + ROUNDING
    ]
    return Reservations(excessive=excessive, overcommitted=tuple(over))


def overcommitted_hops(demand: Demand, kept: Floats, most: float) -> tuple[Overcommitment, ...]:
    """Hops that what is never dropped loads above ``most`` by itself (one figure for each hop)."""
    return tuple(
        _over(demand, hop, None, float(kept[hop]), most)
        for hop in np.flatnonzero(kept > most + ROUNDING).tolist()
    )


def _requests(
    demand: Demand, inbound: Inbound, ranking: Ranking
) -> Iterator[tuple[int, str, list[tuple[int, float]]]]:
    """What each acknowledged subscription adds to each hop, the worthiest first.

    An event that another one of the same subscriber has brought already is not counted again.
    """
    of, topic = demand.member_subscription, demand.member_topic
    wanted = np.flatnonzero(demand.acknowledged[of])
    wanted = wanted[np.argsort(ranking.global_place[of[wanted]], kind="stable")]
    topics = max(len(demand.scenario.topics), 1)
    _, first = np.unique(demand.subscriber[of[wanted]] * topics + topic[wanted], return_index=True)
    counted = np.sort(wanted[first])
    once = replace(demand, member_subscription=of[counted], member_topic=topic[counted])
    _, loads = on_lone_flows(once, inbound)
    ways: dict[int, list[tuple[int, float]]] = {}
    for subscription, hop, load in zip(
        loads.flow.tolist(), loads.hop.tolist(), loads.load.tolist(), strict=True
    ):
        ways.setdefault(subscription, []).append((hop, load))
    everybody = np.flatnonzero(demand.acknowledged)
    for row in everybody[np.argsort(ranking.global_place[everybody])].tolist():
        role = demand.scenario.subscribers[demand.subscriber[row]].role
        yield row, role, ways.get(row, [])


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
