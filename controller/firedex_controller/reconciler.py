"""The reconciler: applies the desired network and the forwarding of the topology to all switches.

One thread owns all state and runs one task at a time; messages of switches, requests of the API and
timers reach it as tasks. Other threads read values that it replaces as a whole.
"""

import logging
from collections.abc import Iterable, Mapping
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
from firedex_controller.discovery import Discovery, Port
from firedex_controller.errors import (
    ControllerError,
    StateNotSaved,
    SwitchNotConnected,
    UnknownPort,
    UnknownSwitch,
)
from firedex_controller.forwarding_update import ForwardingUpdate
from firedex_controller.port_shaping import PortQueues, QueueAgent, desired_ports
from firedex_controller.rules import BASE_CLASSIFICATION, check_network, classification
from firedex_controller.settings import SwitchSettings
from firedex_controller.state_file import SavedState, StateFile
from firedex_controller.switch_session import SwitchSession
from firedex_controller.switch_state import CLASSIFY, FORWARD, ORIGIN, Change, SwitchState
from firedex_controller.task_queue import RetrySchedule, TaskQueue
from firedex_controller.topology import (
    BASE_FORWARDING,
    PortRef,
    Topology,
)

__all__ = ["Reconciler"]

log = logging.getLogger("firedex.controller")

TICK_SECONDS = 0.25
STARTUP_SECONDS = 3.0
"""Maximum time after the start in which forwarding stays unchanged until all switches connect."""


class Reconciler:
    """Apply the desired network and the topology to the switches."""

    def __init__(
        self,
        switches: Mapping[str, SwitchSettings],
        agents: Mapping[str, QueueAgent],
        state: Path | None,
    ) -> None:
        self._settings = switches
        self._tasks = TaskQueue(self._on_tick, TICK_SECONDS)
        self._discovery = Discovery(switches)
        self._started = monotonic()
        self._forwarding = ForwardingUpdate()
        self._retries = RetrySchedule()
        self._settled_switches: set[str] = set()
        self._seen_hosts: dict[str, tuple[PortRef, IPv4Address | None]] = {}
        self._queues = {name: PortQueues(agents[name]) for name in switches}
        self._state_file = StateFile(state)
        saved = self._state_file.content.restrict_to_switches(switches)
        self._discovery.restore(saved.hosts, saved.links, saved.cut_links, self._started)
        self.desired = saved.network
        self.topology = self._discovery.topology(self._started) if state else Topology()
        self.sessions: dict[str, SwitchSession] = {}
        self.ports: dict[str, dict[int, Port]] = {}

    def run(self) -> None:
        """Run tasks; never returns."""
        self._tasks.run()

    # -- called from other threads -------------------------------------------------------------

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Apply ``network`` to all switches, or leave all of them unchanged."""
        return self._tasks.call(lambda: self._put_network(network))

    def settled(self, switch: str) -> bool:
        """Return whether a switch is connected and has its desired rules, queues and forwarding."""
        return (
            switch in self.sessions
            and self._forwarding.is_finished(switch)
            and switch in self._settled_switches
            and switch not in self._retries
        )

    def problem(self, switch: str) -> str | None:
        """Return why a switch does not have its desired state."""
        return self._retries.problems.get(switch) or self._forwarding.problems.get(switch)

    def queues(self, switch: str) -> PortQueues:
        """Return the queues of a switch's ports."""
        return self._queues[switch]

    def switch_connected(self, name: str, datapath: Any) -> SwitchSession:
        """Start a session for a new control channel; replies belong to the session."""
        session = SwitchSession(name, datapath)
        self._tasks.post(lambda: self._connect(session))
        return session

    def switch_disconnected(self, session: SwitchSession) -> None:
        """End the session of a closed control channel."""
        session.channel.close()
        self._tasks.post(lambda: self._disconnect(session))

    def port_changed(self, switch: str, port: Port) -> None:
        """Handle a port that was added or went up or down."""
        self._tasks.post(lambda: self._discovery.port_changed(switch, port, monotonic()))
        self._tasks.post(self._publish_ports)
        self._tasks.post(self._refresh_topology)

    def port_removed(self, switch: str, number: int) -> None:
        """Handle a port that was removed."""
        self._tasks.post(lambda: self._discovery.port_removed(switch, number, monotonic()))
        self._tasks.post(self._publish_ports)
        self._tasks.post(self._refresh_topology)

    def announcements_sent(self, ports: Iterable[PortRef]) -> None:
        """Count an LLDP announcement of each of these ports."""
        self._tasks.post(lambda: self._discovery.announcements_sent(ports))

    def link_seen(self, near: PortRef, far: PortRef) -> None:
        """Handle an LLDP frame of ``far`` at ``near``; ports configured for hosts are ignored."""
        now = monotonic()
        if any(self._is_hosts_port(end) for end in (near, far)):
            return
        if not self._discovery.refresh_link(near, far, now):
            self._tasks.post(lambda: self._discovery.link_seen(near, far, now))

    def host_seen(self, port: PortRef, hardware_address: str, address: IPv4Address | None) -> None:
        """Handle a frame of a host."""
        first = not self._seen_hosts
        self._seen_hosts[hardware_address] = (port, address)
        if first:  # otherwise a task is queued that handles this host too
            self._tasks.post(self._handle_seen_hosts)

    def _is_hosts_port(self, end: PortRef) -> bool:
        port = self.ports.get(end.switch, {}).get(end.number)
        settings = self._settings.get(end.switch)
        return port is not None and settings is not None and port.name == settings.hosts_port

    def _handle_seen_hosts(self) -> None:
        """Handle each host once, even if many of its frames have arrived since."""
        seen, self._seen_hosts = self._seen_hosts, {}
        for hardware_address, (port, address) in seen.items():
            self._discovery.host_seen(port, hardware_address, address)
        self._refresh_topology()

    # -- switches ------------------------------------------------------------------------------

    def _connect(self, session: SwitchSession) -> None:
        try:
            ports = session.start()
        except ControllerError:
            session.datapath.close()  # the switch reconnects
            raise
        self.sessions[session.name] = session
        self._settled_switches.discard(session.name)
        self._discovery.switch_connected(session.name, ports, monotonic())
        self._publish_ports()
        log.info(
            "switch %s connected: %d FireDeX flow entries installed, meters %s, bundles %s",
            session.name,
            len(session.installed.flows),
            "yes" if session.has_meters else "no",
            "yes" if session.has_bundles else "no",
        )
        self._reconcile(session)
        self._forwarding.request()
        self._refresh_topology()

    def _disconnect(self, session: SwitchSession) -> None:
        if self.sessions.get(session.name) is session:
            del self.sessions[session.name]
            self._forwarding.switch_disconnected(session)
            self._discovery.switch_disconnected(session.name)
            log.warning(
                "switch %s disconnected; it continues with its installed rules", session.name
            )

    def _reconcile(self, session: SwitchSession) -> None:
        """Bring one switch to its desired rules and queues; schedule a retry if that fails.

        A switch without its queues still forwards and marks, so rules are applied even if queues
        fail, and the reverse.
        """
        queues = self._queues[session.name]
        ports, unknown = self._desired_ports(session.name, self.desired)
        errors: list[ControllerError] = [*unknown]
        for step in (
            lambda: queues.prepare(ports),
            lambda: session.apply(self._desired_state(session, self.desired)),
        ):
            try:
                step()
            except ControllerError as error:
                errors.append(error)
        try:
            if not errors:
                queues.finish(ports)
        except ControllerError as error:
            errors.append(error)
        if errors:
            self._retries.record_failure(session.name, "; ".join(map(str, errors)))
        else:
            self._retries.record_success(session.name)

    def _apply(self, session: SwitchSession, network: DesiredNetwork) -> tuple[Change, int]:
        queues = self._queues[session.name]
        ports, _ = self._desired_ports(session.name, network)
        shaped = queues.prepare(ports)
        change = session.apply(self._desired_state(session, network))
        queues.finish(ports)
        return change, shaped

    def _desired_ports(
        self, switch: str, network: DesiredNetwork | None
    ) -> tuple[dict[str, ShapedPort], list[UnknownPort]]:
        part = _find_switch(network, switch)
        if part is None:
            return {}, []
        names = {port.number: port.name for port in self.ports.get(switch, {}).values()}
        return desired_ports(part, self._settings[switch], self.topology, names)

    def _desired_state(self, session: SwitchSession, network: DesiredNetwork | None) -> SwitchState:
        """Return the desired rules; forwarding stays, because all switches change it in step."""
        installed = session.installed.in_tables(ORIGIN, FORWARD)
        return self._desired_classification(session, network).with_state(
            installed.with_state(BASE_FORWARDING)
        )

    def _desired_classification(
        self, session: SwitchSession, network: DesiredNetwork | None
    ) -> SwitchState:
        if network is None:  # never set, or the state file is lost: keep the installed entries
            return BASE_CLASSIFICATION.with_state(session.installed.in_tables(CLASSIFY))
        part = _find_switch(network, session.name)
        if part is None:
            return BASE_CLASSIFICATION
        return classification(network, part, session.installed)

    # -- the desired network -------------------------------------------------------------------

    def _put_network(self, network: DesiredNetwork) -> NetworkChange:
        started = monotonic()
        check_network(network)
        for part in network.switches:
            if part.switch not in self._settings:
                raise UnknownSwitch(part.switch, self._settings)
            if part.switch not in self.sessions:
                raise SwitchNotConnected(part.switch)
            for error in self._desired_ports(part.switch, network)[1]:
                raise error
        previous = self.desired
        changes: list[SwitchChange] = []
        before: list[tuple[SwitchSession, SwitchState, dict[str, ShapedPort]]] = []
        try:
            for session in list(self.sessions.values()):
                before.append((session, session.installed, dict(self.queues(session.name).shaped)))
                switch_started = monotonic()
                change, shaped = self._apply(session, network)
                seconds = monotonic() - switch_started
                changes.append(_switch_change(session, change, shaped, seconds))
            self.desired = network
            self._state_file.save(self._state())
        except BaseException as error:
            self.desired = previous
            for session, installed, ports in before:
                self._roll_back(session, installed, ports)
            if isinstance(error, OSError):
                raise StateNotSaved(str(error)) from error
            raise
        for session, _, _ in before:
            self._retries.record_success(session.name)
        return NetworkChange(
            configuration_version=network.configuration_version,
            seconds=monotonic() - started,
            switches=tuple(changes),
        )

    def _roll_back(
        self, session: SwitchSession, installed: SwitchState, ports: Mapping[str, ShapedPort]
    ) -> None:
        session.restore(installed)
        try:
            self._queues[session.name].finish(ports)
        except ControllerError as error:
            self._retries.record_failure(session.name, str(error))

    # -- the topology --------------------------------------------------------------------------

    def _on_tick(self) -> None:
        now = monotonic()
        for name in set(self.sessions) - self._settled_switches:
            if self._discovery.switch_settled(name, now):
                self._settled_switches.add(name)
                self._retries.request(name, now)
                self._forwarding.request()
        self._refresh_topology()
        self._state_file.save_if_due(self._state())
        for name in self._retries.due(now):
            if name in self.sessions:
                self._reconcile(self.sessions[name])

    def _refresh_topology(self) -> None:
        """Update forwarding if the topology or the set of usable switches has changed."""
        now = monotonic()
        topology = self._discovery.topology(now)
        settled = self._discovery.settled(now)
        starting = now - self._started < STARTUP_SECONDS
        started = self._forwarding.started
        if not started and (not self.sessions or (starting and not settled)):
            return
        if started and topology == self.topology and not self._forwarding.is_due(now):
            return
        _log_link_changes(self.topology, topology)
        self.topology = topology
        self._publish_ports()
        self._forwarding.run(topology, self.sessions, self._changeable_switches(), now)

    def _changeable_switches(self) -> list[str]:
        """Return the switches whose forwarding may change: installed entries stay until settled."""
        return [
            name
            for name, session in self.sessions.items()
            if name in self._settled_switches
            or not any(flow.table == FORWARD for flow in session.installed.flows.values())
        ]

    def _publish_ports(self) -> None:
        self.ports = {switch: dict(ports) for switch, ports in self._discovery.ports().items()}

    def _state(self) -> SavedState:
        return SavedState(
            network=self.desired,
            hosts=tuple(self.topology.hosts.values()),
            links=frozenset(frozenset(pair) for pair in self.topology.links.items()),
            cut_links=self.topology.cut_links,
        )


def _find_switch(network: DesiredNetwork | None, switch: str) -> DesiredSwitch | None:
    parts = network.switches if network is not None else ()
    return next((part for part in parts if part.switch == switch), None)


def _log_link_changes(before: Topology, after: Topology) -> None:
    for near, far in sorted(before.links.items() ^ after.links.items()):
        if near < far:
            change = "added" if after.links.get(near) == far else "removed"
            log.info(
                "link %s:%d - %s:%d %s", *(near.switch, near.number, far.switch, far.number), change
            )


def _switch_change(
    session: SwitchSession, change: Change, shaped: int, seconds: float
) -> SwitchChange:
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
