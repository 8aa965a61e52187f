"""Server-sent events: changes of the configuration, the incident and statistics.

All streams live in one event loop; events come from any thread. A stream whose client does not keep
up is closed. The client connects again, and first receives the present version.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from firedex.service.core import ConfigurationService, Event
from firedex.service.errors import BadRequest, Forbidden, RateLimited, Unavailable
from firedex.service.state.database import DatabaseError
from firedex.service.state.tokens import ANYONE
from firedex.service.web.body_limits import client_address
from firedex.wire.values import is_identifier

__all__ = ["EventStreams", "Listener"]

log = logging.getLogger("firedex.service")
KEEP_ALIVE_SECONDS = 15.0
STATISTICS_SECONDS = 1.0
"""Statistics are announced at most this often."""
MAX_WAITING_EVENTS = 32
MAX_STREAMS = 20_000
MAX_STREAMS_PER_TOKEN = 100
SEND_TIMEOUT_SECONDS = 10.0
"""A client that accepts no data for this long is disconnected."""
TOKEN_CHECK_SECONDS = 5.0
LINE_END = "\n"


def _encoded(kind: str, data: Mapping[str, object], version: int) -> bytes:
    text = json.dumps(data)
    return ServerSentEvent(text, event=kind, id=str(version), sep=LINE_END).encode()


def _comment(text: str) -> ServerSentEvent:
    return ServerSentEvent(comment=text, sep=LINE_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The token that holds a stream, if tokens are required, and the subscriber it follows."""

    token: str | None = None
    subscriber: str | None = None


class _Stream:
    __slots__ = ("closing", "listener", "queue")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.closing = False
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_WAITING_EVENTS)


class EventStreams:
    """All open streams of one service; as an ASGI application, ``GET /v1/events``."""

    def __init__(self, service: ConfigurationService) -> None:
        self._service = service
        self._streams: set[_Stream] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._token_check: asyncio.Task[None] | None = None
        self._last_statistics = 0.0
        service.add_listener(self._on_event)

    def start(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._token_check = self._loop.create_task(self._close_revoked())

    async def stop(self) -> None:
        """Close all streams."""
        for stream in list(self._streams):
            self._close(stream)
        if self._token_check is not None:
            self._token_check.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a stream."""
        listener = await run_in_threadpool(self._authorize, Request(scope))
        await self.serve(listener, scope, receive, send)

    def _authorize(self, request: Request) -> Listener:
        """Return the listener of a request, or raise `RequestError`."""
        service = self._service
        authorization = request.headers.get("authorization")
        identity = service.identify(authorization, client_address(request.scope))
        service.request_limits.count(identity.name)
        query = request.query_params
        unknown = sorted(set(query) - {"subscriber"})
        if unknown:
            raise BadRequest(f"unknown parameter {unknown[0]!r}; the only parameter is subscriber")
        subscriber = query.get("subscriber")
        if subscriber is not None and not is_identifier(subscriber):
            raise BadRequest(f"subscriber: {subscriber!r} is not an identifier")
        if identity.role == "subscriber" and subscriber is None:
            subscriber = identity.client
        if subscriber is not None and identity.role in ("subscriber", "publisher"):
            allowed = identity.client if identity.role == "subscriber" else None
            if subscriber != allowed:
                raise Forbidden(f"the token {identity.name!r} is not for {subscriber!r}")
        return Listener(token=None if identity is ANYONE else identity.name, subscriber=subscriber)

    async def serve(self, listener: Listener, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until either side closes the stream, or the client accepts no more data."""
        self._check_limits(listener)
        stream = _Stream(listener)
        self._streams.add(stream)
        self._service.event_streams = len(self._streams)

        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(SEND_TIMEOUT_SECONDS):
                await send(message)

        response = EventSourceResponse(
            self._events(stream),
            ping=KEEP_ALIVE_SECONDS,
            ping_message_factory=lambda: _comment("keep-alive"),
            sep=LINE_END,
        )
        try:
            await response(scope, receive, send_in_time)
        except TimeoutError:
            log.info(
                "the event stream of token %s was closed: its client accepts no data",
                listener.token or "(none)",
            )
        finally:
            self._streams.discard(stream)
            self._service.event_streams = len(self._streams)

    def _check_limits(self, listener: Listener) -> None:
        if len(self._streams) >= MAX_STREAMS:
            raise Unavailable("too many event streams are open")
        if listener.token is not None:
            own = sum(stream.listener.token == listener.token for stream in self._streams)
            if own >= MAX_STREAMS_PER_TOKEN:
                raise RateLimited(SEND_TIMEOUT_SECONDS)

    async def _events(self, stream: _Stream) -> AsyncIterator[bytes | ServerSentEvent]:
        yield _comment("connected")
        version = self._service.version
        if version:
            data: dict[str, object] = {"version": version}
            if stream.listener.subscriber is not None:
                data["changed"] = True
            yield _encoded("configuration", data, version)
        while (event := await stream.queue.get()) is not None:
            yield event

    def _close(self, stream: _Stream) -> None:
        """End the stream after the event that is being sent; it counts as open until then."""
        stream.closing = True
        while stream.queue.full():
            stream.queue.get_nowait()
        stream.queue.put_nowait(None)

    def _on_event(self, event: Event) -> None:
        """Handle an event; called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._distribute, event)

    def _distribute(self, event: Event) -> None:
        if event.kind == "statistics":
            now = time.monotonic()
            if now - self._last_statistics < STATISTICS_SECONDS:
                return
            self._last_statistics = now
        for_all = _encoded(event.kind, event.data, event.version)
        for_subscriber = {
            changed: _encoded(event.kind, {**event.data, "changed": changed}, event.version)
            for changed in (True, False)
        }
        for stream in list(self._streams):
            subscriber = stream.listener.subscriber
            if subscriber is not None and event.kind == "statistics":
                continue  # of no use to a subscriber, and its link may be slow
            if event.changed is None or subscriber is None:
                self._put(stream, for_all)
            else:
                self._put(stream, for_subscriber[subscriber in event.changed])

    def _put(self, stream: _Stream, event: bytes) -> None:
        if stream.closing:
            return
        try:
            stream.queue.put_nowait(event)
        except asyncio.QueueFull:
            self._close(stream)

    async def _close_revoked(self) -> None:
        """Close the streams of tokens that were revoked, by any process."""
        while True:
            await asyncio.sleep(TOKEN_CHECK_SECONDS)
            tokens = {stream.listener.token for stream in self._streams} - {None}
            if not tokens:
                continue
            try:
                valid = await asyncio.to_thread(self._service.tokens.valid_names)
            except DatabaseError:
                log.warning("tokens of event streams cannot be checked; retrying")
                continue
            for stream in list(self._streams):
                if stream.listener.token in tokens - valid:
                    self._close(stream)
