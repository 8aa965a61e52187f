"""Forwarding that changes switch by switch: no frame loops at any moment."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex_controller.errors import SwitchRefused
from firedex_controller.forwarding_update import ForwardingUpdate
from firedex_controller.switch_state import FORWARD, SwitchState, make_match
from firedex_controller.topology import (
    FLOOD_KEY,
    Host,
    PortRef,
    Topology,
    flood_ports,
    forwarding,
)

RING = ("north", "east", "south", "west")
HOST_PORT, SECOND_HOST_PORT = 100, 101
HOST_PRIORITY = 200


def cables(*pairs: tuple[str, str]) -> dict[PortRef, PortRef]:
    """Return links; each takes the next free port of both switches."""
    used: dict[str, int] = {}
    links: dict[PortRef, PortRef] = {}
    for one, other in pairs:
        for name in (one, other):
            used[name] = used.get(name, 0) + 1
        near, far = PortRef(one, used[one]), PortRef(other, used[other])
        links |= {near: far, far: near}
    return links


RING_CABLES = cables(*zip(RING, RING[1:] + RING[:1], strict=True))


def network(links: Mapping[PortRef, PortRef], hosts: Mapping[str, PortRef]) -> Topology:
    switches = frozenset({*RING, *(end.switch for end in links)})
    ports = {PortRef(name, port) for name in switches for port in (HOST_PORT, SECOND_HOST_PORT)}
    return Topology(
        switches=switches,
        links=dict(links),
        edge_ports=frozenset(ports),
        hosts={name: Host(hardware_address=name, port=port) for name, port in hosts.items()},
    )


class Switch:
    """A switch with a control channel; it checks the whole network after each of its changes."""

    def __init__(self, name: str, site: "Site") -> None:
        self.name, self._site = name, site
        self.installed = SwitchState()
        self.refuses = False

    def apply(self, desired: SwitchState) -> None:
        if desired == self.installed:
            return
        if self.refuses:
            raise SwitchRefused(self.name, "table full")
        self.installed = desired
        self._site.changes.append(self.name)
        self._site.check()


class Site:
    """Switches, and the update that changes them."""

    def __init__(self, names: frozenset[str]) -> None:
        self.switches = {name: Switch(name, self) for name in names}
        self.update = ForwardingUpdate()
        self.changes: list[str] = []
        self._links: Mapping[PortRef, PortRef] = {}
        self._destinations: set[str] = set()

    def run(self, topology: Topology, *, disconnected: frozenset[str] = frozenset()) -> None:
        self._links = topology.links
        self._destinations |= {*topology.hosts, "unknown"}
        sessions: Any = {n: s for n, s in self.switches.items() if n not in disconnected}
        for name in disconnected:
            switch: Any = self.switches[name]
            self.update.switch_disconnected(switch)
        self.update.run(topology, sessions, sessions, now=0.0)

    def check(self) -> None:
        for destination in self._destinations:
            assert not self._loop(destination), f"frames for {destination} loop"

    def _loop(self, destination: str) -> bool:
        """Search for a cycle among the ports that a frame can arrive at."""
        done: set[PortRef] = set()

        def visit(place: PortRef, path: frozenset[PortRef]) -> bool:
            if place in path:
                return True
            if place in done:
                return False
            outputs = self._outputs(place, destination)
            onwards = (self._links.get(PortRef(place.switch, port)) for port in outputs)
            found = any(visit(end, path | {place}) for end in onwards if end is not None)
            done.add(place)
            return found

        hosts = [PortRef(name, HOST_PORT) for name in self.switches]
        return any(visit(place, frozenset()) for place in hosts)

    def _outputs(self, place: PortRef, destination: str) -> list[int]:
        flows = self.switches[place.switch].installed.flows
        known = flows.get((FORWARD, HOST_PRIORITY, make_match(eth_dst=destination)))
        entry = known or flows.get(FLOOD_KEY)
        return [port for port in entry.outputs if port != place.number] if entry else []

    def assert_reached(self, topology: Topology) -> None:
        targets = forwarding(topology, flood_ports(topology))
        assert {n: s.installed for n, s in self.switches.items()} == targets
        assert all(self.update.is_finished(name) for name in self.switches)


@st.composite
def networks(draw: st.DrawFn) -> list[Topology]:
    """Return several moments of a network of five switches: cables fail, hosts come and move."""
    names = (*RING, "roof")
    pairs = [(one, other) for n, one in enumerate(names) for other in names[n + 1 :]]
    laid = cables(*draw(st.lists(st.sampled_from(pairs), min_size=4, max_size=9, unique=True)))
    pairs_of_ends = sorted({tuple(sorted(pair)) for pair in laid.items()})
    places = [PortRef(name, port) for name in names for port in (HOST_PORT, SECOND_HOST_PORT)]
    moments = []
    for _ in range(draw(st.integers(2, 4))):
        up = draw(st.sets(st.sampled_from(pairs_of_ends)))
        links = {near: far for pair in up for near, far in (pair, pair[::-1])}
        hosts = draw(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(places)))
        moment = network(links, hosts)
        moments.append(replace(moment, switches=frozenset(names)))
    return moments


@settings(deadline=None)
@given(moments=networks())
def test_no_frame_loops_while_the_network_changes(moments: list[Topology]) -> None:
    site = Site(moments[0].switches)
    for moment in moments:
        site.run(moment)
        site.assert_reached(moment)


@settings(deadline=None)
@given(moments=networks(), data=st.data())
def test_no_frame_loops_while_switches_are_disconnected(
    moments: list[Topology], data: st.DataObject
) -> None:
    site = Site(moments[0].switches)
    for moment in moments:
        away = data.draw(st.frozensets(st.sampled_from(sorted(moment.switches)), max_size=2))
        site.run(moment, disconnected=away)
        assert all(name not in site.update.problems for name in site.switches)
    site.run(moments[-1])
    site.assert_reached(moments[-1])


def test_entries_of_a_new_host_are_set_from_its_switch_outwards() -> None:
    site = Site(frozenset(RING))
    site.run(network(RING_CABLES, {}))
    site.changes.clear()
    site.run(network(RING_CABLES, {"a": PortRef("west", HOST_PORT)}))
    assert site.changes[0] == "west"
    assert set(site.changes[1:3]) == {"north", "south"}
    assert site.changes[3] == "east"


def test_frames_for_a_forgotten_host_are_dropped_before_its_entries_are_deleted() -> None:
    site = Site(frozenset(RING))
    site.run(network(RING_CABLES, {"a": PortRef("west", HOST_PORT)}))
    site.changes.clear()
    site.run(network(RING_CABLES, {}))
    assert set(site.changes[:4]) == set(site.changes[4:]) == set(RING)


def test_forgotten_host_stays_unreachable_while_a_disconnected_switch_sends_frames_to_it() -> None:
    site = Site(frozenset(RING))
    site.run(network(RING_CABLES, {"a": PortRef("west", HOST_PORT)}))
    site.run(network(RING_CABLES, {}), disconnected=frozenset({"south"}))
    assert not site.update.is_finished("west")
    site.run(network(RING_CABLES, {}))
    site.assert_reached(network(RING_CABLES, {}))


@pytest.mark.parametrize("refusing", RING)
def test_switch_that_refuses_its_forwarding_is_retried(refusing: str) -> None:
    site = Site(frozenset(RING))
    before = network(RING_CABLES, {"a": PortRef("west", HOST_PORT)})
    site.run(before)
    near = PortRef("north", 1)
    cut = {n: f for n, f in RING_CABLES.items() if near not in (n, f)}
    after = network(cut, {"a": PortRef("south", HOST_PORT)})
    site.switches[refusing].refuses = True
    site.run(after)
    assert refusing in site.update.problems
    assert not site.update.is_finished(refusing)
    assert not site.update.is_due(0.5)
    assert site.update.is_due(1.0)
    site.switches[refusing].refuses = False
    site.run(after)
    site.assert_reached(after)
    assert not site.update.problems
