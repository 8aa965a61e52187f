"""An asyncio event loop in its own thread, for the blocking interface of the library."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["EventLoopThread", "run_blocking"]

log = logging.getLogger("firedex.clients")
CONNECTING_THREADS = 2
T = TypeVar("T")


class EventLoopThread:
    """A daemon thread that runs an event loop until ``stop`` is called in the loop.

    paho opens TCP connections with a blocking call; ``connecting`` is the executor for these calls.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_log_exception)
        self.connecting = ThreadPoolExecutor(CONNECTING_THREADS, f"firedex-connect-{name}")
        self._thread = threading.Thread(target=self._run, name=f"firedex-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            remaining = asyncio.all_tasks(self.loop)
            for task in remaining:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.connecting.shutdown(wait=False, cancel_futures=True)
            self.loop.close()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the thread of the loop."""
        return threading.current_thread() is self._thread

    def call(self, action: Callable[[], object]) -> None:
        """Call a function in the loop soon; a loop that has ended ignores the call."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(action)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self) -> None:
        """End the loop, after the callbacks that are already scheduled."""
        self.call(self.loop.stop)

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also if the calling thread runs an event loop itself."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


def _log_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of one callback; the other connections continue."""
    log.error("%s", context["message"], exc_info=context.get("exception"))
