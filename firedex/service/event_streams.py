"""Server-sent events, and waiting for a change to be in force: no thread waits, a loop does.

Lives in one event loop; events come from any thread. A stream that does not keep up is closed: its
client comes again, and is told the present version first.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from firedex.service.core import ConfigurationService, Event
from firedex.service.errors import TooMuch

__all__ = ["EventStreams", "Listener", "TooManyStreams"]

log = logging.getLogger("firedex.service")
KEEP_ALIVE_SECONDS = 15.0
STATISTICS_SECONDS = 1.0
MOST_WAITING_EVENTS = 32
MOST_STREAMS = 20_000
MOST_STREAMS_OF_A_TOKEN = 100
SEND_SECONDS = 10.0
"""Who takes nothing for so long has left without a word."""
LOOK_AT_TOKENS_SECONDS = 5.0
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class TooManyStreams(Exception):
    """No more streams can be held."""


def sse(kind: str, data: Mapping[str, object], version: int) -> bytes:
    """One event as text."""
    return f"id: {version}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who holds a stream: the token's name, if tokens are asked for, and whose flows it watches."""

    token: str | None = None
    subscriber: str | None = None


class _Stream:
    __slots__ = ("closing", "listener", "queue")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.closing = False
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING_EVENTS)


class EventStreams:
    """All open streams of one service, and everybody who waits for a change."""

    def __init__(self, service: ConfigurationService) -> None:
        self._service = service
        self._streams: set[_Stream] = set()
        self._waiting: set[tuple[int, asyncio.Future[None]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._last_statistics = 0.0
        service.listen(self._from_any_thread)

    def start(self) -> None:
        """Begin, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._tasks = [
            self._loop.create_task(self._keep_alive()),
            self._loop.create_task(self._end_revoked()),
        ]

    async def stop(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            self._close(stream)
        for task in self._tasks:
            task.cancel()

    async def wait_for(self, change: int, seconds: float) -> bool:
        """Wait until a change is in force; False if it was not in time."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (change, waiting)
        self._waiting.add(entry)
        try:
            if self._service.includes(change):
                return True
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting.discard(entry)

    async def serve(self, listener: Listener, receive: Receive, send: Send) -> None:
        """Hold one stream until either side leaves, or the other side no longer takes anything."""
        self._check_room(listener)
        stream = _Stream(listener)
        self._streams.add(stream)
        self._service.event_streams = len(self._streams)
        watcher = asyncio.ensure_future(self._watch(stream, receive))
        try:
            await self._send_all(stream, send)
        except TimeoutError:
            log.info("an event stream of %s took nothing more", listener.token or "somebody")
        finally:
            watcher.cancel()
            self._streams.discard(stream)
            self._service.event_streams = len(self._streams)

    def _check_room(self, listener: Listener) -> None:
        if len(self._streams) >= MOST_STREAMS:
            raise TooManyStreams
        if listener.token is not None:
            own = sum(stream.listener.token == listener.token for stream in self._streams)
            if own >= MOST_STREAMS_OF_A_TOKEN:
                raise TooMuch(SEND_SECONDS)

    async def _send_all(self, stream: _Stream, send: Send) -> None:
        async def put(message: dict[str, Any]) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        await put({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await put(_chunk(b": welcome\n\n"))
        version = self._service.version
        if version:
            data: dict[str, object] = {"version": version}
            if stream.listener.subscriber is not None:
                data["changed"] = True
            await put(_chunk(sse("configuration", data, version)))
        while (text := await stream.queue.get()) is not None:
            await put(_chunk(text))
        await put({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, stream: _Stream, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._close(stream)

    def _close(self, stream: _Stream) -> None:
        """It counts as open until it has ended, however long that takes."""
        stream.closing = True
        while stream.queue.full():
            stream.queue.get_nowait()
        stream.queue.put_nowait(None)

    def _from_any_thread(self, event: Event) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._spread, event)

    def _spread(self, event: Event) -> None:
        if event.kind == "configuration":
            for change, waiting in list(self._waiting):
                if self._service.includes(change) and not waiting.done():
                    waiting.set_result(None)
        if event.kind == "statistics":
            now = time.monotonic()
            if now - self._last_statistics < STATISTICS_SECONDS:
                return
            self._last_statistics = now
        plain = sse(event.kind, event.data, event.version)
        told = {
            known: sse(event.kind, {**event.data, "changed": known}, event.version)
            for known in (True, False)
        }
        for stream in list(self._streams):
            watched = stream.listener.subscriber
            if watched is not None and event.kind == "statistics":
                continue  # it has no use for them, and its link no room
            if event.changed is None or watched is None:
                self._put(stream, plain)
            else:
                self._put(stream, told[watched in event.changed])

    def _put(self, stream: _Stream, text: bytes) -> None:
        if stream.closing:
            return
        try:
            stream.queue.put_nowait(text)
        except asyncio.QueueFull:
            self._close(stream)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            for stream in list(self._streams):
                self._put(stream, b": keep-alive\n\n")

    async def _end_revoked(self) -> None:
        """A token that is revoked, by whatever process, has no streams any more."""
        while True:
            await asyncio.sleep(LOOK_AT_TOKENS_SECONDS)
            holders = {stream.listener.token for stream in self._streams} - {None}
            if not holders:
                continue
            try:
                valid = await asyncio.to_thread(self._service.tokens.valid_names)
            except SQLAlchemyError:
                log.warning("tokens cannot be looked at just now")
                continue
            for stream in list(self._streams):
                if stream.listener.token in holders - valid:
                    self._close(stream)


def _chunk(text: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": True}
