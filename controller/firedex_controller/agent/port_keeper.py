"""The port keeper: sets up the desired queues of ports, watches them and repairs them.

The desired queues are stored in the row of the port in the switch's database. They therefore
survive a restart of the agent, and are deleted together with the port.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from firedex.wire import InvalidValue, QueueCounters, ShapedPort, from_json, to_json
from firedex_controller.agent.messages import (
    AgentHealth,
    BridgeReport,
    PortChange,
    PortProblem,
    PortReport,
)
from firedex_controller.agent.observed_tree import OWNER_KEY, Database
from firedex_controller.agent.port_tree import MAX_CLASSES, desired_tree
from firedex_controller.agent.switch_tools import (
    DEFAULT_BUFFER_BYTES,
    SendBuffers,
    Tools,
    bytes_of_packet,
)
from firedex_controller.agent.tree_changes import commands_to_clear, commands_to_shape, quote
from firedex_controller.errors import AgentError, NoSuchPort, QueuesNotApplied

__all__ = ["PortKeeper"]

log = logging.getLogger("firedex.agent")
MAX_ROUNDS = 6
WATCH_SECONDS = 1.0


class PortKeeper:
    """The queues of one switch host's ports. Requests may come from any thread."""

    def __init__(self, tools: Tools, buffers: SendBuffers | None = None) -> None:
        self._tools = tools
        self._buffers = buffers or SendBuffers()
        self._lock = threading.Lock()  # one change at a time; tc and the database do not lock
        self._problems: dict[str, str] = {}
        self._watch_problem: str | None = None

    def shape(self, name: str, shaped: ShapedPort) -> PortChange:
        """Give a port the queues of ``shaped``; a port that has them already is not changed."""
        started = time.perf_counter()
        desired_tree(shaped)  # raises CannotShape before anything is stored
        stored = to_json(_canonical_form(shaped))
        with self._lock:
            changed = self._database_containing(name).ports[name].desired != stored
            if changed:
                setting = f"external_ids:{OWNER_KEY}={quote(stored)}"
                # The agent applies the queues itself, so it does not wait for ovs-vswitchd.
                self._tools.run([("ovs-vsctl", "--no-wait", "--", "set", "port", name, setting)])
            try:
                changed = self._apply(name, shaped) or changed
            except AgentError as error:
                self._problems[name] = str(error)
                raise
            self._problems.pop(name, None)
            self._enlarge_buffers(self._database_containing(name))
        return PortChange(port=name, changed=changed, seconds=time.perf_counter() - started)

    def clear(self, name: str) -> PortChange:
        """Remove the agent's queues from a port."""
        started = time.perf_counter()
        with self._lock:
            self._database_containing(name)
            changed = self._apply(name, None)
            self._problems.pop(name, None)
        return PortChange(port=name, changed=changed, seconds=time.perf_counter() - started)

    def report(self, name: str) -> PortReport:
        """Return the desired queues of a port and their counters."""
        shaped = _stored_queues(self._database_containing(name), name)
        if shaped is None:
            return PortReport(shaped=None)
        counts_by_class = self._tools.counts(name)
        return PortReport(
            shaped=shaped,
            queues=tuple(
                QueueCounters(
                    port=name,
                    priority=queue.priority,
                    packets=counts.packets,
                    bytes=counts.bytes,
                    dropped_packets=counts.dropped_packets,
                    backlog_packets=counts.backlog_packets,
                )
                for queue in shaped.classes
                if (counts := counts_by_class.get(queue.priority + 1)) is not None
            ),
        )

    def bridges(self) -> tuple[BridgeReport, ...]:
        """Return all bridges with the number of classes that their ports can have."""
        database = self._tools.database()
        version = database.version or self._tools.version()
        return tuple(
            BridgeReport(
                name=bridge.name,
                datapath_id=bridge.datapath_id,
                datapath="userspace" if bridge.userspace else "kernel",
                ports=tuple(port for port in bridge.ports if port != bridge.name),
                priorities=MAX_CLASSES,
                version=version,
            )
            for bridge in database.bridges
        )

    def health(self) -> AgentHealth:
        """Return whether every port has its desired queues, and the problems."""
        problems = [] if self._watch_problem is None else [self._watch_problem]
        desired: Mapping[str, ShapedPort] = {}
        try:
            database = self._tools.database()
            desired = _all_stored_queues(database)
        except AgentError as error:
            problems.append(str(error))
            database = None
        needed = self._needed_bytes(database, desired) if database is not None else 0
        size = self._buffers.smallest()
        if size is not None and size < needed:
            problems.append(
                f"the send buffer of Open vSwitch has {size} bytes, but full queues need {needed}: "
                "packets of the highest classes will be lost; raise net.core.wmem_default and "
                "restart ovs-vswitchd, or lower limit_packets of the classes"
            )
        port_problems_by_name = dict(self._problems)
        return AgentHealth(
            healthy=not problems and not port_problems_by_name,
            shaped_ports=len(desired),
            send_buffer_bytes=size,
            send_buffer_needed_bytes=needed,
            problems=tuple(dict.fromkeys(problems)),
            port_problems=tuple(
                PortProblem(port=port, detail=detail)
                for port, detail in sorted(port_problems_by_name.items())
            ),
        )

    def watch(self, stop_requested: threading.Event) -> None:
        """Repair all ports every second until ``stop_requested`` is set."""
        while not stop_requested.wait(WATCH_SECONDS):
            self.repair_all()

    def repair_all(self) -> None:
        """Repair every port that does not have its desired queues; forget removed ports."""
        try:
            database = self._tools.database()
        except AgentError as error:
            self._record_problem(str(error))
            return
        self._watch_problem = None
        desired = [port.name for port in database.ports.values() if port.desired is not None]
        for name in set(self._problems) - set(desired):
            self._problems.pop(name, None)
        for name in desired:
            self._check_port(name, database)
        self._remove_unused(database)
        self._enlarge_buffers(database)

    def _check_port(self, name: str, database: Database) -> None:
        """Check a port without the lock; repair it, if necessary, with the lock."""
        try:
            shaped = _stored_queues(database, name)
            if shaped is None or self._has_desired_queues(name, shaped, database):
                self._problems.pop(name, None)
                return
            with self._lock:
                shaped = _stored_queues(self._database_containing(name), name)
                if shaped is not None and self._apply(name, shaped):
                    log.warning("port %s did not have its desired queues; it was repaired", name)
                self._problems.pop(name, None)
        except NoSuchPort:
            self._problems.pop(name, None)
        except AgentError as error:
            if self._problems.get(name) != str(error):
                log.warning("port %s: %s", name, error)
            self._problems[name] = str(error)

    def _has_desired_queues(self, name: str, shaped: ShapedPort, database: Database) -> bool:
        mtu, tree = self._tools.mtu(name), self._tools.tree(name)
        return not commands_to_shape(name, desired_tree(shaped), database, tree, mtu=mtu)

    def _remove_unused(self, database: Database) -> None:
        """Remove database rows that no port uses, and the trees of removed ports."""
        try:
            for table, row in database.unused_rows():
                words = ("ovs-vsctl", "--no-wait", "--", "--if-exists", "destroy", table, row)
                self._tools.run([words])
        except AgentError as error:
            self._record_problem(str(error))
        for name in {qos.owner for qos in database.qos.values()} - set(database.ports):
            if name is not None:
                self._remove_tree(name)

    def _remove_tree(self, name: str) -> None:
        """Remove the tree of a device that has left its bridge, if the device still exists."""
        with contextlib.suppress(QueuesNotApplied):
            if self._tools.tree(name).is_htb:
                self._tools.run([("tc", "qdisc", "del", "dev", name, "root")])

    def _record_problem(self, problem: str) -> None:
        if self._watch_problem != problem:
            log.warning("%s", problem)
        self._watch_problem = problem

    def _apply(self, name: str, shaped: ShapedPort | None) -> bool:
        """Run commands until none are needed; return whether there were any."""
        desired = None if shaped is None else desired_tree(shaped)
        for done in range(MAX_ROUNDS):
            database, tree = self._database_containing(name), self._tools.tree(name)
            if desired is None:
                commands = commands_to_clear(name, database, tree)
            else:
                mtu = self._tools.mtu(name)
                commands = commands_to_shape(name, desired, database, tree, mtu=mtu)
            if not commands:
                return done > 0
            self._tools.run(commands)
        raise QueuesNotApplied(" ".join(commands[0]), "succeeded, but had no effect")

    def _database_containing(self, name: str) -> Database:
        """Read the database; raise NoSuchPort if it does not contain the port."""
        database = self._tools.database()
        if name not in database.ports:
            raise NoSuchPort(name)
        return database

    def _enlarge_buffers(self, database: Database) -> None:
        needed = self._needed_bytes(database, _all_stored_queues(database))
        if needed:
            self._buffers.enlarge(max(needed, DEFAULT_BUFFER_BYTES))

    def _needed_bytes(self, database: Database, desired: Mapping[str, ShapedPort]) -> int:
        """Return the bytes that full queues need; only the userspace datapath uses the buffer."""
        userspace_ports = {
            port for bridge in database.bridges if bridge.userspace for port in bridge.ports
        }
        return sum(
            bytes_of_packet(self._tools.mtu(name)) * sum(q.limit_packets for q in shaped.classes)
            for name, shaped in desired.items()
            if name in userspace_ports
        )


def _canonical_form(shaped: ShapedPort) -> ShapedPort:
    """Return a canonical form, so that equal queues have equal JSON."""
    classes = tuple(sorted(shaped.classes, key=lambda queue: queue.priority))
    return replace(shaped, towards=None, classes=classes)


def _stored_queues(database: Database, name: str) -> ShapedPort | None:
    desired = database.ports[name].desired
    if desired is None:
        return None
    try:
        shaped = from_json(ShapedPort, desired, tolerant=True)
        desired_tree(shaped)
    except InvalidValue as error:
        raise AgentError(f"external_ids:{OWNER_KEY} of port {name}: {error}") from error
    return shaped


def _all_stored_queues(database: Database) -> dict[str, ShapedPort]:
    stored = {}
    for name in database.ports:
        try:
            shaped = _stored_queues(database, name)
        except AgentError:
            continue  # reported by the watcher
        if shaped is not None:
            stored[name] = shaped
    return stored
