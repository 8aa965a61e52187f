"""All connections of a subscriber, and the moves of filters between them: make before break.

A filter that must move is subscribed on its new connection first. When the broker has acknowledged
that, it is unsubscribed on the others. A connection without filters stays open until the broker has
acknowledged the unsubscription and no more events arrive.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from firedex_clients.flow import FilterRequest, FlowConnection, FlowListener
from firedex_clients.plan import ClientPlan, PlannedFlow

__all__ = ["FlowSet", "FlowSlot"]

IDLE_SECONDS = 0.5
"""A connection without filters is closed when no event has arrived for this long."""
MAX_UNSUBSCRIBE_SECONDS = 30.0
"""How long a broker may take to acknowledge an unsubscription before its connection is closed."""
Key = tuple[object, bool]
MakeConnection = Callable[[PlannedFlow, FlowListener], FlowConnection]
Deliver = Callable[..., None]


class FlowSlot:
    """A connection and its current flow in the plan."""

    def __init__(self, connection: FlowConnection, flow: PlannedFlow, version: int) -> None:
        self.connection, self.flow, self.version = connection, flow, version
        self.last_event = 0.0
        self.idle_since: float | None = None
        self.closing: asyncio.TimerHandle | None = None
        self.matching: dict[str, Any] = {}
        """The subscriptions by topic, for the revisions in ``matching_for``."""
        self.matching_for: tuple[int, int] = (-1, -1)
        self._moved_here: dict[str, int | None] = {}

    def filter_moved_here(self, name: str) -> None:
        """Record that a filter moves here; its retained messages have arrived before."""
        self._moved_here[name] = None

    def filter_settled(self, name: str) -> None:
        """Record that a moved filter is subscribed; a reconnect makes retained messages new."""
        if name in self._moved_here:
            self._moved_here[name] = self.connection.connects

    def filter_removed(self, name: str) -> None:
        """Forget that a filter has moved here: it has left, or was subscribed here first."""
        self._moved_here.pop(name, None)

    def has_received_retained(self, name: str) -> bool:
        """Return whether the retained messages of a filter have arrived before."""
        if name not in self._moved_here:
            return False
        return self._moved_here[name] in (None, self.connection.connects)


class FlowSet:
    """The connections that the plan requires; all methods run in the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make_connection: MakeConnection,
        *,
        deliver: Deliver,
        on_change: Callable[[], None],
        on_refusal: Callable[[Exception], None],
    ) -> None:
        self._loop, self._make_connection, self._deliver = loop, make_connection, deliver
        self._on_change, self._on_refusal = on_change, on_refusal
        self._slots: dict[Key, FlowSlot] = {}
        self._slot_of: dict[FlowConnection, FlowSlot] = {}
        self._targets: dict[str, FlowSlot] = {}
        self._established: set[str] = set()
        """Filters that have been subscribed somewhere before."""
        self.moves = 0

    def slots(self) -> tuple[FlowSlot, ...]:
        """Return all connections."""
        return tuple(self._slots.values())

    def flow_number(self, name: str) -> int | None:
        """Return the number of the flow that the plan assigns to a filter."""
        slot = self._targets.get(name)
        return None if slot is None else slot.flow.number

    def settled(self) -> bool:
        """Return whether every filter is subscribed on the connection that the plan assigns."""
        return all(name in slot.connection.granted for name, slot in self._targets.items())

    def apply(self, plan: ClientPlan, requests: dict[str, FilterRequest]) -> None:
        """Open and close connections and move filters so that they follow a plan."""
        targets: dict[str, FlowSlot] = {}
        for flow in plan.flows:
            slot = self._slot(flow, plan.version)
            for name in flow.filters:
                if name in requests:
                    targets[name] = slot
        self._targets = targets
        for name, slot in targets.items():
            present = slot.connection.requests.get(name)
            if present is None or present.qos != requests[name].qos:
                self._subscribe(slot, requests[name])
            self._settle(name)
        for name in {n for s in self.slots() for n in s.connection.requests} - set(targets):
            if name not in requests:
                self._established.discard(name)
                for slot in self.slots():
                    slot.connection.unsubscribe(name)
        self._close_idle()

    def _slot(self, flow: PlannedFlow, version: int) -> FlowSlot:
        key = (flow.settings, flow.persistent)
        slot = self._slots.get(key)
        if slot is None:
            connection = self._make_connection(flow, self)
            slot = FlowSlot(connection, flow, version)
            self._slots[key] = self._slot_of[connection] = slot
            connection.open()
        slot.flow, slot.version = flow, version
        return slot

    def _subscribe(self, slot: FlowSlot, request: FilterRequest) -> None:
        name = request.filter
        moved = name in self._established and any(
            name in other.connection.requests for other in self.slots() if other is not slot
        )
        if moved:
            self.moves += 1
            slot.filter_moved_here(name)
        else:
            slot.filter_removed(name)
        slot.connection.subscribe(replace(request, retained=not moved))

    def _settle(self, name: str) -> None:
        """Unsubscribe a filter on other connections once it is subscribed on the planned one."""
        slot = self._targets.get(name)
        if slot is None or name not in slot.connection.granted:
            return
        self._established.add(name)
        slot.filter_settled(name)
        request = slot.connection.requests[name]
        if not request.retained:
            # After a reconnect, retained messages may be new again.
            slot.connection.requests[name] = replace(request, retained=True)
        for other in self.slots():
            if other is not slot and name in other.connection.requests:
                other.connection.unsubscribe(name)
                other.filter_removed(name)
        self._close_idle()

    # -- what connections report -------------------------------------------------------------------

    def granted(self, connection: FlowConnection, name: str) -> None:  # noqa: ARG002
        """Complete the move of a filter."""
        self._settle(name)
        self._on_change()

    def lost(self, connection: FlowConnection) -> None:  # noqa: ARG002
        """Report that filters are no longer subscribed."""
        self._on_change()

    def refused(self, connection: FlowConnection, error: Exception) -> None:  # noqa: ARG002
        """Report why a connection or a subscription was refused."""
        self._on_refusal(error)

    def arrived(self, connection: FlowConnection, *event: Any) -> None:
        """Deliver an event."""
        slot = self._slot_of.get(connection)
        if slot is not None:
            if slot.idle_since is not None:
                slot.last_event = self._loop.time()
            self._deliver(slot, *event)

    # -- closing -----------------------------------------------------------------------------------

    def _close_idle(self) -> None:
        for slot in self.slots():
            if slot.connection.requests:
                slot.idle_since = None
                if slot.closing is not None:
                    slot.closing.cancel()
            elif slot.idle_since is None:
                slot.idle_since = self._loop.time()
                self._close_later(slot, IDLE_SECONDS)

    def _close_later(self, slot: FlowSlot, seconds: float) -> None:
        slot.closing = self._loop.call_later(seconds, partial(self._close_if_idle, slot))

    def _close_if_idle(self, slot: FlowSlot) -> None:
        if slot.idle_since is None or slot.connection not in self._slot_of:
            return
        now = self._loop.time()
        if slot.connection.unsubscribing and now < slot.idle_since + MAX_UNSUBSCRIBE_SECONDS:
            # Until it has acknowledged, the broker may send events; a persistent session would
            # keep them.
            self._close_later(slot, IDLE_SECONDS)
            return
        remaining = max(slot.idle_since, slot.last_event) + IDLE_SECONDS - now
        if remaining > 0:
            self._close_later(slot, remaining)
        else:
            self._remove(slot)

    def _remove(self, slot: FlowSlot) -> None:
        slot.connection.close()
        del self._slot_of[slot.connection]
        for key in [key for key, each in self._slots.items() if each is slot]:
            del self._slots[key]

    def close(self) -> tuple[FlowConnection, ...]:
        """Start to close all connections and return them."""
        slots = self.slots()
        for slot in slots:
            self._remove(slot)
        self._targets = {}
        return tuple(slot.connection for slot in slots)
