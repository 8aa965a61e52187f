"""From broker to subscriber: which packets pass, which a drop rate takes, which wait. No sockets.

Every packet passes as it is, but: an event at QoS 0 that is not retained is dropped with the flow's
probability; and while the subscriber's socket takes no more, what waits is bounded (`flow_buffer`).
A connection that the service does not know is neither thinned nor shed: it is held back instead.
"""

import random
from collections.abc import Callable
from typing import NamedTuple, Protocol

from firedex.gateway.errors import MalformedPacket
from firedex.gateway.event_counts import FlowCounts, TopicTally, Totals
from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer
from firedex.gateway.flow_table import ManagedFlow
from firedex.gateway.mqtt_packets import PacketCutter, PacketKind, body_start, may_be_dropped
from firedex.gateway.mqtt_properties import read_variable_integer
from firedex.gateway.topic_aliases import AliasedEvent, TopicAliases

__all__ = ["Downstream", "Sink"]

WRITE_BYTES = 16_384
"""Written at once, so that no more than this is beyond the reach of shedding."""
PUBLISH = PacketKind.PUBLISH << 4
LEVEL_FIVE = 5


class Sink(Protocol):
    """Where packets go: a socket's transport."""

    @property
    def congested(self) -> bool:
        """Whether it takes no more for now."""

    def write(self, data: bytes) -> None:
        """Send."""


class _Outgoing(NamedTuple):
    """A packet that waits, and what must still be done for it."""

    packet: bytes
    event: AliasedEvent | None
    counts: FlowCounts | None
    topic: bytes

    def tally(self) -> TopicTally | None:
        """That of the window in which it is sent, whenever it came."""
        return None if self.counts is None else self.counts.topic(self.topic)


class Downstream:
    """One connection's way from the broker to its subscriber."""

    def __init__(
        self,
        sink: Sink,
        find_flow: Callable[[], ManagedFlow | None],
        *,
        level: int,
        aliases: TopicAliases | None,
        limits: BufferLimits,
        coins: random.Random,
        unmanaged: Totals,
    ) -> None:
        self._sink, self._find_flow, self._coins = sink, find_flow, coins
        self._level, self._aliases = level, aliases
        self._limits, self._unmanaged = limits, unmanaged
        self._cutter = PacketCutter()
        self._buffer: FlowBuffer[_Outgoing] = FlowBuffer(limits)
        self._flow: ManagedFlow | None = None
        self._ready: list[bytes] = []
        self._ready_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the broker must be held back."""
        return self._buffer.full or (self._flow is None and len(self._buffer) > 0)

    @property
    def waiting_bytes(self) -> int:
        """What is held for the subscriber."""
        return self._buffer.waiting_bytes + self._cutter.waiting_bytes

    def received(self, data: bytes, now: float) -> None:
        """Bytes from the broker."""
        self._flow = flow = self._find_flow()
        counts = None if flow is None else flow.counts
        drop_rate = 0.0 if flow is None else flow.drop_rate
        for packet in self._cutter.cut(data):
            if packet[0] & 0xF0 != PUBLISH:
                self._pass(_Outgoing(packet, None, None, b""), None, now, sheddable=False)
            else:
                self._event(packet, counts, drop_rate, now)
        self._flush()

    def _event(
        self, packet: bytes, counts: FlowCounts | None, drop_rate: float, now: float
    ) -> None:
        totals = self._unmanaged if counts is None else counts.totals
        event = None if self._aliases is None else self._aliases.received(packet)
        droppable, tally, topic = may_be_dropped(packet), None, b""
        totals.offered += droppable
        if counts is not None and not packet[0] & 1:
            topic, payload_bytes = self._look_at(packet)
            topic = topic if event is None else event.topic
            tally = counts.topic(topic)
            tally.offered += 1
            tally.payload_bytes += payload_bytes
        if droppable and drop_rate > 0 and self._coins.random() < drop_rate:
            totals.dropped += 1
            return
        outgoing = _Outgoing(packet, event, None if tally is None else counts, topic)
        self._pass(outgoing, tally, now, sheddable=droppable and counts is not None)

    def _look_at(self, packet: bytes) -> tuple[bytes, int]:
        """Topic, as it stands in the packet, and size of the payload."""
        at = 2 if packet[1] < 0x80 else body_start(packet)
        if at + 2 > len(packet):
            raise MalformedPacket("a PUBLISH without a topic")
        end = at + 2 + (packet[at] << 8 | packet[at + 1])
        payload_at = end + 2 if packet[0] & 0b0110 else end
        if self._level == LEVEL_FIVE:
            length, payload_at = read_variable_integer(packet, payload_at)
            payload_at += length
        if payload_at > len(packet):
            raise MalformedPacket("a PUBLISH that ends too early")
        return packet[at + 2 : end], len(packet) - payload_at

    def _pass(
        self, outgoing: _Outgoing, tally: TopicTally | None, now: float, *, sheddable: bool
    ) -> None:
        if not self._buffer and not self._sink.congested:
            self._send(outgoing, tally)
            return
        self._count_shed(
            self._buffer.add(outgoing, len(outgoing.packet), sheddable=sheddable, now=now)
            if self._flow is not None
            else self._hold(outgoing, now)
        )

    def _hold(self, outgoing: _Outgoing, now: float) -> list[_Outgoing]:
        return self._buffer.add(outgoing, len(outgoing.packet), sheddable=False, now=now)

    def _send(self, outgoing: _Outgoing, tally: TopicTally | None) -> None:
        packet: bytes | None = outgoing.packet
        if outgoing.event is not None and self._aliases is not None:
            packet = self._aliases.to_send(outgoing.event)
        totals = self._unmanaged if self._flow is None else self._flow.counts.totals
        if packet is None:
            totals.refused += 1
            return
        if tally is not None:
            tally.delivered += 1
        totals.delivered += may_be_dropped(packet)
        self._ready.append(packet)
        self._ready_bytes += len(packet)
        if self._ready_bytes >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._ready:
            data = b"".join(self._ready) if len(self._ready) > 1 else self._ready[0]
            self._ready, self._ready_bytes = [], 0
            self._sink.write(data)

    def _count_shed(self, shed: list[_Outgoing]) -> None:
        if shed and self._flow is not None:
            self._flow.counts.totals.shed += len(shed)

    def drain(self, now: float) -> None:
        """The subscriber's socket takes more: send what waits."""
        while self._buffer and not self._sink.congested:
            outgoing, shed = self._buffer.take(now)
            self._count_shed(shed)
            if outgoing is not None:
                self._send(outgoing, outgoing.tally())
        self._flush()

    def finish(self, now: float) -> None:
        """The broker has closed: hand over all that still may be sent."""
        while self._buffer:
            outgoing, shed = self._buffer.take(now)
            self._count_shed(shed)
            if outgoing is not None:
                self._send(outgoing, outgoing.tally())
        self._flush()
