"""From a configuration to the desired state of the switches. Pure.

Each flow gets a rule on every managed switch of its path, and each port on the path gets queues for
its classes. A meter that enforces a drop rate admits the planned rate. Every other meter is a
backstop against flows that send more than planned: it admits the planned rate with headroom, and
never more than the port transmits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from firedex.service.planner.site_plan import PlannedSite
from firedex.wire import (
    ClassQueue,
    ControlEndpoint,
    DesiredNetwork,
    DesiredSwitch,
    Flow,
    FlowEndpoints,
    FlowRule,
    PacketLimit,
    Scenario,
    ShapedPort,
    Switch,
    Topic,
    Transport,
)
from firedex.wire.network import port_bandwidths, switches_on_path
from firedex.wire.packet_sizes import (
    ETHERNET_HEADER_BYTES,
    MTU_BYTES,
    packets_per_event,
    wire_bytes,
)
from firedex_models.topic_index import TopicIndex

__all__ = ["BUFFER_PACKETS", "desired_network", "guaranteed_bits_per_second"]

HIGHEST_CLASS = 0
BUFFER_PACKETS = 60
GUARANTEED_SHARE = 0.02
"""Share of a port for all classes together; a larger one would weaken the priorities."""
LARGEST_GUARANTEE_BITS_PER_SECOND = 12_000.0
ENFORCING_BURST_PACKETS = 20
"""With a smaller burst, a meter drops more of a bursty flow than planned."""
BACKSTOP_HEADROOM = 3.0
BACKSTOP_BURST_PACKETS = 200
SMALLEST_BACKSTOP_PACKETS_PER_SECOND = 20.0
"""For a flow without events: its acknowledgements, keep-alive and retained messages."""
SMALLEST_LIMIT_PACKETS_PER_SECOND = 1.0
LARGEST_PACKET_BITS = 8 * (MTU_BYTES + ETHERNET_HEADER_BYTES)
LARGEST_LIMIT_PACKETS_PER_SECOND = float(2**32 - 1)
"""The rate of an OpenFlow meter has 32 bits; publishers may declare more."""

Port = tuple[str, str | None]
"""A switch and the next switch; None for the port to the hosts."""


def desired_network(
    planned: PlannedSite,
    version: int,
    control: Sequence[ControlEndpoint] = (),
) -> DesiredNetwork:
    """Return the desired state of every managed switch."""
    scenario = planned.scenario
    links = [(link.from_, link.to) for link in scenario.network.links]
    paths = {
        subscriber.id: switches_on_path(links, scenario.network.broker.switch, subscriber.switch)
        for subscriber in scenario.subscribers
    }
    managed = {switch.id for switch in scenario.network.switches if switch.managed}
    offered = _packet_rates(planned)
    bandwidths = port_bandwidths(scenario.network)
    flows: dict[str, list[FlowRule]] = {switch: [] for switch in managed}
    ports: dict[Port, set[int]] = {}
    for flow in planned.flows:
        if flow.endpoints is None:
            continue
        rate = offered.get((flow.subscriber, flow.flow), NO_PACKETS)
        enforced = False  # the first managed switch enforces the drop rate
        for here, there in pairwise([*paths[flow.subscriber], None]):
            if here is None or here not in managed:
                continue
            ports.setdefault((here, there), {HIGHEST_CLASS}).add(flow.priority)
            limit = _limit(flow, rate, bandwidths[here, there], backstop=enforced)
            flows[here].append(_rule(flow, flow.endpoints, limit))
            enforced = True
    return DesiredNetwork(
        configuration_version=version,
        switches=tuple(
            DesiredSwitch(
                switch=switch.id,
                ports=tuple(
                    _shaped_port(switch, there, classes, bandwidths[switch.id, there])
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
    """Return the guaranteed rate of each class of a port, unless the switch defines it."""
    return min(GUARANTEED_SHARE * bandwidth / classes, LARGEST_GUARANTEE_BITS_PER_SECOND)


def _shaped_port(
    switch: Switch, towards: str | None, classes: set[int], bandwidth: float
) -> ShapedPort:
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


@dataclass(frozen=True, slots=True)
class _PacketRate:
    """The packets of a flow before any drop: their rate, and the size of the smallest one."""

    packets_per_second: float = 0.0
    smallest_packet_bits: float = LARGEST_PACKET_BITS


NO_PACKETS = _PacketRate()


def _limit(flow: Flow, offered: _PacketRate, bandwidth: float, *, backstop: bool) -> PacketLimit:
    planned = offered.packets_per_second * (1 - flow.drop_rate)
    if flow.enforced_at == "meter" and flow.drop_rate > 0 and not backstop:
        enforced = max(planned, SMALLEST_LIMIT_PACKETS_PER_SECOND)
        return _packet_limit(enforced, ENFORCING_BURST_PACKETS)
    policed = max(planned * BACKSTOP_HEADROOM, SMALLEST_BACKSTOP_PACKETS_PER_SECOND)
    port_packets_per_second = bandwidth / offered.smallest_packet_bits
    policed = max(min(policed, port_packets_per_second), SMALLEST_LIMIT_PACKETS_PER_SECOND)
    return _packet_limit(policed, BACKSTOP_BURST_PACKETS)


@lru_cache(maxsize=4096)
def _packet_limit(packets_per_second: float, burst_packets: int) -> PacketLimit:
    """Return a packet limit; it is cached, because many flows have the same limit."""
    return PacketLimit(
        packets_per_second=min(packets_per_second, LARGEST_LIMIT_PACKETS_PER_SECOND),
        burst_packets=burst_packets,
    )


def _packet_rates(planned: PlannedSite) -> dict[tuple[str, int], _PacketRate]:
    """Return the packets of each flow, with the packets of the largest matching event."""
    scenario, table = planned.scenario, planned.plan.table
    index = TopicIndex([topic.name for topic in scenario.topics])
    sizes = {
        transport: _event_sizes(scenario, transport)
        for transport in {s.transport or scenario.transport for s in scenario.subscribers}
    }
    numbers = table.site.flows.number[table.site.subscription_flow].tolist()
    rates = table.offered_events_per_second.tolist()
    by_filter: dict[tuple[str, str], tuple[int, float]] = {}
    offered: dict[tuple[str, int], _PacketRate] = {}
    row = 0
    for subscriber in scenario.subscribers:
        transport = subscriber.transport or scenario.transport
        for subscription in subscriber.subscriptions:
            known = (transport, subscription.filter)
            if known not in by_filter:
                matching = index.matching(subscription.filter)
                packets, packet_bits = sizes[transport]
                by_filter[known] = (
                    int(packets[matching].max(initial=1)),
                    float(packet_bits[matching].min(initial=LARGEST_PACKET_BITS)),
                )
            most_packets, smallest_bits = by_filter[known]
            key = (subscriber.id, numbers[row])
            before = offered.get(key, NO_PACKETS)
            offered[key] = _PacketRate(
                before.packets_per_second + most_packets * rates[row],
                min(before.smallest_packet_bits, smallest_bits),
            )
            row += 1
    return offered


def _event_sizes(
    scenario: Scenario, transport: Transport
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of packets of one event of each topic, and the bits of one packet."""
    sizes = np.array(
        [_event_size(topic, transport) for topic in scenario.topics], dtype=np.int64
    ).reshape(-1, 2)
    return sizes[:, 0], 8.0 * sizes[:, 1] / sizes[:, 0]


def _event_size(topic: Topic, transport: Transport) -> tuple[int, int]:
    payload, name = topic.event_bytes, topic.name
    return (
        packets_per_event(payload_bytes=payload, transport=transport, topic=name, stamped=True),
        wire_bytes(payload_bytes=payload, transport=transport, topic=name, stamped=True),
    )
