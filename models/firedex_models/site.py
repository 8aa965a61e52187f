"""A scenario with an assignment, as columns: who sends what to whom, on which flow.

A flow carries an event once however many of its filters match; two flows of one subscriber carry it
twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Assignment, Scenario, Subscription
from firedex_models.demand import Demand
from firedex_models.network_hops import Route

__all__ = ["Flows", "Site", "Streams", "assign", "assigned"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Flows:
    """One row for each flow; ``subscriber`` is the position in the scenario."""

    subscriber: Integers
    number: Integers
    priority: Integers
    drop_rate: Floats
    at_meter: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Streams:
    """One row for each flow and topic that it carries."""

    flow: Integers
    topic: Integers
    wire_bytes: Floats


@dataclass(frozen=True, kw_only=True)
class Site:
    """Everything the model needs of a scenario and its assignment, as columns.

    ``member_stream`` says which streams make up each subscription, in the order of the demand's
    ``member_subscription``.
    """

    demand: Demand
    subscription_flow: Integers
    flows: Flows
    streams: Streams
    member_stream: Integers

    @property
    def scenario(self) -> Scenario:
        """The scenario that this was made of."""
        return self.demand.scenario

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """All subscriptions, in the scenario's order."""
        return self.demand.subscriptions

    @property
    def member_subscription(self) -> Integers:
        """The subscription of each of its streams."""
        return self.demand.member_subscription

    @property
    def topic_size_variability(self) -> Floats:
        """The squared coefficient of variation of each topic's sizes."""
        return self.demand.topic_size_variability

    @property
    def downlinks(self) -> Route:
        """The way from the broker to each subscriber."""
        return self.demand.downlinks


def assigned(demand: Demand, assignment: Sequence[Assignment]) -> Site:
    """The site under an assignment that names every subscription."""
    subscribers = demand.scenario.subscribers
    position = {subscriber.id: row for row, subscriber in enumerate(subscribers)}
    flows, flow_of = _flows(assignment, position)
    on_flow: list[int] = []
    for subscriber in subscribers:
        mine = flow_of.get(subscriber.id, {})
        on_flow += [mine[subscription.filter] for subscription in subscriber.subscriptions]
    return assign(demand, np.array(on_flow, dtype=np.int64), flows)


def assign(demand: Demand, subscription_flow: Integers, flows: Flows) -> Site:
    """The site with each subscription on the flow of that row."""
    topics = max(len(demand.scenario.topics), 1)
    member = demand.member_subscription
    key, member_stream = np.unique(
        subscription_flow[member] * topics + demand.member_topic, return_inverse=True
    )
    flow, topic = key // topics, key % topics
    acknowledged = np.zeros(len(key), dtype=bool)
    acknowledged[member_stream[demand.acknowledged[member]]] = True
    return Site(
        demand=demand,
        subscription_flow=subscription_flow,
        flows=flows,
        streams=Streams(
            flow=flow,
            topic=topic,
            wire_bytes=demand.wire_bytes(flows.subscriber[flow], topic, acknowledged),
        ),
        member_stream=member_stream,
    )


def _flows(
    assignment: Sequence[Assignment], position: dict[str, int]
) -> tuple[Flows, dict[str, dict[str, int]]]:
    """The flows, and for each subscriber which of them each filter goes to."""
    flow_of: dict[str, dict[str, int]] = {}
    rows: dict[str, dict[int, int]] = {}
    kept: list[Assignment] = []
    for entry in assignment:
        numbered = rows.setdefault(entry.subscriber, {})
        row = numbered.setdefault(entry.flow, len(kept))
        if row == len(kept):
            kept.append(entry)
        flow_of.setdefault(entry.subscriber, {})[entry.filter] = row
    flows = Flows(
        subscriber=np.array([position[e.subscriber] for e in kept], dtype=np.int64),
        number=np.array([e.flow for e in kept], dtype=np.int64),
        priority=np.array([e.priority for e in kept], dtype=np.int64),
        drop_rate=np.array([e.drop_rate for e in kept], dtype=float),
        at_meter=np.array([e.enforced_at == "meter" for e in kept], dtype=bool),
    )
    return flows, flow_of
