"""From registrations to a configuration. Pure."""

from collections.abc import Sequence
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
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    Topic,
    from_plain,
    to_plain,
)

__all__ = ["Gateway", "make_configuration", "site_scenario"]

FIRST_PORT, LAST_PORT = 20_000, 32_767
"""Below what Linux hands out by itself."""


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
