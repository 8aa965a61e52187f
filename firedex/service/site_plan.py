"""From registrations to a configuration and the rules that carry it out. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import IPv4Address

from firedex.planning import plan_scenario
from firedex.service.errors import PortsExhausted
from firedex.wire import (
    Assignment,
    Configuration,
    Flow,
    FlowEndpoints,
    Meter,
    PublisherRegistration,
    Queue,
    Rule,
    Scenario,
    SubscriberRegistration,
    Switch,
    SwitchRules,
    Topic,
    from_plain,
    to_plain,
)
from firedex.wire.mqtt_names import matches
from firedex.wire.network_paths import switches_on_path
from firedex.wire.packet_sizes import packets_of_event

__all__ = ["Gateway", "make_configuration", "site_scenario", "switch_rules"]

FIRST_PORT, LAST_PORT = 20_000, 32_767
"""Below what Linux hands out by itself."""
DSCP_OF_CLASS_0 = 46
"""Expedited forwarding."""
BUFFER_PACKETS = 60
LEAF_BITS_PER_SECOND = 12_000
METER_HEADROOM = 3.0
METER_BURST_PACKETS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Where subscribers connect to."""

    address: IPv4Address
    port: int


def site_scenario(
    site: Scenario,
    publishers: Sequence[PublisherRegistration],
    subscribers: Sequence[SubscriberRegistration],
) -> Scenario:
    """The site with everybody who has registered; the first to declare a topic defines it."""
    topics: dict[str, Topic] = {topic.name: topic for topic in site.topics}
    for registration in publishers:
        for topic in registration.topics:
            topics.setdefault(topic.name, topic)
    data = to_plain(replace(site, assignment=None))
    data["topics"] = [to_plain(topic) for topic in topics.values()]
    data["publishers"] = [to_plain(registration.publisher) for registration in publishers]
    data["subscribers"] = [to_plain(registration.subscriber) for registration in subscribers]
    return from_plain(Scenario, data)


def make_configuration(
    scenario: Scenario,
    subscribers: Sequence[SubscriberRegistration],
    gateway: Gateway,
    *,
    before: Configuration | None = None,
    version: int,
    created_at: datetime,
    reason: str,
) -> Configuration:
    """Plan, predict, and give every flow its endpoints: those it had ``before``, or free ones."""
    plan = plan_scenario(scenario, previous=_assignment_of(before))
    address = {r.subscriber.id: r.address for r in subscribers}
    transport = {r.subscriber.id: r.subscriber.transport or scenario.transport for r in subscribers}
    quality = {
        (r.subscriber.id, s.filter): s.qos for r in subscribers for s in r.subscriber.subscriptions
    }
    flows: dict[tuple[str, int], Flow] = {}
    ports = _Ports(before, {r.subscriber.id for r in subscribers})
    for entry in plan.assignment:
        key = (entry.subscriber, entry.flow)
        if key not in flows:
            endpoints = FlowEndpoints(
                transport=transport[entry.subscriber],
                subscriber_address=address[entry.subscriber],
                subscriber_ports=ports.pair(
                    entry.subscriber, entry.flow, address[entry.subscriber]
                ),
                gateway_address=gateway.address,
                gateway_port=gateway.port,
            )
            flows[key] = Flow(
                subscriber=entry.subscriber,
                flow=entry.flow,
                priority=entry.priority,
                drop_rate=entry.drop_rate,
                enforced_at=entry.enforced_at,
                endpoints=endpoints,
            )
        known = flows[key]
        flows[key] = replace(
            known,
            filters=(*known.filters, entry.filter),
            qos=max(known.qos, quality[entry.subscriber, entry.filter]),
        )
    return Configuration(
        version=version,
        broker=scenario.network.broker.id,
        created_at=created_at,
        reason=reason,
        flows=tuple(flows.values()),
        prediction=plan.table.to_prediction(),
    )


def _assignment_of(configuration: Configuration | None) -> list[Assignment]:
    """Where a configuration has put each subscription."""
    return [
        Assignment(
            subscriber=flow.subscriber,
            filter=name,
            flow=flow.flow,
            priority=flow.priority,
            drop_rate=flow.drop_rate,
        )
        for flow in (configuration.flows if configuration else ())
        for name in flow.filters
    ]


class _Ports:
    """Two local ports for every flow; who has some keeps them, whoever comes after."""

    def __init__(self, before: Configuration | None, present: set[str]) -> None:
        self._kept: dict[tuple[str, int, IPv4Address], tuple[int, int]] = {}
        self._taken: set[tuple[IPv4Address, int]] = set()
        for flow in before.flows if before else ():
            ends = flow.endpoints
            if ends is not None and flow.subscriber in present:
                self._kept[flow.subscriber, flow.flow, ends.subscriber_address] = (
                    ends.subscriber_ports
                )
                self._taken.add((ends.subscriber_address, ends.subscriber_ports[0]))

    def pair(self, subscriber: str, flow: int, address: IPv4Address) -> tuple[int, int]:
        kept = self._kept.get((subscriber, flow, address))
        if kept is not None:
            return kept
        for first in range(FIRST_PORT, LAST_PORT, 2):
            if (address, first) not in self._taken:
                self._taken.add((address, first))
                return first, first + 1
        raise PortsExhausted(str(address))


def switch_rules(scenario: Scenario, configuration: Configuration) -> list[SwitchRules]:
    """The desired state of every managed switch: of the flows that cross it."""
    links = [(link.from_, link.to) for link in scenario.network.links]
    way = {
        subscriber.id: switches_on_path(links, scenario.network.broker.switch, subscriber.switch)
        for subscriber in scenario.subscribers
    }
    offered = _packets_per_second(scenario, configuration)
    return [
        _rules_of_switch(
            switch,
            configuration.version,
            [
                flow
                for flow in configuration.flows
                if flow.endpoints is not None and switch.id in way[flow.subscriber]
            ],
            offered,
        )
        for switch in scenario.network.switches
        if switch.managed
    ]


def _rules_of_switch(
    switch: Switch,
    version: int,
    flows: Sequence[Flow],
    offered: Mapping[tuple[str, int], float],
) -> SwitchRules:
    classes = sorted({flow.priority for flow in flows} | {0})
    rules, meters = [], []
    for number, flow in enumerate(flows, start=1):
        rate = offered[flow.subscriber, flow.flow] * (1 - flow.drop_rate)
        meters.append(
            Meter(
                id=number,
                packets_per_second=max(rate * METER_HEADROOM, METER_BURST_PACKETS),
                burst_packets=METER_BURST_PACKETS,
            )
        )
        rules += _rules_of(flow, number)
    return SwitchRules(
        switch=switch.id,
        configuration_version=version,
        bandwidth_bits_per_second=switch.bandwidth_bits_per_second,
        queues=tuple(
            Queue(
                priority=priority,
                dscp=_dscp(priority),
                guaranteed_bits_per_second=LEAF_BITS_PER_SECOND,
                limit_packets=BUFFER_PACKETS,
            )
            for priority in classes
        ),
        meters=tuple(meters),
        rules=tuple(rules),
    )


def _rules_of(flow: Flow, meter: int) -> list[Rule]:
    """One rule for each of the flow's two ports, from the gateway to the subscriber."""
    ends = flow.endpoints
    if ends is None:
        return []
    return [
        Rule(
            transport=ends.transport,
            source_address=ends.gateway_address,
            source_port=ends.gateway_port,
            destination_address=ends.subscriber_address,
            destination_port=port,
            priority=flow.priority,
            dscp=_dscp(flow.priority),
            meter=meter,
            towards=flow.subscriber,
        )
        for port in ends.subscriber_ports
    ]


def _dscp(priority: int) -> int:
    """A mark of its own for each of 64 classes: 46 down to 1, then 47 to 63, then 0."""
    if priority < DSCP_OF_CLASS_0:
        return DSCP_OF_CLASS_0 - priority
    return (priority + 1) % 64


def _packets_per_second(
    scenario: Scenario, configuration: Configuration
) -> dict[tuple[str, int], float]:
    """What each flow offers; a large event takes as many packets as the largest that matches."""
    transport = {s.id: s.transport or scenario.transport for s in scenario.subscribers}
    offered: dict[tuple[str, int], float] = {}
    for row in configuration.prediction.subscriptions if configuration.prediction else ():
        key = (row.subscriber, row.flow)
        packets = max(
            (
                packets_of_event(
                    payload_bytes=topic.event_bytes,
                    transport=transport[row.subscriber],
                    topic=topic.name,
                    stamped=True,
                )
                for topic in scenario.topics
                if matches(row.filter, topic.name)
            ),
            default=1,
        )
        offered[key] = offered.get(key, 0.0) + packets * row.offered_events_per_second
    return offered
