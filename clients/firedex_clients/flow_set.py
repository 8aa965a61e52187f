"""All connections of a subscriber, and moving filters between them: make before break.

Runs in the loop's thread. A filter that must move is subscribed on its new connection first; only
when that is granted is it unsubscribed on the others. A connection without filters stays until the
broker has acknowledged that, and for a moment more, for what is still under way; then it is closed.
"""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from firedex_clients.client_plan import ClientPlan, PlannedFlow
from firedex_clients.connection_loop import ConnectionLoop, Timer
from firedex_clients.flow_connection import FlowConnection, FlowListener, Wanted

__all__ = ["FlowSet", "Place"]

log = logging.getLogger("firedex.clients")

LINGER_SECONDS = 0.5
"""A connection that is wanted no more is closed when nothing has come for so long."""
LONGEST_GOODBYE_SECONDS = 30.0
"""How long a broker may take to acknowledge that nothing is wanted; it may never come back."""
Key = tuple[object, bool]
MakeConnection = Callable[[PlannedFlow, FlowListener], FlowConnection]


class Place:
    """A connection, and its present place in the plan."""

    def __init__(self, connection: FlowConnection, flow: PlannedFlow, version: int) -> None:
        self.connection, self.flow, self.version = connection, flow, version
        self.last_event = 0.0
        self.idle_since: float | None = None
        self.closing: Timer | None = None
        self.matching: dict[str, Any] = {}
        self.matching_for: tuple[int, int] = (-1, -1)
        self._moved_here: dict[str, int | None] = {}

    def moved_here(self, name: str) -> None:
        """A filter comes from another connection: what is retained has come with it already."""
        self._moved_here[name] = None

    def at_home(self, name: str) -> None:
        """A filter is in force here; until the connection is lost, nothing retained is news."""
        if name in self._moved_here:
            self._moved_here[name] = self.connection.connects

    def left(self, name: str) -> None:
        """A filter is here no more, or anew."""
        self._moved_here.pop(name, None)

    def has_had_retained(self, name: str) -> bool:
        """Whether a retained message of a filter has come before."""
        if name not in self._moved_here:
            return False
        return self._moved_here[name] in (None, self.connection.connects)


class FlowSet:
    """Keeps connections as the plan says."""

    def __init__(self, loop: ConnectionLoop, make: MakeConnection, listener: FlowListener) -> None:
        self._loop, self._make, self._listener = loop, make, listener
        self._places: dict[Key, Place] = {}
        self._of: dict[int, Place] = {}
        self._targets: dict[str, Place] = {}
        self._known_before: set[str] = set()
        self.moves = 0

    def place_of(self, connection: FlowConnection) -> Place | None:
        """Where a connection stands in the plan."""
        return self._of.get(id(connection))

    def places(self) -> tuple[Place, ...]:
        """All connections there are."""
        return tuple(self._places.values())

    def target_of(self, name: str) -> Place | None:
        """Where a filter belongs."""
        return self._targets.get(name)

    def settled(self) -> bool:
        """Whether every filter is in force where the plan wants it."""
        return all(name in place.connection.granted for name, place in self._targets.items())

    def apply(self, plan: ClientPlan, wanted: dict[str, Wanted]) -> None:
        """Follow a plan, for the subscriptions there are."""
        targets: dict[str, Place] = {}
        for flow in plan.flows:
            place = self._place(flow, plan.version)
            for name in flow.filters:
                if name in wanted:
                    targets[name] = place
        self._targets = targets
        for name, place in targets.items():
            held = place.connection.wanted.get(name)
            if held is None or held.qos != wanted[name].qos:
                self._add(place, wanted[name])
            self.settle(name)
        for name in {n for p in self.places() for n in p.connection.wanted} - set(targets):
            if name not in wanted:
                self._known_before.discard(name)
                for place in self.places():
                    place.connection.unwant(name)
        self._retire()

    def _place(self, flow: PlannedFlow, version: int) -> Place:
        key = (flow.settings, flow.lasting)
        place = self._places.get(key)
        if place is None:
            connection = self._make(flow, self._listener)
            place = Place(connection, flow, version)
            self._places[key] = self._of[id(connection)] = place
            connection.open()
        place.flow, place.version = flow, version
        return place

    def _add(self, place: Place, wanted: Wanted) -> None:
        name = wanted.filter
        moved = name in self._known_before and any(
            name in other.connection.wanted for other in self.places() if other is not place
        )
        if moved:
            self.moves += 1
            place.moved_here(name)
        else:
            place.left(name)
        place.connection.want(
            Wanted(filter=name, number=wanted.number, qos=wanted.qos, retained=not moved)
        )

    def settle(self, name: str) -> None:
        """Once a filter is in force where it belongs, it ends everywhere else."""
        place = self._targets.get(name)
        if place is None or name not in place.connection.granted:
            return
        self._known_before.add(name)
        place.at_home(name)
        held = place.connection.wanted[name]
        if not held.retained:
            # From now on it is at home here: after a reconnect, what is retained is news again.
            place.connection.wanted[name] = Wanted(
                filter=name, number=held.number, qos=held.qos, retained=True
            )
        for other in self.places():
            if other is not place and name in other.connection.wanted:
                other.connection.unwant(name)
                other.left(name)
        self._retire()

    def _retire(self) -> None:
        for place in self.places():
            if place.connection.wanted:
                place.idle_since = None
                if place.closing is not None:
                    place.closing.cancel()
            elif place.idle_since is None:
                place.idle_since = time.monotonic()
                self._close_later(place, LINGER_SECONDS)

    def _close_later(self, place: Place, seconds: float) -> None:
        place.closing = self._loop.later(seconds, partial(self._close_if_quiet, place))

    def _close_if_quiet(self, place: Place) -> None:
        if place.idle_since is None or id(place.connection) not in self._of:
            return
        now = time.monotonic()
        if place.connection.unsubscribing and now < place.idle_since + LONGEST_GOODBYE_SECONDS:
            # Until the broker knows, it may send; and a session that lasts holds what it sent.
            self._close_later(place, LINGER_SECONDS)
            return
        missing = max(place.idle_since, place.last_event) + LINGER_SECONDS - now
        if missing > 0:
            self._close_later(place, missing)
        else:
            self._remove(place)

    def _remove(self, place: Place) -> None:
        place.connection.close()
        del self._of[id(place.connection)]
        for key in [key for key, each in self._places.items() if each is place]:
            del self._places[key]

    def close(self) -> Iterable[FlowConnection]:
        """Say goodbye on every connection; they are closed when they say so."""
        connections = [place.connection for place in self.places()]
        for place in self.places():
            self._remove(place)
        self._targets = {}
        return connections
