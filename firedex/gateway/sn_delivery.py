"""Delivery of events from the broker to one MQTT-SN client: drop rate, topic ids, retries, sleep.

One event is one datagram. An event that is too large is refused; at QoS 1 and 2 the gateway
acknowledges it to the broker, because the broker would send it again and again otherwise.

All buffers are bounded: for a congested socket, for a sleeping client, and for topics that the
client does not know yet. The oldest QoS 0 events are shed first; if events that cannot be shed fill
a buffer, reading from the broker is paused. No sockets.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer
from firedex.gateway.flow_table import EventTotals, FlowCounts, ManagedFlow, TopicCounts
from firedex.gateway.sn_topics import TooManyTopics, TopicIds
from firedex.transport.event_stamp import PROPERTY, EventStamp
from firedex.transport.mqtt.encoding import PacketType
from firedex.transport.mqtt.packets import PublishPacket, encode_acknowledgement
from firedex.transport.mqtt_sn import (
    Pubrel,
    Register,
    ReturnCode,
    TopicKind,
    encode,
    encode_publish,
)
from firedex.transport.mqtt_sn.codec import DUP, QOS_BITS, RETAIN
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES

__all__ = ["Outlets", "SnDelivery"]

SLEEP_BUFFER_LIMITS = BufferLimits(bytes=65_536, seconds=86_400.0)
OVERHEAD_BYTES = 64
"""Memory of a waiting event in addition to its topic and payload."""
MAX_PENDING_REGISTERS = 256
"""With more unacknowledged REGISTER messages, reading from the broker is paused."""
MAX_REJECTIONS = 3
"""How often a client may reject the topic id of one event."""
QOS_2 = 2
_PROPERTY = PROPERTY.encode()


@dataclass(frozen=True, slots=True)
class Outlets:
    """The functions with which a session sends to its client and to the broker."""

    to_client: Callable[[bytes], None]
    to_broker: Callable[[bytes], None]
    congested: Callable[[], bool]
    pause_reading: Callable[[bool], None]


@dataclass(slots=True)
class _OutgoingEvent:
    """An event to send; its delivery is counted in ``counts``."""

    event: PublishPacket
    counts: FlowCounts | None
    rejections: int = 0
    topic_id: int = 0

    @property
    def sheddable(self) -> bool:
        return self.event.qos == 0 and not self.event.retain

    @property
    def size(self) -> int:
        return len(self.event.payload) + len(self.event.topic) + OVERHEAD_BYTES

    def topic_counts(self) -> TopicCounts | None:
        """Return the counts of the current window, in which the event is sent."""
        return None if self.counts is None else self.counts.topic(self.event.topic)


@dataclass(slots=True)
class _InFlightDatagram:
    """A datagram that is repeated until it is acknowledged."""

    datagram: bytes
    repeat_at: float
    attempts: int = 1


@dataclass(slots=True)
class _InFlightPublish(_InFlightDatagram):
    outgoing: _OutgoingEvent | None = None


class SnDelivery:
    """The path of events from the broker to one client."""

    def __init__(
        self,
        outlets: Outlets,
        topics: TopicIds,
        find_flow: Callable[[], ManagedFlow | None],
        *,
        generator: random.Random,
        unmanaged: EventTotals,
        retry_seconds: float,
        limits: BufferLimits,
    ) -> None:
        self._outlets, self.topics, self._find_flow = outlets, topics, find_flow
        self._generator, self._unmanaged, self._retry_seconds = generator, unmanaged, retry_seconds
        self.asleep = False
        self.stamped = False
        """Whether the client expects event stamps before payloads."""
        self._sleeping: FlowBuffer[_OutgoingEvent] = FlowBuffer(SLEEP_BUFFER_LIMITS)
        self._waiting: FlowBuffer[_OutgoingEvent] = FlowBuffer(limits)
        self._unregistered: FlowBuffer[_OutgoingEvent] = FlowBuffer(limits)
        self._pending_registers: dict[int, tuple[int, _InFlightDatagram]] = {}
        self._unregistered_ids: set[int] = set()
        self._unacknowledged_events: dict[int, _InFlightPublish] = {}
        self._unacknowledged_pubrels: dict[int, _InFlightDatagram] = {}
        self._refused_ids: set[int] = set()
        self._next_id = 0
        self._flow: ManagedFlow | None = None

    @property
    def waiting_events(self) -> int:
        """Number of events held for the client."""
        return len(self._sleeping) + len(self._waiting) + len(self._unregistered)

    @property
    def waiting_bytes(self) -> int:
        """Approximate memory of the events held for the client."""
        buffers = (self._sleeping, self._waiting, self._unregistered)
        return sum(each.waiting_bytes for each in buffers)

    @property
    def full(self) -> bool:
        """Whether reading from the broker must be paused."""
        buffers = (self._sleeping, self._waiting, self._unregistered)
        return (
            any(each.full for each in buffers)
            or len(self._pending_registers) > MAX_PENDING_REGISTERS
        )

    @property
    def registering(self) -> bool:
        """Whether events wait for the client to acknowledge REGISTER messages."""
        return bool(self._pending_registers)

    # -- events ------------------------------------------------------------------------------------

    def receive(self, event: PublishPacket, now: float) -> None:
        """Process an event from the broker."""
        self._flow = flow = self._find_flow()
        totals = self._unmanaged if flow is None else flow.counts.totals
        droppable = event.qos == 0 and not event.retain
        totals.offered += droppable
        counts = topic_counts = None
        if flow is not None:
            if not event.retain:
                counts = flow.counts
                topic_counts = counts.topic(event.topic)
                topic_counts.offered += 1
                topic_counts.payload_bytes += len(event.payload)
            if droppable and flow.drop_rate > 0 and self._generator.random() < flow.drop_rate:
                totals.dropped += 1
                return
        if self.stamped and event.user_properties:
            event = _with_stamp_header(event)
        outgoing = _OutgoingEvent(event, counts)
        if max(len(event.payload), len(event.topic)) > MAX_UDP_PAYLOAD_BYTES:
            self._refuse(event)
        elif self.asleep:
            self._buffer_event(self._sleeping, outgoing, now)
        elif len(self._waiting) or self._outlets.congested():
            self._buffer_event(self._waiting, outgoing, now)
        else:
            self._send(outgoing, topic_counts, now)

    def _totals(self) -> EventTotals:
        return self._unmanaged if self._flow is None else self._flow.counts.totals

    def _buffer_event(
        self, buffer: FlowBuffer[_OutgoingEvent], outgoing: _OutgoingEvent, now: float
    ) -> None:
        shed = buffer.add(outgoing, outgoing.size, sheddable=outgoing.sheddable, now=now)
        self._totals().shed += len(shed)
        if self.full:
            self._outlets.pause_reading(True)

    def _refuse(self, event: PublishPacket) -> None:
        self._totals().refused += 1
        if event.qos == 1:
            self._outlets.to_broker(encode_acknowledgement(PacketType.PUBACK, event.packet_id))
        elif event.qos:
            self._refused_ids.add(event.packet_id)
            self._outlets.to_broker(encode_acknowledgement(PacketType.PUBREC, event.packet_id))

    def _send(self, outgoing: _OutgoingEvent, topic_counts: TopicCounts | None, now: float) -> None:
        event = outgoing.event
        try:
            kind, topic_id, known = self.topics.to_client(event.topic)
        except TooManyTopics:
            self._refuse(event)
            return
        # An event never overtakes earlier ones of its topic that wait for REGACK.
        if not known or (topic_id in self._unregistered_ids and kind == TopicKind.NORMAL):
            outgoing.topic_id = topic_id
            if topic_id not in self._unregistered_ids:
                self._register(topic_id, event.topic, now)
            self._buffer_event(self._unregistered, outgoing, now)
            return
        flags = QOS_BITS[event.qos] | (RETAIN if event.retain else 0) | kind
        flags |= DUP if event.dup else 0
        datagram = encode_publish(flags, topic_id, event.packet_id, event.payload)
        self._outlets.to_client(datagram)
        if topic_counts is not None:
            topic_counts.delivered += 1
        if event.qos:
            self._unacknowledged_events[event.packet_id] = _InFlightPublish(
                datagram, now + self._retry_seconds, outgoing=outgoing
            )
        elif not event.retain:
            totals = self._unmanaged if self._flow is None else self._flow.counts.totals
            totals.delivered += 1

    def _register(self, topic_id: int, topic: bytes, now: float) -> None:
        self._next_id = self._next_id % 0xFFFF + 1
        register = Register(topic_id=topic_id, message_id=self._next_id, topic=topic.decode())
        in_flight = _InFlightDatagram(encode(register), now + self._retry_seconds)
        self._pending_registers[self._next_id] = (topic_id, in_flight)
        self._unregistered_ids.add(topic_id)
        self._outlets.to_client(in_flight.datagram)

    # -- acknowledgements --------------------------------------------------------------------------

    def regack(self, message_id: int, return_code: int, now: float) -> None:
        """Handle REGACK of the client: send the events that waited for it."""
        if return_code == ReturnCode.CONGESTION or message_id not in self._pending_registers:
            return  # on congestion, REGISTER is repeated later
        topic_id, _ = self._pending_registers.pop(message_id)
        self._unregistered_ids.discard(topic_id)
        queue = self._unregistered.take_matching(lambda outgoing: outgoing.topic_id == topic_id)
        if return_code == ReturnCode.ACCEPTED:
            self.topics.mark_known(topic_id)
        for outgoing in queue:
            if return_code != ReturnCode.ACCEPTED:
                self._refuse(outgoing.event)
            elif self.asleep:
                self._buffer_event(self._sleeping, outgoing, now)
            else:
                self._send(outgoing, outgoing.topic_counts(), now)
        self._outlets.pause_reading(self.full)

    def puback(self, message_id: int, return_code: int, topic_id: int, now: float) -> None:
        """Handle PUBACK of the client, which also rejects unknown topic ids at QoS 0 and 2."""
        unknown = return_code == ReturnCode.INVALID_TOPIC_ID
        if unknown:
            self.topics.mark_unknown(topic_id)
        in_flight = self._unacknowledged_events.get(message_id)
        outgoing = None if in_flight is None else in_flight.outgoing
        if outgoing is None or return_code == ReturnCode.CONGESTION:
            return  # on congestion, the event is repeated later
        event = outgoing.event
        if return_code == ReturnCode.ACCEPTED:
            if event.qos == 1:
                del self._unacknowledged_events[message_id]
                self._outlets.to_broker(encode_acknowledgement(PacketType.PUBACK, message_id))
            return
        del self._unacknowledged_events[message_id]
        outgoing.rejections += 1
        if unknown and outgoing.rejections <= MAX_REJECTIONS:
            outgoing.counts = None  # the event was counted before
            self._send(outgoing, None, now)
        else:
            self._refuse(event)

    def pubrec(self, message_id: int) -> None:
        """Handle PUBREC of the client."""
        in_flight = self._unacknowledged_events.get(message_id)
        if in_flight is not None:
            if in_flight.outgoing is not None and in_flight.outgoing.event.qos == QOS_2:
                del self._unacknowledged_events[message_id]
                self._outlets.to_broker(encode_acknowledgement(PacketType.PUBREC, message_id))
        elif message_id in self._unacknowledged_pubrels:
            self._outlets.to_client(self._unacknowledged_pubrels[message_id].datagram)

    def pubrel(self, message_id: int, now: float) -> None:
        """Handle PUBREL of the broker."""
        if message_id in self._refused_ids:
            self._refused_ids.discard(message_id)
            self._outlets.to_broker(encode_acknowledgement(PacketType.PUBCOMP, message_id))
            return
        datagram = encode(Pubrel(message_id=message_id))
        self._unacknowledged_pubrels[message_id] = _InFlightDatagram(
            datagram, now + self._retry_seconds
        )
        self._outlets.to_client(datagram)

    def pubcomp(self, message_id: int) -> None:
        """Handle PUBCOMP of the client."""
        if self._unacknowledged_pubrels.pop(message_id, None) is not None:
            self._outlets.to_broker(encode_acknowledgement(PacketType.PUBCOMP, message_id))

    # -- time --------------------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Send unacknowledged events again, then the events kept while the client was asleep."""
        self.asleep = False
        for each in self._all_in_flight():
            each.attempts, each.repeat_at = 1, now + self._retry_seconds
            self._outlets.to_client(_with_dup_flag(each.datagram))
        while len(self._sleeping):
            self._send_next(self._sleeping, now)
        self._outlets.pause_reading(self.full)

    def drain(self, now: float) -> None:
        """Send waiting events, because the socket accepts data again."""
        while len(self._waiting) and not self._outlets.congested():
            self._send_next(self._waiting, now)
        self._outlets.pause_reading(self.full)

    def _send_next(self, buffer: FlowBuffer[_OutgoingEvent], now: float) -> None:
        outgoing, shed = buffer.take(now)
        self._totals().shed += len(shed)
        if outgoing is not None:
            self._send(outgoing, outgoing.topic_counts(), now)

    def _all_in_flight(self) -> list[_InFlightDatagram]:
        registering = (each for _, each in self._pending_registers.values())
        return [
            *self._unacknowledged_events.values(),
            *self._unacknowledged_pubrels.values(),
            *registering,
        ]

    def repeat(self, now: float, max_attempts: int) -> bool:
        """Repeat unacknowledged datagrams; return False if one reached the maximum of attempts."""
        if self.asleep:
            return True
        for each in self._all_in_flight():
            if each.repeat_at > now:
                continue
            if each.attempts >= max_attempts:
                return False
            each.attempts += 1
            each.repeat_at = now + self._retry_seconds
            self._outlets.to_client(_with_dup_flag(each.datagram))
        return True


def _with_dup_flag(datagram: bytes) -> bytes:
    """Return the datagram to send again; a PUBLISH message gets the DUP flag."""
    at = 3 if datagram[0] == 1 else 1
    if datagram[at] != 0x0C:
        return datagram
    return datagram[: at + 1] + bytes((datagram[at + 1] | DUP,)) + datagram[at + 2 :]


def _with_stamp_header(event: PublishPacket) -> PublishPacket:
    """Return the event with its stamp before the payload, because MQTT-SN has no properties."""
    for key, value in event.user_properties:
        if key == _PROPERTY:
            stamp = EventStamp.from_properties([(PROPERTY, value.decode("latin-1"))])
            if stamp is not None:
                return replace(event, payload=stamp.to_header() + event.payload)
    return event
