"""From a configuration to what the controller is asked for. Pure.

Each flow gets a rule on every managed switch of its way, each port on the way its classes. Where
the meter enforces a drop rate it admits what is to be delivered; elsewhere it is a backstop with
headroom, against a flow that sends more than it was planned for.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from firedex.service.site_plan import PlannedSite
from firedex.wire import (
    ClassQueue,
    ControlEndpoint,
    DesiredNetwork,
    DesiredSwitch,
    Flow,
    FlowEndpoints,
    FlowRule,
    PacketLimit,
    ShapedPort,
    Switch,
)
from firedex.wire.network_paths import port_bandwidths, switches_on_path
from firedex.wire.packet_sizes import packets_of_event
from firedex_models.topic_index import TopicIndex

__all__ = ["BUFFER_PACKETS", "desired_network", "guaranteed_bits_per_second"]

HIGHEST_CLASS = 0
BUFFER_PACKETS = 60
GUARANTEED_SHARE = 0.02
"""Of a port, to all classes together: more would let low classes past the high ones."""
LARGEST_GUARANTEE_BITS_PER_SECOND = 12_000.0
ENFORCING_BURST_PACKETS = 20
"""A meter is a threshold: with less than this it takes more from bursty flows than was planned."""
BACKSTOP_HEADROOM = 3.0
BACKSTOP_BURST_PACKETS = 200
SMALLEST_LIMIT_PACKETS_PER_SECOND = 1.0
LARGEST_LIMIT_PACKETS_PER_SECOND = float(2**32 - 1)
"""A meter's rate has 32 bits; publishers may declare more."""

Port = tuple[str, str | None]
"""A switch, and the switch that the port leads to (none: the hosts)."""


def desired_network(
    planned: PlannedSite,
    version: int,
    control: Sequence[ControlEndpoint] = (),
) -> DesiredNetwork:
    """The desired state of every managed switch."""
    scenario = planned.scenario
    links = [(link.from_, link.to) for link in scenario.network.links]
    way = {
        subscriber.id: switches_on_path(links, scenario.network.broker.switch, subscriber.switch)
        for subscriber in scenario.subscribers
    }
    managed = {switch.id for switch in scenario.network.switches if switch.managed}
    offered = _packets_per_second(planned)
    flows: dict[str, list[FlowRule]] = {switch: [] for switch in managed}
    ports: dict[Port, set[int]] = {}
    for flow in planned.flows:
        if flow.endpoints is None:
            continue
        rate = offered.get((flow.subscriber, flow.flow), 0.0)
        enforced = False  # at exactly one point: the first that can
        for here, there in pairwise([*way[flow.subscriber], None]):
            if here is None or here not in managed:
                continue
            ports.setdefault((here, there), {HIGHEST_CLASS}).add(flow.priority)
            flows[here].append(_rule(flow, flow.endpoints, _limit(flow, rate, backstop=enforced)))
            enforced = True
    bandwidths = port_bandwidths(scenario.network)
    return DesiredNetwork(
        configuration_version=version,
        switches=tuple(
            DesiredSwitch(
                switch=switch.id,
                ports=tuple(
                    _shaped(switch, there, classes, bandwidths[switch.id, there])
                    for (here, there), classes in ports.items()
                    if here == switch.id
                ),
                flows=tuple(flows[switch.id]),
            )
            for switch in scenario.network.switches
            if switch.managed
        ),
        control=tuple(control),
    )


def guaranteed_bits_per_second(bandwidth: float, classes: int) -> float:
    """What each of so many classes of a port is guaranteed, where the switch leaves it open."""
    return min(GUARANTEED_SHARE * bandwidth / classes, LARGEST_GUARANTEE_BITS_PER_SECOND)


def _shaped(switch: Switch, towards: str | None, classes: set[int], bandwidth: float) -> ShapedPort:
    guarantee = switch.guaranteed_bits_per_second or guaranteed_bits_per_second(
        bandwidth, len(classes)
    )
    packets = switch.buffer.packets if switch.buffer else BUFFER_PACKETS
    return ShapedPort(
        towards=towards,
        bandwidth_bits_per_second=bandwidth,
        classes=tuple(
            ClassQueue(
                priority=priority, guaranteed_bits_per_second=guarantee, limit_packets=packets
            )
            for priority in sorted(classes)
        ),
    )


def _rule(flow: Flow, endpoints: FlowEndpoints, limit: PacketLimit) -> FlowRule:
    return FlowRule(
        subscriber=flow.subscriber,
        flow=flow.flow,
        priority=flow.priority,
        endpoints=endpoints,
        limit=limit,
    )


def _limit(flow: Flow, offered_packets_per_second: float, *, backstop: bool) -> PacketLimit:
    planned = offered_packets_per_second * (1 - flow.drop_rate)
    if flow.enforced_at == "meter" and flow.drop_rate > 0 and not backstop:
        enforced = max(planned, SMALLEST_LIMIT_PACKETS_PER_SECOND)
        return _packet_limit(enforced, ENFORCING_BURST_PACKETS)
    policed = max(planned * BACKSTOP_HEADROOM, BACKSTOP_BURST_PACKETS)
    return _packet_limit(policed, BACKSTOP_BURST_PACKETS)


@lru_cache(maxsize=4096)
def _packet_limit(packets_per_second: float, burst_packets: int) -> PacketLimit:
    """Nearly all flows have the same backstop: one value for all of them."""
    return PacketLimit(
        packets_per_second=min(packets_per_second, LARGEST_LIMIT_PACKETS_PER_SECOND),
        burst_packets=burst_packets,
    )


def _packets_per_second(planned: PlannedSite) -> dict[tuple[str, int], float]:
    """What each flow offers; a large event takes as many packets as the largest that matches."""
    scenario, table = planned.scenario, planned.plan.table
    index = TopicIndex([topic.name for topic in scenario.topics])
    packets = {
        transport: np.array(
            [
                packets_of_event(
                    payload_bytes=topic.event_bytes,
                    transport=transport,
                    topic=topic.name,
                    stamped=True,
                )
                for topic in scenario.topics
            ],
            dtype=np.int64,
        )
        for transport in {s.transport or scenario.transport for s in scenario.subscribers}
    }
    numbers = table.site.flows.number[table.site.subscription_flow].tolist()
    rates = table.offered_events_per_second.tolist()
    most: dict[tuple[str, str], int] = {}
    offered: dict[tuple[str, int], float] = {}
    row = 0
    for subscriber in scenario.subscribers:
        transport = subscriber.transport or scenario.transport
        for subscription in subscriber.subscriptions:
            known = (transport, subscription.filter)
            if known not in most:
                matched = packets[transport][index.matching(subscription.filter)]
                most[known] = int(matched.max(initial=1))
            key = (subscriber.id, numbers[row])
            offered[key] = offered.get(key, 0.0) + most[known] * rates[row]
            row += 1
    return offered
