"""Limits of request bodies, as ASGI middleware: size, time, and large bodies of one caller at once.

The middleware reads the whole body before the application is called, so a slow caller never
occupies a thread. Only a small body is accepted before the caller is authenticated. An error
response is sent after the rest of the body has been discarded for a moment, because most clients
read the response only after they have sent everything.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firedex.service.errors import (
    BadRequest,
    PayloadTooLarge,
    RateLimited,
    RequestError,
    RequestTimeout,
)
from firedex.service.state.database import DatabaseError
from firedex.service.state.tokens import ANYONE, Identity
from firedex.service.web.responses import database_unavailable, error_response

__all__ = ["MAX_BODY_BYTES", "MAX_UNAUTHENTICATED_BODY_BYTES", "BodyLimits", "client_address"]

log = logging.getLogger("firedex.service")
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_UNAUTHENTICATED_BODY_BYTES = 64 * 1024
MAX_LARGE_BODIES = 8
"""Large bodies of one token at the same time, or of one address without tokens."""
BODY_TIMEOUT_SECONDS = 60.0
DISCARD_SECONDS = 2.0
Identify = Callable[[str | None, str], Identity]


class _Disconnected(Exception):  # not an error: the caller closed the connection
    """The caller closed the connection before the body was complete."""


class BodyLimits:
    """Calls ``app`` with requests whose body is complete; ``identify`` authenticates callers."""

    def __init__(self, app: ASGIApp, identify: Identify) -> None:
        self._app, self._identify = app, identify
        self._large_bodies: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body of a request, then call the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with ExitStack() as held:
            try:
                async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
                    body = await self._read(scope, receive, held)
            except _Disconnected:
                return
            except TimeoutError:
                late = RequestTimeout(
                    f"the request body did not arrive within {BODY_TIMEOUT_SECONDS:g} s"
                )
                await error_response(late, close=True)(scope, receive, send)
                return
            except RequestError as error:
                close = not await _discard(receive)
                await error_response(error, close=close)(scope, receive, send)
                return
            except DatabaseError:
                log.exception("the database cannot be used")
                await error_response(database_unavailable())(scope, receive, send)
                return
            await self._app(_with_length(scope, len(body)), _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, held: ExitStack) -> bytes:
        """Return the whole body; a large one is counted until ``held`` is closed."""
        if not scope["query_string"].isascii():
            raise BadRequest("the query string must be ASCII; encode other characters with %")
        parts: list[bytes] = []
        size, authenticated = 0, False
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MAX_BODY_BYTES:
                raise PayloadTooLarge(f"the request body has more than {MAX_BODY_BYTES} bytes")
            if not message.get("more_body"):
                return b"".join(parts)
            if size > MAX_UNAUTHENTICATED_BODY_BYTES and not authenticated:
                address = client_address(scope)
                authorization = Headers(scope=scope).get("authorization")
                identity = await run_in_threadpool(self._identify, authorization, address)
                caller = address if identity is ANYONE else identity.name
                held.enter_context(self._large_body(caller))
                authenticated = True

    @contextmanager
    def _large_body(self, caller: str) -> Iterator[None]:
        if self._large_bodies[caller] >= MAX_LARGE_BODIES:
            raise RateLimited(1.0)
        self._large_bodies[caller] += 1
        try:
            yield
        finally:
            self._large_bodies[caller] -= 1
            self._large_bodies += Counter()  # removes callers without large bodies


def client_address(scope: Scope) -> str:
    """Return the IP address of the caller, or an empty string if it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _with_length(scope: Scope, size: int) -> Scope:
    """Return the scope with the length of the body, which a chunked request does not state."""
    framing = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in framing]
    if size or len(headers) != len(scope["headers"]):
        headers.append((b"content-length", str(size).encode()))
    return {**scope, "headers": headers}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that delivers the body once, and then what the server delivers."""
    delivered = False

    async def replay() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _discard(receive: Receive) -> bool:
    """Read and drop the rest of the body for a moment; return True if it ended."""
    size = 0
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while size <= MAX_BODY_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return True
    except TimeoutError:
        pass
    return False
