"""Events one after the other: for ``for`` and for ``async for``."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from firedex_clients.event import Event

__all__ = ["EventStream"]

MOST_WAITING = 100_000


class EventStream:
    """What arrives for a subscription, until it is closed.

    At most ``most_waiting`` events wait to be taken; of more, the oldest is discarded and counted
    in ``discarded``, so that a reader who is too slow reads what is new.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._events: deque[Event] = deque()
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._closed = False
        self.discarded = 0

    def put(self, event: Event) -> None:
        """One more event; from any thread."""
        with self._changed:
            self._events.append(event)
            if len(self._events) > self._most_waiting:
                self._events.popleft()
                self.discarded += 1
            self._wake()

    def close(self) -> None:
        """No more will come; what waits can still be taken."""
        with self._changed:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        self._changed.notify()
        sleepers, self._sleepers = self._sleepers, []
        for loop, event in sleepers:
            with suppress(RuntimeError):  # its loop has been closed
                loop.call_soon_threadsafe(event.set)

    def take(self, timeout_seconds: float | None = None) -> Event | None:
        """The next event; None when closed, or when none has come in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed, timeout_seconds)
            return self._events.popleft() if self._events else None

    def __iter__(self) -> Iterator[Event]:
        while (event := self.take()) is not None:
            yield event

    async def take_async(self) -> Event | None:
        """The next event; None when closed."""
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._closed:
                    return None
                ready = asyncio.Event()
                self._sleepers.append((asyncio.get_running_loop(), ready))
            await ready.wait()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.take_async()) is not None:
            yield event
