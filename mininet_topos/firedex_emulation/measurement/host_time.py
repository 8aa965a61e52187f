"""Host time: the delay that hosts, broker and switches add, from probes on the idle network.

Pure. The time that links take for a probe is known and subtracted.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from firedex.wire import Publisher, Scenario, Switch, Topic
from firedex.wire.mqtt_names import matches
from firedex.wire.packet_sizes import wire_bytes
from firedex_emulation.topologies.scenario_layout import (
    propagation_from_publishers,
    propagation_to_subscribers,
)

__all__ = ["Arrival", "host_seconds", "idle_link_seconds", "probed_topic", "seconds_between_probes"]

MIN_PAUSE_SECONDS = 0.012
PAUSE_IN_BATCHES = 3


def probed_topic(scenario: Scenario, publisher: Publisher) -> Topic | None:
    """Return the topic of ``publisher`` whose events put the least load on the network."""
    own_topics = {publication.topic for publication in publisher.publications}
    candidates = [
        (size, topic.name, topic)
        for topic in scenario.topics
        if topic.name in own_topics
        and topic.size_distribution == "fixed"
        and (size := _count_packets(scenario, topic) * _packet_bytes(scenario, topic))
    ]
    return min(candidates)[2] if candidates else None


def seconds_between_probes(scenario: Scenario, topic: Topic) -> float:
    """Return a pause after which the slowest link is idle and its burst is available again."""
    slowest = min(switch.bandwidth_bits_per_second for switch in scenario.network.switches)
    burst = max(switch.burst_bytes for switch in scenario.network.switches)
    batch = _count_packets(scenario, topic) * _packet_bytes(scenario, topic) + burst
    return max(MIN_PAUSE_SECONDS, PAUSE_IN_BATCHES * batch * 8 / slowest)


def idle_link_seconds(scenario: Scenario, topic: Topic, arrived: int | None = None) -> float:
    """Return the mean time that idle links take for a packet of one event of ``topic``.

    ``arrived``: number of its packets that arrived; drop rates may have removed some.
    """
    size = _packet_bytes(scenario, topic)
    share = 1.0 if arrived is None else min(arrived / max(_count_packets(scenario, topic), 1), 1.0)
    total, copies = 0.0, 0
    for switch in scenario.network.switches:
        copies_here = round(share * _count_packets(scenario, topic, switch))
        if switch.managed:
            total += sum(
                max(position * size - switch.burst_bytes, 0.0)
                for position in range(1, copies_here + 1)
            ) * (8 / switch.bandwidth_bits_per_second)
            copies += copies_here
    return total / copies if copies else 0.0


def _count_packets(scenario: Scenario, topic: Topic, switch: Switch | None = None) -> int:
    return sum(
        matches(subscription.filter, topic.name)
        for subscriber in scenario.subscribers
        if switch is None or subscriber.switch == switch.id
        for subscription in subscriber.subscriptions
    )


def _packet_bytes(scenario: Scenario, topic: Topic) -> int:
    return wire_bytes(
        payload_bytes=topic.event_bytes,
        transport=scenario.transport,
        topic=topic.name,
        stamped=True,
    )


Arrival = tuple[str, str, float | None, float]
"""Subscriber, topic, time of publication (if known) and time of reception."""


def host_seconds(scenario: Scenario, arrivals: Sequence[Arrival], began_at: float) -> float | None:
    """Return the median delay of probes without the time on links; None without probes.

    Probes are the events published before ``began_at``.
    """
    down = propagation_to_subscribers(scenario)
    up = _propagation_of_topics(scenario)
    topics = {topic.name: topic for topic in scenario.topics}
    batches = Counter((topic, published) for _, topic, published, _ in arrivals)
    probes = [
        received
        - published
        - down[subscriber]
        - up.get(topic, 0.0)
        - idle_link_seconds(scenario, topics[topic], batches[topic, published])
        for subscriber, topic, published, received in arrivals
        if published is not None and published < began_at
    ]
    return max(float(np.median(probes)), 0.0) if probes else None


def _propagation_of_topics(scenario: Scenario) -> dict[str, float]:
    """Return the mean propagation delay from the publishers of each topic to the broker."""
    of_publisher = propagation_from_publishers(scenario)
    found: dict[str, list[float]] = {}
    for publisher in scenario.publishers:
        for publication in publisher.publications:
            found.setdefault(publication.topic, []).append(of_publisher[publisher.id])
    return {topic: sum(seconds) / len(seconds) for topic, seconds in found.items()}
