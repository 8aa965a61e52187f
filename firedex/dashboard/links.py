"""Links: planned and measured load of each class, problems, and links that are down. Pure.

A link with reduced bandwidth is on many paths, and late subscriptions on them can have other
causes. It is given as the cause only if the plan with that link predicts the lateness, if it is
overloaded, or if lower classes on it are as slow. Otherwise the alert says "meanwhile".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from firedex.dashboard.flow_measurements import FlowForecast, FlowKey, FlowMeasurement
from firedex.dashboard.wording import loss_text, share_text
from firedex.wire import (
    Network,
    NetworkStatistics,
    NetworkTopology,
    Scenario,
    SubscriptionPrediction,
)
from firedex.wire.network import port_bandwidths, switches_on_path
from firedex.wire.overview import ClassShare, LateSubscription, LinkStatus
from firedex.wire.packet_sizes import wire_bytes
from firedex_models.topic_index import TopicIndex

__all__ = [
    "MEANWHILE",
    "LinkTrouble",
    "MissingLink",
    "MissingLinks",
    "Port",
    "Shares",
    "add_reasons",
    "link_rows",
    "link_trouble",
    "lowest_percentiles",
    "missing_links",
    "planned_shares",
    "ports_on_paths",
    "published_rates",
]

Port = tuple[str, str | None]
"""A switch and the next switch; None for the port to its hosts."""
Shares = dict[Port, dict[int, float]]


def ports_on_paths(scenario: Scenario) -> dict[str, tuple[Port, ...]]:
    """Return the outbound ports between the broker and each subscriber."""
    network = scenario.network
    links = [(link.from_, link.to) for link in network.links]
    paths = {
        switch.id: tuple(
            (here, there)
            for here, there in pairwise(
                [*switches_on_path(links, network.broker.switch, switch.id), None]
            )
            if here is not None
        )
        for switch in network.switches
    }
    return {subscriber.id: paths[subscriber.switch] for subscriber in scenario.subscribers}


def published_rates(scenario: Scenario) -> dict[str, float]:
    """Return the rate of each topic, summed over its publishers."""
    rates: dict[str, float] = {}
    for publisher in scenario.publishers:
        for publication in publisher.publications:
            known = rates.get(publication.topic, 0.0)
            rates[publication.topic] = known + publication.rate_per_second
    return rates


def planned_shares(scenario: Scenario, rows: Iterable[SubscriptionPrediction]) -> Shares:
    """Return bits per second of each class on each port, after the planned drops."""
    index = TopicIndex([topic.name for topic in scenario.topics])
    rates = published_rates(scenario)
    paths = ports_on_paths(scenario)
    transports = {s.id: s.transport or scenario.transport for s in scenario.subscribers}
    bits: dict[tuple[str, str], float] = {}
    shares: Shares = {}
    for row in rows:
        if row.subscriber not in paths:
            continue
        transport = transports[row.subscriber]
        key = (transport, row.filter)
        if key not in bits:
            matched = [scenario.topics[n] for n in index.matching(row.filter)]
            bits[key] = sum(
                8.0
                * rates.get(topic.name, 0.0)
                * wire_bytes(
                    payload_bytes=topic.event_bytes,
                    transport=transport,
                    topic=topic.name,
                    stamped=scenario.stamped_events if topic.stamped is None else topic.stamped,
                )
                for topic in matched
            )
        for port in paths[row.subscriber]:
            classes = shares.setdefault(port, {})
            admitted = bits[key] * (1 - row.drop_rate)
            classes[row.priority] = classes.get(row.priority, 0.0) + admitted
    return shares


def _counted_shares(
    network: Network, topology: NetworkTopology, statistics: NetworkStatistics
) -> Shares:
    """Return measured bits per second; a port with an unknown neighbour is left out.

    A port that is not part of a link leads to hosts. If a link of the switch is missing, this holds
    only for ports where the controller has seen a host.
    """
    towards = {(link.to, link.to_port): link.from_ for link in topology.links}
    towards |= {(link.from_, link.from_port): link.to for link in topology.links}
    hosts = {(host.switch, host.port) for host in topology.hosts}
    there = {switch.switch for switch in topology.switches}
    seen = {(here, end) for (here, _), end in towards.items()}
    unsure = {
        here
        for here, end in port_bandwidths(network)
        if end is not None and end in there and (here, end) not in seen
    }
    shares: Shares = {}
    for switch in statistics.switches:
        for queue in switch.queues:
            port = (switch.switch, queue.port)
            if port not in towards and port not in hosts and switch.switch in unsure:
                continue
            classes = shares.setdefault((switch.switch, towards.get(port)), {})
            classes[queue.priority] = classes.get(queue.priority, 0.0) + queue.bits_per_second
    return shares


def link_rows(
    network: Network,
    built: Network,
    planned: Shares,
    *,
    reduced_since: Mapping[Port, datetime],
    topology: NetworkTopology | None = None,
    statistics: NetworkStatistics | None = None,
) -> tuple[LinkStatus, ...]:
    """Return ports that carry traffic, and ports to hosts with reduced bandwidth, by load.

    ``built``: the network as the site was built. ``reduced_since``: since when the
    bandwidth of each port has been reduced.
    """
    bandwidths, full = port_bandwidths(network), port_bandwidths(built)
    counted = _counted_shares(network, topology, statistics) if topology and statistics else {}
    rows = []
    for port, bandwidth in bandwidths.items():
        carried, seen = planned.get(port, {}), counted.get(port)
        whole = full.get(port, bandwidth)
        switch, there = port
        if not carried and not seen and (there is not None or bandwidth >= whole):
            continue
        rows.append(
            LinkStatus(
                switch=switch,
                towards=there,
                bandwidth_bits_per_second=bandwidth,
                full_bandwidth_bits_per_second=whole,
                reduced_since=reduced_since.get(port) if bandwidth < whole else None,
                classes=tuple(
                    ClassShare(
                        priority=priority,
                        planned_bits_per_second=carried.get(priority, 0.0),
                        bits_per_second=seen.get(priority, 0.0) if seen is not None else None,
                    )
                    for priority in sorted({*carried, *(seen or {})})
                ),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.planned_load))


FULL = 1.0
LEAST_LOSS = 0.05
"""The smallest loss of bandwidth that is reported, as a share of the bandwidth."""
MEANWHILE = "meanwhile "
LowestPercentiles = Mapping[Port, Mapping[int, float]]
"""The lowest measured 95th percentile of each class of a port."""
UNKNOWN: LowestPercentiles = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTrouble:
    """A problem of a link, and since when, if that is known."""

    text: str
    since: datetime | None = None
    overloaded: bool = False


def link_trouble(link: LinkStatus) -> LinkTrouble | None:
    """Return the problem of a link, if any."""
    lost = 1 - link.bandwidth_bits_per_second / link.full_bandwidth_bits_per_second
    overloaded = link.planned_load > FULL
    if lost >= LEAST_LOSS:
        return LinkTrouble(
            text=f"link {link.name} has lost {loss_text(lost)} its bandwidth",
            since=link.reduced_since,
            overloaded=overloaded,
        )
    if overloaded:
        needed = share_text(link.planned_load)
        return LinkTrouble(
            text=f"link {link.name} is overloaded: {needed} of its bandwidth is planned",
            overloaded=True,
        )
    return None


def lowest_percentiles(
    ports: Iterable[Port],
    paths: Mapping[str, tuple[Port, ...]],
    flows: Mapping[FlowKey, FlowForecast],
    measured: Mapping[FlowKey, FlowMeasurement],
) -> LowestPercentiles:
    """Return the lowest 95th percentile of each class on each of these ports."""
    found: dict[Port, dict[int, float]] = {port: {} for port in ports}
    for key, flow in measured.items():
        p95 = flow.delay_p95_seconds
        if p95 is None or key not in flows:
            continue
        for port in paths.get(key[0], ()):
            if port in found:
                priority = flows[key].priority
                found[port][priority] = min(found[port].get(priority, p95), p95)
    return found


def add_reasons(
    late: Iterable[LateSubscription],
    paths: Mapping[str, tuple[Port, ...]],
    troubles: Mapping[Port, LinkTrouble],
    slowness: LowestPercentiles = UNKNOWN,
) -> list[LateSubscription]:
    """Add to late subscriptions the link problem on their path that explains them.

    A reason that is known already is kept.
    """
    explained = []
    for one in late:
        found = [
            (port, troubles[port]) for port in paths.get(one.subscriber, ()) if port in troubles
        ]
        if one.reason is None and found:
            reasons = [why for port, why in found if _explains(why, one, slowness.get(port, {}))]
            why = (reasons or [found[0][1]])[0]
            text = why.text if reasons else f"{MEANWHILE}{why.text}"
            one = replace(one, reason=text, reason_since=why.since)
        explained.append(one)
    return explained


def _explains(why: LinkTrouble, one: LateSubscription, slowness: Mapping[int, float]) -> bool:
    predicted = one.predicted_delay_seconds
    if why.overloaded or one.predicted or predicted is None or predicted > one.deadline_seconds:
        return True
    lower = [p95 for priority, p95 in slowness.items() if priority > one.priority]
    own = one.delay_p95_seconds
    return own is not None and bool(lower) and min(lower) >= own


Link = tuple[str, str]
REMOVED_LINK_SECONDS = 5.0
UNDISCOVERED_LINK_SECONDS = 30.0
"""Longer than for removed links, because a controller needs time to discover all links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLink:
    """A link that the controller does not see. ``since``: when it was first missing."""

    name: str
    since: datetime


def missing_links(network: Network, topology: NetworkTopology) -> list[Link]:
    """Return the links of the network that the controller does not see in any direction."""
    connected = {each.switch for each in topology.switches if each.connected}
    seen = {frozenset((link.from_, link.to)) for link in topology.links}
    return [
        (link.from_, link.to)
        for link in network.links
        if {link.from_, link.to} <= connected and frozenset((link.from_, link.to)) not in seen
    ]


class MissingLinks:
    """Remembers since when links have been missing; not thread-safe.

    A controller that never reported a link does not discover links.
    """

    def __init__(self) -> None:
        self._since: dict[Link, float] = {}
        self._ever: set[frozenset[str]] = set()

    def update(
        self, network: Network, topology: NetworkTopology | None, now_seconds: float
    ) -> tuple[MissingLink, ...]:
        """Return links that have been missing for a while."""
        if topology is None:
            return ()
        self._ever |= {frozenset((link.from_, link.to)) for link in topology.links}
        missing = missing_links(network, topology) if self._ever else []
        self._since = {link: self._since.get(link, now_seconds) for link in missing}
        return tuple(
            MissingLink(name=f"{here} to {there}", since=datetime.fromtimestamp(since, UTC))
            for (here, there), since in self._since.items()
            if now_seconds - since >= self._longest_seconds((here, there))
        )

    def _longest_seconds(self, link: Link) -> float:
        return REMOVED_LINK_SECONDS if frozenset(link) in self._ever else UNDISCOVERED_LINK_SECONDS
