"""The bandwidth of every outbound port, and how classes share it: as planned, as counted. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise

from firedex.wire import (
    Network,
    NetworkStatistics,
    NetworkTopology,
    Scenario,
    SubscriptionPrediction,
)
from firedex.wire.network_paths import port_bandwidths, switches_on_path
from firedex.wire.overview import ClassShare, LinkNow
from firedex.wire.packet_sizes import wire_bytes
from firedex_models.topic_index import TopicIndex

__all__ = ["Port", "Shares", "link_rows", "planned_shares", "ports_on_way", "published_rates"]

Port = tuple[str, str | None]
"""A switch, and the switch that the port leads to (none: its hosts)."""
Shares = dict[Port, dict[int, float]]


def ports_on_way(scenario: Scenario) -> dict[str, tuple[Port, ...]]:
    """The outbound ports between the broker and each subscriber."""
    network = scenario.network
    links = [(link.from_, link.to) for link in network.links]
    ways = {
        switch.id: tuple(
            (here, there)
            for here, there in pairwise(
                [*switches_on_path(links, network.broker.switch, switch.id), None]
            )
            if here is not None
        )
        for switch in network.switches
    }
    return {subscriber.id: ways[subscriber.switch] for subscriber in scenario.subscribers}


def published_rates(scenario: Scenario) -> dict[str, float]:
    """Events a second of each topic, of all its publishers."""
    rates: dict[str, float] = {}
    for publisher in scenario.publishers:
        for publication in publisher.publications:
            known = rates.get(publication.topic, 0.0)
            rates[publication.topic] = known + publication.rate_per_second
    return rates


def planned_shares(scenario: Scenario, rows: Iterable[SubscriptionPrediction]) -> Shares:
    """Bits a second of each class on each port, after the planned drops."""
    index = TopicIndex([topic.name for topic in scenario.topics])
    rates = published_rates(scenario)
    ways = ports_on_way(scenario)
    transports = {s.id: s.transport or scenario.transport for s in scenario.subscribers}
    bits: dict[tuple[str, str], float] = {}
    shares: Shares = {}
    for row in rows:
        if row.subscriber not in ways:
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
        for port in ways[row.subscriber]:
            classes = shares.setdefault(port, {})
            admitted = bits[key] * (1 - row.drop_rate)
            classes[row.priority] = classes.get(row.priority, 0.0) + admitted
    return shares


def _counted_shares(
    network: Network, topology: NetworkTopology, statistics: NetworkStatistics
) -> Shares:
    """A port that leads nobody knows where is left out, lest it is taken for the hosts'.

    What is no link is a host's, unless a link of the switch is missing: then where one was heard.
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
) -> tuple[LinkNow, ...]:
    """Every port that carries anything, or to hosts that has lost bandwidth, the fullest first.

    ``built``: the network as the site was built. ``reduced_since``: when each port's bandwidth
    was last said to be less.
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
            LinkNow(
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
