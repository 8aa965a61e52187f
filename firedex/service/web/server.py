"""The server's application: Starlette outside, the REST API and the dashboard as WSGI inside.

::

    BodyLimits                      reads each request body, within limits of size and time
    └── Starlette
        ├── /v1/events              EventStreams (sse-starlette), in the event loop
        ├── /, /dashboard/…         the dashboard (Dash), in threads
        └── everything else         WaitForActivation, then the REST API (Flask), in threads

Neither a slow client nor an event stream nor a request that waits for a change occupies a thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, cast

from a2wsgi import WSGIMiddleware
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from firedex.dashboard import PREFIX
from firedex.service.core import ConfigurationService
from firedex.service.errors import RequestError
from firedex.service.state.database import DatabaseError
from firedex.service.web.activation import ActivationWaits, WaitForActivation
from firedex.service.web.app import create_app
from firedex.service.web.body_limits import BodyLimits
from firedex.service.web.event_streams import EventStreams
from firedex.service.web.responses import database_unavailable, error_body, error_response

__all__ = ["create_server_app"]

log = logging.getLogger("firedex.service")
API_THREADS, DASHBOARD_THREADS = 8, 4
UNLIMITED = 0
"""Responses wait in memory, not in a thread, until a slow client has read them."""
WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]
DASHBOARD = PREFIX.rstrip("/")


def create_server_app(service: ConfigurationService) -> ASGIApp:
    """Return the ASGI application of a service."""
    streams, waits = EventStreams(service), ActivationWaits(service)
    api = _in_threads(create_app(service), API_THREADS)
    pages = _in_threads(_dashboard, DASHBOARD_THREADS)
    home = _ReadOnly(RedirectResponse(PREFIX, HTTPStatus.SEE_OTHER))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        streams.start()
        waits.start()
        yield
        await streams.stop()
        for each in (api, pages):
            await asyncio.to_thread(each.executor.shutdown)

    app = Starlette(
        routes=[
            Route("/v1/events", streams, methods=["GET"]),
            Route("/", home),
            Route(DASHBOARD, home),
            Mount(DASHBOARD, _ReadOnly(cast(ASGIApp, pages))),
            Mount("", WaitForActivation(cast(ASGIApp, api), service, waits)),
        ],
        exception_handlers={
            RequestError: _rejection_response,
            DatabaseError: _database_error_response,
        },
        lifespan=lifespan,
    )
    return BodyLimits(app, service.identify)


def _in_threads(app: WsgiApplication, threads: int) -> WSGIMiddleware:
    """Return a WSGI application as ASGI; the cast is needed because a2wsgi has its own types."""
    return WSGIMiddleware(cast(Any, app), threads, UNLIMITED)


class _ReadOnly:
    """Pages for GET and HEAD; they are the same for every caller and need no token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["method"] not in ("GET", "HEAD"):
            app = Response(
                error_body("pages can only be read, with GET or HEAD"),
                HTTPStatus.METHOD_NOT_ALLOWED,
                headers={"Allow": "GET, HEAD"},
                media_type="application/json",
            )
        await app(scope, receive, send)


def _dashboard(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Call the dashboard; it is imported on first use, because it is large."""
    from firedex.dashboard.application import dashboard

    return dashboard()(environ, start_response)


async def _rejection_response(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError):
        raise error
    return error_response(error)


async def _database_error_response(_: Request, error: Exception) -> Response:
    log.error("the database cannot be used", exc_info=error)
    return error_response(database_unavailable())
