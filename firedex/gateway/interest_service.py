"""The running parts around the table of filters: its HTTP interface, its timer and its state file.

====== ========== =================================================================
GET    /interest  ``firedex.wire.InterestReport``
====== ========== =================================================================

With ``after=VERSION`` (and ``instance=ID``) the response waits until the report has another version
(or the gateway another instance), at most ``wait_seconds``.

The table is used in the event loop only. A request waits in its own thread for a future of the
loop; the report is encoded in that thread too.
"""

import asyncio
import concurrent.futures
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus

from firedex.gateway.interest import InterestSnapshot, InterestTable
from firedex.gateway.interest_store import InterestStore
from firedex.transport.http_server import JsonServer, Request, RequestError, Route
from firedex.wire import InterestReport

__all__ = ["open_interest_table", "running_interest"]

log = logging.getLogger("firedex.gateway")

MAX_WAIT_SECONDS = 60.0
MAX_BODY_BYTES = 1024
IDLE_SECONDS = 75.0
"""Longer than the longest wait, so that a connection can be used again."""
POLL_SECONDS = 0.1
"""Time after which the server notices that it is to stop."""
EXPIRY_SECONDS = 0.5
"""Time between two searches for expired sessions."""
RETRY_SECONDS = 1.0
"""Time after which a failed write is repeated."""
SPARE_SECONDS = 5.0
PARAMETERS = frozenset({"after", "instance", "wait_seconds"})


def open_interest_table(store: InterestStore | None) -> InterestTable:
    """Return a new table with the sessions that the previous run stored."""
    table = InterestTable(instance=secrets.token_hex(8), clock=time.monotonic, sessions=store)
    if store is not None:
        for session in store.load():
            table.restore(session)
    return table


# -- HTTP ------------------------------------------------------------------------------------------


class InterestServer:
    """Serves the table over HTTP; ``close`` blocks, so it is called outside the event loop."""

    def __init__(self, table: InterestTable, address: tuple[str, int]) -> None:
        """Open the socket; raise OSError if the address is not available."""
        self._table, self._loop = table, asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        table.on_change = self._wake
        route = Route(method="GET", path="/interest", respond=self._respond, parameters=PARAMETERS)
        self._server = JsonServer(
            address,
            [route],
            token=None,
            describe_error=_describe_error,
            name="gateway",
            max_body_bytes=MAX_BODY_BYTES,
            idle_seconds=IDLE_SECONDS,
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name="interest", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _wake(self) -> None:
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def _next_snapshot(
        self, after: int | None, instance: str, wait_seconds: float
    ) -> InterestSnapshot:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                while after == self._table.version and instance == self._table.instance:
                    changed = self._loop.create_future()
                    self._waiting.add(changed)
                    try:
                        await changed
                    finally:
                        self._waiting.discard(changed)
        return self._table.snapshot()

    def _respond(self, request: Request) -> InterestReport:
        query = request.query
        after = _read_version(query["after"]) if "after" in query else None
        wait_seconds = _read_wait(query.get("wait_seconds", "0"))
        instance = query.get("instance", self._table.instance)
        waiting = self._next_snapshot(after, instance, wait_seconds)
        try:
            future = asyncio.run_coroutine_threadsafe(waiting, self._loop)
        except RuntimeError:  # the loop is closed
            waiting.close()
            raise concurrent.futures.CancelledError from None
        return future.result(wait_seconds + SPARE_SECONDS).report()


def _read_version(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise RequestError(HTTPStatus.BAD_REQUEST, f"after: must be a version, not {text!r}")
    return int(text)


def _read_wait(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) <= MAX_WAIT_SECONDS:
            return seconds
    raise RequestError(
        HTTPStatus.BAD_REQUEST,
        f"wait_seconds: must be a number from 0 to {MAX_WAIT_SECONDS:g}, not {text!r}",
    )


def _describe_error(error: Exception) -> RequestError | None:
    if isinstance(error, concurrent.futures.CancelledError):
        return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the gateway is stopping")
    return None


# -- timer and state file --------------------------------------------------------------------------


@asynccontextmanager
async def running_interest(
    table: InterestTable, store: InterestStore | None, address: tuple[str, int] | None
) -> AsyncIterator[None]:
    """Serve and save a table; raise OSError if the address is not available."""
    async with AsyncExitStack() as running:
        if store is not None:
            running.callback(store.close)
            running.push_async_callback(_start_saving(table, store))
        expiring = asyncio.create_task(_expire_sessions(table))
        running.callback(expiring.cancel)
        if address is not None:
            server = InterestServer(table, address)
            running.push_async_callback(asyncio.to_thread, server.close)
        yield


async def _expire_sessions(table: InterestTable) -> None:
    while True:
        await asyncio.sleep(EXPIRY_SECONDS)
        table.expire()


def _start_saving(table: InterestTable, store: InterestStore) -> Callable[[], Awaitable[None]]:
    """Write each change to the state file; return a function that stops writing."""
    changed, stopping = asyncio.Event(), asyncio.Event()

    async def save() -> None:
        failed = False
        while not stopping.is_set():
            await changed.wait()
            changed.clear()
            try:
                await asyncio.to_thread(store.write, store.take_changes())
                failed = False
            except sqlite3.Error as error:
                if not failed:
                    log.error("cannot write the state file: %s", error)  # noqa: TRY400
                failed = True
                store.replace_all(list(table.stored_sessions()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), RETRY_SECONDS)
                changed.set()

    async def stop() -> None:
        stopping.set()
        changed.set()
        await task

    store.on_change = changed.set
    changed.set()
    task = asyncio.create_task(save())
    return stop
