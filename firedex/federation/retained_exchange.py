"""Keeping the retained messages of all sites equal. No sockets.

A site sends the values that it has written to every site that becomes interested or reachable. A
value whose writer cannot be reached is sent by every site that has it. The last writer wins.
"""

from collections.abc import Callable, Sequence

from firedex.federation.broker_interface import Broker, is_local_topic
from firedex.federation.event_sender import EventSender
from firedex.federation.events import Event, Publication, decode_event, encode_event
from firedex.federation.frames import MAX_HOPS, Destination, EventId, FrameType, RoutedFrame
from firedex.federation.hybrid_clock import HybridClock
from firedex.federation.interest import RemoteInterest
from firedex.federation.journal import Journal, Operation, StoredValue
from firedex.federation.retained import RetainedValues
from firedex.federation.routing import Router
from firedex.wire.mqtt_names import matches

__all__ = ["RetainedExchange"]

READING_SECONDS = 1.0
"""A value that is younger may have arrived while the broker's values were read."""


class RetainedExchange:
    """The retained values of this site, and their synchronisation."""

    def __init__(
        self,
        router: Router,
        broker: Broker,
        journal: Journal,
        sender: EventSender,
        *,
        clock: HybridClock,
        wall: Callable[[], float],
        next_id: Callable[[], EventId],
        may_send: Callable[[str, bytes], bool],
    ) -> None:
        self._router, self._broker, self._journal = router, broker, journal
        self._sender, self._clock, self._wall = sender, clock, wall
        self._next_id, self._may_send = next_id, may_send
        self.values = RetainedValues()
        self._unpublished: set[bytes] = set()

    def restore(self, values: Sequence[StoredValue]) -> None:
        """Start with the values of an earlier run."""
        for stored in values:
            self.values.put(decode_event(stored.content), stored.changed_at)

    def is_newer(self, event: Event) -> bool:
        """Return whether a write is newer than the known one."""
        return self.values.is_newer(event._replace(stamp=self._clock.limit(event.stamp)))

    def store(self, event: Event) -> list[Operation]:
        """Store a write; return the operations for the journal."""
        now = self._wall()
        if not self.values.put(event, now):
            return []
        return [
            (
                "INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?, ?)",
                (event.topic, event.stamp, event.origin, encode_event(event), now),
            )
        ]

    def accept(self, event: Event) -> tuple[Event, list[Operation]]:
        """Store a newer write; an older one is delivered as an event that is not retained."""
        stamp = self._clock.limit(event.stamp)
        if stamp != event.stamp:  # otherwise no later write could replace it
            event = event._replace(stamp=stamp)
        self._clock.observe(stamp)
        if self.values.is_newer(event):
            return event, self.store(event)
        return event._replace(retain=False), []

    def receive_state(self, event: Event) -> None:
        """Publish a retained value of another writer if it is newer than the known one."""
        if event.retain and self.is_newer(event):
            # at QoS 2 the packet would stay in the journal
            event, operations = self.accept(event._replace(qos=min(event.qos, 1)))
            self._journal.submit(operations)
            if not self._broker.publish(event, lambda _: None):
                self.publish_later(event.topic)

    def publish_later(self, topic: bytes) -> None:
        """Publish the value of a topic as soon as the broker is available."""
        if self.values.get(topic) is not None:
            self._unpublished.add(topic)

    def broker_ready(self) -> None:
        """Publish the values that arrived while the broker was not available."""
        while self._unpublished and self._broker.is_ready:
            value = self.values.get(self._unpublished.pop())
            if value is not None:
                self._broker.publish(value._replace(qos=0), None)

    def found_at_broker(
        self, publication: Publication, remote: RemoteInterest, *, written_meanwhile: bool
    ) -> None:
        """Handle a retained message that the broker has when its topic becomes of interest.

        Its time is not known, so it is older than every write that is known. With
        ``written_meanwhile``, a value that differs from the known one was written while the
        federator was not connected or not subscribed; without it, the broker has lost the known
        value. A value that became known a moment ago is newer than what was read.
        """
        topic = publication.topic
        if is_local_topic(topic):
            return
        known = self.values.get(topic)
        if known is not None and known.payload == publication.payload:
            return
        if known is not None and (
            not written_meanwhile or self.values.age(topic, self._wall()) < READING_SECONDS
        ):
            self._broker.publish(known._replace(qos=0), None)
            return
        event = Event(
            origin=self._router.site,
            id=self._next_id(),
            stamp=self._clock.now() if known is not None else 0,
            topic=topic,
            payload=publication.payload,
            qos=1,
            retain=True,
            state=True,
            properties=publication.properties,
        )
        self._journal.submit(self.store(event))
        sites = {site: 1 for site, _ in remote.destinations(topic) if self._may_send(site, topic)}
        if sites:
            self._sender.send_reliably(event, sites)

    def send_to(self, site: str, filters: Sequence[str]) -> None:
        """Send a site the values that match its filters, if this site is responsible for them."""
        if not filters:
            return
        for value in self.values.events():
            if not self._is_responsible(value, site) or not self._may_send(site, value.topic):
                continue
            topic = value.topic.decode(errors="replace")
            if any(matches(name, topic) for name in filters):
                copy = value._replace(id=self._next_id(), qos=1, state=True)
                if value.origin == self._router.site:
                    self._sender.send_reliably(copy, {site: 1})
                else:
                    self._send_once(copy, site)

    def _is_responsible(self, value: Event, site: str) -> bool:
        if value.origin == self._router.site:
            return True
        return value.origin != site and not self._router.is_reachable(value.origin)

    def _send_once(self, value: Event, site: str) -> None:
        """Send a value that another site has written, without acknowledgement.

        The value gets an id of this site, so it is not part of the reliable stream of its writer.
        """
        frame = RoutedFrame(
            FrameType.EVENT, (Destination(site),), MAX_HOPS, 0, False, encode_event(value)
        )
        self._router.send(frame, droppable=False)

    def tick(self) -> None:
        """Remove old tombstones."""
        for topic in self.values.remove_old_tombstones(self._wall()):
            self._journal.submit([("DELETE FROM retained WHERE topic = ?", (topic,))])
