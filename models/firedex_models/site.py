"""A scenario as columns: who sends what to whom, on which flow, over which queues.

Wildcards are expanded here. A flow carries an event once however many of its filters match; two
flows of one subscriber carry it twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Assignment, Scenario, Subscription, Topic, Transport
from firedex.wire.packet_sizes import wire_bytes
from firedex_models.network_hops import Route, downlinks
from firedex_models.topic_index import TopicIndex

__all__ = ["Flows", "Site", "Streams", "compile_site", "event_wire_bytes"]

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
    """Everything the model needs of a scenario, as columns.

    ``member_subscription`` and ``member_stream`` say which streams make up each subscription.
    ``downlinks`` is the way from the broker to each subscriber.
    """

    scenario: Scenario
    subscriptions: Sequence[Subscription]
    subscription_subscriber: Integers
    subscription_flow: Integers
    flows: Flows
    streams: Streams
    member_subscription: Integers
    member_stream: Integers
    topic_size_variability: Floats
    downlinks: Route


def compile_site(scenario: Scenario, assignment: Sequence[Assignment]) -> Site:
    """Turn a scenario and an assignment of its subscriptions into columns."""
    index = TopicIndex([topic.name for topic in scenario.topics])
    position = {subscriber.id: row for row, subscriber in enumerate(scenario.subscribers)}
    flows, flow_of = _flows(assignment, position)
    subscriptions: list[Subscription] = []
    on_flow: list[int] = []
    for subscriber in scenario.subscribers:
        subscriptions += subscriber.subscriptions
        mine = flow_of.get(subscriber.id, {})
        on_flow += [mine[subscription.filter] for subscription in subscriber.subscriptions]
    counts, member_topic = index.matching_each([s.filter for s in subscriptions])
    member_subscription = np.repeat(np.arange(len(subscriptions)), counts)
    wanted = [len(subscriber.subscriptions) for subscriber in scenario.subscribers]
    subscription_flow = np.array(on_flow, dtype=np.int64)
    streams, member_stream = _streams(
        scenario, flows, subscriptions, subscription_flow, member_subscription, member_topic
    )
    exponential = [topic.size_distribution == "exponential" for topic in scenario.topics]
    return Site(
        scenario=scenario,
        subscriptions=subscriptions,
        subscription_subscriber=np.repeat(np.arange(len(wanted)), wanted),
        subscription_flow=subscription_flow,
        flows=flows,
        streams=streams,
        member_subscription=member_subscription,
        member_stream=member_stream,
        topic_size_variability=np.array(exponential, dtype=float),
        downlinks=downlinks(scenario),
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


def _streams(
    scenario: Scenario,
    flows: Flows,
    subscriptions: Sequence[Subscription],
    subscription_flow: Integers,
    member_subscription: Integers,
    member_topic: Integers,
) -> tuple[Streams, Integers]:
    topics = max(len(scenario.topics), 1)
    key, member_stream = np.unique(
        subscription_flow[member_subscription] * topics + member_topic, return_inverse=True
    )
    flow, topic = key // topics, key % topics
    acknowledged = np.array([subscription.qos > 0 for subscription in subscriptions], dtype=bool)
    stream_acknowledged = np.zeros(len(key), dtype=bool)
    stream_acknowledged[member_stream[acknowledged[member_subscription]]] = True
    tcp = np.array(
        [(s.transport or scenario.transport) == "tcp" for s in scenario.subscribers], dtype=bool
    )
    kind = np.where(tcp[flows.subscriber[flow]], 1 + stream_acknowledged, 0)
    size = np.empty(len(key))
    kinds: tuple[tuple[Transport, int], ...] = (("udp", 0), ("tcp", 0), ("tcp", 1))
    for number, (transport, qos) in enumerate(kinds):
        rows = np.flatnonzero(kind == number)
        used, where = np.unique(topic[rows], return_inverse=True)
        table = [event_wire_bytes(scenario, scenario.topics[row], transport, qos) for row in used]
        size[rows] = np.array(table, dtype=float)[where]
    return Streams(flow=flow, topic=topic, wire_bytes=size), member_stream


def event_wire_bytes(scenario: Scenario, topic: Topic, transport: Transport, qos: int) -> int:
    """Mean bytes on the wire of one event of ``topic``."""
    stamped = scenario.stamped_events if topic.stamped is None else topic.stamped
    return wire_bytes(
        payload_bytes=topic.event_bytes,
        transport=transport,
        topic=topic.name,
        qos=qos,
        stamped=stamped,
    )
