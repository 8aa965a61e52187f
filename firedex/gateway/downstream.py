"""The path of packets from the broker to a subscriber over TCP. No sockets.

Packets pass unchanged, with two exceptions. A QoS 0 event that is not retained is dropped with a
probability equal to the flow's drop rate. While the subscriber's socket accepts no more data,
packets wait in a bounded buffer (`flow_buffer`). Events of an unmanaged connection are neither
dropped nor shed: reading from the broker is paused instead.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer
from firedex.gateway.flow_table import EventTotals, FlowCounts, ManagedFlow, TopicCounts
from firedex.gateway.interest_packets import ConnectionObserver
from firedex.transport.mqtt.encoding import (
    MalformedPacket,
    PacketSplitter,
    PacketType,
    PropertyId,
    encode_variable_integer,
    read_properties,
    read_variable_integer,
    variable_header_start,
)
from firedex.transport.mqtt.version import MQTT_5

__all__ = ["AliasedEvent", "Downstream", "Sink", "TopicAliases", "is_droppable"]

WRITE_BYTES = 16_384
"""Size of one write. It is small because data that was written can no longer be shed."""
PUBLISH = PacketType.PUBLISH << 4
QOS_BITS = 0b0110
RETAIN_BIT = 0b0001


def is_droppable(packet: bytes) -> bool:
    """Return whether drop rates apply to a packet: an event at QoS 0 that is not retained."""
    return packet[0] & 0b11110111 == PUBLISH


# -- topic aliases ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasedEvent:
    """A PUBLISH packet with its resolved topic; ``alias`` is 0 if it has none."""

    packet: bytes
    topic: bytes
    alias: int


class TopicAliases:
    """Keep MQTT 5 topic aliases valid even if the packet that defines one is dropped.

    The broker sends the name of a topic once, and then only its alias. If the packet with the name
    is not delivered, the name is added to the next packet with this alias that is.
    """

    def __init__(self, maximum_packet_bytes: int | None = None) -> None:
        self._defined_by_broker: dict[int, bytes] = {}
        self._known_to_client: dict[int, bytes] = {}
        self._maximum_packet_bytes = maximum_packet_bytes

    def resolve(self, packet: bytes) -> AliasedEvent:
        """Resolve the topic of a PUBLISH packet; call it for each one, in order of arrival."""
        at = variable_header_start(packet)
        end = at + 2 + int.from_bytes(packet[at : at + 2], "big")
        topic = packet[at + 2 : end]
        properties_at = end + 2 if packet[0] & QOS_BITS else end
        if properties_at >= len(packet):
            raise MalformedPacket("a PUBLISH packet ends before its properties")
        alias = read_properties(packet, properties_at).numbers.get(PropertyId.TOPIC_ALIAS, 0)
        if not alias:
            return AliasedEvent(packet=packet, topic=topic, alias=0)
        if topic:
            self._defined_by_broker[alias] = topic
        elif alias in self._defined_by_broker:
            topic = self._defined_by_broker[alias]
        else:
            raise MalformedPacket(f"the broker did not define topic alias {alias}")
        return AliasedEvent(packet=packet, topic=topic, alias=alias)

    def packet_for_client(self, event: AliasedEvent) -> bytes | None:
        """Return the packet for the client, or None if it exceeds the client's maximum size."""
        if not event.alias or self._known_to_client.get(event.alias) == event.topic:
            return event.packet
        packet = _with_topic_name(event)
        if self._maximum_packet_bytes is not None and len(packet) > self._maximum_packet_bytes:
            return None
        self._known_to_client[event.alias] = event.topic
        return packet


def _with_topic_name(event: AliasedEvent) -> bytes:
    packet = event.packet
    at = variable_header_start(packet)
    if int.from_bytes(packet[at : at + 2], "big"):
        return packet
    body = len(event.topic).to_bytes(2, "big") + event.topic + packet[at + 2 :]
    return packet[:1] + encode_variable_integer(len(body)) + body


# -- packets ---------------------------------------------------------------------------------------


class Sink(Protocol):
    """The socket of the subscriber."""

    @property
    def congested(self) -> bool:
        """Whether the socket accepts no more data at present."""

    def write(self, data: bytes) -> None:
        """Send ``data``."""


class _OutgoingPacket(NamedTuple):
    packet: bytes
    event: AliasedEvent | None
    counts: FlowCounts | None
    topic: bytes

    def topic_counts(self) -> TopicCounts | None:
        """Return the counts of the window in which the packet is sent."""
        return None if self.counts is None else self.counts.topic(self.topic)


class Downstream:
    """The path of one connection from the broker to its subscriber.

    Packets other than events are shown to ``observer``.
    """

    def __init__(
        self,
        sink: Sink,
        find_flow: Callable[[], ManagedFlow | None],
        *,
        level: int,
        aliases: TopicAliases | None,
        limits: BufferLimits,
        generator: random.Random,
        unmanaged: EventTotals,
        observer: ConnectionObserver | None = None,
    ) -> None:
        self._observer = observer
        self._sink, self._find_flow, self._generator = sink, find_flow, generator
        self._level, self._aliases = level, aliases
        self._limits, self._unmanaged = limits, unmanaged
        self._splitter = PacketSplitter()
        self._buffer: FlowBuffer[_OutgoingPacket] = FlowBuffer(limits)
        self._flow: ManagedFlow | None = None
        self._ready: list[bytes] = []
        self._ready_bytes = 0

    @property
    def full(self) -> bool:
        """Whether reading from the broker must be paused."""
        return self._buffer.full or (self._flow is None and len(self._buffer) > 0)

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes held for the subscriber."""
        return self._buffer.waiting_bytes + self._splitter.buffered_bytes

    def receive(self, data: bytes, now: float) -> None:
        """Process bytes from the broker."""
        self._flow = flow = self._find_flow()
        counts = None if flow is None else flow.counts
        drop_rate = 0.0 if flow is None else flow.drop_rate
        for packet in self._splitter.feed(data):
            if packet[0] & 0xF0 != PUBLISH:
                if self._observer is not None:
                    self._observer.broker_sent(packet)
                self._send_or_buffer(
                    _OutgoingPacket(packet, None, None, b""), None, now, sheddable=False
                )
            else:
                self._receive_event(packet, counts, drop_rate, now)
        self._flush()

    def _receive_event(
        self, packet: bytes, counts: FlowCounts | None, drop_rate: float, now: float
    ) -> None:
        totals = self._unmanaged if counts is None else counts.totals
        event = None if self._aliases is None else self._aliases.resolve(packet)
        droppable, topic_counts, topic = is_droppable(packet), None, b""
        totals.offered += droppable
        if counts is not None and not packet[0] & RETAIN_BIT:
            topic, payload_bytes = self._read_topic(packet)
            topic = topic if event is None else event.topic
            topic_counts = counts.topic(topic)
            topic_counts.offered += 1
            topic_counts.payload_bytes += payload_bytes
        if droppable and drop_rate > 0 and self._generator.random() < drop_rate:
            totals.dropped += 1
            return
        outgoing = _OutgoingPacket(packet, event, None if topic_counts is None else counts, topic)
        self._send_or_buffer(
            outgoing, topic_counts, now, sheddable=droppable and counts is not None
        )

    def _read_topic(self, packet: bytes) -> tuple[bytes, int]:
        """Return the topic in the packet (empty if it has an alias) and the size of the payload."""
        at = 2 if packet[1] < 0x80 else variable_header_start(packet)
        if at + 2 > len(packet):
            raise MalformedPacket("a PUBLISH packet has no topic")
        end = at + 2 + (packet[at] << 8 | packet[at + 1])
        payload_at = end + 2 if packet[0] & QOS_BITS else end
        if self._level == MQTT_5:
            length, payload_at = read_variable_integer(packet, payload_at)
            payload_at += length
        if payload_at > len(packet):
            raise MalformedPacket("a PUBLISH packet is too short")
        return packet[at + 2 : end], len(packet) - payload_at

    def _send_or_buffer(
        self,
        outgoing: _OutgoingPacket,
        topic_counts: TopicCounts | None,
        now: float,
        *,
        sheddable: bool,
    ) -> None:
        if not self._buffer and not self._sink.congested:
            self._send(outgoing, topic_counts)
            return
        sheddable = sheddable and self._flow is not None
        size = len(outgoing.packet)
        self._count_shed(self._buffer.add(outgoing, size, sheddable=sheddable, now=now))

    def _send(self, outgoing: _OutgoingPacket, topic_counts: TopicCounts | None) -> None:
        packet: bytes | None = outgoing.packet
        if outgoing.event is not None and self._aliases is not None:
            packet = self._aliases.packet_for_client(outgoing.event)
        totals = self._unmanaged if self._flow is None else self._flow.counts.totals
        if packet is None:
            totals.refused += 1
            return
        if topic_counts is not None:
            topic_counts.delivered += 1
        totals.delivered += is_droppable(packet)
        self._ready.append(packet)
        self._ready_bytes += len(packet)
        if self._ready_bytes >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._ready:
            data = b"".join(self._ready) if len(self._ready) > 1 else self._ready[0]
            self._ready, self._ready_bytes = [], 0
            self._sink.write(data)

    def _count_shed(self, shed: list[_OutgoingPacket]) -> None:
        if shed and self._flow is not None:
            self._flow.counts.totals.shed += len(shed)

    def drain(self, now: float, *, final: bool = False) -> None:
        """Send waiting packets while the socket accepts data; ``final`` sends all of them."""
        while self._buffer and (final or not self._sink.congested):
            outgoing, shed = self._buffer.take(now)
            self._count_shed(shed)
            if outgoing is not None:
                self._send(outgoing, outgoing.topic_counts())
        self._flush()
