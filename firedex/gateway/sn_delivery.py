"""From the broker to one MQTT-SN client: drop rate, topic ids, repeats, sleep. No sockets.

One event is one datagram. What does not fit is refused and, at QoS 1 and 2, acknowledged to the
broker in the client's name, since it would come for ever otherwise.

Whatever waits is bounded: for the socket, for a client that sleeps, for a topic that the client has
yet to be told. Of events at QoS 0 the oldest give way; if what may not be shed fills a buffer, the
broker is held back.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from firedex.event_stamp import PROPERTY, EventStamp
from firedex.gateway.broker_packets import BrokerEvent, acknowledge
from firedex.gateway.event_counts import FlowCounts, TopicTally, Totals
from firedex.gateway.flow_buffer import BufferLimits, FlowBuffer
from firedex.gateway.flow_table import ManagedFlow
from firedex.gateway.mqtt_packets import PacketKind
from firedex.gateway.sn_topics import SnTopics, TopicsExhausted
from firedex.mqtt_sn import Pubrel, Register, ReturnCode, TopicKind, encode, encode_publish
from firedex.mqtt_sn.codec import DUP, QOS_BITS, RETAIN
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES

__all__ = ["Outlet", "SnDelivery"]

ASLEEP = BufferLimits(bytes=65_536, seconds=86_400.0)
OVERHEAD_BYTES = 64
"""What an event that waits takes besides topic and payload: empty ones are not free."""
MOST_REGISTERING = 256
"""Topics that a client is being told at once, before the broker is held back."""
MOST_REFUSALS = 3
"""How often a client may not know the topic of one event."""
EXACTLY_ONCE = 2
_PROPERTY = PROPERTY.encode()


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where things go: datagrams to the client, packets to the broker."""

    to_client: Callable[[bytes], None]
    to_broker: Callable[[bytes], None]
    congested: Callable[[], bool]
    hold_back: Callable[[bool], None]


@dataclass(slots=True)
class _Ready:
    """An event on its way; ``counts`` is where it is counted, when it is sent."""

    event: BrokerEvent
    counts: FlowCounts | None
    refusals: int = 0
    topic_id: int = 0

    @property
    def sheddable(self) -> bool:
        return self.event.qos == 0 and not self.event.retain

    @property
    def size(self) -> int:
        return len(self.event.payload) + len(self.event.topic) + OVERHEAD_BYTES

    def tally(self) -> TopicTally | None:
        """That of the present window, whenever the event came."""
        return None if self.counts is None else self.counts.topic(self.event.topic)


@dataclass(slots=True)
class _UnderWay:
    """What must be repeated until it is acknowledged."""

    datagram: bytes
    again_at: float
    tries: int = 1


@dataclass(slots=True)
class _Published(_UnderWay):
    ready: _Ready | None = None


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
        self._unregistered: FlowBuffer[_Ready] = FlowBuffer(limits)
        self._registering: dict[int, tuple[int, _UnderWay]] = {}
        self._untold: set[int] = set()
        self._published: dict[int, _Published] = {}
        self._released: dict[int, _UnderWay] = {}
        self._refused_ids: set[int] = set()
        self._next_id = 0
        self._flow: ManagedFlow | None = None

    @property
    def waiting_events(self) -> int:
        """What is held for the client."""
        return len(self._sleeping) + len(self._waiting) + len(self._unregistered)

    @property
    def waiting_bytes(self) -> int:
        """As much memory as that takes."""
        buffers = (self._sleeping, self._waiting, self._unregistered)
        return sum(each.waiting_bytes for each in buffers)

    @property
    def full(self) -> bool:
        """Whether the broker must be held back."""
        buffers = (self._sleeping, self._waiting, self._unregistered)
        return any(each.full for each in buffers) or len(self._registering) > MOST_REGISTERING

    @property
    def registering(self) -> bool:
        """Whether the client is being told of topics, and events wait for that."""
        return bool(self._registering)

    # -- events ------------------------------------------------------------------------------------

    def event(self, event: BrokerEvent, now: float) -> None:
        """An event from the broker."""
        self._flow = flow = self._find_flow()
        totals = self._unmanaged if flow is None else flow.counts.totals
        droppable = event.qos == 0 and not event.retain
        totals.offered += droppable
        counts = tally = None
        if flow is not None:
            if not event.retain:
                counts = flow.counts
                tally = counts.topic(event.topic)
                tally.offered += 1
                tally.payload_bytes += len(event.payload)
            if droppable and flow.drop_rate > 0 and self._coins.random() < flow.drop_rate:
                totals.dropped += 1
                return
        if self.stamped and event.user_properties:
            event = _with_header(event)
        ready = _Ready(event, counts)
        if max(len(event.payload), len(event.topic)) > LARGEST_UDP_PAYLOAD_BYTES:
            self._refuse(event)
        elif self.asleep:
            self._wait(self._sleeping, ready, now)
        elif len(self._waiting) or self._out.congested():
            self._wait(self._waiting, ready, now)
        else:
            self._send(ready, tally, now)

    def _totals(self) -> Totals:
        return self._unmanaged if self._flow is None else self._flow.counts.totals

    def _wait(self, buffer: FlowBuffer[_Ready], ready: _Ready, now: float) -> None:
        shed = buffer.add(ready, ready.size, sheddable=ready.sheddable, now=now)
        self._totals().shed += len(shed)
        if self.full:
            self._out.hold_back(True)

    def _refuse(self, event: BrokerEvent) -> None:
        self._totals().refused += 1
        if event.qos == 1:
            self._out.to_broker(acknowledge(PacketKind.PUBACK, event.message_id))
        elif event.qos:
            self._refused_ids.add(event.message_id)
            self._out.to_broker(acknowledge(PacketKind.PUBREC, event.message_id))

    def _send(self, ready: _Ready, tally: TopicTally | None, now: float) -> None:
        event = ready.event
        try:
            kind, number, known = self.topics.to_client(event.topic)
        except TopicsExhausted:
            self._refuse(event)
            return
        # An event never overtakes those of its topic that wait for the client to be told of it.
        if not known or (number in self._untold and kind == TopicKind.NORMAL):
            ready.topic_id = number
            if number not in self._untold:
                self._register(number, event.topic, now)
            self._wait(self._unregistered, ready, now)
            return
        flags = QOS_BITS[event.qos] | (RETAIN if event.retain else 0) | kind
        flags |= DUP if event.dup else 0
        datagram = encode_publish(flags, number, event.message_id, event.payload)
        self._out.to_client(datagram)
        if tally is not None:
            tally.delivered += 1
        if event.qos:
            again_at = now + self._retry_seconds
            self._published[event.message_id] = _Published(datagram, again_at, ready=ready)
        elif not event.retain:
            totals = self._unmanaged if self._flow is None else self._flow.counts.totals
            totals.delivered += 1

    def _register(self, number: int, topic: bytes, now: float) -> None:
        self._next_id = self._next_id % 0xFFFF + 1
        register = Register(topic_id=number, message_id=self._next_id, topic=topic.decode())
        under_way = _UnderWay(encode(register), now + self._retry_seconds)
        self._registering[self._next_id] = (number, under_way)
        self._untold.add(number)
        self._out.to_client(under_way.datagram)

    # -- what the client acknowledges --------------------------------------------------------------

    def registered(self, message_id: int, return_code: int, now: float) -> None:
        """REGACK."""
        if return_code == ReturnCode.CONGESTION or message_id not in self._registering:
            return  # it is repeated
        number, _ = self._registering.pop(message_id)
        self._untold.discard(number)
        queue = self._unregistered.take_all(lambda ready: ready.topic_id == number)
        if return_code == ReturnCode.ACCEPTED:
            self.topics.tell(number)
        for ready in queue:
            if return_code != ReturnCode.ACCEPTED:
                self._refuse(ready.event)
            elif self.asleep:
                self._wait(self._sleeping, ready, now)
            else:
                self._send(ready, ready.tally(), now)
        self._out.hold_back(self.full)

    def puback(self, message_id: int, return_code: int, topic_id: int, now: float) -> None:
        """PUBACK, which for a topic that the client does not know also answers QoS 0 and 2."""
        unknown = return_code == ReturnCode.INVALID_TOPIC_ID
        if unknown:
            self.topics.forget(topic_id)
        under_way = self._published.get(message_id)
        ready = None if under_way is None else under_way.ready
        if ready is None or return_code == ReturnCode.CONGESTION:
            return  # it is repeated
        event = ready.event
        if return_code == ReturnCode.ACCEPTED:
            if event.qos == 1:
                del self._published[message_id]
                self._out.to_broker(acknowledge(PacketKind.PUBACK, message_id))
            return
        del self._published[message_id]
        ready.refusals += 1
        if unknown and ready.refusals <= MOST_REFUSALS:
            ready.counts = None  # it is counted already
            self._send(ready, None, now)
        else:
            self._refuse(event)

    def pubrec(self, message_id: int) -> None:
        """PUBREC."""
        under_way = self._published.get(message_id)
        if under_way is not None:
            if under_way.ready is not None and under_way.ready.event.qos == EXACTLY_ONCE:
                del self._published[message_id]
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
        """Send what was not acknowledged before the client slept, and what was kept meanwhile."""
        self.asleep = False
        for each in self._all_under_way():
            each.tries, each.again_at = 1, now + self._retry_seconds
            self._out.to_client(_repeated(each.datagram))
        while len(self._sleeping):
            self._send_next(self._sleeping, now)
        self._out.hold_back(self.full)

    def drain(self, now: float) -> None:
        """The socket takes more."""
        while len(self._waiting) and not self._out.congested():
            self._send_next(self._waiting, now)
        self._out.hold_back(self.full)

    def _send_next(self, buffer: FlowBuffer[_Ready], now: float) -> None:
        ready, shed = buffer.take(now)
        self._totals().shed += len(shed)
        if ready is not None:
            self._send(ready, ready.tally(), now)

    def _all_under_way(self) -> list[_UnderWay]:
        registering = (each for _, each in self._registering.values())
        return [*self._published.values(), *self._released.values(), *registering]

    def repeat(self, now: float, most_tries: int) -> bool:
        """Repeat what has not been acknowledged; False once that has been tried too often."""
        if self.asleep:
            return True
        for each in self._all_under_way():
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
