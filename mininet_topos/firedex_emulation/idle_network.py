"""Probes on the idle network: what to send, and what its link alone would make of it. Pure."""

from firedex.wire import Publisher, Scenario, Switch, Topic
from firedex.wire.mqtt_names import matches
from firedex.wire.packet_sizes import wire_bytes

__all__ = ["idle_link_seconds", "probed_topic", "seconds_between_probes"]

LEAST_PAUSE_SECONDS = 0.012
PAUSE_IN_BATCHES = 3


def probed_topic(scenario: Scenario, publisher: Publisher) -> Topic | None:
    """The topic of ``publisher`` whose one event puts the least on the network, but something."""
    mine = {publication.topic for publication in publisher.publications}
    heard = [
        (size, topic.name, topic)
        for topic in scenario.topics
        if topic.name in mine
        and topic.size_distribution == "fixed"
        and (size := _copies(scenario, topic) * _packet_bytes(scenario, topic))
    ]
    return min(heard)[2] if heard else None


def seconds_between_probes(scenario: Scenario, topic: Topic) -> float:
    """Long enough that each finds the slowest link idle again, its burst refilled."""
    slowest = min(switch.bandwidth_bits_per_second for switch in scenario.network.switches)
    burst = max(switch.burst_bytes for switch in scenario.network.switches)
    batch = _copies(scenario, topic) * _packet_bytes(scenario, topic) + burst
    return max(LEAST_PAUSE_SECONDS, PAUSE_IN_BATCHES * batch * 8 / slowest)


def idle_link_seconds(scenario: Scenario, topic: Topic, arrived: int | None = None) -> float:
    """What one batch of ``topic`` takes on the idle links by themselves, on the average packet.

    ``arrived``: how many of its packets came; drop rates may have taken some.
    """
    size = _packet_bytes(scenario, topic)
    share = 1.0 if arrived is None else min(arrived / max(_copies(scenario, topic), 1), 1.0)
    total, copies = 0.0, 0
    for switch in scenario.network.switches:
        here = round(share * _copies(scenario, topic, switch))
        if switch.managed:
            total += sum(
                max(position * size - switch.burst_bytes, 0.0) for position in range(1, here + 1)
            ) * (8 / switch.bandwidth_bits_per_second)
            copies += here
    return total / copies if copies else 0.0


def _copies(scenario: Scenario, topic: Topic, switch: Switch | None = None) -> int:
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
