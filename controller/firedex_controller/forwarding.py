"""From a topology to every switch's ORIGIN and FORWARD tables. Pure."""

from collections.abc import Mapping

from firedex_controller.classification import version_cookie
from firedex_controller.switch_entries import (
    CLASSIFY,
    FORWARD,
    ORIGIN,
    FlowEntry,
    Match,
    SwitchState,
    match_of,
)
from firedex_controller.topology import Topology

__all__ = ["LISTENING", "flooded_by", "flooded_ports", "forwarding"]

LLDP = 0x88CC
ARP = 0x0806
LLDP_PRIORITY, ASKING_PRIORITY, HOST_PRIORITY, LINK_PRIORITY = 300, 250, 200, 150
COOKIE = version_cookie(0)


def _origin(priority: int, match: Match, *, to_controller: bool, onward: bool) -> FlowEntry:
    return FlowEntry(
        table=ORIGIN,
        priority=priority,
        match=match,
        to_controller=to_controller,
        next_table=CLASSIFY if onward else None,
        cookie=COOKIE,
    )


LISTENING = SwitchState.of(
    [
        _origin(LLDP_PRIORITY, match_of(eth_type=LLDP), to_controller=True, onward=False),
        _origin(0, (), to_controller=True, onward=True),
    ]
)
"""What every switch has from the start: links and hosts make themselves known."""


def forwarding(topology: Topology, floods: Mapping[str, frozenset[int]]) -> dict[str, SwitchState]:
    """The tables of every switch; ``floods`` says where what is for nobody known goes out."""
    first_hops = {switch: topology.first_hops(switch) for switch in topology.switches}
    states = {}
    for switch in topology.switches:
        entries = []
        for host in topology.hosts.values():
            here = host.place.switch == switch
            port = host.place.number if here else first_hops.get(host.place.switch, {}).get(switch)
            if port is None:  # out of reach: flooding would load everybody else's links
                entries.append(_towards(host.hardware_address))
                continue
            entries.append(_towards(host.hardware_address, port))
            if here:
                match = match_of(in_port=port, eth_src=host.hardware_address)
                entries.append(_origin(HOST_PRIORITY, match, to_controller=False, onward=True))
            if here and host.address is None:
                match = match_of(in_port=port, eth_src=host.hardware_address, eth_type=ARP)
                entries.append(_origin(ASKING_PRIORITY, match, to_controller=True, onward=True))
        for end in topology.links:
            if end.switch == switch:
                match = match_of(in_port=end.number)
                entries.append(_origin(LINK_PRIORITY, match, to_controller=False, onward=True))
        entries.append(
            FlowEntry(
                table=FORWARD,
                priority=0,
                match=(),
                outputs=tuple(sorted(floods.get(switch, ()))),
                cookie=COOKIE,
            )
        )
        states[switch] = LISTENING.with_state(SwitchState.of(entries))
    return states


def flooded_ports(topology: Topology) -> dict[str, frozenset[int]]:
    """Where each switch floods: to hosts, and along the tree."""
    ports: dict[str, set[int]] = {switch: set() for switch in topology.switches}
    for place in topology.edge_ports | topology.tree_ports():
        ports[place.switch].add(place.number)
    return {switch: frozenset(numbers) for switch, numbers in ports.items()}


def flooded_by(state: SwitchState) -> frozenset[int]:
    """Where a switch with these tables floods."""
    everything = state.flows.get((FORWARD, 0, ()))
    return frozenset(everything.outputs) if everything is not None else frozenset()


def _towards(hardware_address: str, *ports: int) -> FlowEntry:
    return FlowEntry(
        table=FORWARD,
        priority=HOST_PRIORITY,
        match=match_of(eth_dst=hardware_address),
        outputs=ports,
        cookie=COOKIE,
    )
