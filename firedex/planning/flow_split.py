"""The assignment of subscriptions to flows, and of flows to classes (paper §4.2).

A flow contains subscriptions of one kind: droppable, reserved, or exceeding their reservation. The
subscriptions of a kind are a ranked list. A *cut* divides it into parts: it gives the part of each
subscription. Flows and classes follow from the cut.
"""

from dataclasses import dataclass

import numpy as np

from firedex.planning.ranking import Ranking, part_number
from firedex.planning.reservations import Reservations
from firedex.wire import Planning, Scenario
from firedex.wire.network import switches_on_path
from firedex_models.columns import Booleans, Integers, group_sums
from firedex_models.site import Demand, Flows, Site, site_from_flows

__all__ = ["FlowSplit", "Kinds", "equal_cut", "make_flows", "sort_into_kinds"]

DROPPABLE, RESERVED, EXCESSIVE = range(3)
KINDS = 3


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """The kind of each subscription, and its rank among its subscriber's subscriptions of the kind.

    ``group``: one number per pair of subscriber and kind. ``count`` and ``flow_count``: the number
    of subscriptions and flows of each subscriber and kind (subscribers × kinds). ``undropped``:
    subscribers with so few flows that droppable subscriptions share a flow with others and are not
    dropped.
    """

    group: Integers
    rank: Integers
    count: Integers
    flow_count: Integers
    undropped: Integers

    @property
    def droppable(self) -> Booleans:
        """The subscriptions that may be dropped."""
        droppable: Booleans = np.equal(self.group % KINDS, DROPPABLE)
        return droppable


def sort_into_kinds(
    demand: Demand, reservations: Reservations, ranking: Ranking, flows: int
) -> Kinds:
    """Divide the flows of each subscriber among the kinds of its subscriptions."""
    subscribers = len(demand.scenario.subscribers)
    kind = np.where(
        reservations.excessive, EXCESSIVE, np.where(demand.acknowledged, RESERVED, DROPPABLE)
    )

    def counts() -> Integers:
        cell = demand.subscriber * KINDS + kind
        return np.bincount(cell, minlength=subscribers * KINDS).reshape(subscribers, KINDS)

    # too few flows for all kinds: first, the two kinds that are never dropped share a flow
    too_few_flows = (counts() > 0).sum(axis=1) > flows
    may_join = too_few_flows[demand.subscriber] & (kind == RESERVED)
    kind[may_join & (counts()[demand.subscriber, EXCESSIVE] > 0)] = EXCESSIVE
    too_few_flows = (counts() > 0).sum(axis=1) > flows
    undropped = np.flatnonzero(too_few_flows)
    undroppable_kind = np.where(counts()[:, EXCESSIVE] > 0, EXCESSIVE, RESERVED)
    kind = np.where(too_few_flows[demand.subscriber], undroppable_kind[demand.subscriber], kind)

    count = counts()
    group = demand.subscriber * KINDS + kind
    order = np.lexsort((ranking.own_rank, group))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    return Kinds(
        group=group,
        rank=rank,
        count=count,
        flow_count=_divide_flows(count, flows, reservations.together),
        undropped=undropped,
    )


def _divide_flows(count: Integers, flows: int, together: Booleans) -> Integers:
    """Return the flows of each kind, in proportion to its subscriptions, at least one.

    Subscriptions over budget get one flow, because they are served last whatever their rank.
    Subscriptions that are reserved ``together`` get one flow as well.
    """
    excessive_flows = (count[:, EXCESSIVE] > 0).astype(np.int64)
    available = flows - excessive_flows
    droppable, reserved = count[:, DROPPABLE], count[:, RESERVED]
    proportional = np.rint(available * reserved / np.maximum(droppable + reserved, 1)).astype(
        np.int64
    )
    for_reserved = np.clip(proportional, reserved > 0, available - (droppable > 0))
    max_reserved = np.where(together, np.minimum(reserved, 1), reserved)
    for_reserved = np.minimum(for_reserved, max_reserved)
    for_droppable = np.minimum(available - for_reserved, droppable)
    for_reserved = np.minimum(available - for_droppable, max_reserved)
    return np.stack([for_droppable, for_reserved, excessive_flows], axis=1)


def equal_cut(kinds: Kinds) -> Integers:
    """Return the cut into parts of equal size; the first parts may be larger by one."""
    return part_number(
        kinds.rank, kinds.count.ravel()[kinds.group], kinds.flow_count.ravel()[kinds.group]
    )


@dataclass(frozen=True, kw_only=True)
class FlowSplit:
    """The flows without drop rates.

    ``undroppable``: flows that must not be dropped. ``excessive``: undroppable flows without a
    reservation.
    """

    subscription_flow: Integers
    subscriber: Integers
    number: Integers
    priority: Integers
    undroppable: Booleans
    excessive: Booleans

    def sort_flows(self) -> "FlowSplit":
        """Return the same flows ordered by subscriber and number.

        A scenario that is read back from its assignment has this order, and sums of floating-point
        numbers depend on it.
        """
        order = np.lexsort((self.number, self.subscriber))
        row = np.empty_like(order)
        row[order] = np.arange(len(order))
        return FlowSplit(
            subscription_flow=row[self.subscription_flow],
            subscriber=self.subscriber[order],
            number=self.number[order],
            priority=self.priority[order],
            undroppable=self.undroppable[order],
            excessive=self.excessive[order],
        )

    def site(self, demand: Demand) -> Site:
        """Return the site with these flows and drop rates of 0."""
        return site_from_flows(
            demand,
            self.subscription_flow,
            Flows(
                subscriber=self.subscriber,
                number=self.number,
                priority=self.priority,
                drop_rate=np.zeros(len(self.number)),
                at_meter=np.zeros(len(self.number), dtype=bool),
            ),
        )


def make_flows(
    demand: Demand, ranking: Ranking, kinds: Kinds, cut: Integers, planning: Planning
) -> FlowSplit:
    """Return the flows of a cut, numbered by mean rank, with their classes.

    With the ranking ``per-subscriber``, each subscriber's list of flows is divided into classes.
    With ``global``, the class follows from the median global rank of the flow's subscriptions.
    """
    parts = int(cut.max(initial=0)) + 1
    key, subscription_flow = np.unique(kinds.group * parts + cut, return_inverse=True)
    flows = len(key)
    subscriber, kind = key // parts // KINDS, key // parts % KINDS
    members = np.bincount(subscription_flow, minlength=flows)
    mean = group_sums(subscription_flow, ranking.own_rank.astype(float), flows) / members
    order = np.lexsort((key, mean, kind == EXCESSIVE, subscriber))
    number = np.empty(flows, dtype=np.int64)
    number[order] = np.arange(flows) - np.searchsorted(subscriber[order], subscriber[order])
    offered = _class_counts(demand.scenario, planning.priorities)
    # the lowest class is exclusive to excessive flows where there are any
    shares_hop = _share_a_hop_with(demand, np.unique(subscriber[kind == EXCESSIVE]))
    classes = np.where(shares_hop, np.maximum(offered - 1, 1), offered)[subscriber]
    ordinary = np.bincount(subscriber[kind != EXCESSIVE], minlength=len(kinds.count))[subscriber]
    if planning.priority_policy == "none":
        priority = np.zeros(flows, dtype=np.int64)
    else:
        if planning.ranking == "global":
            median = _median_rank(subscription_flow, ranking.global_rank, members)
            priority = part_number(median, np.full(flows, len(cut)), classes)
        else:
            priority = part_number(number, ordinary, classes)
        priority = np.where(kind == EXCESSIVE, offered[subscriber] - 1, priority)
    return FlowSplit(
        subscription_flow=subscription_flow,
        subscriber=subscriber,
        number=number,
        priority=priority,
        undroppable=kind != DROPPABLE,
        excessive=kind == EXCESSIVE,
    ).sort_flows()


def _share_a_hop_with(demand: Demand, subscribers: Integers) -> Booleans:
    """Return which subscribers share a hop with one of ``subscribers``, including themselves."""
    stage = demand.downlinks.stage
    hops = np.unique(stage[subscribers])
    return np.array(np.isin(stage, hops[hops >= 0]).any(axis=1), dtype=bool)


def _median_rank(flow: Integers, rank: Integers, members: Integers) -> Integers:
    """Return the median rank in each flow."""
    order = np.lexsort((rank, flow))
    start = np.cumsum(members) - members
    median: Integers = rank[order][start + (members - 1) // 2]
    return median


def _class_counts(scenario: Scenario, planned: int) -> Integers:
    """Return the number of classes of each subscriber: planned, but limited by its switches."""
    links = [(link.from_, link.to) for link in scenario.network.links]
    offered = {s.id: s.priorities for s in scenario.network.switches if s.managed}
    class_count = {}
    for switch in {subscriber.switch for subscriber in scenario.subscribers}:
        path = switches_on_path(links, scenario.network.broker.switch, switch)
        limits = [offered[name] for name in path if name in offered]
        class_count[switch] = min([planned, *limits])
    return np.array([class_count[s.switch] for s in scenario.subscribers], dtype=np.int64)
