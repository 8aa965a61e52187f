"""Changing the forwarding of several switches without a loop at any moment.

Switches change one after the other, so frames meet a mixture of old and new entries. An entry that
sends frames for a host to a switch that still floods them is a loop if the flood comes back. The
update therefore has three steps, and each switch confirms a step before the next one starts:

1. Withdraw: remove flood ports that are not in the new spanning tree, and drop frames for hosts
   that are no longer known.
2. Route: set the entries of a host from its own switch outwards. A switch changes its entry only
   when the entries of the other switches lead from there to the host.
3. Finish: add the new flood ports and delete the entries of unknown hosts.

A switch that cannot be changed now (it is disconnected, refuses an entry, or may not be changed
yet) keeps its entries. Whatever could form a loop with them waits for that switch.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from firedex_controller.errors import ControllerError
from firedex_controller.switch_session import SwitchSession
from firedex_controller.switch_state import (
    CLASSIFY,
    FORWARD,
    ORIGIN,
    FlowEntry,
    FlowKey,
    SwitchState,
)
from firedex_controller.topology import (
    FLOOD_KEY,
    PortRef,
    Topology,
    flood_ports,
    forwarding,
    installed_flood_ports,
)

__all__ = ["ForwardingUpdate", "finish", "route", "withdraw"]

log = logging.getLogger("firedex.controller")

RETRY_SECONDS = 1.0
States = Mapping[str, SwitchState]


def withdraw(installed: SwitchState, target: SwitchState) -> SwitchState:
    """Return the first step of one switch: it only sends frames to fewer ports than before."""
    entries = []
    for key, flow in installed.in_tables(ORIGIN, FORWARD).flows.items():
        if key == FLOOD_KEY:
            entries.append(_common_flood(installed, target))
        elif flow.table == FORWARD and key not in target.flows:
            entries.append(replace(flow, outputs=()))
        else:
            entries.append(flow)
    return SwitchState.of(entries)


def route(
    topology: Topology, installed: States, targets: States, changeable: Iterable[str]
) -> dict[str, SwitchState]:
    """Return the states of all switches that can set at least one further entry now.

    Repeat with the new installed states until the result is empty.
    """
    candidates = set(changeable)

    def is_ready(switch: str, entry: FlowEntry) -> bool:
        """Return whether frames reach the host through switches that keep their entry."""
        passed = {switch}
        while end := _next_switch(topology, switch, entry):
            switch = end
            there = installed.get(switch, SwitchState()).flows.get(entry.key)
            if there is None or switch in passed:  # it floods, or the frame comes back
                return False
            if switch in candidates and there != targets[switch].flows.get(entry.key):
                return False
            passed.add(switch)
            entry = there
        return True

    states = {}
    for switch in candidates:
        present = installed[switch]
        ready = [
            entry
            for key, entry in targets[switch].flows.items()
            if key != FLOOD_KEY and present.flows.get(key) != entry and is_ready(switch, entry)
        ]
        if ready:
            states[switch] = present.in_tables(ORIGIN, FORWARD).with_state(SwitchState.of(ready))
    return states


def finish(
    topology: Topology, installed: States, targets: States, changeable: Iterable[str]
) -> dict[str, SwitchState]:
    """Return the last step of each switch: its target, except for entries that have to wait."""
    floods_safe = _floods_safe(topology, installed, targets)
    used = _destinations_in_use(topology, installed)
    states = {}
    for switch in changeable:
        present, target = installed[switch].in_tables(ORIGIN, FORWARD), targets[switch]
        flows: dict[FlowKey, FlowEntry] = {}
        for key, entry in target.flows.items():
            if key == FLOOD_KEY:
                flows[key] = entry if floods_safe else _common_flood(present, target)
            elif key in present.flows:
                flows[key] = present.flows[key]
        for key in used & present.flows.keys() - target.flows.keys():
            flows[key] = present.flows[key]
        states[switch] = SwitchState(flows)
    return states


def _next_switch(topology: Topology, switch: str, entry: FlowEntry) -> str | None:
    """Return the switch that an entry sends frames to; None if they reach a host or are dropped."""
    ends = (topology.links.get(PortRef(switch, port)) for port in entry.outputs)
    return next((end.switch for end in ends if end is not None), None)


def _common_flood(installed: SwitchState, target: SwitchState) -> FlowEntry:
    ports = installed_flood_ports(installed) & installed_flood_ports(target)
    return replace(target.flows[FLOOD_KEY], outputs=tuple(sorted(ports)))


def _floods_safe(topology: Topology, installed: States, targets: States) -> bool:
    """Return whether no switch floods into a link outside the new spanning tree."""
    return not any(
        PortRef(switch, port) in topology.links
        for switch, state in installed.items()
        for port in installed_flood_ports(state)
        - installed_flood_ports(targets.get(switch, SwitchState()))
    )


def _destinations_in_use(topology: Topology, installed: States) -> set[FlowKey]:
    """Return the keys of the entries by which a switch of the network sends frames to a host."""
    linked = {end.switch for end in topology.links}
    return {
        key
        for switch, state in installed.items()
        if switch in linked
        for key, flow in state.flows.items()
        if flow.table == FORWARD and key != FLOOD_KEY and flow.outputs
    }


class ForwardingUpdate:
    """Brings the switches to the forwarding of a topology; used by one thread.

    ``problems`` has the error of every switch that refused its forwarding; other threads may read
    it and ``is_finished``.
    """

    def __init__(self) -> None:
        self.started = False
        self.problems: dict[str, str] = {}
        self._unfinished: frozenset[str] = frozenset()
        self._last_known: dict[str, SwitchState] = {}
        self._requested = False
        self._retry_at = 0.0

    def is_finished(self, switch: str) -> bool:
        """Return whether a switch has the forwarding of the last topology."""
        return self.started and switch not in self._unfinished

    def request(self) -> None:
        """Ask for an update, because a switch has connected or can be changed now."""
        self._requested = True

    def is_due(self, now: float) -> bool:
        """Return whether an update is needed although the topology has not changed."""
        return self._requested or bool(self.problems and now >= self._retry_at)

    def switch_disconnected(self, session: SwitchSession) -> None:
        """Remember the entries of a switch, which forwards without its control channel too."""
        self._last_known[session.name] = session.installed

    def run(
        self,
        topology: Topology,
        sessions: Mapping[str, SwitchSession],
        changeable: Iterable[str],
        now: float,
    ) -> None:
        """Change all switches that can be changed now."""
        self.started, self._requested = True, False
        self._retry_at = now + RETRY_SECONDS
        targets = forwarding(topology, flood_ports(topology))
        usable = {name: sessions[name] for name in changeable if name in targets}
        problems: dict[str, str] = {}

        def apply(states: States) -> None:
            for name, state in states.items():
                session = usable[name]
                try:
                    session.apply(session.installed.in_tables(CLASSIFY).with_state(state))
                except ControllerError as error:
                    problems[name] = str(error)
                    del usable[name]

        def installed() -> dict[str, SwitchState]:
            connected = {name: session.installed for name, session in sessions.items()}
            return {**self._last_known, **connected}

        apply({name: withdraw(usable[name].installed, targets[name]) for name in usable})
        while states := route(topology, installed(), targets, usable):
            apply(states)
        apply(finish(topology, installed(), targets, usable))
        for name, problem in problems.items():
            if self.problems.get(name) != problem:
                log.warning("switch %s: %s", name, problem)
        self.problems = problems
        self._unfinished = frozenset(
            name
            for name, state in installed().items()
            if state.in_tables(ORIGIN, FORWARD).flows != targets.get(name, SwitchState()).flows
        )
