"""The ranking of subscriptions (paper §4.2), and the division of ranked lists into parts."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from firedex.wire import PriorityPolicy
from firedex_models.broker import InboundTraffic
from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.site import Demand

__all__ = ["Ranking", "part_number", "rank"]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The ranks of subscriptions, 0 first: per subscriber, and among all.

    Subscriptions of equal value are ordered by ``name``.
    """

    demand: Demand
    value: Floats
    name: Integers

    @cached_property
    def own_rank(self) -> Integers:
        """The rank among the subscriptions of the same subscriber."""
        subscriber = self.demand.subscriber
        order = np.lexsort((self.name, -self.value, subscriber))
        start = np.searchsorted(subscriber[order], np.arange(len(self.demand.scenario.subscribers)))
        return _ranks_from_order(order, start[subscriber[order]])

    @cached_property
    def global_rank(self) -> Integers:
        """The rank among all subscriptions."""
        subscriber_order = _alphabetical_positions([s.id for s in self.demand.scenario.subscribers])
        keys = (subscriber_order[self.demand.subscriber], self.name, -self.value)
        return _ranks_from_order(np.lexsort(keys), 0)


def rank(demand: Demand, inbound: InboundTraffic, policy: PriorityPolicy, seed: int) -> Ranking:
    """Return the ranking of a policy.

    ``bandwidth-adjusted``: maximum utility per byte/s (paper Eq. 9). ``information-only``: maximum
    utility. ``random``: a random number per subscription, derived from the seed and its name, so
    that adding a subscription does not change the others. ``none`` ranks like
    ``bandwidth-adjusted``, because subscriptions are divided into flows even with one class.
    """
    return Ranking(
        demand=demand,
        value=_ranking_values(demand, inbound, policy, seed),
        name=_alphabetical_positions(
            [subscription.filter for subscription in demand.subscriptions]
        ),
    )


def _ranking_values(
    demand: Demand, inbound: InboundTraffic, policy: PriorityPolicy, seed: int
) -> Floats:
    if policy == "random":
        return _random_values(demand, seed)
    maximum = demand.utilities.maximum
    if policy == "information-only":
        return maximum
    subscription, topic = demand.member_subscription, demand.member_topic
    size = demand.wire_bytes(
        demand.subscriber[subscription], topic, demand.acknowledged[subscription]
    )
    bytes_per_second = group_sums(subscription, inbound.arrived[topic] * size, len(maximum))
    # a subscription without publications ranks last
    return np.divide(
        maximum, bytes_per_second, out=np.zeros_like(maximum), where=bytes_per_second > 0
    )


def _random_values(demand: Demand, seed: int) -> Floats:
    key = seed.to_bytes(8, "big")
    subscribers = demand.scenario.subscribers
    digests = [
        blake2b(f"{subscriber.id} {s.filter}".encode(), digest_size=6, key=key).digest()
        for subscriber in subscribers
        for s in subscriber.subscriptions
    ]
    return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=float)


def _ranks_from_order(order: Integers, start: Integers | int) -> Integers:
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - start
    return place


def _alphabetical_positions(names: list[str]) -> Integers:
    place = {name: row for row, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], dtype=np.int64)


def part_number(place: Integers, count: Integers, parts: Integers) -> Integers:
    """Return the part of the item at ``place`` in a list of ``count`` items; no part is empty.

    Sizes differ by one at most, and the first parts are larger, which favours the higher classes
    (paper §4.2).
    """
    used = np.maximum(np.minimum(parts, count), 1)
    size, larger = count // used, count % used
    boundary = larger * (size + 1)
    part_of_smaller = larger + (place - boundary) // np.maximum(size, 1)
    return np.where(place < boundary, place // (size + 1), part_of_smaller)
