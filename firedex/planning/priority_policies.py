"""Which subscription goes into which flow and class (paper §4.2)."""

from collections.abc import Mapping, Sequence

import numpy as np

from firedex.wire import Assignment, Scenario, Transport
from firedex.wire.network_paths import switches_on_path
from firedex_models.demand import event_wire_bytes
from firedex_models.topic_index import TopicIndex
from firedex_models.utility import utility_of

__all__ = ["assign_priorities", "equal_parts"]


def equal_parts(count: int, parts: int) -> list[int]:
    """Which of ``parts`` each of ``count`` ranked items goes to; the first parts get one more."""
    if count == 0:
        return []
    used = min(parts, count)
    size, larger = divmod(count, used)
    return [part for part in range(used) for _ in range(size + (part < larger))]


def assign_priorities(scenario: Scenario, policy: str) -> list[Assignment]:
    """Rank each subscriber's subscriptions, cut the ranking into flows and the flows into classes.

    ``bandwidth-adjusted`` ranks by maximum utility per byte/s (paper Eq. 9), ``information-only``
    by maximum utility, ``none`` puts everything into one class.
    """
    demand = _Demand(scenario)
    assignment: list[Assignment] = []
    for subscriber in scenario.subscribers:
        worth = {}
        for subscription in subscriber.subscriptions:
            most = utility_of(subscription.utility, 1.0)
            needs = demand.bytes_per_second(
                subscriber.transport or scenario.transport, subscription.filter
            )
            per_byte = policy == "bandwidth-adjusted" and needs > 0
            worth[subscription.filter] = most / needs if per_byte else most
        flows = min(scenario.planning.flows_per_subscriber, len(worth))
        classes = 1 if policy == "none" else _classes(scenario, subscriber.switch)
        assignment += _split(subscriber.id, worth, flows, classes)
    return assignment


def _split(
    subscriber: str, worth: Mapping[str, float], flows: int, classes: int
) -> Sequence[Assignment]:
    ranked = sorted(worth, key=lambda name: (-worth[name], name))
    class_of_flow = equal_parts(flows, classes)
    return [
        Assignment(subscriber=subscriber, filter=name, flow=flow, priority=class_of_flow[flow])
        for name, flow in zip(ranked, equal_parts(len(ranked), flows), strict=True)
    ]


def _classes(scenario: Scenario, switch: str) -> int:
    """As many classes as the plan asks for and every managed switch on the way offers."""
    links = [(link.from_, link.to) for link in scenario.network.links]
    way = set(switches_on_path(links, scenario.network.broker.switch, switch))
    offered = [s.priorities for s in scenario.network.switches if s.id in way and s.managed]
    return min([scenario.planning.priorities, *offered])


class _Demand:
    """What filters ask of the network."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._index = TopicIndex([topic.name for topic in scenario.topics])
        position = {topic.name: row for row, topic in enumerate(scenario.topics)}
        self._rate = np.zeros(len(scenario.topics))
        for publisher in scenario.publishers:
            for publication in publisher.publications:
                self._rate[position[publication.topic]] += publication.rate_per_second
        for forwarded in scenario.network.broker.forwarded:
            self._rate[position[forwarded.topic]] += forwarded.rate_per_second

    def bytes_per_second(self, transport: Transport, filter_name: str) -> float:
        """Bytes per second that a filter's events take on the wire."""
        return float(
            sum(
                self._rate[row]
                * event_wire_bytes(self._scenario, self._scenario.topics[row], transport, 0)
                for row in self._index.matching(filter_name)
            )
        )
