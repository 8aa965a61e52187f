"""Keeps every switch at what is desired: of the service, and of the topology as it is.

One thread owns all state and does one thing at a time; events, requests and time reach it as tasks.
What others read are values that it replaces whole.
"""

import logging
import queue
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from firedex.wire import DesiredNetwork, DesiredSwitch, NetworkChange, SwitchChange
from firedex_controller.classification import UNCONFIGURED, classification
from firedex_controller.difference import Change
from firedex_controller.discovery import Discovery, Port
from firedex_controller.errors import ControllerError, SwitchNotConnected, UnknownSwitch
from firedex_controller.forwarding import LISTENING, flooded_by, flooded_ports, forwarding
from firedex_controller.kept_state import KeptState, read_kept_state, write_kept_state
from firedex_controller.port_shaping import PortShaping, QueueAgent, ports_of
from firedex_controller.settings import SwitchSettings
from firedex_controller.switch_entries import CLASSIFY, FORWARD, ORIGIN, SwitchState
from firedex_controller.switch_session import SwitchSession
from firedex_controller.topology import PortRef, Topology

__all__ = ["Reconciler"]

log = logging.getLogger("firedex.controller")

BEAT_SECONDS = 0.25
FIRST_SWITCHES_SECONDS = 3.0
"""At the start, so long the ways are left as they are until all switches are there."""
RETRY_SECONDS = 1.0
PATIENCE_SECONDS = 120.0

Result = TypeVar("Result")


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
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._discovery = Discovery(switches)
        self._started = monotonic()
        self._floods: dict[str, frozenset[int]] = {}
        self._forwarding: dict[str, SwitchState] = {}
        self._unsettled: dict[str, float] = {}
        self._at_rest: set[str] = set()
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
            self._discovery.remember(self._kept.hosts, self._kept.links, self._started)
            self.topology = self._discovery.topology(self._started)

    def run(self) -> None:
        """Do what comes, until the process ends."""
        beat = monotonic()
        while True:
            try:
                task = self._tasks.get(timeout=max(beat - monotonic(), 0.001))
            except queue.Empty:
                beat = monotonic() + BEAT_SECONDS
                task = self._on_beat
            try:
                task()
            except ControllerError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("a task failed; the controller goes on")

    # -- what others ask (from any thread) -----------------------------------------------------

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to ``network``, or leave all as they were."""
        return self._ask(lambda: self._put_network(network))

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
        self._tasks.put(lambda: self._join(session))
        return session

    def switch_left(self, session: SwitchSession) -> None:
        """A control channel went away."""
        session.conversation.close()
        self._tasks.put(lambda: self._leave(session))

    def port_changed(self, switch: str, port: Port) -> None:
        """A port came, went up or went down."""
        self._tasks.put(lambda: self._discovery.port_changed(switch, port, monotonic()))
        self._tasks.put(self._follow_topology)

    def port_removed(self, switch: str, number: int) -> None:
        """A port is gone."""
        self._tasks.put(lambda: self._discovery.port_removed(switch, number, monotonic()))
        self._tasks.put(self._follow_topology)

    def announced(self, switch: str) -> None:
        """A switch's ports have told their neighbours that they are there."""
        self._tasks.put(lambda: self._discovery.announced(switch))

    def heard_neighbour(self, near: PortRef, far: PortRef) -> None:
        """A frame of ``far`` has arrived at ``near``."""
        now = monotonic()
        if not self._discovery.still_heard(near, far, now):
            self._tasks.put(lambda: self._discovery.heard_neighbour(near, far, now))

    def heard_host(
        self, place: PortRef, hardware_address: str, address: IPv4Address | None
    ) -> None:
        """A host has sent something."""
        self._tasks.put(lambda: self._discovery.heard_host(place, hardware_address, address))
        self._tasks.put(self._follow_topology)

    def _ask(self, what: Callable[[], Result]) -> Result:
        answer: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

        def task() -> None:
            try:
                answer.put((what(), None))
            except BaseException as error:  # handed to who asked
                answer.put((None, error))

        self._tasks.put(task)
        try:
            result, error = answer.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise ControllerError("the controller is busy; ask again") from None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # there is one where there is no error

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
        """Bring one switch to what is desired, queues included; trouble is tried again."""
        self._unsettled[session.name] = monotonic() + RETRY_SECONDS
        try:
            self._bring(session, self.desired)
        except ControllerError as error:
            self._note_trouble(session.name, error)
        else:
            self.trouble.pop(session.name, None)
            del self._unsettled[session.name]

    def _note_trouble(self, switch: str, error: ControllerError) -> None:
        self._unsettled[switch] = monotonic() + RETRY_SECONDS
        if self.trouble.get(switch) != str(error):
            log.warning("switch %s: %s", switch, error)
        self.trouble[switch] = str(error)

    def _bring(self, session: SwitchSession, network: DesiredNetwork | None) -> tuple[Change, int]:
        part = _part_of(network, session.name)
        shaping = self._shaping[session.name]
        names = {port.number: port.name for port in self.ports.get(session.name, {}).values()}
        wanted = ports_of(part, self._settings[session.name], self.topology, names) if part else {}
        shaped = shaping.widen(wanted)
        change = session.bring(self._desired_state(session, network))
        shaping.settle(wanted)
        return change, shaped

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
        for part in network.switches:
            if part.switch not in self._settings:
                raise UnknownSwitch(part.switch, self._settings)
            if part.switch not in self.sessions:
                raise SwitchNotConnected(part.switch)
        changes: list[SwitchChange] = []
        tried: list[SwitchSession] = []
        for session in list(self.sessions.values()):
            tried.append(session)
            start = monotonic()
            try:
                change, shaped = self._bring(session, network)
            except ControllerError:
                self._undo(tried)
                raise
            changes.append(_told(session, change, shaped, monotonic() - start))
        self.desired = network
        self._keep()
        for session in tried:
            self._unsettled.pop(session.name, None)
            self.trouble.pop(session.name, None)
        return NetworkChange(
            configuration_version=network.configuration_version,
            seconds=monotonic() - began,
            switches=tuple(changes),
        )

    def _undo(self, tried: list[SwitchSession]) -> None:
        for session in tried:
            self._reconcile(session)

    # -- the topology --------------------------------------------------------------------------

    def _on_beat(self) -> None:
        now = monotonic()
        for name in set(self.sessions) - self._at_rest:
            if self._discovery.switch_settled(name, now):
                self._at_rest.add(name)
                self._unsettled.setdefault(name, now)
        self._follow_topology()
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
        self._keep()

    def _spread(self, states: dict[str, SwitchState]) -> None:
        self._forwarding = states
        for session in list(self.sessions.values()):
            if session.name in self._unsettled:
                self._reconcile(session)
                continue
            classes = session.installed.of_tables(CLASSIFY)
            try:
                session.bring(classes.with_state(self._ways(session)))
            except ControllerError as error:
                self._note_trouble(session.name, error)

    def _publish_ports(self) -> None:
        self.ports = {switch: dict(ports) for switch, ports in self._discovery.ports().items()}

    def _keep(self) -> None:
        state = KeptState(
            network=self.desired,
            hosts=tuple(self.topology.hosts.values()),
            links=frozenset(frozenset(pair) for pair in self.topology.links.items()),
        )
        if self._state is not None and state != self._kept:
            write_kept_state(self._state, state)
            self._kept = state


def _part_of(network: DesiredNetwork | None, switch: str) -> DesiredSwitch | None:
    parts = network.switches if network is not None else ()
    return next((part for part in parts if part.switch == switch), None)


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
