"""The queues that packets cross, in the order in which they meet them.

Every port is a queue of its own: a switch's port towards its hosts has the switch's bandwidth, one
towards another switch the link's. Ways towards the broker and away from it do not share queues.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Publication, Publisher, Scenario, Switch
from firedex.wire.network_paths import switches_on_path

__all__ = ["Hop", "Route", "downlinks", "uplinks"]

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One outbound queue: a switch's port, and where it leads."""

    name: str
    switch: Switch
    bandwidth_bits_per_second: float


@dataclass(frozen=True, kw_only=True)
class Route:
    """Ways through the network, stage by stage.

    ``stage[row, depth]`` is the hop that row crosses at that depth, or −1. A hop stands at one
    depth only, and all that feeds it stands at lower ones.
    """

    hops: Sequence[Hop]
    stage: Integers


def downlinks(scenario: Scenario) -> Route:
    """The way from the broker to each subscriber."""
    return _route(scenario, [s.switch for s in scenario.subscribers], towards_broker=False)


def uplinks(scenario: Scenario) -> tuple[Route, Sequence[tuple[Publisher, Publication]]]:
    """The way of each publication to the broker, and the publications in that order."""
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
    ways: dict[str, list[int]] = {}
    end = "broker" if towards_broker else "hosts"
    depths: dict[int, int] = {}
    for switch in dict.fromkeys(switches):
        way = switches_on_path(links, network.broker.switch, switch)
        path = [*(reversed(way) if towards_broker else way), None]
        ways[switch] = []
        for depth, (here, there) in enumerate(pairwise(path)):
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
            ways[switch].append(rows[port])
            depths[rows[port]] = max(depths.get(rows[port], 0), depth)
    stage = np.full((len(switches), 1 + max(depths.values(), default=-1)), -1, dtype=np.int64)
    by_switch = {switch: [(hop, depths[hop]) for hop in way] for switch, way in ways.items()}
    for row, switch in enumerate(switches):
        for hop, depth in by_switch[switch]:
            stage[row, depth] = hop
    return Route(hops=hops, stage=stage)


def _link_bandwidths(scenario: Scenario) -> dict[tuple[str, str | None], float]:
    """Bandwidth of links that state one, either way round."""
    stated: dict[tuple[str, str | None], float] = {}
    for link in scenario.network.links:
        if link.bandwidth_bits_per_second is not None:
            stated[link.from_, link.to] = link.bandwidth_bits_per_second
            stated.setdefault((link.to, link.from_), link.bandwidth_bits_per_second)
    return stated
