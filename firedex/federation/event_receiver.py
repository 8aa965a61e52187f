"""Delivering the events of other sites to the local broker: once, and in order. No sockets."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from firedex.federation.broker_interface import Broker
from firedex.federation.events import Event
from firedex.federation.frames import NO_EVENT, EventId
from firedex.federation.journal import Journal, Operation, OutgoingPublish
from firedex.federation.reliable_streams import IncomingStream
from firedex.federation.retained_exchange import RetainedExchange
from firedex.federation.routing import Router

__all__ = ["EventReceiver"]

RESEND_REQUEST_SECONDS = 0.05
MAX_UNACKNOWLEDGED_EVENTS = 32
"""Maximum number of committed events without an acknowledgement while more commits follow."""
MAX_TOPICS_IN_ORDER = 200_000


class EventReceiver:
    """The incoming streams of all origins."""

    def __init__(
        self,
        router: Router,
        broker: Broker,
        journal: Journal,
        retained: RetainedExchange,
        clock: Callable[[], float],
    ) -> None:
        self._router, self._broker, self._journal = router, broker, journal
        self._retained, self._clock = retained, clock
        self._streams: dict[str, IncomingStream] = {}
        self._refused_origins: set[str] = set()
        self._finished_early: set[str] = set()
        self._requested_at: dict[str, float] = {}
        self._committed: dict[str, EventId] = {}
        self._unacknowledged: dict[str, int] = {}
        self._last_ids: OrderedDict[tuple[str, bytes], EventId] = OrderedDict()

    def restore(
        self,
        delivered: Mapping[str, EventId],
        finished: Iterable[tuple[str, EventId]],
        unfinished: Iterable[OutgoingPublish],
    ) -> None:
        """Start with what an earlier run has delivered, and has begun to deliver."""
        for origin, last in delivered.items():
            self._streams[origin] = IncomingStream(delivered=last)
            self._committed[origin] = last
        for origin, identity in finished:
            self._finished_early.add(origin)
            self._stream(origin).restore(identity, finished=True)
        for publish in unfinished:
            self._stream(publish.origin).restore(publish.id, finished=False)

    def _stream(self, origin: str) -> IncomingStream:
        stream = self._streams.get(origin)
        if stream is None:
            stream = self._streams[origin] = IncomingStream()
        return stream

    # -- QoS 0 ---------------------------------------------------------------------------------

    def receive_once(self, event: Event) -> None:
        """Deliver a QoS 0 event unless it is a duplicate or older than the last of its topic."""
        if event.state:
            self._retained.receive_state(event)
            return
        key = (event.origin, event.topic)
        last = self._last_ids.get(key)
        if last is not None and event.id <= last:
            if event.id == last:
                self._router.counters.duplicates += 1
            else:
                self._router.counters.out_of_order += 1
            return
        self._last_ids[key] = event.id
        if last is not None:
            self._last_ids.move_to_end(key)
        elif len(self._last_ids) > MAX_TOPICS_IN_ORDER:
            self._last_ids.popitem(last=False)
        if self._is_expired(event):
            return
        if event.retain:
            event, operations = self._retained.accept(event)
            self._journal.submit(operations)
        if not self._broker.publish(event, self._count_delivery):
            self._router.counters.broker_unavailable += 1
            if event.retain:
                self._retained.publish_later(event.topic)

    def _count_delivery(self, is_accepted: bool) -> None:
        self._router.counters.events_delivered += is_accepted

    def _is_expired(self, event: Event) -> bool:
        expired = event.lifetime_milliseconds is not None and event.lifetime_milliseconds <= 0
        self._router.counters.expired += expired
        return expired

    # -- QoS 1 and 2 ---------------------------------------------------------------------------

    def receive_reliably(self, event: Event, previous: EventId) -> None:
        """Deliver a QoS 1 or 2 event if it is the next one of its origin."""
        origin, identity = event.origin, event.id
        stream = self._stream(origin)
        verdict = stream.receive(identity, previous)
        if not verdict.accept:
            if verdict.resend:
                self._request_resending(origin)
            else:
                self._router.counters.duplicates += 1
                self._acknowledge(origin)
            return
        finished = stream.resume(identity)
        if finished is not None:
            if finished:
                self._finish(origin, identity, [])
            return
        if not self._broker.is_ready:
            self._refused_origins.add(origin)
            return
        stream.begin(identity)
        is_stale = event.state and not self._retained.is_newer(event)
        if is_stale or self._is_expired(event):
            self._finish(origin, identity, [])
            return
        operations: list[Operation] = []
        if event.retain:
            event, operations = self._retained.accept(event)

        def published(is_accepted: bool) -> None:
            self._count_delivery(is_accepted)
            self._finish(origin, identity, operations, exactly_once=event.qos == 2)

        if not self._broker.publish(event, published):
            # the session ended since is_ready was checked: the origin sends the event again
            stream.undo(identity)
            self._refused_origins.add(origin)

    def finish_restored(self, origin: str, identity: EventId) -> None:
        """Handle the end of a QoS 2 publication that an earlier run began."""
        self._finish(origin, identity, [], exactly_once=True)

    def _finish(
        self,
        origin: str,
        identity: EventId,
        operations: Sequence[Operation],
        *,
        exactly_once: bool = False,
    ) -> None:
        """Record that the broker has an event, and acknowledge it to its origin.

        The packet of a QoS 2 event is removed from the journal in the same transaction. If events
        before it are not delivered yet, the event itself is recorded, so that it is not delivered
        again after a crash.
        """
        stream = self._stream(origin)
        todo = list(operations)
        if exactly_once:
            todo.append(
                (
                    "DELETE FROM outgoing WHERE origin = ? AND epoch = ? AND number = ?",
                    (origin, *identity),
                )
            )
        if not stream.finish(identity):
            if exactly_once and identity > stream.delivered:
                self._finished_early.add(origin)
                todo.append(("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)",
                             (origin, *identity)))  # fmt: skip
            self._journal.submit(todo)
            return
        last = stream.delivered
        todo.append(("INSERT OR REPLACE INTO delivered VALUES (?, ?, ?)", (origin, *last)))
        if origin in self._finished_early:
            todo.append(
                (
                    "DELETE FROM finished WHERE origin = ? AND (epoch, number) <= (?, ?)",
                    (origin, *last),
                )
            )
        self._journal.submit(todo, lambda: self._delivery_committed(origin, last))

    def _delivery_committed(self, origin: str, last: EventId) -> None:
        """Acknowledge the last commit of a series, and some in the middle of a long one."""
        self._committed[origin] = max(last, self._committed.get(origin, NO_EVENT))
        waiting = self._unacknowledged.get(origin, 0) + 1
        if last >= self._stream(origin).delivered or waiting >= MAX_UNACKNOWLEDGED_EVENTS:
            waiting = 0
            self._acknowledge(origin)
        self._unacknowledged[origin] = waiting

    def broker_ready(self) -> None:
        """Ask the origins whose events were refused to send them again."""
        origins, self._refused_origins = self._refused_origins, set()
        for origin in origins:
            self._acknowledge(origin, resend=True)

    def tick(self) -> None:
        """Ask for refused events as soon as the broker is ready."""
        if self._refused_origins and self._broker.is_ready:
            self.broker_ready()

    def _request_resending(self, origin: str) -> None:
        if not self._broker.is_ready:
            self._refused_origins.add(origin)  # more copies would be refused as well
            return
        now = self._clock()
        if now - self._requested_at.get(origin, float("-inf")) >= RESEND_REQUEST_SECONDS:
            self._requested_at[origin] = now
            self._acknowledge(origin, resend=True)

    def _acknowledge(self, origin: str, *, resend: bool = False) -> None:
        if not self._router.is_reachable(origin):
            return
        last = self._committed.get(origin, NO_EVENT)
        content: dict[str, Any] = {"kind": "ack", "last": list(last)}
        if resend:
            content["resend"] = True
        self._router.send_message([origin], content)
