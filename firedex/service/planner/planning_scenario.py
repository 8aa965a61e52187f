"""From the state to the scenario that is planned. Pure.

The scenario file of the site defines the network and the policies. The state adds registrations,
the profile of the phase, budgets, measured rates, the switches of hosts, and the number of classes
that the switches support.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from firedex.service.planner.planned_rates import declared_rates
from firedex.service.planner.utility_policy import (
    ClaimingSubscriber,
    apply_budgets,
    claim,
    granted_shares,
    phase_subscriber,
    reserved_budgets,
)
from firedex.service.state.offered_rates import RateSnapshot
from firedex.service.state.site_state import UNREGISTERED, SiteState
from firedex.wire import Network, Publication, Publisher, Scenario, Subscriber, Topic
from firedex.wire.incident import UtilityClaim
from firedex.wire.mqtt_names import has_wildcard
from firedex.wire.network import missing_path_reason
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES, STAMP_BYTES
from firedex.wire.workload import LARGEST_PAYLOAD_BYTES

__all__ = [
    "payload_bytes",
    "phase_claims",
    "planning_scenario",
    "present_network",
]


def payload_bytes(measured: float) -> int:
    """Return a measured size as a valid size of a topic."""
    return min(round(measured), LARGEST_PAYLOAD_BYTES)


def present_network(site: Scenario, state: SiteState) -> Network:
    """Return the latest network, with at most the classes that its switches support."""
    network = state.network or site.network
    return replace(
        network,
        switches=tuple(
            replace(s, priorities=min(s.priorities, state.priorities.get(s.id, s.priorities)))
            for s in network.switches
        ),
    )


def _phase_subscribers(state: SiteState) -> list[ClaimingSubscriber]:
    """Return all subscribers with the utilities of the incident's present phase."""
    profile = None
    if state.incident is not None and state.incident.closed_at is None:
        profile = state.profiles.get(state.incident.phase)
    return [
        phase_subscriber(registration.subscriber, state.owner_of_subscriber(name), profile)
        for name, registration in state.subscribers.items()
    ]


def phase_claims(state: SiteState) -> tuple[UtilityClaim, ...]:
    """Return what each subscriber claims in the present phase, and the share granted to it."""
    subscribers = _phase_subscribers(state)
    shares = granted_shares(subscribers, state.budgets)
    return tuple(
        UtilityClaim(
            subscriber=each.subscriber.id,
            owner=each.owner,
            asked=claim(each.subscriber),
            granted_share=share,
        )
        for each, share in zip(subscribers, shares, strict=True)
    )


def planning_scenario(site: Scenario, state: SiteState, snapshot: RateSnapshot) -> Scenario:
    """Return the scenario of the state, with measured rates in place of declared ones.

    Phases and timeline of the scenario file belong to emulated runs and are removed.
    """
    network = present_network(site, state)
    switches = {switch.id for switch in network.switches}
    links = [(link.from_, link.to) for link in network.links]

    def is_reachable(switch: str | None) -> bool:
        return (
            switch is not None and missing_path_reason(links, network.broker.switch, switch) is None
        )

    subscribers = []
    scaled = apply_budgets(_phase_subscribers(state), state.budgets)
    for registration, subscriber in zip(state.subscribers.values(), scaled, strict=True):
        seen = state.hosts.get(registration.address)
        if seen in switches and seen != subscriber.switch and is_reachable(seen):
            subscribers.append(replace(subscriber, switch=str(seen)))
        else:
            subscribers.append(subscriber)
    registered = {name: r.publisher for name, r in state.publishers.items()}
    site_publishers = {p.id: p for p in site.publishers if p.id not in registered}
    publishers = [*site_publishers.values(), *registered.values()]
    topics = _topics(site, state, snapshot, subscribers)
    publishers = _with_rates(publishers, snapshot, _entry_switch(network))
    budgets = reserved_budgets(state.budgets, (s.role for s in subscribers))
    planning = replace(site.planning, reserved_budgets=budgets or site.planning.reserved_budgets)
    return replace(
        site,
        topics=topics,
        publishers=tuple(publishers),
        subscribers=tuple(subscribers),
        network=network,
        planning=planning,
        assignment=None,
        phases=(),
        timeline=(),
    )


def _topics(
    site: Scenario, state: SiteState, snapshot: RateSnapshot, subscribers: Iterable[Subscriber]
) -> tuple[Topic, ...]:
    topics = {topic.name: topic for topic in site.topics}
    for name, declared in state.topics.items():
        topics.setdefault(name, declared.topic)
    for name, rate in snapshot.rates.items():
        size = rate.event_bytes
        if name in topics and size is not None:
            topics[name] = replace(topics[name], event_bytes=payload_bytes(size))
        elif name not in topics:
            topics[name] = Topic(name=name, event_bytes=payload_bytes(size or 0))
    for subscriber in subscribers:
        for subscription in subscriber.subscriptions:
            # Subscribed to before anyone publishes it: its rate is zero.
            if subscription.filter not in topics and not has_wildcard(subscription.filter):
                topics[subscription.filter] = Topic(name=subscription.filter, event_bytes=0)
    largest = _largest_event_bytes(site, state, subscribers)
    return tuple(
        replace(topic, event_bytes=largest) if topic.event_bytes > largest else topic
        for topic in topics.values()
    )


def _largest_event_bytes(
    site: Scenario, state: SiteState, subscribers: Iterable[Subscriber]
) -> int:
    """Return the largest event that can be sent; a larger one must not prevent all planning."""
    clients: list[Subscriber | Publisher] = [*subscribers, *site.publishers]
    clients += [registration.publisher for registration in state.publishers.values()]
    if any((client.transport or site.transport) == "udp" for client in clients):
        return MAX_UDP_PAYLOAD_BYTES - STAMP_BYTES["udp"]
    return LARGEST_PAYLOAD_BYTES


def _with_rates(publishers: list[Publisher], snapshot: RateSnapshot, entry: str) -> list[Publisher]:
    """Distribute each measured rate among the publishers in proportion to their declared rates."""
    if not snapshot.rates:
        return publishers
    declared = declared_rates(publishers)
    scaled_publishers = []
    for publisher in publishers:
        publications = []
        for publication in publisher.publications:
            total = declared[publication.topic]
            rate = snapshot.rates.get(publication.topic)
            if rate is not None and total > 0:
                scaled = publication.rate_per_second / total * rate.rate_per_second
                publications.append(replace(publication, rate_per_second=scaled))
            else:
                publications.append(publication)
        scaled_publishers.append(replace(publisher, publications=tuple(publications)))
    undeclared = [
        Publication(topic=name, rate_per_second=rate.rate_per_second)
        for name, rate in snapshot.rates.items()
        if declared.get(name, 0.0) == 0
    ]
    if undeclared:
        used_ids = {publisher.id for publisher in publishers}
        name = next(name for name in _artificial_names() if name not in used_ids)
        scaled_publishers.append(Publisher(id=name, switch=entry, publications=tuple(undeclared)))
    return scaled_publishers


def _artificial_names() -> Iterator[str]:
    """Yield names for the artificial publisher; the scenario file may use the first one."""
    yield UNREGISTERED
    yield from (f"{UNREGISTERED}.{number}" for number in count(2))


def _entry_switch(network: Network) -> str:
    """Return the switch at which events of unregistered publishers enter the network."""
    outside = [switch.id for switch in network.switches if not switch.managed]
    return (outside or [network.broker.switch or network.switches[0].id])[0]
