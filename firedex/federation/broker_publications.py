"""Publications at the broker: their order, acknowledgements, and QoS 2 over restarts.

No sockets: packets go out through ``send``. A QoS 2 publication is written to the journal with its
packet identifier before it is sent. ``done`` removes it, together with the record of its delivery.

A publication that is larger than the broker accepts, or that the broker refuses, is dropped and
reported. If the broker has reached a quota, publications wait and are sent again, a limited number
of times.
"""

import bisect
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

from firedex.federation.broker_interface import Completed, DropCause
from firedex.federation.events import Event, encode_event_as_publish, read_publication
from firedex.federation.frames import EventId
from firedex.federation.journal import Journal, OutgoingPublish
from firedex.transport.mqtt import packets as mqtt
from firedex.transport.mqtt.encoding import MAX_PACKET_BYTES, PacketType
from firedex.transport.mqtt.version import MQTT_3, MQTT_5

__all__ = ["BrokerPublications", "PacketIds", "too_large"]

MAX_QUEUED = 2000
MAX_QUEUED_BYTES = 16 * 1024 * 1024
PACKET_ID_LIMIT = 65_535
ERROR_CODE = 0x80
QUOTA_EXCEEDED = 0x97
MAX_ATTEMPTS = 10
"""A publication is sent at most this many times while the broker reports an exceeded quota."""
DUPLICATE_FLAG = 0x08
Send = Callable[[bytes], None]


class PacketIds:
    """Packet identifiers that are not in use; publications and subscriptions share them."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last = 0

    def take(self) -> int:
        """Return an identifier that is free, and reserve it."""
        for _ in range(PACKET_ID_LIMIT):
            self._last = self._last % PACKET_ID_LIMIT + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last
        raise RuntimeError("all packet identifiers are in use")

    def reserve(self, number: int) -> None:
        """Reserve an identifier that an earlier run has used."""
        self._used.add(number)

    def release(self, number: int) -> None:
        """Make an identifier free again."""
        self._used.discard(number)


@dataclass(slots=True)
class _Outgoing:
    """A publication that the broker has not acknowledged."""

    event: Event
    done: Completed | None
    order: int
    is_committed: bool = True
    packet_id: int = 0
    is_released: bool = False
    packet: bytes = b""
    is_repeated: bool = False
    attempts: int = 1


class BrokerPublications:
    """QoS 1 and 2 publications: waiting, and sent but not acknowledged (``in flight``)."""

    def __init__(
        self,
        journal: Journal,
        packet_ids: PacketIds,
        *,
        published: Callable[[Event], None],
        dropped: Callable[[Event, DropCause, str], None],
    ) -> None:
        self._journal, self._packet_ids = journal, packet_ids
        self._published, self._dropped = published, dropped
        self._queue: deque[_Outgoing] = deque()
        self._queued_bytes = 0
        self._in_flight: dict[int, _Outgoing] = {}
        self._send: Send | None = None
        self._level = MQTT_5
        self._receive_maximum = PACKET_ID_LIMIT
        self._maximum_packet_bytes = MAX_PACKET_BYTES
        self._added = 0
        self._is_paused = False

    @property
    def is_full(self) -> bool:
        """Whether no more publications are accepted at present."""
        return len(self._queue) >= MAX_QUEUED or self._queued_bytes >= MAX_QUEUED_BYTES

    def restore(
        self,
        stored: Iterable[OutgoingPublish],
        completed: Callable[[str, EventId], None],
    ) -> None:
        """Continue the QoS 2 publications that an earlier run has begun."""
        for entry in stored:
            topic = read_publication(entry.packet, level=MQTT_3).topic  # at the same place in both
            event = Event(
                origin=entry.origin, id=entry.id, stamp=0, topic=topic, payload=b"", qos=2
            )
            self._packet_ids.reserve(entry.packet_id)
            outgoing = _Outgoing(
                event,
                _call_later(completed, entry.origin, entry.id),
                self._next_order(),
                packet_id=entry.packet_id,
                is_released=entry.released,
                packet=entry.packet,
            )
            self._in_flight[entry.packet_id] = outgoing

    def _next_order(self) -> int:
        self._added += 1
        return self._added

    # -- session -------------------------------------------------------------------------------

    def connected(
        self,
        send: Send,
        *,
        level: int,
        receive_maximum: int,
        maximum_packet_bytes: int,
        session_present: bool,
    ) -> None:
        """Send again what the broker has not acknowledged, then what waits."""
        self._send, self._level, self._is_paused = send, level, False
        self._maximum_packet_bytes = maximum_packet_bytes
        self._receive_maximum = min(receive_maximum, PACKET_ID_LIMIT // 2)
        unreleased = [entry for entry in self._in_flight.values() if not entry.is_released]
        # an earlier run may have left more of them than the broker accepts at once
        for outgoing in unreleased:
            del self._in_flight[outgoing.packet_id]
            outgoing.is_repeated = session_present
            self._queued_bytes += len(outgoing.event.payload)
        self._queue = deque(sorted([*unreleased, *self._queue], key=attrgetter("order")))
        for outgoing in self._in_flight.values():
            send(mqtt.encode_acknowledgement(PacketType.PUBREL, outgoing.packet_id))
        self.send_waiting()

    def disconnected(self) -> None:
        """Keep everything until the session is up again."""
        self._send = None

    def tick(self) -> None:
        """Send again what the broker refused because of a quota; called about once a second."""
        if self._is_paused:
            self._is_paused = False
            self.send_waiting()

    # -- publishing ----------------------------------------------------------------------------

    def add(self, event: Event, done: Completed | None) -> None:
        """Publish a QoS 1 or 2 event after those that were added before."""
        outgoing = _Outgoing(event, done, self._next_order())
        self._queue.append(outgoing)
        self._queued_bytes += len(event.payload)
        if event.qos == 2:
            self._write_to_journal(outgoing)
        self.send_waiting()

    def _write_to_journal(self, outgoing: _Outgoing) -> None:
        event = outgoing.event
        outgoing.is_committed = False
        outgoing.packet_id = self._packet_ids.take()
        outgoing.packet = encode_event_as_publish(event, outgoing.packet_id, self._level)

        def committed() -> None:
            outgoing.is_committed = True
            self.send_waiting()

        values = (outgoing.packet_id, event.origin, *event.id, outgoing.packet)
        self._journal.submit(
            [("INSERT OR REPLACE INTO outgoing VALUES (?, ?, ?, ?, 0, ?)", values)], committed
        )

    def send_waiting(self) -> None:
        """Send waiting publications in order, as many as the broker accepts at once."""
        while (
            self._send is not None
            and not self._is_paused
            and self._queue
            and self._queue[0].is_committed
            and len(self._in_flight) < self._receive_maximum
        ):
            outgoing = self._queue.popleft()
            self._queued_bytes -= len(outgoing.event.payload)
            if not outgoing.packet_id:
                outgoing.packet_id = self._packet_ids.take()
                outgoing.packet = encode_event_as_publish(
                    outgoing.event, outgoing.packet_id, self._level
                )
            size, limit = len(outgoing.packet), self._maximum_packet_bytes
            if size > limit and not outgoing.is_released:
                self._packet_ids.release(outgoing.packet_id)
                self._drop(outgoing, DropCause.TOO_LARGE, too_large(size, limit))
                continue
            self._in_flight[outgoing.packet_id] = outgoing
            if outgoing.is_released:
                self._send(mqtt.encode_acknowledgement(PacketType.PUBREL, outgoing.packet_id))
                continue
            flag = DUPLICATE_FLAG if outgoing.is_repeated else 0
            self._send(bytes((outgoing.packet[0] | flag,)) + outgoing.packet[1:])
            self._published(outgoing.event)

    # -- acknowledgements ----------------------------------------------------------------------

    def receive_pubrec(self, number: int, code: int) -> None:
        """Release a QoS 2 publication that the broker has received."""
        outgoing = self._in_flight.get(number)
        if code >= ERROR_CODE:
            self.complete(number, code)
            return
        send = self._send
        if outgoing is None or send is None:
            self._release(number, send)
            return

        def committed() -> None:
            outgoing.is_released = True
            self._release(number, send)

        self._journal.submit(
            [("UPDATE outgoing SET released = 1 WHERE packet_id = ?", (number,))], committed
        )

    def _release(self, number: int, send: Send | None) -> None:
        """Send PUBREL, unless the connection on which the broker sent PUBREC has ended."""
        if send is not None and send == self._send:
            send(mqtt.encode_acknowledgement(PacketType.PUBREL, number))

    def complete(self, number: int, code: int) -> None:
        """Handle the last acknowledgement of a publication."""
        outgoing = self._in_flight.pop(number, None)
        if outgoing is None:
            return
        if code == QUOTA_EXCEEDED and outgoing.attempts < MAX_ATTEMPTS:
            self._retry_later(outgoing)
            return
        self._packet_ids.release(number)
        if code >= ERROR_CODE:
            self._drop(outgoing, DropCause.REFUSED, f"the broker refused it (0x{code:02x})")
        elif outgoing.done is not None:
            outgoing.done(True)
        self.send_waiting()

    def _retry_later(self, outgoing: _Outgoing) -> None:
        """Put a publication back to its place in the queue, and pause sending until `tick`.

        Later publications wait with it, so that they stay in order. It keeps its identifier.
        """
        outgoing.attempts += 1
        outgoing.is_repeated = False  # the broker has not accepted it
        bisect.insort(self._queue, outgoing, key=attrgetter("order"))
        self._queued_bytes += len(outgoing.event.payload)
        self._is_paused = True

    def _drop(self, outgoing: _Outgoing, cause: DropCause, detail: str) -> None:
        self._dropped(outgoing.event, cause, detail)
        if outgoing.done is not None:
            outgoing.done(False)


def too_large(size: int, limit: int) -> str:
    """Return why a packet is not sent."""
    return f"its packet has {size} bytes; the broker accepts at most {limit}"


def _call_later(
    completed: Callable[[str, EventId], None], origin: str, identity: EventId
) -> Completed:
    return lambda _: completed(origin, identity)
