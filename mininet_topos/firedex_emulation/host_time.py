"""What hosts, broker and switch take by themselves, from probes on the idle network. Pure."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from firedex.wire import Scenario
from firedex_emulation.emulated_propagation import (
    propagation_from_publishers,
    propagation_to_subscribers,
)
from firedex_emulation.idle_network import idle_link_seconds

__all__ = ["Arrival", "host_seconds"]

Arrival = tuple[str, str, float | None, float]
"""Subscriber, topic, when it was published (if it says so) and when it was received."""


def host_seconds(scenario: Scenario, arrivals: Sequence[Arrival], began_at: float) -> float | None:
    """The median of what arrived before the traffic ``began``, less what the links take.

    None if no probe arrived.
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
    """From who publishes a topic to the broker; the mean, where several do."""
    of_publisher = propagation_from_publishers(scenario)
    found: dict[str, list[float]] = {}
    for publisher in scenario.publishers:
        for publication in publisher.publications:
            found.setdefault(publication.topic, []).append(of_publisher[publisher.id])
    return {topic: sum(seconds) / len(seconds) for topic, seconds in found.items()}
