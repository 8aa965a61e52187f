"""Reliable delivery of QoS 1 and 2 events between two sites: order, resending, duplicates. Pure.

The events of an origin for one destination form a stream, ordered by event id. Each frame names the
event sent before it (``previous``), so the destination sees gaps. The destination acknowledges the
last event up to which it has delivered everything. The origin sends again what is not acknowledged.
Relays keep no state.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from firedex.federation.frames import NO_EVENT, EventId

__all__ = ["IncomingStream", "OutgoingStream", "PendingEvent", "Verdict"]

WINDOW_EVENTS = 512
WINDOW_BYTES = 4 * 1024 * 1024
FIRST_RETRY_SECONDS = 1.0
"""The retry timeout until an acknowledgement was timed."""
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.25, 8.0


class PendingEvent(NamedTuple):
    """An event that a destination has not acknowledged."""

    id: EventId
    content: bytes
    received_at: float
    """Monotonic time; for an event of an earlier run, a time in the past."""


class AcknowledgementTime:
    """How long acknowledgements take: a moving mean and its deviation, as in TCP (RFC 6298)."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0

    def add(self, seconds: float) -> None:
        """Include the time of one acknowledgement."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += (abs(seconds - self._mean) - self._deviation) / 4
        self._mean += (seconds - self._mean) / 8

    def retry_seconds(self) -> float:
        """Return the time without an acknowledgement after which events are sent again."""
        if self._mean is None:
            return FIRST_RETRY_SECONDS
        expected = self._mean + 4 * self._deviation
        return min(max(expected, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)


class OutgoingStream:
    """The events for one destination that are not acknowledged yet."""

    def __init__(self) -> None:
        self.pending: deque[PendingEvent] = deque()
        self.bytes = 0
        self._sent = 0
        self._sent_bytes = 0
        self._floor: EventId = NO_EVENT
        self._retry_at: float | None = None
        self._acknowledged_in = AcknowledgementTime()
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._timed: tuple[EventId, float] | None = None
        """An event that was sent once, and when; its acknowledgement is timed."""

    def add(self, event: PendingEvent) -> None:
        """Append an event."""
        self.pending.append(event)
        self.bytes += len(event.content)

    def ready(self) -> bool:
        """Return whether the newest event can be sent now.

        All events before it have been sent, and the window has room for one more.
        """
        return self._sent == len(self.pending) - 1 and self._window_is_open()

    def _window_is_open(self) -> bool:
        return self._sent < WINDOW_EVENTS and self._sent_bytes < WINDOW_BYTES

    def next_to_send(self, now: float) -> tuple[PendingEvent, EventId] | None:
        """Return the next event to send and the id of the one before it, and mark it as sent."""
        if self._sent >= len(self.pending) or not self._window_is_open():
            return None
        event = self.pending[self._sent]
        previous = self.pending[self._sent - 1].id if self._sent else self._floor
        self._sent += 1
        self._sent_bytes += len(event.content)
        if self._retry_at is None:
            self._retry_at = now + self._retry_seconds
        if self._timed is None:
            self._timed = event.id, now
        return event, previous

    def acknowledge(self, last: EventId, now: float) -> list[PendingEvent]:
        """Remove and return the events up to ``last``."""
        removed: list[PendingEvent] = []
        while self.pending and self.pending[0].id <= last:
            event = self.pending.popleft()
            removed.append(event)
            self.bytes -= len(event.content)
            if self._sent:
                self._sent -= 1
                self._sent_bytes -= len(event.content)
        if self._timed is not None and self._timed[0] <= last:
            self._acknowledged_in.add(now - self._timed[1])
            self._timed = None
        if removed:
            self._floor = max(self._floor, removed[-1].id)
            self._retry_seconds = self._acknowledged_in.retry_seconds()
            self._retry_at = now + self._retry_seconds if self._sent else None
        return removed

    def remove_first(self) -> PendingEvent:
        """Remove and return the oldest event, because of a limit or because it expired."""
        self._timed = None
        event = self.pending.popleft()
        self.bytes -= len(event.content)
        if self._sent:
            self._sent -= 1
            self._sent_bytes -= len(event.content)
        return event

    def rewind(self, last: EventId | None = None) -> None:
        """Send everything again that is not acknowledged; ``last`` is what the destination has.

        It is less than what was acknowledged if the destination has lost its journal.
        """
        self._sent = self._sent_bytes = 0
        self._retry_at = self._timed = None
        if last is not None:
            self._floor = min(self._floor, last)

    def restart(self) -> None:
        """Send everything again that is not acknowledged, and soon once more: the path is new."""
        self.rewind()
        self._retry_seconds = self._acknowledged_in.retry_seconds()

    def retry_is_due(self, now: float) -> bool:
        """Return whether sent events have not been acknowledged for too long, and rewind then."""
        if self._retry_at is None or now < self._retry_at or not self._sent:
            return False
        self._retry_seconds = min(2 * self._retry_seconds, MAX_RETRY_SECONDS)
        self.rewind()
        return True


class Verdict(NamedTuple):
    """What to do with a received event."""

    accept: bool
    resend: bool = False


@dataclass(slots=True)
class IncomingStream:
    """The events of one origin: what was accepted, and up to where all is delivered."""

    delivered: EventId = NO_EVENT
    accepted: EventId = NO_EVENT
    _unfinished: dict[EventId, bool] = field(default_factory=dict)
    _begun_earlier: dict[EventId, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.accepted = max(self.accepted, self.delivered)

    def restore(self, event: EventId, *, finished: bool) -> None:
        """Record an event whose delivery an earlier run has begun, and perhaps finished.

        Events before it may be missing, so it does not count as accepted until it is received
        again, after those.
        """
        if event > self.delivered:
            self._begun_earlier[event] = finished

    def resume(self, event: EventId) -> bool | None:
        """Continue an accepted event that an earlier run has begun; return whether it is finished.

        Returns None if no earlier run has begun it.
        """
        finished = self._begun_earlier.pop(event, None)
        if finished is not None:
            self.begin(event)
        return finished

    def receive(self, event: EventId, previous: EventId) -> Verdict:
        """Return whether to accept an event: once, and only after the one before it."""
        if event <= self.accepted:
            return Verdict(accept=False)
        if previous > self.accepted:
            return Verdict(accept=False, resend=True)
        return Verdict(accept=True)

    def begin(self, event: EventId) -> None:
        """Record that the delivery of an accepted event has begun."""
        self.accepted = max(self.accepted, event)
        self._unfinished[event] = False

    def undo(self, event: EventId) -> None:
        """Accept an event again: its delivery was begun, but cannot be completed."""
        self._unfinished.pop(event, None)
        self.accepted = max([self.delivered, *self._unfinished])

    def finish(self, event: EventId) -> bool:
        """Record that an event is delivered; return whether ``delivered`` has advanced."""
        if event in self._begun_earlier:
            self._begun_earlier[event] = True
        if event in self._unfinished:
            self._unfinished[event] = True
        before = self.delivered
        while self._unfinished:
            first = next(iter(self._unfinished))
            if not self._unfinished[first]:
                break
            del self._unfinished[first]
            self.delivered = max(self.delivered, first)
        return self.delivered > before
