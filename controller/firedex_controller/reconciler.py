"""Keeps every switch at what is desired: of the service, and of the topology as it is.

One thread owns all state and does one thing at a time; events, requests and time reach it as tasks.
What others read are values that it replaces whole.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from time import monotonic
from typing import Any

from firedex.wire import (
    DesiredNetwork,
    DesiredSwitch,
    NetworkChange,
    ShapedPort,
    SwitchChange,
)
from firedex_controller.classification import UNCONFIGURED, classification
from firedex_controller.difference import Change
from firedex_controller.discovery import Discovery, Port
from firedex_controller.errors import (
    ControllerError,
    PortUnknown,
    StateNotKept,
    SwitchNotConnected,
    UnknownSwitch,
)
from firedex_controller.forwarding import LISTENING, flooded_by, flooded_ports, forwarding
from firedex_controller.kept_state import KeptState, read_kept_state, write_kept_state
from firedex_controller.network_check import check_network
from firedex_controller.port_shaping import PortShaping, QueueAgent, ports_of
from firedex_controller.settings import SwitchSettings
from firedex_controller.switch_entries import CLASSIFY, FORWARD, ORIGIN, SwitchState
from firedex_controller.switch_session import SwitchSession
from firedex_controller.task_queue import TaskQueue
from firedex_controller.topology import PortRef, Topology

__all__ = ["Reconciler"]

log = logging.getLogger("firedex.controller")

BEAT_SECONDS = 0.25
FIRST_SWITCHES_SECONDS = 3.0
"""At the start, so long the ways are left as they are until all switches are there."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 30.0
KEEP_SECONDS = 0.2
"""Where hosts and links are is written down at most so often."""


class Reconciler:
    """The controller's one mind."""

    def __init__(
        self,
        switches: Mapping[str, SwitchSettings],
        agent_of: Callable[[SwitchSettings], QueueAgent],
        state: Path | None,
    ) -> None:
        self._settings = switches
        self._state = state
        self._tasks = TaskQueue(self._on_beat, BEAT_SECONDS)
        self._discovery = Discovery(switches)
        self._started = monotonic()
        self._floods: dict[str, frozenset[int]] = {}
        self._forwarding: dict[str, SwitchState] = {}
        self._unsettled: dict[str, float] = {}
        self._at_rest: set[str] = set()
        self._troubles_in_a_row: dict[str, int] = {}
        self._sightings: dict[str, tuple[PortRef, IPv4Address | None]] = {}
        self._kept_at = 0.0
        self._kept = KeptState()
        self._shaping = {
            name: PortShaping(agent_of(settings)) for name, settings in switches.items()
        }
        self.sessions: dict[str, SwitchSession] = {}
        self.topology = Topology()
        self.ports: dict[str, dict[int, Port]] = {}
        self.desired: DesiredNetwork | None = None
        self.trouble: dict[str, str] = {}
        if state is not None:
            self._kept = read_kept_state(state)
            self.desired = self._kept.network
            known = self._kept.of_switches(switches)
            self._discovery.remember(known.hosts, known.links, known.cut_links, self._started)
            self.topology = self._discovery.topology(self._started)

    def run(self) -> None:
        """Do what comes, until the process ends."""
        self._tasks.run()

    # -- what others ask (from any thread) -----------------------------------------------------

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to ``network``, or leave all as they were."""
        return self._tasks.ask(lambda: self._put_network(network))

    def settled(self, switch: str) -> bool:
        """Whether a switch is connected and has what is desired, its ways included."""
        return (
            switch in self.sessions
            and switch in self._forwarding
            and switch in self._at_rest
            and switch not in self._unsettled
        )

    def shaping(self, switch: str) -> PortShaping:
        """The queues of a switch's ports."""
        return self._shaping[switch]

    def switch_joined(self, name: str, datapath: Any) -> SwitchSession:
        """A control channel came up; its answers go to the session."""
        session = SwitchSession(name, datapath)
        self._tasks.post(lambda: self._join(session))
        return session

    def switch_left(self, session: SwitchSession) -> None:
        """A control channel went away."""
        session.conversation.close()
        self._tasks.post(lambda: self._leave(session))

    def port_changed(self, switch: str, port: Port) -> None:
        """A port came, went up or went down."""
        self._tasks.post(lambda: self._discovery.port_changed(switch, port, monotonic()))
        self._tasks.post(self._publish_ports)
        self._tasks.post(self._follow_topology)

    def port_removed(self, switch: str, number: int) -> None:
        """A port is gone."""
        self._tasks.post(lambda: self._discovery.port_removed(switch, number, monotonic()))
        self._tasks.post(self._publish_ports)
        self._tasks.post(self._follow_topology)

    def announced(self, places: Iterable[PortRef]) -> None:
        """These ports have told their neighbours that they are there."""
        self._tasks.post(lambda: self._discovery.announced(places))

    def heard_neighbour(self, near: PortRef, far: PortRef) -> None:
        """A frame of ``far`` has arrived at ``near``. Ports said to lead to hosts do not count."""
        now = monotonic()
        if any(self._leads_to_hosts(end) for end in (near, far)):
            return
        if not self._discovery.still_heard(near, far, now):
            self._tasks.post(lambda: self._discovery.heard_neighbour(near, far, now))

    def heard_host(
        self, place: PortRef, hardware_address: str, address: IPv4Address | None
    ) -> None:
        """A host has sent something."""
        first = not self._sightings
        self._sightings[hardware_address] = (place, address)
        if first:  # otherwise one is on its way that takes this along
            self._tasks.post(self._take_sightings)

    def _leads_to_hosts(self, place: PortRef) -> bool:
        port = self.ports.get(place.switch, {}).get(place.number)
        settings = self._settings.get(place.switch)
        return port is not None and settings is not None and port.name == settings.hosts_port

    def _take_sightings(self) -> None:
        """However often hosts were seen meanwhile, the last time counts."""
        seen, self._sightings = self._sightings, {}
        for hardware_address, (place, address) in seen.items():
            self._discovery.heard_host(place, hardware_address, address)
        self._follow_topology()

    # -- switches ------------------------------------------------------------------------------

    def _join(self, session: SwitchSession) -> None:
        try:
            ports = session.begin()
        except ControllerError:
            session.datapath.close()  # it comes back, and is asked again
            raise
        self.sessions[session.name] = session
        self._at_rest.discard(session.name)
        self._floods[session.name] = flooded_by(session.installed)
        self._discovery.switch_joined(session.name, ports, monotonic())
        self._publish_ports()
        log.info(
            "switch %s connected: %d entries of ours on it, meters %s, bundles %s",
            session.name,
            len(session.installed.flows),
            "yes" if session.has_meters else "no",
            "yes" if session.has_bundles else "no",
        )
        self._reconcile(session)

    def _leave(self, session: SwitchSession) -> None:
        if self.sessions.get(session.name) is session:
            del self.sessions[session.name]
            self._discovery.switch_left(session.name)
            log.warning("switch %s disconnected; it goes on by its rules", session.name)

    def _reconcile(self, session: SwitchSession) -> None:
        """Bring one switch to what is desired, queues included; trouble is tried again.

        A switch without its queues still forwards and marks: trouble with the one part does not
        keep back the other.
        """
        shaping = self._shaping[session.name]
        wanted, unknown = self._wanted_ports(session.name, self.desired)
        troubles: list[ControllerError] = [*unknown]
        for step in (
            lambda: shaping.widen(wanted),
            lambda: session.bring(self._desired_state(session, self.desired)),
        ):
            try:
                step()
            except ControllerError as error:
                troubles.append(error)
        try:
            if not troubles:
                shaping.settle(wanted)
        except ControllerError as error:
            troubles.append(error)
        if troubles:
            self._note_trouble(session.name, "; ".join(map(str, troubles)))
        else:
            self._all_well(session.name)

    def _all_well(self, switch: str) -> None:
        for noted in (self.trouble, self._unsettled, self._troubles_in_a_row):
            noted.pop(switch, None)

    def _note_trouble(self, switch: str, trouble: str) -> None:
        """Try again soon, and then ever more seldom: while one part hangs, the others wait."""
        times = self._troubles_in_a_row.get(switch, 0)
        self._troubles_in_a_row[switch] = times + 1
        pause = min(RETRY_SECONDS * 2**times, LONGEST_RETRY_SECONDS)
        self._unsettled[switch] = monotonic() + pause
        if self.trouble.get(switch) != trouble:
            log.warning("switch %s: %s", switch, trouble)
        self.trouble[switch] = trouble

    def _bring(self, session: SwitchSession, network: DesiredNetwork) -> tuple[Change, int]:
        shaping = self._shaping[session.name]
        wanted, _ = self._wanted_ports(session.name, network)
        shaped = shaping.widen(wanted)
        change = session.bring(self._desired_state(session, network))
        shaping.settle(wanted)
        return change, shaped

    def _wanted_ports(
        self, switch: str, network: DesiredNetwork | None
    ) -> tuple[dict[str, ShapedPort], list[PortUnknown]]:
        part = _part_of(network, switch)
        if part is None:
            return {}, []
        names = {port.number: port.name for port in self.ports.get(switch, {}).values()}
        return ports_of(part, self._settings[switch], self.topology, names)

    def _desired_state(self, session: SwitchSession, network: DesiredNetwork | None) -> SwitchState:
        return self._classes(session, network).with_state(self._ways(session))

    def _classes(self, session: SwitchSession, network: DesiredNetwork | None) -> SwitchState:
        if network is None:  # nothing was ever asked, or that is forgotten: what is there stays
            return UNCONFIGURED.with_state(session.installed.of_tables(CLASSIFY))
        part = _part_of(network, session.name)
        if part is None:
            return UNCONFIGURED
        return classification(network, part, session.installed)

    def _ways(self, session: SwitchSession) -> SwitchState:
        """Those of the topology; those that are there stay until it is known well enough."""
        installed = session.installed.of_tables(ORIGIN, FORWARD)
        ways = self._forwarding.get(session.name)
        had_some = any(flow.table == FORWARD for flow in installed.flows.values())
        if ways is None or (had_some and session.name not in self._at_rest):
            return installed.with_state(LISTENING)
        return ways

    # -- the desired network -------------------------------------------------------------------

    def _put_network(self, network: DesiredNetwork) -> NetworkChange:
        began = monotonic()
        check_network(network)
        for part in network.switches:
            if part.switch not in self._settings:
                raise UnknownSwitch(part.switch, self._settings)
            if part.switch not in self.sessions:
                raise SwitchNotConnected(part.switch)
            for trouble in self._wanted_ports(part.switch, network)[1]:
                raise trouble
        before = self.desired
        changes: list[SwitchChange] = []
        had: list[tuple[SwitchSession, SwitchState, dict[str, ShapedPort]]] = []
        try:
            for session in list(self.sessions.values()):
                had.append((session, session.installed, dict(self._shaping[session.name].shaped)))
                start = monotonic()
                change, shaped = self._bring(session, network)
                changes.append(_told(session, change, shaped, monotonic() - start))
            self.desired = network
            self._keep()
        except BaseException as error:
            self.desired = before
            for session, installed, ports in had:
                self._put_back(session, installed, ports)
            if isinstance(error, OSError):
                raise StateNotKept(str(error)) from error
            raise
        for session, _, _ in had:
            self._all_well(session.name)
        return NetworkChange(
            configuration_version=network.configuration_version,
            seconds=monotonic() - began,
            switches=tuple(changes),
        )

    def _put_back(
        self, session: SwitchSession, installed: SwitchState, ports: Mapping[str, ShapedPort]
    ) -> None:
        session.restore(installed)
        try:
            self._shaping[session.name].settle(ports)
        except ControllerError as error:
            self._note_trouble(session.name, str(error))

    # -- the topology --------------------------------------------------------------------------

    def _on_beat(self) -> None:
        now = monotonic()
        for name in set(self.sessions) - self._at_rest:
            if self._discovery.switch_settled(name, now):
                self._at_rest.add(name)
                self._unsettled.setdefault(name, now)
        self._follow_topology()
        self._keep_now_and_then()
        for name, due in list(self._unsettled.items()):
            if name in self.sessions and now >= due:
                self._reconcile(self.sessions[name])

    def _follow_topology(self) -> None:
        """Bring the ways up to date, if the topology has changed."""
        now = monotonic()
        topology = self._discovery.topology(now)
        settled = self._discovery.settled(now)
        starting = now - self._started < FIRST_SWITCHES_SECONDS
        if not self._forwarding and (not self.sessions or (starting and not settled)):
            return
        if topology == self.topology and self._forwarding:
            return
        self._tell_links(self.topology, topology)
        self.topology = topology
        self._publish_ports()
        floods = flooded_ports(topology)
        if topology.links:
            # First only where floods went before and still go: no loop, not even for a moment.
            safe = {
                switch: ports & self._floods.get(switch, frozenset())
                for switch, ports in floods.items()
            }
            if safe != self._floods:
                self._spread(forwarding(topology, safe))
        self._spread(forwarding(topology, floods))
        self._floods = floods

    def _tell_links(self, before: Topology, after: Topology) -> None:
        for near, far in sorted(before.links.items() ^ after.links.items()):
            if near < far:
                news = "is there" if after.links.get(near) == far else "is gone"
                log.info("the link %s:%d - %s:%d %s", *_ends(near, far), news)

    def _spread(self, states: dict[str, SwitchState]) -> None:
        """Ways alone, so that no switch waits for another's queues."""
        self._forwarding = states
        for session in list(self.sessions.values()):
            classes = session.installed.of_tables(CLASSIFY)
            try:
                session.bring(classes.with_state(self._ways(session)))
            except ControllerError as error:
                self._note_trouble(session.name, str(error))

    def _publish_ports(self) -> None:
        self.ports = {switch: dict(ports) for switch, ports in self._discovery.ports().items()}

    def _keep(self) -> None:
        state = KeptState(
            network=self.desired,
            hosts=tuple(self.topology.hosts.values()),
            links=frozenset(frozenset(pair) for pair in self.topology.links.items()),
            cut_links=self.topology.cut_links,
        )
        if self._state is not None and state != self._kept:
            self._kept_at = monotonic()
            write_kept_state(self._state, state)
            self._kept = state

    def _keep_now_and_then(self) -> None:
        if monotonic() - self._kept_at < KEEP_SECONDS:
            return
        try:
            self._keep()
        except OSError as error:
            log.warning("the state cannot be kept: %s", error)


def _part_of(network: DesiredNetwork | None, switch: str) -> DesiredSwitch | None:
    parts = network.switches if network is not None else ()
    return next((part for part in parts if part.switch == switch), None)


def _ends(near: PortRef, far: PortRef) -> tuple[str, int, str, int]:
    return near.switch, near.number, far.switch, far.number


def _told(session: SwitchSession, change: Change, shaped: int, seconds: float) -> SwitchChange:
    return SwitchChange(
        switch=session.name,
        flows_added=len(change.flows_to_add),
        flows_modified=len(change.flows_to_overwrite),
        flows_removed=len(change.flows_to_delete),
        flows_unchanged=change.flows_unchanged,
        meters_added=len(change.meters_to_add),
        meters_modified=len(change.meters_to_modify),
        meters_removed=len(change.meters_to_delete),
        ports_shaped=shaped,
        bundled=session.has_bundles,
        seconds=seconds,
    )
