"""Switches, links and hosts, and the forwarding entries that follow from them. Pure values.

A link counts in both directions as soon as it was seen in one. Routes are the shortest, and the
same for the same topology; floods follow a spanning tree, so that loops in the cabling cause no
broadcast storm.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from firedex_controller.rules import ARP, version_cookie
from firedex_controller.switch_state import (
    CLASSIFY,
    FORWARD,
    ORIGIN,
    FlowEntry,
    FlowKey,
    Match,
    SwitchState,
    make_match,
)

__all__ = [
    "BASE_FORWARDING",
    "FLOOD_KEY",
    "Host",
    "PortRef",
    "Topology",
    "flood_ports",
    "forwarding",
    "installed_flood_ports",
]

LLDP = 0x88CC
LLDP_PRIORITY, ADDRESS_PRIORITY, HOST_PRIORITY, LINK_PRIORITY = 300, 250, 200, 150
COOKIE = version_cookie(0)
FLOOD_KEY: FlowKey = (FORWARD, 0, ())
"""The key of the entry that floods frames to unknown hosts."""


@dataclass(frozen=True, slots=True, order=True)
class PortRef:
    """One port of one switch."""

    switch: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host, and the port where its frames were last seen."""

    hardware_address: str
    address: IPv4Address | None = None
    port: PortRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A network at one moment. ``links`` maps each end of a link to the other.

    ``cut_links`` are links that went down; nothing else has been seen at their ends since.
    """

    switches: frozenset[str] = frozenset()
    links: Mapping[PortRef, PortRef] = field(default_factory=dict)
    cut_links: frozenset[frozenset[PortRef]] = frozenset()
    edge_ports: frozenset[PortRef] = frozenset()
    hosts: Mapping[str, Host] = field(default_factory=dict)

    def neighbours(self, switch: str) -> list[tuple[str, int]]:
        """Return each neighbour of a switch with the port towards it, sorted."""
        return sorted(
            (far.switch, near.number) for near, far in self.links.items() if near.switch == switch
        )

    def ports_towards(self, switch: str, neighbour: str) -> list[int]:
        """Return the ports of a switch towards a neighbour, including those of cut links."""
        ends = list(self.links.items())
        for link in self.cut_links:
            one, other = link
            ends += [(one, other), (other, one)]
        return sorted(
            near.number for near, far in ends if near.switch == switch and far.switch == neighbour
        )

    def first_hops(self, target: str) -> dict[str, int]:
        """Return the port towards ``target`` of every switch that can reach it."""
        adjacent = {switch: self.neighbours(switch) for switch in self.switches}
        distance = {target: 0}
        waiting = deque([target])
        while waiting:
            near = waiting.popleft()
            for far, _ in adjacent.get(near, ()):
                if far not in distance:
                    distance[far] = distance[near] + 1
                    waiting.append(far)
        return {
            switch: next(
                port
                for far, port in adjacent.get(switch, ())
                if distance.get(far, steps) == steps - 1
            )
            for switch, steps in distance.items()
            if steps
        }

    def tree_ports(self) -> frozenset[PortRef]:
        """Return both ends of every link of a spanning tree of each part of the network."""
        tree_ports: set[PortRef] = set()
        reached: set[str] = set()
        for root in sorted(self.switches):
            if root in reached:
                continue
            reached.add(root)
            waiting = deque([root])
            while waiting:
                near_switch = waiting.popleft()
                for far_switch, port in self.neighbours(near_switch):
                    if far_switch not in reached:
                        reached.add(far_switch)
                        waiting.append(far_switch)
                        near = PortRef(near_switch, port)
                        tree_ports |= {near, self.links[near]}
        return frozenset(tree_ports)


# -- forwarding entries ----------------------------------------------------------------------------


def _origin_entry(
    priority: int, match: Match, *, to_controller: bool, classify: bool = True
) -> FlowEntry:
    return FlowEntry(
        table=ORIGIN,
        priority=priority,
        match=match,
        to_controller=to_controller,
        next_table=CLASSIFY if classify else None,
        cookie=COOKIE,
    )


BASE_FORWARDING = SwitchState.of(
    [
        _origin_entry(LLDP_PRIORITY, make_match(eth_type=LLDP), to_controller=True, classify=False),
        _origin_entry(0, (), to_controller=True),
    ]
)
"""The entries of every switch from the start: LLDP and frames of unknown hosts are reported."""


def forwarding(topology: Topology, floods: Mapping[str, frozenset[int]]) -> dict[str, SwitchState]:
    """Return the ORIGIN and FORWARD tables of every switch.

    Frames to unknown hosts leave a switch by its ports in ``floods``.
    """
    first_hops = {switch: topology.first_hops(switch) for switch in topology.switches}
    states = {}
    for switch in topology.switches:
        entries = []
        for host in topology.hosts.values():
            local = host.port.switch == switch
            port = host.port.number if local else first_hops.get(host.port.switch, {}).get(switch)
            if port is None:  # unreachable: flooding would only load the other links
                entries.append(_forward_entry(host.hardware_address))
                continue
            entries.append(_forward_entry(host.hardware_address, port))
            if local:
                match = make_match(in_port=port, eth_src=host.hardware_address)
                entries.append(_origin_entry(HOST_PRIORITY, match, to_controller=False))
            if local and host.address is None:
                match = make_match(in_port=port, eth_src=host.hardware_address, eth_type=ARP)
                entries.append(_origin_entry(ADDRESS_PRIORITY, match, to_controller=True))
        for end in topology.links:
            if end.switch == switch:
                match = make_match(in_port=end.number)
                entries.append(_origin_entry(LINK_PRIORITY, match, to_controller=False))
        entries.append(
            FlowEntry(
                table=FORWARD,
                priority=0,
                match=(),
                outputs=tuple(sorted(floods.get(switch, ()))),
                cookie=COOKIE,
            )
        )
        states[switch] = BASE_FORWARDING.with_state(SwitchState.of(entries))
    return states


def flood_ports(topology: Topology) -> dict[str, frozenset[int]]:
    """Return the ports of each switch that floods use: those to hosts, and the spanning tree."""
    ports: dict[str, set[int]] = {switch: set() for switch in topology.switches}
    for port in topology.edge_ports | topology.tree_ports():
        ports[port.switch].add(port.number)
    return {switch: frozenset(numbers) for switch, numbers in ports.items()}


def installed_flood_ports(state: SwitchState) -> frozenset[int]:
    """Return the ports that a switch with these tables floods to."""
    flood = state.flows.get(FLOOD_KEY)
    return frozenset(flood.outputs) if flood is not None else frozenset()


def _forward_entry(hardware_address: str, *ports: int) -> FlowEntry:
    return FlowEntry(
        table=FORWARD,
        priority=HOST_PRIORITY,
        match=make_match(eth_dst=hardware_address),
        outputs=ports,
        cookie=COOKIE,
    )
