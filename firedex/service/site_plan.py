"""From registrations to a configuration and the rules that carry it out. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import IPv4Address

from firedex.planning import plan_scenario
from firedex.service.errors import PortsExhausted
from firedex.wire import (
    Configuration,
    Flow,
    FlowEndpoints,
    Meter,
    PublisherRegistration,
    Queue,
    Rule,
    Scenario,
    SubscriberRegistration,
    SwitchRules,
    Topic,
)
from firedex_models import predict

__all__ = ["Gateway", "make_configuration", "site_scenario", "switch_rules"]

FIRST_PORT, LAST_PORT = 20_000, 59_999
DSCP_OF_CLASS_0 = 46
"""Expedited forwarding; every class below takes the next lower even mark."""
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
    return replace(
        site,
        topics=tuple(topics.values()),
        publishers=tuple(registration.publisher for registration in publishers),
        subscribers=tuple(registration.subscriber for registration in subscribers),
        assignment=None,
    )


def make_configuration(
    scenario: Scenario,
    subscribers: Sequence[SubscriberRegistration],
    gateway: Gateway,
    *,
    version: int,
    created_at: datetime,
    reason: str,
) -> Configuration:
    """Plan, predict, and give every flow its endpoints."""
    planned = plan_scenario(scenario)
    address = {r.subscriber.id: r.address for r in subscribers}
    transport = {r.subscriber.id: r.subscriber.transport or scenario.transport for r in subscribers}
    quality = {
        (r.subscriber.id, s.filter): s.qos for r in subscribers for s in r.subscriber.subscriptions
    }
    flows: dict[tuple[str, int], Flow] = {}
    ports = _Ports()
    for entry in planned.assignment or ():
        key = (entry.subscriber, entry.flow)
        if key not in flows:
            endpoints = FlowEndpoints(
                transport=transport[entry.subscriber],
                subscriber_address=address[entry.subscriber],
                subscriber_ports=ports.next_pair(address[entry.subscriber]),
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
        prediction=predict(planned).to_prediction(),
    )


class _Ports:
    """Two local ports for every flow, counted for each address."""

    def __init__(self) -> None:
        self._next: dict[IPv4Address, int] = {}

    def next_pair(self, address: IPv4Address) -> tuple[int, int]:
        first = self._next.get(address, FIRST_PORT)
        if first + 1 > LAST_PORT:
            raise PortsExhausted(str(address))
        self._next[address] = first + 2
        return first, first + 1


def switch_rules(scenario: Scenario, configuration: Configuration) -> list[SwitchRules]:
    """The desired state of every managed switch."""
    flows = [flow for flow in configuration.flows if flow.endpoints is not None]
    classes = sorted({flow.priority for flow in flows} | {0})
    offered = _packets_per_second(configuration)
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
    return [
        SwitchRules(
            switch=switch.id,
            configuration_version=configuration.version,
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
        for switch in scenario.network.switches
        if switch.managed
    ]


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
    return max(DSCP_OF_CLASS_0 - 2 * priority, 0)


def _packets_per_second(configuration: Configuration) -> dict[tuple[str, int], float]:
    offered: dict[tuple[str, int], float] = {}
    for row in configuration.prediction.subscriptions if configuration.prediction else ():
        key = (row.subscriber, row.flow)
        offered[key] = offered.get(key, 0.0) + row.offered_events_per_second
    return offered
