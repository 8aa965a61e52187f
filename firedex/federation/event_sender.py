"""Sending the events of the local broker to other sites. No sockets.

QoS 0 events are sent once to the sites that can be reached. QoS 1 and 2 events are committed to
the journal with their destinations, then acknowledged to the broker and sent until every
destination has acknowledged them.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from firedex.federation.events import Event, decode_event, encode_event, reduce_lifetime
from firedex.federation.frames import MAX_HOPS, Destination, EventId, FrameType, RoutedFrame
from firedex.federation.journal import Journal, Operation, StoredEvent
from firedex.federation.reliable_streams import OutgoingStream, PendingEvent
from firedex.federation.routing import Router

__all__ = ["EventSender", "JournalLimits", "consecutive_ranges"]

log = logging.getLogger("firedex.federation")


class JournalLimits:
    """What the journal may hold: bytes, events and the age of an event."""

    def __init__(self, *, max_bytes: int, max_events: int, max_seconds: float) -> None:
        self.max_bytes, self.max_events, self.max_seconds = max_bytes, max_events, max_seconds


class EventSender:
    """The outgoing streams to all destinations."""

    def __init__(
        self,
        router: Router,
        journal: Journal,
        limits: JournalLimits,
        *,
        next_id: Callable[[], EventId],
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._router, self._journal, self._limits = router, journal, limits
        self._next_id, self._monotonic, self._wall = next_id, monotonic, wall
        self._epochs: set[int] = set()
        self._streams: dict[str, OutgoingStream] = {}
        self._references: dict[EventId, int] = {}
        self._pending_bytes = 0
        self.drops_by_site: dict[str, int] = {}

    def begin_epoch(self, epoch: int) -> None:
        """Record that the following events have this epoch."""
        self._epochs.add(epoch)

    def restore(self, events: Iterable[StoredEvent]) -> None:
        """Start with the unacknowledged events of an earlier run."""
        now, wall = self._monotonic(), self._wall()
        for stored in events:
            received = now - max(0.0, wall - stored.received_at)
            event = decode_event(stored.content)
            self._references[stored.id] = len(stored.destinations)
            for site, qos in stored.destinations.items():
                content = encode_event(event.with_qos(qos))
                self._add(site, PendingEvent(stored.id, content, received))

    # -- sending -------------------------------------------------------------------------------

    def send_once(self, event: Event, sites: Iterable[str]) -> None:
        """Send a QoS 0 event to the sites that can be reached."""
        router = self._router
        targets = [Destination(site) for site in sites if site in router.next_hops]
        if targets:
            router.counters.events_sent += 1
            content = encode_event(event)
            frame = RoutedFrame(FrameType.EVENT, tuple(targets), MAX_HOPS, 0, False, content)
            router.send(frame, droppable=True)

    def send_reliably(
        self,
        event: Event,
        sites: Mapping[str, int],
        operations: Sequence[Operation] = (),
        committed: Callable[[], None] | None = None,
    ) -> None:
        """Commit an event with the QoS of each destination to the journal, then send it.

        ``operations`` are committed with it; ``committed`` is called afterwards.
        """
        now = self._monotonic()
        content = encode_event(event)
        insert: Operation = (
            "INSERT INTO events VALUES (?, ?, ?, ?)",
            (*event.id, self._wall(), content),
        )
        targets: list[Operation] = [
            ("INSERT INTO destinations VALUES (?, ?, ?, ?)", (site, *event.id, qos))
            for site, qos in sites.items()
        ]
        self._references[event.id] = len(sites)
        contents = {
            qos: content if qos == event.qos else encode_event(event.with_qos(qos))
            for qos in set(sites.values())
        }

        def send() -> None:
            if committed is not None:
                committed()
            self._begin(event.id, {site: contents[qos] for site, qos in sites.items()}, now)

        self._journal.submit([*operations, insert, *targets], send)

    def _begin(self, identity: EventId, contents: Mapping[str, bytes], now: float) -> None:
        """Add an event to the streams of its destinations, and send it where nothing waits.

        Destinations with equal content share a frame, so that a link carries one copy.
        """
        groups: dict[bytes, list[Destination]] = {}
        for site, content in contents.items():
            stream = self._add(site, PendingEvent(identity, content, now))
            if self._router.is_reachable(site) and stream.ready():
                chosen = stream.next_to_send(now)
                if chosen is not None:
                    groups.setdefault(content, []).append(Destination(site, chosen[1]))
        self._router.counters.events_sent += 1
        for content, targets in groups.items():
            frame = RoutedFrame(FrameType.EVENT, tuple(targets), MAX_HOPS, 0, True, content)
            self._router.send(frame, droppable=False)
        self._enforce_limits()

    def _add(self, site: str, event: PendingEvent) -> OutgoingStream:
        """Append an event to the stream of a destination."""
        stream = self._streams.get(site)
        if stream is None:
            stream = self._streams[site] = OutgoingStream()
        stream.add(event)
        self._pending_bytes += len(event.content)
        return stream

    def resend(self, site: str) -> None:
        """Send everything again that a site has not acknowledged, because its path is new."""
        if site in self._streams:
            self._streams[site].restart()
            self._send_waiting(site)

    def _send_waiting(self, site: str) -> None:
        """Send what the window of a destination allows."""
        stream = self._streams[site]
        if not self._router.is_reachable(site):
            return
        now = self._monotonic()
        while (chosen := stream.next_to_send(now)) is not None:
            pending, previous = chosen
            elapsed = int((now - pending.received_at) * 1000)
            content = reduce_lifetime(pending.content, elapsed)
            target = (Destination(site, previous),)
            frame = RoutedFrame(FrameType.EVENT, target, MAX_HOPS, 0, True, content)
            self._router.send(frame, droppable=False)

    def receive_acknowledgement(self, site: str, last: EventId, *, resend: bool) -> None:
        """Remove what a site has delivered; with ``resend``, send the rest again.

        If ``last`` is of an epoch of which the journal knows nothing, the site has refused the
        events of this run with lower ids as duplicates. They get new ids and are sent again.
        """
        stream = self._streams.get(site)
        if stream is None:
            return
        removed = stream.acknowledge(last, self._monotonic())
        if last[0] not in self._epochs:
            refused = [event for event in removed if event.id[0] in self._epochs]
            self._renumber(site, refused)
        self._release(site, removed)
        if resend:
            stream.rewind(last)
            self._router.counters.resent += 1
        self._send_waiting(site)

    def _renumber(self, site: str, events: Sequence[PendingEvent]) -> None:
        """Append events to the stream of a site again, with new ids."""
        for event in events:
            renumbered = decode_event(event.content)._replace(id=self._next_id())
            content = encode_event(renumbered)
            received = self._wall() - (self._monotonic() - event.received_at)
            self._journal.submit(
                [
                    (
                        "INSERT INTO events VALUES (?, ?, ?, ?)",
                        (*renumbered.id, received, content),
                    ),
                    (
                        "INSERT INTO destinations VALUES (?, ?, ?, ?)",
                        (site, *renumbered.id, renumbered.qos),
                    ),
                ]
            )
            self._references[renumbered.id] = 1
            self._add(site, PendingEvent(renumbered.id, content, event.received_at))

    # -- limits --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send again what was not acknowledged in time, and drop what is too old."""
        now = self._monotonic()
        for site, stream in self._streams.items():
            if self._router.is_reachable(site) and stream.retry_is_due(now):
                self._router.counters.resent += 1
                self._send_waiting(site)
            oldest = now - self._limits.max_seconds
            while stream.pending and stream.pending[0].received_at < oldest:
                self._drop(site, [stream.remove_first()])

    def forget(self, site: str) -> None:
        """Drop what waits for a site."""
        stream = self._streams.pop(site, None)
        if stream is not None and stream.pending:
            self._drop(site, list(stream.pending))

    def _enforce_limits(self) -> None:
        """Drop the oldest events of the longest stream while a limit is exceeded."""
        while (
            len(self._references) > self._limits.max_events
            or self._pending_bytes > self._limits.max_bytes
        ):
            site, stream = max(self._streams.items(), key=lambda entry: entry[1].bytes)
            if not stream.pending:
                return
            self._drop(site, [stream.remove_first()])

    def _drop(self, site: str, events: Sequence[PendingEvent]) -> None:
        self._router.counters.journal_limit += len(events)
        if not self.drops_by_site.get(site):
            log.warning("site %s: the limits of the journal drop events for it", site)
        self.drops_by_site[site] = self.drops_by_site.get(site, 0) + len(events)
        self._release(site, events)

    def _release(self, site: str, events: Sequence[PendingEvent]) -> None:
        """Remove events of one destination from the journal."""
        if not events:
            return
        finished: list[EventId] = []
        for event in events:
            self._pending_bytes -= len(event.content)
            left = self._references.get(event.id, 1) - 1
            if left > 0:
                self._references[event.id] = left
            else:
                self._references.pop(event.id, None)
                finished.append(event.id)
        operations: list[Operation] = [
            (
                "DELETE FROM destinations WHERE site = ? AND epoch = ? AND number BETWEEN ? AND ?",
                (site, epoch, first, last),
            )
            for epoch, first, last in consecutive_ranges(event.id for event in events)
        ]
        operations += [
            ("DELETE FROM events WHERE epoch = ? AND number BETWEEN ? AND ?", found)
            for found in consecutive_ranges(finished)
        ]
        self._journal.submit(operations)

    @property
    def unacknowledged(self) -> int:
        """Number of events that some destination has not acknowledged."""
        return len(self._references)

    def unacknowledged_by_site(self) -> dict[str, int]:
        """Return the number of unacknowledged events of each destination."""
        return {site: len(stream.pending) for site, stream in self._streams.items()}


def consecutive_ranges(identities: Iterable[EventId]) -> list[tuple[int, int, int]]:
    """Return ids as ranges of consecutive numbers: epoch, first and last number."""
    ranges: list[tuple[int, int, int]] = []
    for epoch, number in identities:
        if ranges and ranges[-1][0] == epoch and ranges[-1][2] == number - 1:
            ranges[-1] = (epoch, ranges[-1][1], number)
        else:
            ranges.append((epoch, number, number))
    return ranges
