"""Which subscription goes into which flow, and which flow into which class (paper §4.2).

A flow holds subscriptions of one kind: those that may be dropped, those that reserve, or those that
reserve more than they may. A *cut* says which part of its kind's ranked list each subscription is
in; flows and classes follow from it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.planning.parts import part_of
from firedex.planning.ranking import Ranking
from firedex.planning.reservations import Reservations
from firedex.wire import Planning, Scenario
from firedex.wire.network_paths import switches_on_path
from firedex_models.demand import Demand
from firedex_models.grouping import group_sums
from firedex_models.site import Flows, Site, assign

__all__ = ["FlowSplit", "Kinds", "equal_cut", "make_flows", "sort_into_kinds"]

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]
DROPPABLE, RESERVED, EXCESSIVE = range(3)
KINDS = 3


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """Each subscription's kind and its place among its subscriber's of that kind.

    ``group``: one number for each pair of subscriber and kind; ``count`` and
    ``allotted``: how many
    subscriptions and flows each subscriber has of each kind (subscribers × kinds).
    ``undropped``: subscribers with so few flows that what could be dropped shares one with what
    must not be.
    """

    group: Integers
    place: Integers
    count: Integers
    allotted: Integers
    undropped: Integers

    @property
    def droppable(self) -> Booleans:
        """Which subscriptions may be dropped."""
        droppable: Booleans = np.equal(self.group % KINDS, DROPPABLE)
        return droppable


def sort_into_kinds(
    demand: Demand, reservations: Reservations, ranking: Ranking, flows: int
) -> Kinds:
    """Share out every subscriber's flows among the kinds of subscriptions that it has."""
    subscribers = len(demand.scenario.subscribers)
    kind = np.where(
        reservations.excessive, EXCESSIVE, np.where(demand.acknowledged, RESERVED, DROPPABLE)
    )

    def counts() -> Integers:
        cell = demand.subscriber * KINDS + kind
        return np.bincount(cell, minlength=subscribers * KINDS).reshape(subscribers, KINDS)

    # too few flows to keep the kinds apart: first those that are not dropped anyway join
    crowded = (counts() > 0).sum(axis=1) > flows
    joining = crowded[demand.subscriber] & (kind == RESERVED)
    kind[joining & (counts()[demand.subscriber, EXCESSIVE] > 0)] = EXCESSIVE
    crowded = (counts() > 0).sum(axis=1) > flows
    undropped = np.flatnonzero(crowded)
    worst = np.where(counts()[:, EXCESSIVE] > 0, EXCESSIVE, RESERVED)
    kind = np.where(crowded[demand.subscriber], worst[demand.subscriber], kind)

    count = counts()
    group = demand.subscriber * KINDS + kind
    order = np.lexsort((ranking.own_place, group))
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    return Kinds(
        group=group,
        place=place,
        count=count,
        allotted=_allot(count, flows, reservations.together),
        undropped=undropped,
    )


def _allot(count: Integers, flows: int, together: Booleans) -> Integers:
    """Flows for each kind, in proportion to what is in it, and one at least.

    What is over budget gets one, since it is served last whatever its rank; and so does what is
    reserved ``together``.
    """
    over = (count[:, EXCESSIVE] > 0).astype(np.int64)
    left = flows - over
    some, reserved = count[:, DROPPABLE], count[:, RESERVED]
    fair = np.rint(left * reserved / np.maximum(some + reserved, 1)).astype(np.int64)
    for_reserved = np.clip(fair, reserved > 0, left - (some > 0))
    most = np.where(together, np.minimum(reserved, 1), reserved)
    for_reserved = np.minimum(for_reserved, most)
    for_some = np.minimum(left - for_reserved, some)
    for_reserved = np.minimum(left - for_some, most)
    return np.stack([for_some, for_reserved, over], axis=1)


def equal_cut(kinds: Kinds) -> Integers:
    """Parts of equal size, the first larger by one where that does not come out even."""
    return part_of(
        kinds.place, kinds.count.ravel()[kinds.group], kinds.allotted.ravel()[kinds.group]
    )


@dataclass(frozen=True, kw_only=True)
class FlowSplit:
    """The flows, before anybody has decided what to drop.

    ``kept``: nothing of them may be. ``excessive``: those of them for which nothing is reserved.
    """

    subscription_flow: Integers
    subscriber: Integers
    number: Integers
    priority: Integers
    kept: Booleans
    excessive: Booleans

    def site(self, demand: Demand) -> Site:
        """The site with these flows, nothing dropped."""
        return assign(
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
    """Number the flows of each subscriber by the mean rank of what is in them; give them classes.

    Per subscriber, the list of flows is cut into classes. Globally, a flow has the class of the
    middle one of its subscriptions among all.
    """
    parts = int(cut.max(initial=0)) + 1
    key, subscription_flow = np.unique(kinds.group * parts + cut, return_inverse=True)
    flows = len(key)
    subscriber, kind = key // parts // KINDS, key // parts % KINDS
    members = np.bincount(subscription_flow, minlength=flows)
    mean = group_sums(subscription_flow, ranking.own_place.astype(float), flows) / members
    order = np.lexsort((key, mean, kind == EXCESSIVE, subscriber))
    number = np.empty(flows, dtype=np.int64)
    number[order] = np.arange(flows) - np.searchsorted(subscriber[order], subscriber[order])
    offered = _classes(demand.scenario, planning.priorities)
    # where something is served last, the lowest class is for that alone
    crowded = _beside(demand, np.unique(subscriber[kind == EXCESSIVE]))
    classes = np.where(crowded, np.maximum(offered - 1, 1), offered)[subscriber]
    ordinary = np.bincount(subscriber[kind != EXCESSIVE], minlength=len(kinds.count))[subscriber]
    if planning.priority_policy == "none":
        priority = np.zeros(flows, dtype=np.int64)
    else:
        if planning.ranking == "global":
            middle = _middle(subscription_flow, ranking.global_place, members)
            priority = part_of(middle, np.full(flows, len(cut)), classes)
        else:
            priority = part_of(number, ordinary, classes)
        priority = np.where(kind == EXCESSIVE, offered[subscriber] - 1, priority)
    return FlowSplit(
        subscription_flow=subscription_flow,
        subscriber=subscriber,
        number=number,
        priority=priority,
        kept=kind != DROPPABLE,
        excessive=kind == EXCESSIVE,
    )


def _beside(demand: Demand, subscribers: Integers) -> Booleans:
    """Whoever shares a hop with one of these subscribers, themselves included."""
    stage = demand.downlinks.stage
    hops = np.unique(stage[subscribers])
    return np.array(np.isin(stage, hops[hops >= 0]).any(axis=1), dtype=bool)


def _middle(flow: Integers, place: Integers, members: Integers) -> Integers:
    """The median place in each flow."""
    order = np.lexsort((place, flow))
    start = np.cumsum(members) - members
    middle: Integers = place[order][start + (members - 1) // 2]
    return middle


def _classes(scenario: Scenario, most: int) -> Integers:
    """For each subscriber as many classes as the plan asks for and every managed switch offers."""
    links = [(link.from_, link.to) for link in scenario.network.links]
    offered = {s.id: s.priorities for s in scenario.network.switches if s.managed}
    on_the_way = {}
    for switch in {subscriber.switch for subscriber in scenario.subscribers}:
        way = switches_on_path(links, scenario.network.broker.switch, switch)
        limits = [offered[name] for name in way if name in offered]
        on_the_way[switch] = min([most, *limits])
    return np.array([on_the_way[s.switch] for s in scenario.subscribers], dtype=np.int64)
