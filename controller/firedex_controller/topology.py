"""Who is where: switches, the links between them, hosts; and the ways through. Pure values.

A link counts both ways as soon as one way was seen. Ways are the shortest, the same every time;
floods follow a spanning tree, so that loops in the cabling carry nothing around.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

__all__ = ["Host", "PortRef", "Topology"]


@dataclass(frozen=True, slots=True, order=True)
class PortRef:
    """One port of one switch."""

    switch: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host, and where it was last heard."""

    hardware_address: str
    address: IPv4Address | None = None
    place: PortRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A network at one moment. ``links`` leads from each end to the other."""

    switches: frozenset[str] = frozenset()
    links: Mapping[PortRef, PortRef] = field(default_factory=dict)
    edge_ports: frozenset[PortRef] = frozenset()
    hosts: Mapping[str, Host] = field(default_factory=dict)

    def neighbours(self, switch: str) -> list[tuple[str, int]]:
        """The switches next to this one, and by which port; in one order."""
        found = [(there.switch, here.number) for here, there in self.links.items()]
        ports = [here.switch == switch for here in self.links]
        return sorted(pair for pair, own in zip(found, ports, strict=True) if own)

    def first_hops(self, target: str) -> dict[str, int]:
        """For every switch that can reach ``target``: the port towards it."""
        adjacent = {switch: self.neighbours(switch) for switch in self.switches}
        distance = {target: 0}
        waiting = deque([target])
        while waiting:
            here = waiting.popleft()
            for there, _ in adjacent.get(here, ()):
                if there not in distance:
                    distance[there] = distance[here] + 1
                    waiting.append(there)
        return {
            switch: next(
                port
                for there, port in adjacent.get(switch, ())
                if distance.get(there, steps) == steps - 1
            )
            for switch, steps in distance.items()
            if steps
        }

    def tree_ports(self) -> frozenset[PortRef]:
        """Both ends of every link of a spanning tree of each part of the network."""
        chosen: set[PortRef] = set()
        reached: set[str] = set()
        for root in sorted(self.switches):
            if root in reached:
                continue
            reached.add(root)
            waiting = deque([root])
            while waiting:
                here = waiting.popleft()
                for there, port in self.neighbours(here):
                    if there not in reached:
                        reached.add(there)
                        waiting.append(there)
                        near = PortRef(here, port)
                        chosen |= {near, self.links[near]}
        return frozenset(chosen)
