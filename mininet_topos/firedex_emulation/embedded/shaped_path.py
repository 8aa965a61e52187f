"""Ports in time: each sends its packets when the event loop's clock says so, over to the next."""

import asyncio
from collections.abc import Callable, Sequence

from firedex_emulation.embedded.link_paths import PortSettings
from firedex_emulation.embedded.priority_link import LinkPacket, PriorityLink

__all__ = ["ShapedPort", "travel"]

Arrived = Callable[[], None]


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
        """From the next packet on."""
        self._link.set_bandwidth(self._loop.time(), bits_per_second)

    def enter(self, priority: int, wire_bytes: int, droppable: bool, arrived: Arrived) -> None:
        """Send a packet; ``arrived`` is called at the other end, unless it is lost here."""
        packet = LinkPacket(priority, wire_bytes, arrived, droppable)
        self.lost_packets += self._link.offer(self._loop.time(), packet) is not None
        self._hand_on()

    def _hand_on(self) -> None:
        for done_at, packet in self._link.sent_by(self._loop.time()):
            self.sent_packets += 1
            arrived: Arrived = packet.content  # type: ignore[assignment]
            if self._propagation_seconds:
                self._loop.call_at(done_at + self._propagation_seconds, arrived)
            else:
                arrived()
        if self._timer is not None:
            self._timer.cancel()
        due = self._link.next_done_at
        self._timer = None if due is None else self._loop.call_at(due, self._hand_on)


def travel(
    ports: Sequence[ShapedPort],
    priority: int,
    wire_bytes: int,
    *,
    droppable: bool,
    arrived: Arrived,
) -> None:
    """Send a packet over all of ``ports``; ``arrived`` is called if none of them loses it."""
    if not ports:
        arrived()
        return
    onward = ports[1:]
    ports[0].enter(
        priority,
        wire_bytes,
        droppable,
        lambda: travel(onward, priority, wire_bytes, droppable=droppable, arrived=arrived),
    )
