"""Comparison with the previous plan, to avoid moving subscriptions between flows.

A subscription *moves* when it changes its flow: the client must then subscribe on another
connection. A change of a flow's class or drop rate is not a move.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from firedex.planning.flow_split import FlowSplit, Kinds
from firedex.wire import Assignment
from firedex_models.columns import Integers
from firedex_models.site import Demand

__all__ = [
    "NEW",
    "Previous",
    "keep_previous_split",
    "moved_subscriptions",
    "previous_flow_numbers",
    "renumber",
]

Previous = Sequence[Assignment] | Mapping[str, Mapping[str, int]]
"""The previous assignment, or only its flow numbers by subscriber and filter."""

NEW = -1
MAX_FLOWS = 65_536


def previous_flow_numbers(demand: Demand, previous: Previous | None) -> Integers:
    """Return the previous flow number of each subscription; ``NEW`` if it had none."""
    if not previous:
        return np.full(len(demand.subscriptions), NEW)
    flow_numbers = previous if isinstance(previous, Mapping) else _flow_numbers(previous)
    numbers: list[int] = []
    for subscriber in demand.scenario.subscribers:
        by_filter = flow_numbers.get(subscriber.id, {})
        numbers += [
            by_filter.get(subscription.filter, NEW) for subscription in subscriber.subscriptions
        ]
    return np.array(numbers, dtype=np.int64)


def _flow_numbers(previous: Sequence[Assignment]) -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = {}
    for entry in previous:
        numbers.setdefault(entry.subscriber, {})[entry.filter] = entry.flow
    return numbers


def keep_previous_split(
    demand: Demand, kinds: Kinds, new_cut: Integers, previous_numbers: Integers, flows: int
) -> Integers | None:
    """Return the cut that keeps all subscriptions on their previous flows.

    A new subscription joins the flow of its neighbour in rank. Returns ``None`` if a subscriber
    would need more than ``flows`` flows.
    """
    cut = _without_shared_flows(demand, kinds, previous_numbers)
    order = np.lexsort((kinds.rank, kinds.group))
    group = kinds.group[order]
    for direction in (order, order[::-1]):  # the neighbour above, else the one below
        known = np.where(cut[direction] != NEW, np.arange(len(direction)), -1)
        last = np.maximum.accumulate(known) if len(known) else known
        has_neighbour = (last >= 0) & (kinds.group[direction][last] == kinds.group[direction])
        cut[direction] = np.where(has_neighbour, cut[direction][last], cut[direction])
    # a kind of subscription that had no flow uses the new cut
    cut = np.where(cut == NEW, MAX_FLOWS + new_cut, cut)
    used = (
        np.unique(group * (2 * MAX_FLOWS) + cut[order]) // (2 * MAX_FLOWS) // kinds.count.shape[1]
    )
    return cut if (np.bincount(used, minlength=1) <= flows).all() else None


def _without_shared_flows(demand: Demand, kinds: Kinds, previous_numbers: Integers) -> Integers:
    """Return the previous numbers; if a flow had several kinds, only the largest kind keeps it."""
    cut = previous_numbers.copy()
    known_rows = np.flatnonzero(previous_numbers != NEW)
    flow = demand.subscriber[known_rows] * MAX_FLOWS + previous_numbers[known_rows]
    pair, pair_of_row, members = np.unique(
        flow * kinds.count.shape[1] + kinds.group[known_rows] % kinds.count.shape[1],
        return_inverse=True,
        return_counts=True,
    )
    owner = pair // kinds.count.shape[1]
    order = np.lexsort((np.arange(len(pair)), -members, owner))
    keeps_flow = np.zeros(len(pair), dtype=bool)
    keeps_flow[order] = np.append(True, np.diff(owner[order]) != 0)[: len(pair)]
    cut[known_rows[~keeps_flow[pair_of_row]]] = NEW
    return cut


def renumber(split: FlowSplit, previous_numbers: Integers) -> FlowSplit:
    """Return the flows with the numbers of the previous flows that they overlap most with."""
    known_rows = np.flatnonzero(previous_numbers != NEW)
    if not known_rows.size:
        return split
    flow = split.subscription_flow[known_rows]
    pair, shared = np.unique(flow * MAX_FLOWS + previous_numbers[known_rows], return_counts=True)
    new_flow, old_number = pair // MAX_FLOWS, pair % MAX_FLOWS
    subscriber = split.subscriber[new_flow]
    number = np.full(len(split.number), NEW)
    _, flow_index = np.unique(new_flow, return_inverse=True)
    _, number_index = np.unique(subscriber * MAX_FLOWS + old_number, return_inverse=True)
    is_unique = (np.bincount(flow_index)[flow_index] == 1) & (
        np.bincount(number_index)[number_index] == 1
    )
    contested = np.unique(subscriber[~is_unique])
    is_uncontested = ~np.isin(subscriber, contested)
    number[new_flow[is_uncontested]] = old_number[is_uncontested]
    for contested_subscriber in contested.tolist():
        rows = np.flatnonzero(subscriber == contested_subscriber)
        number[new_flow[rows]] = NEW
        for flow_row, kept_number in _match_flow_numbers(
            new_flow[rows], old_number[rows], shared[rows]
        ):
            number[flow_row] = kept_number
    known = np.flatnonzero(number != NEW)
    taken = set(zip(split.subscriber[known].tolist(), number[known].tolist(), strict=True))
    next_free: dict[int, int] = {}
    for flow_row in np.flatnonzero(number == NEW).tolist():
        owner = int(split.subscriber[flow_row])
        candidate = next_free.get(owner, 0)
        while (owner, candidate) in taken:
            candidate += 1
        number[flow_row] = candidate
        next_free[owner] = candidate + 1
    return replace(split, number=number).sort_flows()


def _match_flow_numbers(
    new_flow: Integers, old_number: Integers, shared: Integers
) -> list[tuple[int, int]]:
    """Return the flow numbers that keep the most subscriptions (an assignment problem)."""
    flows, row = np.unique(new_flow, return_inverse=True)
    numbers, column = np.unique(old_number, return_inverse=True)
    table = np.zeros((len(flows), len(numbers)))
    table[row, column] = shared
    matching = linear_sum_assignment(table, maximize=True)
    return [
        (int(flows[r]), int(numbers[c])) for r, c in zip(*matching, strict=True) if table[r, c] > 0
    ]


def moved_subscriptions(split: FlowSplit, previous_numbers: Integers) -> int:
    """Return the number of subscriptions that changed their flow."""
    number = split.number[split.subscription_flow]
    return int(((previous_numbers != NEW) & (number != previous_numbers)).sum())
