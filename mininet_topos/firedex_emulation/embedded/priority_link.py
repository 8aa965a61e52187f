"""An outgoing link of a switch in user space: strict non-preemptive priorities at a bandwidth.

``PriorityLink`` is pure: the caller passes the time. It computes departures from these times, so a
late call does not delay packets. ``ShapedPort`` runs a link on the clock of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from firedex.wire import Buffer, Network, Scenario, Subscriber
from firedex.wire.network import switches_on_path

__all__ = [
    "LinkPacket",
    "PortName",
    "PortSettings",
    "PriorityLink",
    "ShapedPort",
    "port_settings",
    "ports_on_path",
    "send_over",
]


@dataclass(slots=True, eq=False)
class LinkPacket:
    """A packet, sized with all headers; one that is not ``droppable`` is always queued."""

    priority: int
    wire_bytes: int
    content: object = None
    droppable: bool = True


class PriorityLink:
    """Queues of one port. The buffer size counts waiting packets, not the one being sent."""

    def __init__(self, *, bits_per_second: float, classes: int, buffer: Buffer) -> None:
        self._bits_per_second, self._buffer = bits_per_second, buffer
        self._queues: tuple[deque[LinkPacket], ...] = tuple(deque() for _ in range(classes))
        self._waiting = 0
        self._sending: LinkPacket | None = None
        self._done_at = 0.0
        self._sent: list[tuple[float, LinkPacket]] = []

    @property
    def next_done_at(self) -> float | None:
        """Time at which the current packet is sent completely; None on an idle link."""
        return None if self._sending is None else self._done_at

    def set_bandwidth(self, now: float, bits_per_second: float) -> None:
        """Set the bandwidth for the next packets."""
        self._advance(now)
        self._bits_per_second = bits_per_second

    def offer(self, now: float, packet: LinkPacket) -> LinkPacket | None:
        """Queue a packet; return the packet that is dropped for it, if any (maybe this one)."""
        self._advance(now)
        packet.priority = min(packet.priority, len(self._queues) - 1)
        if self._sending is None:
            self._start_sending(now, packet)
            return None
        lost = self._make_room(packet) if packet.droppable else None
        if lost is not packet:
            self._queues[packet.priority].append(packet)
            self._waiting += 1
        return lost

    def take_sent(self, now: float) -> list[tuple[float, LinkPacket]]:
        """Return the packets sent since the last call, each with its departure time."""
        self._advance(now)
        sent, self._sent = self._sent, []
        return sent

    def _advance(self, now: float) -> None:
        while self._sending is not None and self._done_at <= now:
            self._sent.append((self._done_at, self._sending))
            self._sending = None
            queue = next((queue for queue in self._queues if queue), None)
            if queue is not None:
                self._waiting -= 1
                self._start_sending(self._done_at, queue.popleft())

    def _start_sending(self, now: float, packet: LinkPacket) -> None:
        self._sending = packet
        self._done_at = now + packet.wire_bytes * 8 / self._bits_per_second

    def _make_room(self, packet: LinkPacket) -> LinkPacket | None:
        """Return the packet to drop so that ``packet`` fits; None if there is room."""
        room = self._buffer.packets
        if self._buffer.kind == "shared-push-out":
            if self._waiting < room:
                return None
            for queue in reversed(self._queues[packet.priority + 1 :]):
                victim = next((each for each in reversed(queue) if each.droppable), None)
                if victim is not None:
                    return self._remove(queue, victim)
            return packet
        queue = self._queues[packet.priority]
        if len(queue) < room:
            return None
        victim = next((each for each in queue if each.droppable), None)
        return packet if victim is None else self._remove(queue, victim)

    def _remove(self, queue: deque[LinkPacket], victim: LinkPacket) -> LinkPacket:
        queue.remove(victim)
        self._waiting -= 1
        return victim


PortName = tuple[str, str | None]
"""A switch and the next switch; None stands for the switch's own subscribers."""
UNMANAGED_BUFFER = Buffer(kind="per-class-head-drop", packets=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """Settings of one outgoing port. An unmanaged switch has one class."""

    bits_per_second: float
    classes: int
    buffer: Buffer
    propagation_seconds: float


def ports_on_path(network: Network, subscriber: Subscriber) -> tuple[PortName, ...]:
    """Return the ports on the path from the broker to a subscriber."""
    links = [(link.from_, link.to) for link in network.links]
    path = switches_on_path(links, network.broker.switch, subscriber.switch)
    return tuple(zip(path, (*path[1:], None), strict=True))


def port_settings(scenario: Scenario) -> Mapping[PortName, PortSettings]:
    """Return the settings of every port on a path to a subscriber."""
    network = scenario.network
    switches = {switch.id: switch for switch in network.switches}
    links = {
        pair: link.bandwidth_bits_per_second
        for link in network.links
        for pair in ((link.from_, link.to), (link.to, link.from_))
    }
    found: dict[PortName, PortSettings] = {}
    for subscriber in scenario.subscribers:
        for port in ports_on_path(network, subscriber):
            switch, towards = switches[port[0]], port[1]
            link = None if towards is None else links.get((switch.id, towards))
            found[port] = PortSettings(
                bits_per_second=link or switch.bandwidth_bits_per_second,
                classes=switch.priorities if switch.managed else 1,
                buffer=switch.buffer or UNMANAGED_BUFFER,
                propagation_seconds=switch.propagation_seconds,
            )
    return found


OnArrival = Callable[[], None]


class ShapedPort:
    """One outgoing port of a switch."""

    def __init__(self, settings: PortSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._propagation_seconds = settings.propagation_seconds
        self._link = PriorityLink(
            bits_per_second=settings.bits_per_second,
            classes=settings.classes,
            buffer=settings.buffer,
        )
        self._timer: asyncio.TimerHandle | None = None
        self.sent_packets = self.lost_packets = 0

    def set_bandwidth(self, bits_per_second: float) -> None:
        """Set the bandwidth for the next packets."""
        self._link.set_bandwidth(self._loop.time(), bits_per_second)

    def send(self, priority: int, wire_bytes: int, droppable: bool, on_arrival: OnArrival) -> None:
        """Send a packet; call ``on_arrival`` at the other end, unless it is dropped."""
        packet = LinkPacket(priority, wire_bytes, on_arrival, droppable)
        self.lost_packets += self._link.offer(self._loop.time(), packet) is not None
        self._deliver_sent()

    def _deliver_sent(self) -> None:
        for done_at, packet in self._link.take_sent(self._loop.time()):
            self.sent_packets += 1
            on_arrival: OnArrival = packet.content  # type: ignore[assignment]
            if self._propagation_seconds:
                self._loop.call_at(done_at + self._propagation_seconds, on_arrival)
            else:
                on_arrival()
        if self._timer is not None:
            self._timer.cancel()
        due = self._link.next_done_at
        self._timer = None if due is None else self._loop.call_at(due, self._deliver_sent)


def send_over(
    ports: Sequence[ShapedPort],
    priority: int,
    wire_bytes: int,
    *,
    droppable: bool,
    on_arrival: OnArrival,
) -> None:
    """Send a packet over all ``ports``; call ``on_arrival`` if none of them drops it."""
    if not ports:
        on_arrival()
        return
    remaining = ports[1:]
    ports[0].send(
        priority,
        wire_bytes,
        droppable,
        lambda: send_over(
            remaining, priority, wire_bytes, droppable=droppable, on_arrival=on_arrival
        ),
    )
