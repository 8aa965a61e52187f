"""Staying with what is there: the previous plan's flows, and who has to leave them.

A subscription *moves* when it changes its flow: its client must then subscribe on another
connection. What a flow's class or drop rate is costs nobody a move.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from firedex.planning.flow_split import FlowSplit, Kinds
from firedex.wire import Assignment
from firedex_models.demand import Demand

__all__ = ["NEW", "Previous", "keep_cut", "moved_subscriptions", "previous_numbers", "renumber"]

Previous = Sequence[Assignment] | Mapping[str, Mapping[str, int]]
"""A plan that was in force, or only its flow numbers by subscriber and filter."""

Integers = NDArray[np.int64]
NEW = -1
MOST_FLOWS = 65_536


def previous_numbers(demand: Demand, previous: Previous | None) -> Integers:
    """The number of the flow that each subscription was on; ``NEW`` if it was on none."""
    if not previous:
        return np.full(len(demand.subscriptions), NEW)
    was = previous if isinstance(previous, Mapping) else _flow_numbers(previous)
    numbers: list[int] = []
    for subscriber in demand.scenario.subscribers:
        mine = was.get(subscriber.id, {})
        numbers += [mine.get(subscription.filter, NEW) for subscription in subscriber.subscriptions]
    return np.array(numbers, dtype=np.int64)


def _flow_numbers(previous: Sequence[Assignment]) -> dict[str, dict[str, int]]:
    was: dict[str, dict[str, int]] = {}
    for entry in previous:
        was.setdefault(entry.subscriber, {})[entry.filter] = entry.flow
    return was


def keep_cut(
    demand: Demand, kinds: Kinds, fresh: Integers, before: Integers, flows: int
) -> Integers | None:
    """The cut that leaves everybody on its flow; whoever is new joins its neighbour in rank.

    ``None`` where the previous flows cannot be kept: there are more than ``flows`` now.
    """
    cut = _without_shared_flows(demand, kinds, before)
    order = np.lexsort((kinds.place, kinds.group))
    group = kinds.group[order]
    for way in (order, order[::-1]):  # the neighbour above, else the one below
        known = np.where(cut[way] != NEW, np.arange(len(way)), -1)
        last = np.maximum.accumulate(known) if len(known) else known
        same = (last >= 0) & (kinds.group[way][last] == kinds.group[way])
        cut[way] = np.where(same, cut[way][last], cut[way])
    # a kind of subscription that had no flow at all is cut afresh
    cut = np.where(cut == NEW, MOST_FLOWS + fresh, cut)
    used = (
        np.unique(group * (2 * MOST_FLOWS) + cut[order]) // (2 * MOST_FLOWS) // kinds.count.shape[1]
    )
    return cut if (np.bincount(used, minlength=1) <= flows).all() else None


def _without_shared_flows(demand: Demand, kinds: Kinds, before: Integers) -> Integers:
    """Previous numbers, where a flow holds one kind; of two kinds the smaller has to leave."""
    cut = before.copy()
    there = np.flatnonzero(before != NEW)
    flow = demand.subscriber[there] * MOST_FLOWS + before[there]
    pair, where, members = np.unique(
        flow * kinds.count.shape[1] + kinds.group[there] % kinds.count.shape[1],
        return_inverse=True,
        return_counts=True,
    )
    owner = pair // kinds.count.shape[1]
    order = np.lexsort((np.arange(len(pair)), -members, owner))
    stays = np.zeros(len(pair), dtype=bool)
    stays[order] = np.append(True, np.diff(owner[order]) != 0)[: len(pair)]
    cut[there[~stays[where]]] = NEW
    return cut


def renumber(split: FlowSplit, before: Integers) -> FlowSplit:
    """Give flows the numbers of those previous ones that they share most subscriptions with."""
    there = np.flatnonzero(before != NEW)
    if not there.size:
        return split
    flow = split.subscription_flow[there]
    pair, shared = np.unique(flow * MOST_FLOWS + before[there], return_counts=True)
    mine, was = pair // MOST_FLOWS, pair % MOST_FLOWS
    whose = split.subscriber[mine]
    number = np.full(len(split.number), NEW)
    _, of_flow = np.unique(mine, return_inverse=True)
    _, of_number = np.unique(whose * MOST_FLOWS + was, return_inverse=True)
    alone = (np.bincount(of_flow)[of_flow] == 1) & (np.bincount(of_number)[of_number] == 1)
    contested = np.unique(whose[~alone])
    clear = ~np.isin(whose, contested)
    number[mine[clear]] = was[clear]
    for subscriber in contested.tolist():
        rows = np.flatnonzero(whose == subscriber)
        number[mine[rows]] = NEW
        for at, kept in _most_shared(mine[rows], was[rows], shared[rows]):
            number[at] = kept
    known = np.flatnonzero(number != NEW)
    taken = set(zip(split.subscriber[known].tolist(), number[known].tolist(), strict=True))
    free: dict[int, int] = {}
    for mine in np.flatnonzero(number == NEW).tolist():
        whose = int(split.subscriber[mine])
        candidate = free.get(whose, 0)
        while (whose, candidate) in taken:
            candidate += 1
        number[mine] = candidate
        free[whose] = candidate + 1
    return replace(split, number=number)


def _most_shared(mine: Integers, was: Integers, shared: Integers) -> list[tuple[int, int]]:
    """The numbers for flows under which the most subscriptions stay (an assignment problem)."""
    flows, row = np.unique(mine, return_inverse=True)
    numbers, column = np.unique(was, return_inverse=True)
    table = np.zeros((len(flows), len(numbers)))
    table[row, column] = shared
    chosen = linear_sum_assignment(table, maximize=True)
    return [
        (int(flows[r]), int(numbers[c])) for r, c in zip(*chosen, strict=True) if table[r, c] > 0
    ]


def moved_subscriptions(split: FlowSplit, before: Integers) -> int:
    """How many subscriptions that had a flow are on another now."""
    number = split.number[split.subscription_flow]
    return int(((before != NEW) & (number != before)).sum())
