"""A scenario as columns: its subscriptions (``Demand``), and its flows and streams (``Site``).

A flow carries an event once, even if several of its filters match; two flows of one subscriber
carry it twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Assignment, Scenario, Subscription, Topic, Transport
from firedex.wire.packet_sizes import wire_bytes
from firedex_models.columns import Booleans, Floats, Integers
from firedex_models.routes import Route, downlinks
from firedex_models.topic_index import TopicIndex
from firedex_models.utility import UtilityColumns

__all__ = [
    "Demand",
    "Flows",
    "Site",
    "Streams",
    "compile_demand",
    "event_wire_bytes",
    "site_from_assignment",
    "site_from_flows",
]


SIZE_KINDS: tuple[tuple[Transport, int], ...] = (("udp", 0), ("tcp", 0), ("tcp", 1))


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The properties of subscriptions that do not depend on the assignment.

    ``member_subscription`` and ``member_topic`` pair each subscription with each topic that it
    matches. ``downlinks`` is the path from the broker to each subscriber.
    """

    scenario: Scenario
    subscriptions: Sequence[Subscription]
    subscriber: Integers
    acknowledged: Booleans
    member_subscription: Integers
    member_topic: Integers
    over_tcp: Booleans
    topic_size_variability: Floats
    downlinks: Route

    @cached_property
    def utilities(self) -> UtilityColumns:
        """The utility function of each subscription."""
        return UtilityColumns([subscription.utility for subscription in self.subscriptions])

    @cached_property
    def deadline_seconds(self) -> Floats:
        """The deadline of each subscription; infinite if it has none."""
        return np.array([s.deadline_seconds or np.inf for s in self.subscriptions], dtype=float)

    @cached_property
    def deadline_percentile(self) -> Floats:
        """The fraction of delivered events that must meet the deadline of each subscription."""
        return np.array([s.deadline_percentile for s in self.subscriptions], dtype=float)

    def wire_bytes(self, subscriber: Integers, topic: Integers, acknowledged: Booleans) -> Floats:
        """Return the mean bytes on the wire of an event of each topic to each subscriber."""
        kind = np.where(self.over_tcp[subscriber], 1 + acknowledged, 0)
        size = np.empty(len(topic))
        for number, (transport, qos) in enumerate(SIZE_KINDS):
            rows = np.flatnonzero(kind == number)
            used, position = np.unique(topic[rows], return_inverse=True)
            table = [
                event_wire_bytes(self.scenario, self.scenario.topics[row], transport, qos)
                for row in used
            ]
            size[rows] = np.array(table, dtype=float)[position]
        return size


def compile_demand(scenario: Scenario) -> Demand:
    """Return the subscriptions of a scenario as columns, in the scenario's order."""
    index = TopicIndex([topic.name for topic in scenario.topics])
    subscriptions = [s for subscriber in scenario.subscribers for s in subscriber.subscriptions]
    counts, member_topic = index.matching_each([s.filter for s in subscriptions])
    subscription_counts = [len(subscriber.subscriptions) for subscriber in scenario.subscribers]
    exponential = [topic.size_distribution == "exponential" for topic in scenario.topics]
    tcp = [(s.transport or scenario.transport) == "tcp" for s in scenario.subscribers]
    return Demand(
        scenario=scenario,
        subscriptions=subscriptions,
        subscriber=np.repeat(np.arange(len(subscription_counts)), subscription_counts),
        acknowledged=np.array([s.qos > 0 for s in subscriptions], dtype=bool),
        member_subscription=np.repeat(np.arange(len(subscriptions)), counts),
        member_topic=member_topic,
        over_tcp=np.array(tcp, dtype=bool),
        topic_size_variability=np.array(exponential, dtype=float),
        downlinks=downlinks(scenario),
    )


def event_wire_bytes(scenario: Scenario, topic: Topic, transport: Transport, qos: int) -> int:
    """Return the mean bytes on the wire of one event of ``topic``."""
    stamped = scenario.stamped_events if topic.stamped is None else topic.stamped
    return wire_bytes(
        payload_bytes=topic.event_bytes,
        transport=transport,
        topic=topic.name,
        qos=qos,
        stamped=stamped,
    )


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
    """A scenario and its assignment as columns, as the model needs them.

    ``member_stream``: the streams of each subscription, in the order of the demand's
    ``member_subscription``.
    """

    demand: Demand
    subscription_flow: Integers
    flows: Flows
    streams: Streams
    member_stream: Integers

    @property
    def scenario(self) -> Scenario:
        """The scenario of this site."""
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
        """The path from the broker to each subscriber."""
        return self.demand.downlinks


def site_from_assignment(demand: Demand, assignment: Sequence[Assignment]) -> Site:
    """Return the site with an assignment of every subscription."""
    subscribers = demand.scenario.subscribers
    position = {subscriber.id: row for row, subscriber in enumerate(subscribers)}
    flows, flows_by_subscriber = _flows(assignment, position)
    flow_rows: list[int] = []
    for subscriber in subscribers:
        flow_by_filter = flows_by_subscriber.get(subscriber.id, {})
        flow_rows += [
            flow_by_filter[subscription.filter] for subscription in subscriber.subscriptions
        ]
    return site_from_flows(demand, np.array(flow_rows, dtype=np.int64), flows)


def site_from_flows(demand: Demand, subscription_flow: Integers, flows: Flows) -> Site:
    """Return the site with each subscription on the flow of the given row."""
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
    """Return the flows, and the flow row of each filter by subscriber."""
    first_entry: dict[tuple[int, int], Assignment] = {}
    for entry in assignment:
        first_entry.setdefault((position[entry.subscriber], entry.flow), entry)
    row = {key: number for number, key in enumerate(sorted(first_entry))}
    flows_by_subscriber: dict[str, dict[str, int]] = {}
    for entry in assignment:
        flow_by_filter = flows_by_subscriber.setdefault(entry.subscriber, {})
        flow_by_filter[entry.filter] = row[position[entry.subscriber], entry.flow]
    ordered = [first_entry[key] for key in row]
    flows = Flows(
        subscriber=np.array([position[e.subscriber] for e in ordered], dtype=np.int64),
        number=np.array([e.flow for e in ordered], dtype=np.int64),
        priority=np.array([e.priority for e in ordered], dtype=np.int64),
        drop_rate=np.array([e.drop_rate for e in ordered], dtype=float),
        at_meter=np.array([e.enforced_at == "meter" for e in ordered], dtype=bool),
    )
    return flows, flows_by_subscriber
