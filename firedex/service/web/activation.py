"""Waiting until a change is active (``wait_seconds``), as ASGI middleware around the WSGI API.

The API answers a change with 202 as soon as it is stored. If the caller asked to wait, the API also
leaves a `WaitRequest` in the ASGI scope of the request, which ``a2wsgi`` passes on as
``environ["asgi.scope"]``. The middleware holds back the 202, waits in the event loop (no thread is
occupied), and sends 200 with the active configuration instead if the change becomes active in time.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firedex.service.core import ConfigurationService, Event

__all__ = ["ActivationWaits", "WaitForActivation", "WaitRequest", "request_wait"]

SCOPE_KEY = "firedex.wait_for_activation"
READING = ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRequest:
    """Wait at most ``seconds`` for ``change`` to become active.

    The response is the active configuration: that of ``subscriber``, or the part that all
    subscribers share.
    """

    change: int
    seconds: float
    subscriber: str | None = None


def request_wait(environ: dict[str, Any], wait: WaitRequest) -> None:
    """Ask the middleware to wait; without the middleware (another WSGI server) nothing waits."""
    scope = environ.get("asgi.scope", {})
    if SCOPE_KEY in scope:
        scope[SCOPE_KEY].append(wait)


class ActivationWaits:
    """All requests that wait for a change to become active. Use it in one event loop."""

    def __init__(self, service: ConfigurationService) -> None:
        self._service = service
        self._waits: set[tuple[int, asyncio.Future[None]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        service.add_listener(self._on_event)

    def start(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()

    async def wait(self, change: int, seconds: float) -> bool:
        """Wait until a change is active; return False if it is not active in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (change, future)
        self._waits.add(entry)
        try:
            if self._service.includes(change):
                return True
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waits.discard(entry)

    def _on_event(self, event: Event) -> None:
        """Handle an event; called from any thread."""
        loop = self._loop
        if event.kind == "configuration" and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for change, future in list(self._waits):
            if self._service.includes(change) and not future.done():
                future.set_result(None)


class WaitForActivation:
    """Middleware that delays responses of ``app`` as their `WaitRequest` asks."""

    def __init__(self, app: ASGIApp, service: ConfigurationService, waits: ActivationWaits) -> None:
        self._app, self._service, self._waits = app, service, waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application; delay its response if the request asks to wait."""
        if scope["type"] != "http" or scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        requested: list[WaitRequest] = []
        held_back: list[Message] = []

        async def hold_back(message: Message) -> None:
            held_back.append(message)

        await self._app({**scope, SCOPE_KEY: requested}, receive, hold_back)
        if requested and await self._waits.wait(requested[0].change, requested[0].seconds):
            body = await run_in_threadpool(self._active, requested[0].subscriber)
            response = Response(body, HTTPStatus.OK, media_type="application/json")
            await response(scope, receive, send)
            return
        for message in held_back:
            await send(message)

    def _active(self, subscriber: str | None) -> bytes:
        active = self._service.active
        if active is None:
            raise RuntimeError("a change is marked as active, but there is no active configuration")
        document = active.document
        encoded = document.for_subscriber(subscriber) if subscriber else document.without_flows()
        return encoded.text.encode()
