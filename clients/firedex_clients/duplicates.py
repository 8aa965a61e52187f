"""Detection of duplicate and missing events by their sequence numbers. Pure.

For each stream of events (see `event_stamp`) a subscription keeps the highest sequence number and
the missing numbers below it. Memory is bounded: numbers more than ``WINDOW`` below the highest
count as lost, and of too many streams the oldest are removed.

A publisher can write any stamp. Streams are therefore kept by topic, so that a publisher without
permission for a topic cannot disturb its streams. A sequence number very far ahead is not accepted
at once, because all numbers after it would look old. If more numbers near it follow (the subscriber
was disconnected for long), they are counted separately from the numbers before the jump.

A retained event may be as old as its topic. Its sequence number says nothing about other events, so
it neither starts a stream nor changes the highest number. It must only not be delivered twice.
"""

from collections import OrderedDict, deque

__all__ = ["ReceivedEvents", "Stream"]

WINDOW = 4096
MAX_EVENTS_BEFORE_FIRST = 64
"""Number of events before the first received event of a stream that may still arrive."""
MAX_JUMP = 2**20
"""A sequence number further ahead of the highest is not accepted at once."""
MAX_STREAMS = 10_000


class Stream:
    """The sequence numbers of one stream, as received by one subscription."""

    __slots__ = ("_ahead", "_before_first", "_missing", "_order", "highest", "lost", "reported")

    def __init__(self, first: int) -> None:
        self.highest = first
        self.reported = 0
        self.lost = 0
        self._before_first = set(range(max(first - MAX_EVENTS_BEFORE_FIRST, 1), first))
        self._ahead: Stream | None = None
        self._missing: set[int] = set()
        self._order: deque[int] = deque()

    def is_new(self, sequence: int) -> bool | None:
        """Record an event; return False for a duplicate, None for an implausible number."""
        if sequence == self.highest + 1:
            self.highest = sequence
            return True
        if sequence > self.highest:
            if sequence > self.highest + MAX_JUMP:
                return self._is_new_ahead(sequence)
            self._skip(sequence)
            return True
        if sequence in self._missing:
            self._missing.remove(sequence)
            return True
        if sequence in self._before_first:
            self._before_first.remove(sequence)
            return True
        return False

    def is_new_retained(self, sequence: int) -> bool:
        """Record a retained event, which may fill a gap but never creates one."""
        if sequence <= self.highest:
            return bool(self.is_new(sequence))
        return self._ahead is None or self._ahead.is_new_retained(sequence)

    def _is_new_ahead(self, sequence: int) -> bool | None:
        ahead = self._ahead
        if ahead is None or not -WINDOW <= sequence - ahead.highest <= MAX_JUMP:
            self._ahead = Stream(sequence)
            return None
        return ahead.is_new(sequence)

    def _skip(self, sequence: int) -> None:
        first, limit = self.highest + 1, sequence - WINDOW
        if first < limit:
            self.lost += limit - first
            first = limit
        self._missing.update(range(first, sequence))
        self._order.extend(range(first, sequence))
        self.highest = sequence
        while self._order and self._order[0] < limit:
            removed = self._order.popleft()
            if removed in self._missing:
                self._missing.remove(removed)
                self.lost += 1

    @property
    def missing(self) -> int:
        """Number of events that have not arrived so far."""
        ahead = 0 if self._ahead is None else self._ahead.missing
        return self.lost + len(self._missing) + ahead


class ReceivedEvents:
    """All streams of one subscription."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[str, bytes], Stream] = OrderedDict()
        self._retained: dict[str, tuple[bytes, int]] = {}
        self._missing_in_removed_streams = 0

    def is_new(self, topic: str, origin: bytes, sequence: int) -> bool | None:
        """Record an event; return False for a duplicate, None for an implausible number."""
        key = (topic, origin)
        stream = self._streams.get(key)
        if stream is not None:
            is_new = stream.is_new(sequence)
        else:
            if len(self._streams) >= MAX_STREAMS:
                _, removed = self._streams.popitem(last=False)
                self._missing_in_removed_streams += removed.missing
            stream, is_new = Stream(sequence), True
            self._streams[key] = stream
        if self._retained and is_new:
            return self._differs_from_retained(stream, topic, origin, sequence)
        return is_new

    def _differs_from_retained(
        self, stream: Stream, topic: str, origin: bytes, sequence: int
    ) -> bool:
        """Return whether a live event differs from the retained event, and record the latter."""
        retained_origin, retained_sequence = self._retained.get(topic, (b"", 0))
        if retained_origin != origin or sequence < retained_sequence:
            return True
        del self._retained[topic]
        stream.is_new_retained(retained_sequence)
        return sequence != retained_sequence

    def is_new_retained(self, topic: str, origin: bytes, sequence: int) -> bool:
        """Record a retained event; return False for a duplicate."""
        stream = self._streams.get((topic, origin))
        if self._retained.get(topic) == (origin, sequence):
            return False
        if stream is not None and not stream.is_new_retained(sequence):
            return False
        if len(self._retained) < MAX_STREAMS or topic in self._retained:
            self._retained[topic] = (origin, sequence)
        return True

    def take_missing(self) -> dict[str, int]:
        """Return the number of newly missing events by topic since the last call."""
        new_missing: dict[str, int] = {}
        for (topic, _), stream in self._streams.items():
            missing = stream.missing
            if missing > stream.reported:
                new_missing[topic] = new_missing.get(topic, 0) + missing - stream.reported
                stream.reported = missing
        return new_missing

    @property
    def missing(self) -> int:
        """Number of events that have not arrived, found by gaps in sequence numbers."""
        return self._missing_in_removed_streams + sum(s.missing for s in self._streams.values())
