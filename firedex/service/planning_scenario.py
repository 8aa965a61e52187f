"""From the state to the scenario that is planned for. Pure.

The site's file gives network and policies. On top come: who has registered, the phase's profile,
budgets, measured rates, where hosts were seen, and how many classes the switches offer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from firedex.service.incident_profiles import under_profile
from firedex.service.offered_rates import OfferedRate, believed, spread
from firedex.service.site_state import SiteState
from firedex.service.utility_budgets import reserved_budgets, within_budget
from firedex.wire import Network, Publication, Publisher, Scenario, Subscriber, Topic
from firedex.wire.mqtt_names import has_wildcard
from firedex.wire.network_paths import path_problem
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES, STAMP_BYTES
from firedex.wire.values import Amount, value
from firedex.wire.workload import LARGEST_PAYLOAD_BYTES

__all__ = [
    "UNREGISTERED",
    "Basis",
    "declared_rates",
    "expected_rates",
    "in_phase",
    "payload_bytes",
    "planning_scenario",
    "present_network",
    "rate_basis",
    "stale",
]

UNREGISTERED = "unregistered.publishers"
"""Stands for whoever publishes what the gateway sees and nobody has declared."""
LARGEST_RATE_PER_SECOND = 1e12
"""More is somebody's joke, and more than a scenario takes."""
STALE_SECONDS = 600.0
"""A topic that the gateway no longer counts falls back to what is declared."""


@value
class BasisRate:
    """The rate that a plan counts with, how far it may be off, and the size (none: declared)."""

    rate_per_second: Amount
    spread: Amount = 0.0
    event_bytes: Amount | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """The rates that a plan was made with: of measured topics alone, the others are declared."""

    rates: Mapping[str, BasisRate]


def declared_rates(publishers: Iterable[Publisher]) -> dict[str, float]:
    """What publishers say, summed up for each topic."""
    rates: dict[str, float] = {}
    for publisher in publishers:
        for publication in publisher.publications:
            known = rates.get(publication.topic, 0.0)
            rates[publication.topic] = known + publication.rate_per_second
    return rates


def expected_rates(site: Scenario, state: SiteState) -> dict[str, float]:
    """What all publishers of the state declare, summed up for each topic."""
    registered = [registration.publisher for registration in state.publishers.values()]
    others = [publisher for publisher in site.publishers if publisher.id not in state.publishers]
    return declared_rates([*others, *registered])


def payload_bytes(measured: float) -> int:
    """A measured size as a topic can have it."""
    return min(round(measured), LARGEST_PAYLOAD_BYTES)


def stale(known: OfferedRate, now_seconds: float) -> bool:
    """Whether a topic has not been counted for so long that nobody knows its rate any more."""
    return known.at_seconds <= now_seconds - STALE_SECONDS


def rate_basis(site: Scenario, state: SiteState, now_seconds: float) -> Basis:
    """What a plan made now counts with: whatever is measured well, and not long ago."""
    expected = expected_rates(site, state)
    return Basis(
        {
            topic: BasisRate(
                rate_per_second=min(known.rate_per_second, LARGEST_RATE_PER_SECOND),
                spread=spread(known),
                event_bytes=known.event_bytes if known.events >= 1 else None,
            )
            for topic, known in state.measured.items()
            if believed(known, expected.get(topic, 0.0)) and not stale(known, now_seconds)
        }
    )


def present_network(site: Scenario, state: SiteState) -> Network:
    """The network given last, with no more classes than its switches offer."""
    network = state.network or site.network
    return replace(
        network,
        switches=tuple(
            replace(s, priorities=min(s.priorities, state.priorities.get(s.id, s.priorities)))
            for s in network.switches
        ),
    )


def in_phase(subscriber: Subscriber, state: SiteState) -> Subscriber:
    """The subscriber with the utilities that the incident's phase makes of its own."""
    if state.incident is None or state.incident.closed_at is not None:
        return subscriber
    profile = state.profiles.get(state.incident.phase)
    return subscriber if profile is None else under_profile(subscriber, profile)


def planning_scenario(site: Scenario, state: SiteState, basis: Basis) -> Scenario:
    """The scenario of the state, with the rates of ``basis`` in place of declared ones.

    Phases and timeline of the site's file are of emulated runs: who they name need not be here.
    """
    network = present_network(site, state)
    places = {switch.id for switch in network.switches}
    links = [(link.from_, link.to) for link in network.links]

    def reached(switch: str | None) -> bool:
        return switch is not None and path_problem(links, network.broker.switch, switch) is None

    subscribers = []
    for registration in state.subscribers.values():
        subscriber = within_budget(in_phase(registration.subscriber, state), state.budgets)
        seen = state.hosts.get(registration.address)
        if seen in places and seen != subscriber.switch and reached(seen):
            subscriber = replace(subscriber, switch=str(seen))
        subscribers.append(subscriber)
    registered = {name: r.publisher for name, r in state.publishers.items()}
    site_publishers = {p.id: p for p in site.publishers if p.id not in registered}
    publishers = [*site_publishers.values(), *registered.values()]
    topics = _topics(site, state, basis, subscribers)
    publishers = _with_rates(publishers, basis, _entry_switch(network))
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
    site: Scenario, state: SiteState, basis: Basis, subscribers: Iterable[Subscriber]
) -> tuple[Topic, ...]:
    topics = {topic.name: topic for topic in site.topics}
    for name, declared in state.topics.items():
        topics.setdefault(name, declared.topic)
    for name, rate in basis.rates.items():
        size = rate.event_bytes
        if name in topics and size is not None:
            topics[name] = replace(topics[name], event_bytes=payload_bytes(size))
        elif name not in topics:
            topics[name] = Topic(name=name, event_bytes=payload_bytes(size or 0))
    for subscriber in subscribers:
        for subscription in subscriber.subscriptions:
            # Subscribed to before anybody publishes it: nothing is offered yet.
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
    """What is larger is not sent over UDP; it must not keep everybody from having a plan."""
    parties: list[Subscriber | Publisher] = [*subscribers, *site.publishers]
    parties += [registration.publisher for registration in state.publishers.values()]
    if any((party.transport or site.transport) == "udp" for party in parties):
        return LARGEST_UDP_PAYLOAD_BYTES - STAMP_BYTES["udp"]
    return LARGEST_PAYLOAD_BYTES


def _with_rates(publishers: list[Publisher], basis: Basis, entry: str) -> list[Publisher]:
    """Each topic's measured rate, shared among its publishers as they declare theirs."""
    if not basis.rates:
        return publishers
    declared = declared_rates(publishers)
    made = []
    for publisher in publishers:
        publications = []
        for publication in publisher.publications:
            total = declared[publication.topic]
            rate = basis.rates.get(publication.topic)
            if rate is not None and total > 0:
                scaled = publication.rate_per_second / total * rate.rate_per_second
                publications.append(replace(publication, rate_per_second=scaled))
            else:
                publications.append(publication)
        made.append(replace(publisher, publications=tuple(publications)))
    stray = [
        Publication(topic=name, rate_per_second=rate.rate_per_second)
        for name, rate in basis.rates.items()
        if declared.get(name, 0.0) == 0
    ]
    if stray:
        taken = {publisher.id for publisher in publishers}
        name = next(name for name in _names_of_nobody() if name not in taken)
        made.append(Publisher(id=name, switch=entry, publications=tuple(stray)))
    return made


def _names_of_nobody() -> Iterator[str]:
    """A site's file, or an old state, may have somebody of the first name."""
    yield UNREGISTERED
    yield from (f"{UNREGISTERED}.{number}" for number in count(2))


def _entry_switch(network: Network) -> str:
    """Where events of nobody in particular are taken to come from."""
    outside = [switch.id for switch in network.switches if not switch.managed]
    return (outside or [network.broker.switch or network.switches[0].id])[0]
