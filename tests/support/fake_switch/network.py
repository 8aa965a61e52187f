"""A network of fake switches: links, hosts, and the frames between them."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from firedex_controller.errors import ControllerError
from tests.support.fake_switch.switch import FakeSwitch

__all__ = ["FakeHost", "FakeLink", "FakeNetwork", "FramePath", "UnknownPart"]

HOP_LIMIT = 32
FRAME_LIMIT = 2_000  # copies of one frame; more is a broadcast storm
PortId = tuple[str, int]


class UnknownPart(ControllerError):
    """An unknown switch, port, link or host, or a port that is in use."""


@dataclass(frozen=True, slots=True)
class FakeLink:
    """A link between two ports, each a switch name and a port number."""

    one: PortId
    other: PortId

    def peer_of(self, port_id: PortId) -> PortId:
        """Return the other end."""
        return self.other if port_id == self.one else self.one


@dataclass(slots=True)
class FakeHost:
    """A host: its port, and the frames that reached it."""

    name: str
    mac: str
    ip: str
    switch: str
    port: int
    frames: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class FramePath:
    """The path of one frame; ``storm`` means that it was in an endless loop."""

    hosts: list[str] = field(default_factory=list)
    passed: list[PortId] = field(default_factory=list)
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
        self._links: dict[PortId, FakeLink] = {}
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
        """Add a switch with ports numbered from 1; it connects at once if ``connect``."""
        names = [f"{name}-eth{n + 1}" for n in range(ports)] if isinstance(ports, int) else ports
        switch = FakeSwitch(self, name, datapath_id, names)
        self.switches[name] = switch
        if connect:
            switch.start()
        return switch

    def add_link(self, one: tuple[str, int | str], other: tuple[str, int | str]) -> FakeLink:
        """Add a link between two ports, each (switch, port number or name)."""
        link = FakeLink(self._port_id(*one), self._port_id(*other))
        self.links.append(link)
        self._links[link.one] = self._links[link.other] = link
        return link

    def add_host(self, name: str, *, mac: str, ip: str, switch: str, port: int | str) -> FakeHost:
        """Add a host at a port."""
        port_id = self._port_id(switch, port)
        self.hosts[name] = FakeHost(name, mac, ip, *port_id)
        return self.hosts[name]

    def _port_id(self, switch: str, port: int | str) -> PortId:
        if switch not in self.switches:
            raise UnknownPart(f"no switch {switch!r}; there are {', '.join(self.switches)}")
        number = self.switches[switch].port_number(port)
        port_id = (switch, number)
        taken = port_id in self._links or any(
            port_id == (host.switch, host.port) for host in self.hosts.values()
        )
        if number not in self.switches[switch].port_names or taken:
            raise UnknownPart(f"port {port!r} of {switch!r} is taken, or there is none")
        return port_id

    # -- events -------------------------------------------------------------------------------

    def cut(self, link: FakeLink, *, silently: bool = False) -> None:
        """Cut a link: both ports go down; with ``silently``, frames are only dropped."""
        self._set_link(link, up=False, silently=silently)

    def restore(self, link: FakeLink, *, silently: bool = False) -> None:
        """Restore a link that was cut."""
        self._set_link(link, up=True, silently=silently)

    def _set_link(self, link: FakeLink, *, up: bool, silently: bool) -> None:
        with self.lock:
            (self._cut.discard if up else self._cut.add)(link)
            if not silently:
                for switch, port in (link.one, link.other):
                    self.switches[switch].set_port_up(port, up=up)

    def move(self, host: str, *, switch: str, port: int | str) -> None:
        """Move a host to another port."""
        with self.lock:
            moved = self.hosts[host]
            moved.switch, moved.port = self._port_id(switch, port)

    def send(self, host: str, frame: bytes) -> FramePath:
        """Send a frame from a host."""
        sender = self.hosts[host]
        return self.deliver(self.switches[sender.switch], sender.port, frame)

    def deliver(self, switch: FakeSwitch, in_port: int, frame: bytes) -> FramePath:
        """Deliver a frame to a port of a switch, and follow it to its destinations."""
        return self._deliver_all(deque([((switch.name, in_port), frame, 0)]))

    def send_from_port(self, switch: FakeSwitch, port: int, frame: bytes) -> FramePath:
        """Send a frame out of a port of a switch, and follow it to its destinations."""
        path = FramePath()
        with self.lock:
            arrivals = self._next_hops((switch.name, port), frame, path)
            next_path = self._deliver_all(deque((port_id, frame, 0) for port_id, frame in arrivals))
        next_path.hosts += path.hosts
        return next_path

    def _deliver_all(self, arriving: deque[tuple[PortId, bytes, int]]) -> FramePath:
        path = FramePath()
        with self.lock:
            while arriving:
                port_id, frame, hops = arriving.popleft()
                if hops >= HOP_LIMIT or len(path.passed) >= FRAME_LIMIT:
                    path.storm = True
                    self.storms += 1
                    break
                path.passed.append(port_id)
                switch = self.switches[port_id[0]]
                sent_before = switch.packet_ins_sent
                for port, sent in switch.process_frame(port_id[1], frame):
                    for next_port, carried in self._next_hops((switch.name, port), sent, path):
                        arriving.append((next_port, carried, hops + 1))
                path.packet_ins += switch.packet_ins_sent - sent_before
        return path

    def _next_hops(
        self, port_id: PortId, frame: bytes, path: FramePath
    ) -> list[tuple[PortId, bytes]]:
        """Return the port that a frame reaches next; a host stores it instead."""
        link = self._links.get(port_id)
        if link is not None:
            return [] if link in self._cut else [(link.peer_of(port_id), frame)]
        for host in self.hosts.values():
            if (host.switch, host.port) == port_id:
                host.frames.append(frame)
                path.hosts.append(host.name)
        return []

    def close(self) -> None:
        """Stop all switches."""
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
