"""Telling an event that has been seen from one that has not, and what is missing. Pure.

For each stream of events (see `event_stamp`) a subscription keeps the highest sequence number and
the numbers below it that have not come. Memory is bounded: numbers further back than ``WINDOW``
count as lost, and of very many streams the oldest are forgotten.

Anybody can write a stamp: a stream belongs to its topic, so that who may not publish there cannot
spoil it, and a number very far ahead is not believed, since all that follow would look old. If more
come from there (we were away for long), they are counted beside those that go on as before.

A retained event may be as old as its topic: nothing follows from its number for what else should
have come, so that it neither opens a stream nor moves it on. It only must not come twice.
"""

from collections import OrderedDict, deque

__all__ = ["Seen", "Stream"]

WINDOW = 4096
BEFORE_FIRST = 64
"""How far back an event may be that comes after the first that was seen of its stream."""
LONGEST_JUMP = 2**20
"""A number further ahead than this is nobody's next."""
MOST_STREAMS = 10_000


class Stream:
    """One stream's numbers as one subscription sees them."""

    __slots__ = ("_ahead", "_missing", "_order", "_uncounted", "highest", "lost", "told")

    def __init__(self, first: int) -> None:
        self.highest = first
        self.told = 0
        self.lost = 0
        self._uncounted = set(range(max(first - BEFORE_FIRST, 1), first))
        self._ahead: Stream | None = None
        self._missing: set[int] = set()
        self._order: deque[int] = deque()

    def is_new(self, sequence: int) -> bool | None:
        """Note that an event has come; False if it had come before, None if that is no number."""
        if sequence == self.highest + 1:
            self.highest = sequence
            return True
        if sequence > self.highest:
            if sequence > self.highest + LONGEST_JUMP:
                return self._is_new_ahead(sequence)
            self._skip(sequence)
            return True
        if sequence in self._missing:
            self._missing.remove(sequence)
            return True
        if sequence in self._uncounted:
            self._uncounted.remove(sequence)
            return True
        return False

    def is_new_retained(self, sequence: int) -> bool:
        """The same of a retained event, which may fill a gap, and makes none."""
        if sequence <= self.highest:
            return bool(self.is_new(sequence))
        return self._ahead is None or self._ahead.is_new_retained(sequence)

    def _is_new_ahead(self, sequence: int) -> bool | None:
        ahead = self._ahead
        if ahead is None or not -WINDOW <= sequence - ahead.highest <= LONGEST_JUMP:
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
            gone = self._order.popleft()
            if gone in self._missing:
                self._missing.remove(gone)
                self.lost += 1

    @property
    def missing(self) -> int:
        """How many have not come so far."""
        ahead = 0 if self._ahead is None else self._ahead.missing
        return self.lost + len(self._missing) + ahead


class Seen:
    """All streams of one subscription."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[str, bytes], Stream] = OrderedDict()
        self._retained: dict[str, tuple[bytes, int]] = {}
        self._forgotten_missing = 0

    def is_new(self, topic: str, origin: bytes, sequence: int) -> bool | None:
        """Note that an event has come; False if it had come before, None if that is no number."""
        key = (topic, origin)
        stream = self._streams.get(key)
        if stream is not None:
            is_new = stream.is_new(sequence)
        else:
            if len(self._streams) >= MOST_STREAMS:
                _, gone = self._streams.popitem(last=False)
                self._forgotten_missing += gone.missing
            stream, is_new = Stream(sequence), True
            self._streams[key] = stream
        if self._retained and is_new:
            return self._is_not_retained(stream, topic, origin, sequence)
        return is_new

    def _is_not_retained(self, stream: Stream, topic: str, origin: bytes, sequence: int) -> bool:
        """Whether a live event is not the one that came as retained; that one is noted, too."""
        by, kept = self._retained.get(topic, (b"", 0))
        if by != origin or sequence < kept:
            return True
        del self._retained[topic]
        stream.is_new_retained(kept)
        return sequence != kept

    def is_new_retained(self, topic: str, origin: bytes, sequence: int) -> bool:
        """The same of a retained event."""
        stream = self._streams.get((topic, origin))
        if self._retained.get(topic) == (origin, sequence):
            return False
        if stream is not None and not stream.is_new_retained(sequence):
            return False
        if len(self._retained) < MOST_STREAMS or topic in self._retained:
            self._retained[topic] = (origin, sequence)
        return True

    def take_missing(self) -> dict[str, int]:
        """How many events of each topic are missing that were not at the last time."""
        found: dict[str, int] = {}
        for (topic, _), stream in self._streams.items():
            missing = stream.missing
            if missing > stream.told:
                found[topic] = found.get(topic, 0) + missing - stream.told
                stream.told = missing
        return found

    @property
    def missing(self) -> int:
        """How many events have not come, by the numbers that have."""
        return self._forgotten_missing + sum(s.missing for s in self._streams.values())
