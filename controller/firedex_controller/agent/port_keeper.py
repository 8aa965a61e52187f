"""Keeps ports as they are meant to be: asks, changes, watches, repairs.

What is meant is kept in the switch's own database, on the port, so it outlives the agent and goes
with the port.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from firedex.wire import InvalidValue, QueueCounters, ShapedPort, from_json, to_json
from firedex_controller.agent.errors import AgentError, NoSuchPort, QueuesNotApplied
from firedex_controller.agent.messages import (
    AgentHealth,
    BridgeReport,
    PortChange,
    PortReport,
    PortTrouble,
)
from firedex_controller.agent.observed_tree import OURS, Database
from firedex_controller.agent.port_tree import MOST_CLASSES, tree_of
from firedex_controller.agent.send_buffer import LARGE_BYTES, SendBuffers, bytes_of_packet
from firedex_controller.agent.switch_tools import Tools
from firedex_controller.agent.tree_changes import commands_to_clear, commands_to_shape, quoted

__all__ = ["PortKeeper"]

log = logging.getLogger("firedex.agent")
MOST_ROUNDS = 6
WATCH_SECONDS = 1.0


class PortKeeper:
    """The queues of one switch host's ports. Requests may come from any thread."""

    def __init__(self, tools: Tools, buffers: SendBuffers | None = None) -> None:
        self._tools = tools
        self._buffers = buffers or SendBuffers()
        self._turn = threading.Lock()  # one change at a time: tc and the database have no other
        self._troubles: dict[str, str] = {}
        self._watching_trouble: str | None = None

    def shape(self, name: str, shaped: ShapedPort) -> PortChange:
        """Bring a port to ``shaped``; an unchanged one is not touched."""
        started = time.perf_counter()
        tree_of(shaped)  # refuses what cannot be, before anything is kept
        kept = to_json(_canonical(shaped))
        with self._turn:
            changed = self._port_of(name).ports[name].desired != kept
            if changed:
                setting = f"external_ids:{OURS}={quoted(kept)}"
                # It is the agent that acts on it, not Open vSwitch, which may even be away.
                self._tools.run([("ovs-vsctl", "--no-wait", "--", "set", "port", name, setting)])
            try:
                changed = self._settle(name, shaped) or changed
            except AgentError as error:
                self._troubles[name] = str(error)
                raise
            self._troubles.pop(name, None)
            self._enlarge_buffers(self._port_of(name))
        return PortChange(port=name, changed=changed, seconds=time.perf_counter() - started)

    def clear(self, name: str) -> PortChange:
        """Leave nothing of ours on a port."""
        started = time.perf_counter()
        with self._turn:
            self._port_of(name)
            changed = self._settle(name, None)
            self._troubles.pop(name, None)
        return PortChange(port=name, changed=changed, seconds=time.perf_counter() - started)

    def report(self, name: str) -> PortReport:
        """How a port is meant to be, and its counters."""
        shaped = _kept(self._port_of(name), name)
        if shaped is None:
            return PortReport(shaped=None)
        counted = self._tools.counts(name)
        return PortReport(
            shaped=shaped,
            queues=tuple(
                QueueCounters(
                    port=name,
                    priority=queue.priority,
                    packets=found.packets,
                    bytes=found.bytes,
                    dropped_packets=found.dropped_packets,
                    backlog_packets=found.backlog_packets,
                )
                for queue in shaped.classes
                if (found := counted.get(queue.priority + 1)) is not None
            ),
        )

    def bridges(self) -> tuple[BridgeReport, ...]:
        """Every bridge, and what its ports can have."""
        database = self._tools.database()
        version = database.version or self._tools.version()
        return tuple(
            BridgeReport(
                name=bridge.name,
                datapath_id=bridge.datapath_id,
                datapath="userspace" if bridge.userspace else "kernel",
                ports=tuple(port for port in bridge.ports if port != bridge.name),
                priorities=MOST_CLASSES,
                version=version,
            )
            for bridge in database.bridges
        )

    def health(self) -> AgentHealth:
        """Whether all is as it is meant to be, and what is not."""
        problems = [] if self._watching_trouble is None else [self._watching_trouble]
        meant: Mapping[str, ShapedPort] = {}
        try:
            database = self._tools.database()
            meant = _all_kept(database)
        except AgentError as error:
            problems.append(str(error))
            database = None
        needed = self._needed_bytes(database, meant) if database is not None else 0
        size = self._buffers.smallest()
        if size is not None and size < needed:
            problems.append(
                f"Open vSwitch may queue {size} bytes, full queues take {needed}: "
                "the highest classes will lose; raise net.core.wmem_default and restart "
                "ovs-vswitchd, or lower the classes' limits"
            )
        troubled = dict(self._troubles)
        return AgentHealth(
            healthy=not problems and not troubled,
            shaped_ports=len(meant),
            send_buffer_bytes=size,
            send_buffer_needed_bytes=needed,
            problems=tuple(dict.fromkeys(problems)),
            troubled_ports=tuple(
                PortTrouble(port=port, detail=detail) for port, detail in sorted(troubled.items())
            ),
        )

    def watch(self, stopping: threading.Event) -> None:
        """Look after all ports, every second, until told to stop."""
        while not stopping.wait(WATCH_SECONDS):
            self.look_after_all()

    def look_after_all(self) -> None:
        """Repair every port that is not as it is meant to be; forget those that are gone."""
        try:
            database = self._tools.database()
        except AgentError as error:
            self._note_watching(str(error))
            return
        self._watching_trouble = None
        meant = [port.name for port in database.ports.values() if port.desired is not None]
        for name in set(self._troubles) - set(meant):
            self._troubles.pop(name, None)
        for name in meant:
            self._look_after(name, database)
        self._sweep(database)
        self._enlarge_buffers(database)

    def _look_after(self, name: str, database: Database) -> None:
        """Look without waiting for anybody; act in turn, on what is meant by then."""
        try:
            shaped = _kept(database, name)
            if shaped is None or self._is_settled(name, shaped, database):
                self._troubles.pop(name, None)
                return
            with self._turn:
                shaped = _kept(self._port_of(name), name)
                if shaped is not None and self._settle(name, shaped):
                    log.warning("port %s was not as it is meant to be; it is again", name)
                self._troubles.pop(name, None)
        except NoSuchPort:
            self._troubles.pop(name, None)
        except AgentError as error:
            if self._troubles.get(name) != str(error):
                log.warning("port %s: %s", name, error)
            self._troubles[name] = str(error)

    def _is_settled(self, name: str, shaped: ShapedPort, database: Database) -> bool:
        mtu, tree = self._tools.mtu(name), self._tools.tree(name)
        return not commands_to_shape(name, tree_of(shaped), database, tree, mtu=mtu)

    def _sweep(self, database: Database) -> None:
        """Remove rows of ours that no port uses, and the trees of ports that have gone."""
        try:
            for table, row in database.orphans():
                words = ("ovs-vsctl", "--no-wait", "--", "--if-exists", "destroy", table, row)
                self._tools.run([words])
        except AgentError as error:
            self._note_watching(str(error))
        for name in {qos.owner for qos in database.qos.values()} - set(database.ports):
            if name is not None:
                self._take_tree_off(name)

    def _take_tree_off(self, name: str) -> None:
        """A device that has left its bridge keeps the tree that it had there, if it is still."""
        with contextlib.suppress(QueuesNotApplied):
            if self._tools.tree(name).is_htb:
                self._tools.run([("tc", "qdisc", "del", "dev", name, "root")])

    def _note_watching(self, trouble: str) -> None:
        if self._watching_trouble != trouble:
            log.warning("%s", trouble)
        self._watching_trouble = trouble

    def _settle(self, name: str, shaped: ShapedPort | None) -> bool:
        """Run what is needed until nothing is; whether anything was."""
        meant = None if shaped is None else tree_of(shaped)
        for done in range(MOST_ROUNDS):
            database, tree = self._port_of(name), self._tools.tree(name)
            if meant is None:
                commands = commands_to_clear(name, database, tree)
            else:
                mtu = self._tools.mtu(name)
                commands = commands_to_shape(name, meant, database, tree, mtu=mtu)
            if not commands:
                return done > 0
            self._tools.run(commands)
        raise QueuesNotApplied(" ".join(commands[0]), "ran, and it is as if it had not")

    def _port_of(self, name: str) -> Database:
        """The database, once it is sure that it has the port."""
        database = self._tools.database()
        if name not in database.ports:
            raise NoSuchPort(name)
        return database

    def _enlarge_buffers(self, database: Database) -> None:
        needed = self._needed_bytes(database, _all_kept(database))
        if needed:
            self._buffers.enlarge(max(needed, LARGE_BYTES))

    def _needed_bytes(self, database: Database, meant: Mapping[str, ShapedPort]) -> int:
        """What the full queues of all ports take; only the userspace datapath has to pay it."""
        paying = {port for bridge in database.bridges if bridge.userspace for port in bridge.ports}
        return sum(
            bytes_of_packet(self._tools.mtu(name)) * sum(q.limit_packets for q in shaped.classes)
            for name, shaped in meant.items()
            if name in paying
        )


def _canonical(shaped: ShapedPort) -> ShapedPort:
    """One way to write it, so that the same wish is the same text."""
    classes = tuple(sorted(shaped.classes, key=lambda queue: queue.priority))
    return replace(shaped, towards=None, classes=classes)


def _kept(database: Database, name: str) -> ShapedPort | None:
    desired = database.ports[name].desired
    if desired is None:
        return None
    try:
        shaped = from_json(ShapedPort, desired, tolerant=True)
        tree_of(shaped)
    except InvalidValue as error:
        raise AgentError(f"external_ids:{OURS} of port {name}: {error}") from error
    return shaped


def _all_kept(database: Database) -> dict[str, ShapedPort]:
    found = {}
    for name in database.ports:
        try:
            shaped = _kept(database, name)
        except AgentError:
            continue  # the watcher says so, with the port
        if shaped is not None:
            found[name] = shaped
    return found
