"""A scenario as columns, before anybody has decided about flows: who wants what, along which way.

Wildcards are expanded here, once for all the plans that are tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Scenario, Subscription, Topic, Transport
from firedex.wire.packet_sizes import wire_bytes
from firedex_models.network_hops import Route, downlinks
from firedex_models.topic_index import TopicIndex
from firedex_models.utility import UtilityColumns

__all__ = ["Demand", "compile_demand", "event_wire_bytes"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
SIZE_KINDS: tuple[tuple[Transport, int], ...] = (("udp", 0), ("tcp", 0), ("tcp", 1))


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Everything about subscriptions that no assignment changes.

    ``member_subscription`` and ``member_topic`` pair each subscription with each topic that it
    matches. ``downlinks`` is the way from the broker to each subscriber.
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
        """What each subscription's success rate is worth."""
        return UtilityColumns([subscription.utility for subscription in self.subscriptions])

    @cached_property
    def deadline_seconds(self) -> Floats:
        """Each subscription's deadline; infinite where there is none."""
        return np.array([s.deadline_seconds or np.inf for s in self.subscriptions], dtype=float)

    @cached_property
    def deadline_percentile(self) -> Floats:
        """The fraction of each subscription's delivered events that must be in time."""
        return np.array([s.deadline_percentile for s in self.subscriptions], dtype=float)

    def wire_bytes(self, subscriber: Integers, topic: Integers, acknowledged: Booleans) -> Floats:
        """Mean bytes on the wire of an event of each topic on its way to each subscriber."""
        kind = np.where(self.over_tcp[subscriber], 1 + acknowledged, 0)
        size = np.empty(len(topic))
        for number, (transport, qos) in enumerate(SIZE_KINDS):
            rows = np.flatnonzero(kind == number)
            used, where = np.unique(topic[rows], return_inverse=True)
            table = [
                event_wire_bytes(self.scenario, self.scenario.topics[row], transport, qos)
                for row in used
            ]
            size[rows] = np.array(table, dtype=float)[where]
        return size


def compile_demand(scenario: Scenario) -> Demand:
    """Turn a scenario's subscriptions into columns, in the scenario's order."""
    index = TopicIndex([topic.name for topic in scenario.topics])
    subscriptions = [s for subscriber in scenario.subscribers for s in subscriber.subscriptions]
    counts, member_topic = index.matching_each([s.filter for s in subscriptions])
    wanted = [len(subscriber.subscriptions) for subscriber in scenario.subscribers]
    exponential = [topic.size_distribution == "exponential" for topic in scenario.topics]
    tcp = [(s.transport or scenario.transport) == "tcp" for s in scenario.subscribers]
    return Demand(
        scenario=scenario,
        subscriptions=subscriptions,
        subscriber=np.repeat(np.arange(len(wanted)), wanted),
        acknowledged=np.array([s.qos > 0 for s in subscriptions], dtype=bool),
        member_subscription=np.repeat(np.arange(len(subscriptions)), counts),
        member_topic=member_topic,
        over_tcp=np.array(tcp, dtype=bool),
        topic_size_variability=np.array(exponential, dtype=float),
        downlinks=downlinks(scenario),
    )


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
