"""The outbound queues on the paths to and from the broker, in path order.

Every port has its own queue: a port to hosts has the bandwidth of its switch, a port to
another switch that of the link. Paths to the broker and from the broker do not share queues.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from firedex.wire import Publication, Publisher, Scenario, Switch
from firedex.wire.network import switches_on_path
from firedex_models.columns import Integers

__all__ = ["Hop", "Route", "downlinks", "uplinks"]


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One outbound queue: a switch's port, and where it leads."""

    name: str
    switch: Switch
    bandwidth_bits_per_second: float


@dataclass(frozen=True, kw_only=True)
class Route:
    """Paths through the network, stage by stage.

    ``stage[row, depth]`` is the hop of that row at that depth, or −1. Every hop has one depth only,
    and the hops before it have lower depths.
    """

    hops: Sequence[Hop]
    stage: Integers


def downlinks(scenario: Scenario) -> Route:
    """Return the path from the broker to each subscriber."""
    return _route(scenario, [s.switch for s in scenario.subscribers], towards_broker=False)


def uplinks(scenario: Scenario) -> tuple[Route, Sequence[tuple[Publisher, Publication]]]:
    """Return the path of each publication to the broker, and the publications in that order."""
    published = [(p, publication) for p in scenario.publishers for publication in p.publications]
    switches = [publisher.switch for publisher, _ in published]
    return _route(scenario, switches, towards_broker=True), published


def _route(scenario: Scenario, switches: Sequence[str], *, towards_broker: bool) -> Route:
    network = scenario.network
    links = [(link.from_, link.to) for link in network.links]
    known = {switch.id: switch for switch in network.switches}
    bandwidth = _link_bandwidths(scenario)
    rows: dict[tuple[str, str | None], int] = {}
    hops: list[Hop] = []
    paths: dict[str, list[int]] = {}
    end = "broker" if towards_broker else "hosts"
    depths: dict[int, int] = {}
    for switch in dict.fromkeys(switches):
        switch_path = switches_on_path(links, network.broker.switch, switch)
        port_ends = [*(reversed(switch_path) if towards_broker else switch_path), None]
        paths[switch] = []
        for depth, (here, there) in enumerate(pairwise(port_ends)):
            if here is None:
                continue
            port = (here, there)
            if port not in rows:
                rows[port] = len(hops)
                hops.append(
                    Hop(
                        name=f"{here}->{there}" if there else f"{here} to {end}",
                        switch=known[here],
                        bandwidth_bits_per_second=bandwidth.get(
                            port, known[here].bandwidth_bits_per_second
                        ),
                    )
                )
            paths[switch].append(rows[port])
            depths[rows[port]] = max(depths.get(rows[port], 0), depth)
    stage = np.full((len(switches), 1 + max(depths.values(), default=-1)), -1, dtype=np.int64)
    by_switch = {switch: [(hop, depths[hop]) for hop in path] for switch, path in paths.items()}
    for row, switch in enumerate(switches):
        for hop, depth in by_switch[switch]:
            stage[row, depth] = hop
    return Route(hops=hops, stage=stage)


def _link_bandwidths(scenario: Scenario) -> dict[tuple[str, str | None], float]:
    """Return the bandwidths of links that have one, in both directions."""
    bandwidths: dict[tuple[str, str | None], float] = {}
    for link in scenario.network.links:
        if link.bandwidth_bits_per_second is not None:
            bandwidths[link.from_, link.to] = link.bandwidth_bits_per_second
            bandwidths.setdefault((link.to, link.from_), link.bandwidth_bits_per_second)
    return bandwidths
