"""What a subscription is worth to the planner, and the order that follows from it (paper §4.2)."""

from dataclasses import dataclass
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
    """The places of subscriptions, 0 the worthiest: among their subscriber's own, and among all."""

    worth: Floats
    own_place: Integers
    global_place: Integers


def rank(
    demand: Demand, inbound: Inbound, policy: PriorityPolicy, seed: int, before: Integers
) -> Ranking:
    """Rank by a policy. Equals stay as they were ``before`` (flow numbers, −1: new), then by name.

    ``bandwidth-adjusted``: maximum utility per byte/s (paper Eq. 9); ``information-only``: maximum
    utility; ``random``: by a number drawn for each subscription from the seed and its name, so that
    the others keep theirs when one is added. ``none`` ranks as ``bandwidth-adjusted`` does: there
    are flows to fill even where there is but one class.
    """
    worth = _worth(demand, inbound, policy, seed)
    name = _places([subscription.filter for subscription in demand.subscriptions])
    own = np.lexsort((name, before, -worth, demand.subscriber))
    start = np.searchsorted(demand.subscriber[own], np.arange(len(demand.scenario.subscribers)))
    own_place = np.empty_like(own)
    own_place[own] = np.arange(len(own)) - start[demand.subscriber[own]]
    whose = _places([subscriber.id for subscriber in demand.scenario.subscribers])
    every = np.lexsort((whose[demand.subscriber], name, before, -worth))
    global_place = np.empty_like(every)
    global_place[every] = np.arange(len(every))
    return Ranking(worth=worth, own_place=own_place, global_place=global_place)


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


def _places(names: list[str]) -> Integers:
    place = {name: row for row, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], dtype=np.int64)
