"""From the broker to one MQTT-SN client: drop rate, topic ids, repeats, sleep. No sockets.

One event is one datagram. What does not fit is refused and, at QoS 1 and 2, acknowledged to the
broker in the client's name, since it would come for ever otherwise.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from firedex.event_stamp import PROPERTY, EventStamp
from firedex.gateway.broker_packets import BrokerEvent, acknowledge
from firedex.gateway.event_counts import TopicTally, Totals
from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer
from firedex.gateway.flow_table import ManagedFlow
from firedex.gateway.mqtt_packets import PacketKind
from firedex.gateway.sn_topics import SnTopics, TopicsExhausted
from firedex.mqtt_sn import Pubrel, Register, encode, encode_publish
from firedex.mqtt_sn.codec import DUP, QOS_BITS, RETAIN
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES

__all__ = ["Outlet", "SnDelivery"]

ASLEEP = BufferLimits(bytes=65_536, seconds=86_400.0)
MOST_UNREGISTERED = 256
_PROPERTY = PROPERTY.encode()


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where things go: datagrams to the client, packets to the broker."""

    to_client: Callable[[bytes], None]
    to_broker: Callable[[bytes], None]
    congested: Callable[[], bool]


@dataclass(slots=True)
class _UnderWay:
    """What must be repeated until it is acknowledged."""

    datagram: bytes
    again_at: float
    tries: int = 1


@dataclass(slots=True)
class _Ready:
    event: BrokerEvent
    tally: TopicTally | None


class SnDelivery:
    """One client's way from the broker."""

    def __init__(
        self,
        outlet: Outlet,
        topics: SnTopics,
        find_flow: Callable[[], ManagedFlow | None],
        *,
        coins: random.Random,
        unmanaged: Totals,
        retry_seconds: float,
        limits: BufferLimits,
    ) -> None:
        self._out, self.topics, self._find_flow = outlet, topics, find_flow
        self._coins, self._unmanaged, self._retry_seconds = coins, unmanaged, retry_seconds
        self.asleep = False
        self.stamped = False
        """Whether the client wants stamps before payloads."""
        self._sleeping: FlowBuffer[_Ready] = FlowBuffer(ASLEEP)
        self._waiting: FlowBuffer[_Ready] = FlowBuffer(limits)
        self._unregistered: dict[int, deque[_Ready]] = {}
        self._registering: dict[int, tuple[int, _UnderWay]] = {}
        self._published: dict[int, _UnderWay] = {}
        self._released: dict[int, _UnderWay] = {}
        self._refused_ids: set[int] = set()
        self._next_id = 0
        self._flow: ManagedFlow | None = None

    @property
    def waiting_events(self) -> int:
        """What is held for the client."""
        held = sum(len(queue) for queue in self._unregistered.values())
        return len(self._sleeping) + len(self._waiting) + held

    # -- events ------------------------------------------------------------------------------------

    def event(self, event: BrokerEvent, now: float) -> None:
        """An event from the broker."""
        self._flow = flow = self._find_flow()
        totals = self._unmanaged if flow is None else flow.counts.totals
        droppable = event.qos == 0 and not event.retain
        totals.offered += droppable
        tally = None
        if flow is not None:
            if not event.retain:
                tally = flow.counts.topic(event.topic)
                tally.offered += 1
                tally.payload_bytes += len(event.payload)
            if droppable and flow.drop_rate > 0 and self._coins.random() < flow.drop_rate:
                totals.dropped += 1
                return
        if self.stamped and event.user_properties:
            event = _with_header(event)
        if max(len(event.payload), len(event.topic)) > LARGEST_UDP_PAYLOAD_BYTES:
            totals.refused += 1
            self._refuse(event)
            return
        ready = _Ready(event, tally)
        if self.asleep:
            self._shed(self._sleeping.add(ready, len(event.payload), sheddable=droppable, now=now))
        elif len(self._waiting) or self._out.congested():
            self._shed(self._waiting.add(ready, len(event.payload), sheddable=droppable, now=now))
        else:
            self._send(ready, now)

    def _shed(self, shed: list[_Ready]) -> None:
        totals = self._unmanaged if self._flow is None else self._flow.counts.totals
        totals.shed += len(shed)

    def _refuse(self, event: BrokerEvent) -> None:
        if event.qos == 1:
            self._out.to_broker(acknowledge(PacketKind.PUBACK, event.message_id))
        elif event.qos:
            self._refused_ids.add(event.message_id)
            self._out.to_broker(acknowledge(PacketKind.PUBREC, event.message_id))

    def _send(self, ready: _Ready, now: float) -> None:
        event = ready.event
        try:
            kind, number, known = self.topics.to_client(event.topic)
        except TopicsExhausted:
            self._refuse(event)
            return
        if known:
            flags = QOS_BITS[event.qos] | (RETAIN if event.retain else 0) | kind
            datagram = encode_publish(flags, number, event.message_id, event.payload)
            self._out.to_client(datagram)
            if ready.tally is not None:
                ready.tally.delivered += 1
            if not event.qos and not event.retain:
                flow = self._flow
                totals = self._unmanaged if flow is None else flow.counts.totals
                totals.delivered += 1
            if event.qos:
                self._published[event.message_id] = _UnderWay(datagram, now + self._retry_seconds)
            return
        queue = self._unregistered.get(number)
        if queue is None:
            queue = self._unregistered[number] = deque()
            self._next_id = self._next_id % 0xFFFF + 1
            register = Register(
                topic_id=number, message_id=self._next_id, topic=event.topic.decode()
            )
            datagram = encode(register)
            self._registering[self._next_id] = (
                number,
                _UnderWay(datagram, now + self._retry_seconds),
            )
            self._out.to_client(datagram)
        queue.append(ready)
        if len(queue) > MOST_UNREGISTERED:
            self._shed_unregistered(queue)

    def _shed_unregistered(self, queue: deque[_Ready]) -> None:
        for index, ready in enumerate(queue):
            if ready.event.qos == 0 and not ready.event.retain:
                del queue[index]
                self._shed([ready])
                return

    # -- what the client acknowledges --------------------------------------------------------------

    def registered(self, message_id: int, accepted: bool, now: float) -> None:
        """REGACK."""
        number, _ = self._registering.pop(message_id, (None, None))
        if number is None:
            return
        queue = self._unregistered.pop(number, deque())
        if not accepted:
            for ready in queue:
                self._refuse(ready.event)
            return
        self.topics.tell(number)
        for ready in queue:
            self._send(ready, now)

    def puback(self, message_id: int, topic_unknown: bool, topic_id: int) -> None:
        """PUBACK, which for a topic that the client does not know also answers QoS 0."""
        if topic_unknown:
            self.topics.forget(topic_id)
        if self._published.pop(message_id, None) is not None:
            self._out.to_broker(acknowledge(PacketKind.PUBACK, message_id))

    def pubrec(self, message_id: int) -> None:
        """PUBREC."""
        if self._published.pop(message_id, None) is not None:
            self._out.to_broker(acknowledge(PacketKind.PUBREC, message_id))
        elif message_id in self._released:
            self._out.to_client(self._released[message_id].datagram)

    def pubrel(self, message_id: int, now: float) -> None:
        """PUBREL from the broker."""
        if message_id in self._refused_ids:
            self._refused_ids.discard(message_id)
            self._out.to_broker(acknowledge(PacketKind.PUBCOMP, message_id))
            return
        datagram = encode(Pubrel(message_id=message_id))
        self._released[message_id] = _UnderWay(datagram, now + self._retry_seconds)
        self._out.to_client(datagram)

    def pubcomp(self, message_id: int) -> None:
        """PUBCOMP."""
        if self._released.pop(message_id, None) is not None:
            self._out.to_broker(acknowledge(PacketKind.PUBCOMP, message_id))

    # -- time --------------------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Send what was kept while the client slept; it falls asleep again by itself."""
        while len(self._sleeping):
            ready, shed = self._sleeping.take(now)
            self._shed(shed)
            if ready is not None:
                self._send(ready, now)

    def drain(self, now: float) -> None:
        """The socket takes more."""
        while len(self._waiting) and not self._out.congested():
            ready, shed = self._waiting.take(now)
            self._shed(shed)
            if ready is not None:
                self._send(ready, now)

    def repeat(self, now: float, most_tries: int) -> bool:
        """Repeat what has not been acknowledged; False once that has been tried too often."""
        if self.asleep:
            return True
        under_way = [
            *self._published.values(),
            *self._released.values(),
            *(each for _, each in self._registering.values()),
        ]
        for each in under_way:
            if each.again_at > now:
                continue
            if each.tries >= most_tries:
                return False
            each.tries += 1
            each.again_at = now + self._retry_seconds
            self._out.to_client(_repeated(each.datagram))
        return True


def _repeated(datagram: bytes) -> bytes:
    """The same datagram, a PUBLISH with its DUP flag set."""
    at = 3 if datagram[0] == 1 else 1
    if datagram[at] != 0x0C:
        return datagram
    return datagram[: at + 1] + bytes((datagram[at + 1] | DUP,)) + datagram[at + 2 :]


def _with_header(event: BrokerEvent) -> BrokerEvent:
    """The stamp of an MQTT 5 property before the payload, since MQTT-SN has no properties."""
    for key, value in event.user_properties:
        if key == _PROPERTY:
            stamp = EventStamp.from_properties([(PROPERTY, value.decode("latin-1"))])
            if stamp is not None:
                return replace(event, payload=stamp.to_header() + event.payload)
    return event
