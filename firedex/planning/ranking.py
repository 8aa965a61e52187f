"""What a subscription is worth to the planner, and the order that follows from it (paper §4.2)."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from firedex.wire import PriorityPolicy
from firedex_models.demand import Demand
from firedex_models.grouping import group_sums
from firedex_models.inbound import Inbound

__all__ = ["Ranking", "rank"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The places of subscriptions, 0 the worthiest: among their subscriber's own, and among all.

    Equals go by ``name``.
    """

    demand: Demand
    worth: Floats
    name: Integers

    @cached_property
    def own_place(self) -> Integers:
        """The place among the subscriber's own."""
        subscriber = self.demand.subscriber
        order = np.lexsort((self.name, -self.worth, subscriber))
        start = np.searchsorted(subscriber[order], np.arange(len(self.demand.scenario.subscribers)))
        return _places(order, start[subscriber[order]])

    @cached_property
    def global_place(self) -> Integers:
        """The place among all."""
        whose = _alphabetical([s.id for s in self.demand.scenario.subscribers])
        keys = (whose[self.demand.subscriber], self.name, -self.worth)
        return _places(np.lexsort(keys), 0)


def rank(demand: Demand, inbound: Inbound, policy: PriorityPolicy, seed: int) -> Ranking:
    """Rank by a policy.

    ``bandwidth-adjusted``: maximum utility per byte/s (paper Eq. 9); ``information-only``: maximum
    utility; ``random``: by a number drawn for each subscription from the seed and its name, so that
    the others keep theirs when one is added. ``none`` ranks as ``bandwidth-adjusted`` does: there
    are flows to fill even where there is but one class.
    """
    return Ranking(
        demand=demand,
        worth=_worth(demand, inbound, policy, seed),
        name=_alphabetical([subscription.filter for subscription in demand.subscriptions]),
    )


def _worth(demand: Demand, inbound: Inbound, policy: PriorityPolicy, seed: int) -> Floats:
    if policy == "random":
        return _drawn(demand, seed)
    most = demand.utilities.maximum
    if policy == "information-only":
        return most
    of, topic = demand.member_subscription, demand.member_topic
    size = demand.wire_bytes(demand.subscriber[of], topic, demand.acknowledged[of])
    needs = group_sums(of, inbound.arrived[topic] * size, len(most))
    # what nobody publishes needs no class of its own
    return np.divide(most, needs, out=np.zeros_like(most), where=needs > 0)


def _drawn(demand: Demand, seed: int) -> Floats:
    key = seed.to_bytes(8, "big")
    subscribers = demand.scenario.subscribers
    drawn = [
        blake2b(f"{subscriber.id} {s.filter}".encode(), digest_size=6, key=key).digest()
        for subscriber in subscribers
        for s in subscriber.subscriptions
    ]
    return np.array([int.from_bytes(digest, "big") for digest in drawn], dtype=float)


def _places(order: Integers, start: Integers | int) -> Integers:
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - start
    return place


def _alphabetical(names: list[str]) -> Integers:
    place = {name: row for row, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], dtype=np.int64)
