"""A link as a managed switch has it: strict priorities, not preemptive, at its bandwidth. Pure.

Time is told to it. A packet takes its bits at the bandwidth; whoever was told late loses nothing by
it, since what was sent meanwhile is worked out from the times themselves.
"""

from collections import deque
from dataclasses import dataclass

from firedex.wire import Buffer

__all__ = ["LinkPacket", "PriorityLink"]


@dataclass(slots=True, eq=False)
class LinkPacket:
    """A packet with all its headers. One that is not ``droppable`` waits however full it is."""

    priority: int
    wire_bytes: int
    content: object = None
    droppable: bool = True


class PriorityLink:
    """Queues and sends. The buffer counts what waits, not what is being sent."""

    def __init__(self, *, bits_per_second: float, classes: int, buffer: Buffer) -> None:
        self._bits_per_second, self._buffer = bits_per_second, buffer
        self._queues: tuple[deque[LinkPacket], ...] = tuple(deque() for _ in range(classes))
        self._waiting = 0
        self._sending: LinkPacket | None = None
        self._done_at = 0.0
        self._sent: list[tuple[float, LinkPacket]] = []

    @property
    def next_done_at(self) -> float | None:
        """When the packet that is being sent has left; None on an idle link."""
        return None if self._sending is None else self._done_at

    def set_bandwidth(self, now: float, bits_per_second: float) -> None:
        """From the next packet on."""
        self._advance(now)
        self._bits_per_second = bits_per_second

    def offer(self, now: float, packet: LinkPacket) -> LinkPacket | None:
        """Take a packet; return the one that is lost for it, if any (it may be this one)."""
        self._advance(now)
        packet.priority = min(packet.priority, len(self._queues) - 1)
        if self._sending is None:
            self._send(now, packet)
            return None
        lost = self._make_room(packet) if packet.droppable else None
        if lost is not packet:
            self._queues[packet.priority].append(packet)
            self._waiting += 1
        return lost

    def sent_by(self, now: float) -> list[tuple[float, LinkPacket]]:
        """What has left since the last call, each with when it did."""
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
                self._send(self._done_at, queue.popleft())

    def _send(self, now: float, packet: LinkPacket) -> None:
        self._sending = packet
        self._done_at = now + packet.wire_bytes * 8 / self._bits_per_second

    def _make_room(self, packet: LinkPacket) -> LinkPacket | None:
        """What must go, if anything, so that ``packet`` may come."""
        room = self._buffer.packets
        if self._buffer.kind == "shared-push-out":
            if self._waiting < room:
                return None
            for queue in reversed(self._queues[packet.priority + 1 :]):
                victim = next((each for each in reversed(queue) if each.droppable), None)
                if victim is not None:
                    return self._take_out(queue, victim)
            return packet
        queue = self._queues[packet.priority]
        if len(queue) < room:
            return None
        victim = next((each for each in queue if each.droppable), None)
        return packet if victim is None else self._take_out(queue, victim)

    def _take_out(self, queue: deque[LinkPacket], victim: LinkPacket) -> LinkPacket:
        queue.remove(victim)
        self._waiting -= 1
        return victim
