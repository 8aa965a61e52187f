"""QoS 1 and 2: never dropped, so their load is reserved, as far as budgets and switches go.

Whoever reserves beyond the budget of its role, or beyond what the switch has, is served last
instead: asking for QoS 1 does not buy priority. The worthiest are served within the budget first.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.planning.ranking import Ranking
from firedex.wire import Overcommitment, Planning
from firedex_models.demand import Demand
from firedex_models.downlink_loads import DownlinkLoads
from firedex_models.grouping import group_sums

__all__ = ["Reservations", "reserve"]

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Reservations:
    """Which subscriptions reserve more than they may, and where that is."""

    excessive: Booleans
    overcommitted: tuple[Overcommitment, ...]


def reserve(
    demand: Demand, planning: Planning, each: DownlinkLoads | None, ranking: Ranking
) -> Reservations:
    """Hold reservations against budgets; ``each`` has the loads of every subscription alone."""
    excessive = np.zeros(len(demand.subscriptions), dtype=bool)
    if each is None or not demand.acknowledged.any():
        return Reservations(excessive=excessive, overcommitted=())
    roles = [subscriber.role for subscriber in demand.scenario.subscribers]
    names = sorted(set(roles))
    role = np.array([names.index(r) for r in roles], dtype=np.int64)
    budgets = {budget.role: budget.share for budget in planning.reserved_budgets}
    budget = np.array([budgets.get(name, np.inf) for name in names])
    most = 1.0 - planning.rho_tolerance

    rows = np.flatnonzero(demand.acknowledged[each.flow] & (each.load > 0))
    rows = rows[np.argsort(ranking.global_place[each.flow[rows]], kind="stable")]
    subscription, load = each.flow[rows], each.load[rows]
    cell = each.hop[rows] * len(names) + role[demand.subscriber[subscription]]
    over = _running_sum(cell, load) > budget[cell % len(names)] + ROUNDING
    excessive[subscription[over]] = True
    within = ~excessive[subscription]
    over = within & (_running_sum(each.hop[rows], load * within) > most + ROUNDING)
    excessive[subscription[over]] = True

    found = []
    reserved = group_sums(cell, load, len(demand.downlinks.hops) * len(names))
    for place in np.flatnonzero(
        reserved > budget[np.arange(len(reserved)) % len(names)] + ROUNDING
    ):
        hop, whose = divmod(int(place), len(names))
        found.append(_over(demand, hop, names[whose], reserved[place], budget[whose]))
    allowed = np.minimum(reserved.reshape(-1, len(names)), budget[None, :]).sum(axis=1)
    for hop in np.flatnonzero(allowed > most + ROUNDING).tolist():
        found.append(_over(demand, int(hop), None, allowed[hop], most))
    return Reservations(excessive=excessive, overcommitted=tuple(found))


def _running_sum(group: Integers, amount: Floats) -> Floats:
    """For each row, the sum over the rows of its group up to and including it."""
    order = np.argsort(group, kind="stable")
    total = np.cumsum(amount[order])
    first = np.searchsorted(group[order], group[order])
    sums = np.empty_like(total)
    sums[order] = total - (total[first] - amount[order][first])
    return sums


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
