"""Shortest routes, floods without loops, and their forwarding entries."""

from collections import deque
from itertools import combinations
from string import ascii_lowercase

from hypothesis import given
from hypothesis import strategies as st

from firedex_controller.switch_state import FORWARD, FlowEntry, SwitchState, make_match
from firedex_controller.topology import (
    Host,
    PortRef,
    Topology,
    flood_ports,
    forwarding,
    installed_flood_ports,
)

HOST_PORT = 100


def make_topology(pairs: list[tuple[str, str]], names: set[str]) -> Topology:
    """Return switches with one host each at port 100; a link uses the next free ports."""
    used = dict.fromkeys(names, 0)
    links: dict[PortRef, PortRef] = {}
    for one, other in pairs:
        used[one] += 1
        used[other] += 1
        near, far = PortRef(one, used[one]), PortRef(other, used[other])
        links |= {near: far, far: near}
    return Topology(
        switches=frozenset(names),
        links=links,
        edge_ports=frozenset(PortRef(name, HOST_PORT) for name in names),
        hosts={
            mac(name): Host(hardware_address=mac(name), port=PortRef(name, HOST_PORT))
            for name in names
        },
    )


def mac(switch: str) -> str:
    return f"00:00:00:00:00:{ascii_lowercase.index(switch):02x}"


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    names = ascii_lowercase[: draw(st.integers(1, 7))]
    possible = [*combinations(names, 2)] * 2
    pairs = draw(st.lists(st.sampled_from(possible), max_size=12)) if possible else []
    return make_topology(pairs, set(names))


def reachable_switches(topology: Topology, start: str) -> set[str]:
    visited, waiting = {start}, deque([start])
    while waiting:
        for neighbour, _ in topology.neighbours(waiting.popleft()):
            if neighbour not in visited:
                visited.add(neighbour)
                waiting.append(neighbour)
    return visited


def count_hops(topology: Topology, start: str, target: str) -> int:
    """Follow first hops and return their number; fail if there is a loop."""
    hops = topology.first_hops(target)
    current, hop_count = start, 0
    while current != target:
        current = topology.links[PortRef(current, hops[current])].switch
        hop_count += 1
        assert hop_count <= len(topology.switches), "the route has a loop"
    return hop_count


@given(topologies())
def test_routes_have_the_fewest_links(topology: Topology) -> None:
    for start in topology.switches:
        distance = {start: 0}
        waiting = deque([start])
        while waiting:
            current = waiting.popleft()
            for neighbour, _ in topology.neighbours(current):
                if neighbour not in distance:
                    distance[neighbour] = distance[current] + 1
                    waiting.append(neighbour)
        for target in reachable_switches(topology, start):
            assert count_hops(topology, start, target) == distance[target]


@given(topologies())
def test_flood_reaches_every_host_once(topology: Topology) -> None:
    floods = flood_ports(topology)
    for start in topology.switches:
        reached: list[str] = []
        waiting = deque([(start, HOST_PORT)])
        while waiting:
            current, arrived_at = waiting.popleft()
            assert len(reached) <= len(topology.switches), "a broadcast storm occurred"
            for port in floods[current] - {arrived_at}:
                if port == HOST_PORT:
                    reached.append(current)
                else:
                    far = topology.links[PortRef(current, port)]
                    waiting.append((far.switch, far.number))
        assert sorted(reached) == sorted(reachable_switches(topology, start) - {start})


@given(topologies())
def test_flood_ports_are_read_from_entries(topology: Topology) -> None:
    floods = flood_ports(topology)
    for switch, state in forwarding(topology, floods).items():
        assert installed_flood_ports(state) == floods[switch]


def output_ports(state: SwitchState, hardware_address: str) -> tuple[int, ...] | None:
    visited: FlowEntry | None = next(
        (
            flow
            for flow in state.flows.values()
            if flow.table == FORWARD and flow.match == make_match(eth_dst=hardware_address)
        ),
        None,
    )
    return visited.outputs if visited else None


@given(topologies())
def test_entries_forward_packets_to_their_host(topology: Topology) -> None:
    tables = forwarding(topology, flood_ports(topology))
    for start in topology.switches:
        for target in topology.switches:
            current = start
            for _ in range(len(topology.switches) + 1):
                ports = output_ports(tables[current], mac(target))
                if not ports or ports == (HOST_PORT,):
                    break
                current = topology.links[PortRef(current, ports[0])].switch
            if target in reachable_switches(topology, start):
                assert (current, ports) == (target, (HOST_PORT,))
            else:
                assert ports == (), "frames to an unreachable host are dropped"


def test_frames_of_a_known_host_are_reported_only_from_another_port() -> None:
    topology = make_topology([("a", "b")], {"a", "b"})
    flows = forwarding(topology, flood_ports(topology))["a"].flows.values()
    (arp_entry,) = [f for f in flows if ("eth_type", 0x0806) in f.match]
    assert arp_entry.to_controller, "ARP frames are reported until the address is known"
    (host_entry,) = [f for f in flows if f.match == make_match(in_port=HOST_PORT, eth_src=mac("a"))]
    (default_entry,) = [f for f in flows if f.table == 0 and f.match == ()]
    (link_entry,) = [f for f in flows if f.match == make_match(in_port=1)]
    assert (host_entry.to_controller, link_entry.to_controller, default_entry.to_controller) == (
        False,
        False,
        True,
    )
    assert default_entry.next_table == host_entry.next_table, "reported frames are also forwarded"
