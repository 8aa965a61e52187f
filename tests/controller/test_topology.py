"""Ways through a network, floods without loops, and how they become entries."""

from collections import deque
from itertools import combinations
from string import ascii_lowercase

from hypothesis import given
from hypothesis import strategies as st

from firedex_controller.forwarding import flooded_by, flooded_ports, forwarding
from firedex_controller.switch_entries import FORWARD, FlowEntry, SwitchState, match_of
from firedex_controller.topology import Host, PortRef, Topology

HOST_PORT = 100


def cabled(pairs: list[tuple[str, str]], names: set[str]) -> Topology:
    """Switches with one host each, at port 100; a cable takes the next free port of both."""
    used = dict.fromkeys(names, 0)
    links = {}
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
            mac(name): Host(hardware_address=mac(name), place=PortRef(name, HOST_PORT))
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
    return cabled(pairs, set(names))


def reachable(topology: Topology, start: str) -> set[str]:
    found, waiting = {start}, deque([start])
    while waiting:
        for there, _ in topology.neighbours(waiting.popleft()):
            if there not in found:
                found.add(there)
                waiting.append(there)
    return found


def steps(topology: Topology, start: str, target: str) -> int:
    """Follow first hops; a loop would never end, so count."""
    hops = topology.first_hops(target)
    here, taken = start, 0
    while here != target:
        here = topology.links[PortRef(here, hops[here])].switch
        taken += 1
        assert taken <= len(topology.switches), "going in circles"
    return taken


@given(topologies())
def test_ways_lead_there_by_the_fewest_links(topology: Topology) -> None:
    for start in topology.switches:
        distance = {start: 0}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for there, _ in topology.neighbours(here):
                if there not in distance:
                    distance[there] = distance[here] + 1
                    waiting.append(there)
        for target in reachable(topology, start):
            assert steps(topology, start, target) == distance[target]


@given(topologies())
def test_a_flood_reaches_every_host_once_and_ends(topology: Topology) -> None:
    floods = flooded_ports(topology)
    for start in topology.switches:
        reached: list[str] = []
        waiting = deque([(start, HOST_PORT)])
        while waiting:
            here, arrived_at = waiting.popleft()
            assert len(reached) <= len(topology.switches), "a storm"
            for port in floods[here] - {arrived_at}:
                if port == HOST_PORT:
                    reached.append(here)
                else:
                    far = topology.links[PortRef(here, port)]
                    waiting.append((far.switch, far.number))
        assert sorted(reached) == sorted(reachable(topology, start) - {start})


@given(topologies())
def test_where_a_switch_floods_is_seen_from_its_entries(topology: Topology) -> None:
    floods = flooded_ports(topology)
    for switch, state in forwarding(topology, floods).items():
        assert flooded_by(state) == floods[switch]


def output(state: SwitchState, hardware_address: str) -> tuple[int, ...] | None:
    found: FlowEntry | None = next(
        (
            flow
            for flow in state.flows.values()
            if flow.table == FORWARD and flow.match == match_of(eth_dst=hardware_address)
        ),
        None,
    )
    return found.outputs if found else None


@given(topologies())
def test_entries_carry_packets_to_their_host(topology: Topology) -> None:
    tables = forwarding(topology, flooded_ports(topology))
    for start in topology.switches:
        for target in topology.switches:
            here = start
            for _ in range(len(topology.switches) + 1):
                ports = output(tables[here], mac(target))
                if not ports or ports == (HOST_PORT,):
                    break
                here = topology.links[PortRef(here, ports[0])].switch
            if target in reachable(topology, start):
                assert (here, ports) == (target, (HOST_PORT,))
            else:
                assert ports == (), (
                    "it is dropped there: flooding would load everybody else's links"
                )


def test_known_hosts_are_not_shown_to_the_controller_again_but_the_same_elsewhere_is() -> None:
    topology = cabled([("a", "b")], {"a", "b"})
    flows = forwarding(topology, flooded_ports(topology))["a"].flows.values()
    (asks,) = [f for f in flows if ("eth_type", 0x0806) in f.match]
    assert asks.to_controller, "until its address is known"
    (known,) = [f for f in flows if f.match == match_of(in_port=HOST_PORT, eth_src=mac("a"))]
    (miss,) = [f for f in flows if f.table == 0 and f.match == ()]
    (link,) = [f for f in flows if f.match == match_of(in_port=1)]
    assert (known.to_controller, link.to_controller, miss.to_controller) == (False, False, True)
    assert miss.next_table == known.next_table, "it is forwarded all the same"
