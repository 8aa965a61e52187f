"""Events and streams of events, as a subscriber receives them."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

__all__ = ["UNMANAGED_FLOW", "UNMANAGED_PRIORITY", "Event", "EventStream", "OnEvent"]

UNMANAGED_FLOW = 65_535
"""Flow number of events that arrived over an unmanaged connection; no plan contains it."""
UNMANAGED_PRIORITY = 63
"""Class of unmanaged events: the lowest."""


class Event(NamedTuple):
    """One delivered event. An event without a stamp has no id and no delay.

    ``published_at_seconds`` is a time of the publisher's clock, ``received_at_seconds`` a time of
    the local clock.
    """

    topic: str
    filter: str
    payload: bytes
    flow: int
    priority: int
    configuration_version: int
    event_id: str | None
    published_at_seconds: float | None
    received_at_seconds: float
    qos: int = 0
    retained: bool = False

    @property
    def delay_seconds(self) -> float | None:
        """Difference of the two times; None for events that are retained or have no stamp."""
        if self.published_at_seconds is None or self.retained:
            return None
        return self.received_at_seconds - self.published_at_seconds

    @property
    def managed(self) -> bool:
        """Whether the event arrived over a flow of a plan."""
        return self.flow != UNMANAGED_FLOW


OnEvent = Callable[[Event], None]


MAX_WAITING_EVENTS = 100_000


class EventStream:
    """The events of a subscription, until the stream is closed.

    At most ``max_waiting`` events wait to be read. If there are more, the oldest is discarded and
    counted in ``discarded``, so that a slow reader gets the newest events.
    """

    def __init__(self, max_waiting: int = MAX_WAITING_EVENTS) -> None:
        self._events: deque[Event] = deque()
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._async_waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._closed = False
        self.discarded = 0

    def put(self, event: Event) -> None:
        """Add an event; may be called in any thread."""
        with self._changed:
            self._events.append(event)
            if len(self._events) > self._max_waiting:
                self._events.popleft()
                self.discarded += 1
            self._notify_waiters()

    def close(self) -> None:
        """Accept no more events; waiting events can still be read."""
        with self._changed:
            self._closed = True
            self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._changed.notify()
        waiters, self._async_waiters = self._async_waiters, []
        for loop, event in waiters:
            with suppress(RuntimeError):  # the loop of the waiter has been closed
                loop.call_soon_threadsafe(event.set)

    def take(self, timeout_seconds: float | None = None) -> Event | None:
        """Return the next event; None if the stream is closed, or after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed, timeout_seconds)
            return self._events.popleft() if self._events else None

    def __iter__(self) -> Iterator[Event]:
        while (event := self.take()) is not None:
            yield event

    async def take_async(self) -> Event | None:
        """Return the next event; None if the stream is closed."""
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._closed:
                    return None
                ready = asyncio.Event()
                self._async_waiters.append((asyncio.get_running_loop(), ready))
            await ready.wait()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.take_async()) is not None:
            yield event
