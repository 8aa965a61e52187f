"""A network of fake switches: links, hosts, and frames that travel between them."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from firedex_controller.errors import ControllerError
from firedex_controller.fake_switch.switch import FakeSwitch

__all__ = ["FakeHost", "FakeLink", "FakeNetwork", "Journey", "UnknownPart"]

HOP_LIMIT = 32
FRAME_LIMIT = 2_000  # copies of one frame; more is a broadcast storm
Place = tuple[str, int]


class UnknownPart(ControllerError):
    """A switch, port, link or host that the network does not have, or that is taken."""


@dataclass(frozen=True, slots=True)
class FakeLink:
    """Two ports, each a switch's name and a port number."""

    one: Place
    other: Place

    def peer_of(self, place: Place) -> Place:
        """The far end."""
        return self.other if place == self.one else self.one


@dataclass(slots=True)
class FakeHost:
    """A host: where it is, and what reached it."""

    name: str
    mac: str
    ip: str
    switch: str
    port: int
    frames: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Journey:
    """What became of one frame. ``storm`` means that it would have gone round for ever."""

    hosts: list[str] = field(default_factory=list)
    passed: list[Place] = field(default_factory=list)
    packet_ins: int = 0
    storm: bool = False


class FakeNetwork:
    """Switches by name, connected to one controller.

    ``with FakeNetwork(controller=("127.0.0.1", 6653)) as network: …`` ends all of them.
    """

    def __init__(self, *, controller: tuple[str, int]) -> None:
        self.controller = controller
        self.lock = threading.RLock()
        self.switches: dict[str, FakeSwitch] = {}
        self.hosts: dict[str, FakeHost] = {}
        self.storms = 0
        self.links: list[FakeLink] = []
        self._links: dict[Place, FakeLink] = {}
        self._cut: set[FakeLink] = set()

    # -- building ------------------------------------------------------------------------------

    def add_switch(
        self,
        name: str,
        *,
        datapath_id: int,
        ports: Sequence[str] | int,
        connect: bool = True,
    ) -> FakeSwitch:
        """Add a switch; its ports are numbered from 1. It connects at once, unless told not to."""
        names = [f"{name}-eth{n + 1}" for n in range(ports)] if isinstance(ports, int) else ports
        switch = FakeSwitch(self, name, datapath_id, names)
        self.switches[name] = switch
        if connect:
            switch.start()
        return switch

    def add_link(self, one: tuple[str, int | str], other: tuple[str, int | str]) -> FakeLink:
        """Connect two ports, each (switch, port number or name)."""
        link = FakeLink(self._place(*one), self._place(*other))
        self.links.append(link)
        self._links[link.one] = self._links[link.other] = link
        return link

    def add_host(self, name: str, *, mac: str, ip: str, switch: str, port: int | str) -> FakeHost:
        """Put a host at a port."""
        place = self._place(switch, port)
        self.hosts[name] = FakeHost(name, mac, ip, *place)
        return self.hosts[name]

    def _place(self, switch: str, port: int | str) -> Place:
        if switch not in self.switches:
            raise UnknownPart(f"no switch {switch!r}; there are {', '.join(self.switches)}")
        number = self.switches[switch].port_number(port)
        place = (switch, number)
        taken = place in self._links or any(
            place == (host.switch, host.port) for host in self.hosts.values()
        )
        if number not in self.switches[switch].port_names or taken:
            raise UnknownPart(f"port {port!r} of {switch!r} is taken, or there is none")
        return place

    # -- what happens to it --------------------------------------------------------------------

    def cut(self, link: FakeLink, *, silently: bool = False) -> None:
        """Cut a link: both ends go down and say so, or (silently) just nothing passes any more."""
        self._set_link(link, up=False, silently=silently)

    def restore(self, link: FakeLink, *, silently: bool = False) -> None:
        """Mend it."""
        self._set_link(link, up=True, silently=silently)

    def _set_link(self, link: FakeLink, *, up: bool, silently: bool) -> None:
        with self.lock:
            (self._cut.discard if up else self._cut.add)(link)
            if not silently:
                for switch, port in (link.one, link.other):
                    self.switches[switch].set_port_up(port, up=up)

    def move(self, host: str, *, switch: str, port: int | str) -> None:
        """Plug a host in elsewhere."""
        with self.lock:
            moved = self.hosts[host]
            moved.switch, moved.port = self._place(switch, port)

    def send(self, host: str, frame: bytes) -> Journey:
        """A host sends a frame."""
        sender = self.hosts[host]
        return self.carry(self.switches[sender.switch], sender.port, frame)

    def carry(self, switch: FakeSwitch, in_port: int, frame: bytes) -> Journey:
        """A frame arrives at a port of a switch; follow it to the end."""
        return self._follow(deque([((switch.name, in_port), frame, 0)]))

    def carry_out(self, switch: FakeSwitch, port: int, frame: bytes) -> Journey:
        """A frame leaves a switch by a port; follow it to the end."""
        journey = Journey()
        with self.lock:
            arrivals = self._leaving((switch.name, port), frame, journey)
            onwards = self._follow(deque((place, frame, 0) for place, frame in arrivals))
        onwards.hosts += journey.hosts
        return onwards

    def _follow(self, arriving: deque[tuple[Place, bytes, int]]) -> Journey:
        journey = Journey()
        with self.lock:
            while arriving:
                place, frame, hops = arriving.popleft()
                if hops >= HOP_LIMIT or len(journey.passed) >= FRAME_LIMIT:
                    journey.storm = True
                    self.storms += 1
                    break
                journey.passed.append(place)
                switch = self.switches[place[0]]
                told = switch.packet_ins_sent
                for port, sent in switch.arrive(place[1], frame):
                    for onwards, carried in self._leaving((switch.name, port), sent, journey):
                        arriving.append((onwards, carried, hops + 1))
                journey.packet_ins += switch.packet_ins_sent - told
        return journey

    def _leaving(self, place: Place, frame: bytes, journey: Journey) -> list[tuple[Place, bytes]]:
        """Where a frame that leaves by a port arrives next; hosts keep it."""
        link = self._links.get(place)
        if link is not None:
            return [] if link in self._cut else [(link.peer_of(place), frame)]
        for host in self.hosts.values():
            if (host.switch, host.port) == place:
                host.frames.append(frame)
                journey.hosts.append(host.name)
        return []

    def close(self) -> None:
        """End all switches."""
        for switch in self.switches.values():
            switch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
