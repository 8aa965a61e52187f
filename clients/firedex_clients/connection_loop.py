"""One thread that drives all connections of a subscriber: sockets, timers, calls from others.

Opening a TCP connection blocks, so a few helper threads do that and nothing else.
"""

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

__all__ = ["ConnectionLoop", "Timer"]

log = logging.getLogger("firedex.clients")
DIALLERS = 2
LONGEST_WAIT_SECONDS = 1.0
T = TypeVar("T")


@dataclass(order=True, slots=True)
class Timer:
    """Something to do at a time."""

    at: float
    serial: int
    action: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Do it no more."""
        self.action = None


@dataclass(frozen=True, slots=True)
class _Watch:
    on_readable: Callable[[], None]
    on_writable: Callable[[], None]


class ConnectionLoop:
    """Runs until ``stop``; everything that is handed to it runs in its one thread."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[Timer] = []
        self._serials = itertools.count()
        self._awake, self._waker = socket.socketpair()
        for end in (self._awake, self._waker):
            end.setblocking(False)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._stopping = False
        self.diallers = ThreadPoolExecutor(DIALLERS, f"firedex-dial-{name}")
        self._thread = threading.Thread(target=self._run, name=f"firedex-{name}", daemon=True)
        self._thread.start()

    # -- for every thread --------------------------------------------------------------------------

    def call(self, action: Callable[[], None]) -> None:
        """Let the loop's thread do something soon."""
        self._calls.append(action)
        with suppress(OSError):
            self._waker.send(b"\0")

    def result_of(self, action: Callable[[], T], seconds: float) -> T:
        """Have the loop's thread do something, and wait for what comes of it."""
        done: Future[T] = Future()

        def do() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self.call(do)
        return done.result(seconds)

    @property
    def is_current(self) -> bool:
        """Whether it is the loop's thread that asks."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread, once it is done with what it does; connections must have been closed."""
        self._stopping = True
        self.call(lambda: None)
        self.diallers.shutdown(wait=False, cancel_futures=True)

    def join(self, seconds: float) -> bool:
        """Wait for the end; whether it has come. Not for the loop's thread itself."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        self.diallers.shutdown(wait=True)
        self._run_calls()  # what was opened last is closed again
        return True

    # -- for the loop's own thread -----------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Do something in a while."""
        timer = Timer(time.monotonic() + seconds, next(self._serials), action)
        heapq.heappush(self._timers, timer)
        return timer

    def watch(
        self,
        opened: socket.socket,
        on_readable: Callable[[], None],
        on_writable: Callable[[], None] = lambda: None,
    ) -> None:
        """Tell when a socket can be read, or (see ``want_write``) written."""
        self._selector.register(opened, selectors.EVENT_READ, _Watch(on_readable, on_writable))

    def want_write(self, opened: socket.socket, wanted: bool) -> None:
        """Whether to be told that a socket can be written."""
        key = self._selector.get_key(opened)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
        if events != key.events:
            self._selector.modify(opened, events, key.data)

    def unwatch(self, opened: socket.socket) -> None:
        """Tell nothing more of a socket."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(opened)

    def _run(self) -> None:
        while not self._stopping:
            for key, events in self._selector.select(self._wait_seconds()):
                watch = key.data
                if watch is None:
                    with suppress(BlockingIOError):
                        self._awake.recv(4096)
                    continue
                if events & selectors.EVENT_READ:
                    _safely(watch.on_readable)
                if events & selectors.EVENT_WRITE and key.fd in self._selector.get_map():
                    _safely(watch.on_writable)
            self._run_calls()
            self._run_timers()
        self._run_calls()  # nobody shall wait in vain
        self._selector.close()
        self._awake.close()
        self._waker.close()

    def _run_calls(self) -> None:
        for _ in range(len(self._calls)):
            _safely(self._calls.popleft())

    def _wait_seconds(self) -> float:
        if self._calls:
            return 0.0
        if not self._timers:
            return LONGEST_WAIT_SECONDS
        return min(max(self._timers[0].at - time.monotonic(), 0.0), LONGEST_WAIT_SECONDS)

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0].at <= now:
            action = heapq.heappop(self._timers).action
            if action is not None:
                _safely(action)


def _safely(action: Callable[[], None]) -> None:
    """A mistake in one connection must not end the others."""
    try:
        action()
    except Exception:
        log.exception("a connection's own mistake")
