"""The service on a socket: one event loop for connections, a few threads for Flask.

Uvicorn holds the connections. A request is read whole in the loop, answered by the WSGI application
in a thread, and written in the loop, so that neither a slow client nor an event stream nor somebody
waiting for the network occupies a thread. Event streams are answered by the loop itself.
"""

import asyncio
import io
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from firedex.dashboard import PREFIX
from firedex.service.core import ConfigurationService
from firedex.service.errors import NotYours, Refused, TooLarge, TooMuch, TooSlow
from firedex.service.event_streams import EventStreams, Listener, Receive, Send, TooManyStreams
from firedex.service.query_parameters import LONGEST_WAIT_SECONDS
from firedex.service.tokens import ANYONE, IDENTIFIER, Identity
from firedex.service.web import (
    LARGEST_BODY_BYTES,
    STATE_IS_AWAY,
    create_app,
    error_json,
)

__all__ = ["ServiceServer"]

log = logging.getLogger("firedex.service")
THREADS = 8
LARGEST_UNKNOWN_BODY_BYTES = 64 * 1024
"""So much is read before it is asked who sends it."""
BODY_SECONDS = 60.0
MOST_LARGE_BODIES = 8
"""Of one token at once, or of one address where no tokens are asked for."""
DISCARD_SECONDS = 2.0
Scope = dict[str, Any]
WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]
HOMES = ("/", PREFIX.rstrip("/"))


@dataclass(slots=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)


class _GoneError(Exception):
    """The caller left before it had said all."""


class ServiceServer:
    """An ASGI application: the service's REST interface and its event streams."""

    def __init__(self, service: ConfigurationService) -> None:
        self._service = service
        self._flask: Flask = create_app(service)
        self._streams = EventStreams(service)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
        self._large_bodies: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request, or the server's own start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            if scope["path"] == "/v1/events" and scope["method"] == "GET":
                await self._events(scope, receive, send)
            elif scope["path"] in HOMES or scope["path"].startswith(PREFIX):
                await _send(send, await self._in_thread(lambda: _page(scope)))
            else:
                await self._request(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._streams.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._streams.stop()
        await asyncio.to_thread(self._threads.shutdown)
        await send({"type": "lifespan.shutdown.complete"})

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            answer = await self._answer(scope, receive, send, held)
        if answer is None:
            return
        change = answer.header("Firedex-Change")
        seconds = _wait_seconds(scope)
        if change and seconds > 0 and await self._streams.wait_for(int(change), seconds):
            answer = _json(200, await self._in_thread(lambda: self._view(scope["path"])))
        await _send(send, answer)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, held: ExitStack
    ) -> _Answer | None:
        """What Flask says; nothing if it never came to that."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._body(scope, receive, held)
        except TimeoutError:
            refusal = _refusal(TooSlow(f"the body did not come within {BODY_SECONDS:g} s"))
            refusal.headers.append(("Connection", "close"))
            await _send(send, refusal)
            return None
        except Refused as error:
            refusal = _refusal(error)
            if not await _discard(receive):
                refusal.headers.append(("Connection", "close"))
            await _send(send, refusal)
            return None
        except SQLAlchemyError:
            log.exception("the state cannot be used")
            await _send(send, _json(503, error_json(STATE_IS_AWAY)))
            return None
        except _GoneError:
            return None
        made: _Answer = await self._in_thread(lambda: _ask(self._flask, scope, body))
        return made

    async def _body(self, scope: Scope, receive: Receive, held: ExitStack) -> bytes:
        """The whole body; of somebody unknown only little is read.

        A large one counts as under way for as long as ``held``.
        """
        parts: list[bytes] = []
        size = 0
        known = False
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > LARGEST_BODY_BYTES:
                raise TooLarge(f"at most {LARGEST_BODY_BYTES} bytes")
            if not message.get("more_body"):
                return b"".join(parts)
            if size > LARGEST_UNKNOWN_BODY_BYTES and not known:
                identity = await self._in_thread(lambda: self._identify(scope))
                who = _address(scope) if identity is ANYONE else identity.name
                held.enter_context(self._large_body(who))
                known = True

    @contextmanager
    def _large_body(self, who: str) -> Iterator[None]:
        if self._large_bodies[who] >= MOST_LARGE_BODIES:
            raise TooMuch(1.0)
        self._large_bodies[who] += 1
        try:
            yield
        finally:
            self._large_bodies[who] -= 1
            self._large_bodies += Counter()  # forgets whoever has none

    def _identify(self, scope: Scope) -> Identity:
        headers = {k.decode("latin1"): v.decode("latin1") for k, v in scope["headers"]}
        return self._service.identify(headers.get("authorization"), _address(scope))

    def _view(self, path: str) -> str:
        """What is in force, as far as it is the business of whoever changed something."""
        now = self._service.in_force
        if now is None:
            raise RuntimeError("a change is in force without a configuration")
        parts = path.split("/")
        if parts[2] == "subscribers":
            return now.document.of(parts[3])
        return now.document.without_flows()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            listener = await self._in_thread(lambda: self._admit(scope))
            await self._streams.serve(listener, receive, send)
        except TooManyStreams:
            await _send(send, _json(503, error_json("too many event streams are open")))
        except SQLAlchemyError:
            log.exception("the state cannot be used")
            await _send(send, _json(503, error_json(STATE_IS_AWAY)))
        except Refused as error:
            await _send(send, _refusal(error))

    def _admit(self, scope: Scope) -> Listener:
        """Who may listen, and to whose events."""
        identity = self._identify(scope)
        self._service.request_limits.count(identity.name)
        query = parse_qs(scope["query_string"].decode("latin1"), keep_blank_values=True)
        unknown = set(query) - {"subscriber"}
        if unknown:
            raise Refused(f"unknown parameter {sorted(unknown)[0]!r}; known is subscriber")
        subscriber: str | None = query["subscriber"][0] if "subscriber" in query else None
        if subscriber is not None and not IDENTIFIER.fullmatch(subscriber):
            raise Refused(f"{subscriber!r} is not an identifier")
        if identity.role == "subscriber":
            if subscriber is None:
                subscriber = identity.party
            elif subscriber != identity.party:
                raise NotYours(f"the token {identity.name!r} is not for {subscriber!r}")
        elif identity.role == "publisher" and subscriber is not None:
            raise NotYours(f"the token {identity.name!r} is not for {subscriber!r}")
        token = None if identity is ANYONE else identity.name
        return Listener(token=token, subscriber=subscriber)


async def _discard(receive: Receive) -> bool:
    """Read on for a moment and keep nothing, since most callers listen when they have said all."""
    size = 0
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while size <= LARGEST_BODY_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return True
    except TimeoutError:
        pass
    return False


def _address(scope: Scope) -> str:
    return (scope.get("client") or ("", 0))[0]


def _wait_seconds(scope: Scope) -> float:
    """How long the caller wants to wait; what is not a number was refused already."""
    given = parse_qs(scope["query_string"].decode("latin1")).get("wait_seconds", ["0"])[0]
    try:
        return min(max(float(given), 0.0), LONGEST_WAIT_SECONDS)
    except ValueError:
        return 0.0


def _page(scope: Scope) -> _Answer:
    """A part of the dashboard: the same for everybody, so nobody's token is asked for."""
    if scope["method"] not in ("GET", "HEAD"):
        refusal = _json(HTTPStatus.METHOD_NOT_ALLOWED, error_json("pages are for reading"))
        refusal.headers.append(("Allow", "GET, HEAD"))
        return refusal
    if scope["path"] in HOMES:
        return _Answer(HTTPStatus.SEE_OTHER, [("Location", PREFIX)], b"")
    from firedex.dashboard.shell import dashboard  # large, and many services are never looked at

    return _ask(dashboard(), scope, b"", PREFIX.rstrip("/"))


def _ask(app: WsgiApplication, scope: Scope, body: bytes, mounted_at: str = "") -> _Answer:
    """Have a WSGI application answer."""
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start(status: str, headers: list[tuple[str, str]], _error: object = None) -> Any:
        started[:] = [(status, headers)]
        return lambda _: None

    chunks = app(_environ(scope, body, mounted_at), start)
    try:
        whole = b"".join(chunks)
    finally:
        getattr(chunks, "close", lambda: None)()
    status, headers = started[0]
    return _Answer(int(status.split(" ", 1)[0]), list(headers), whole)


def _environ(scope: Scope, body: bytes, mounted_at: str) -> dict[str, Any]:
    host, port = scope.get("server") or ("localhost", 80)
    path = unquote(scope["raw_path"].split(b"?")[0].decode("latin1"), "latin1")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": mounted_at,
        "PATH_INFO": path.removeprefix(mounted_at),
        "QUERY_STRING": scope["query_string"].decode("latin1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": _address(scope),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin1").upper().replace("-", "_")
        value = raw_value.decode("latin1")
        if name == "CONTENT_TYPE":
            environ["CONTENT_TYPE"] = value
        elif name != "CONTENT_LENGTH":
            key = f"HTTP_{name}"
            environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


def _json(status: int, text: str) -> _Answer:
    return _Answer(status, [("Content-Type", "application/json")], text.encode())


def _refusal(error: Refused) -> _Answer:
    answer = _json(error.status, error_json(str(error)))
    answer.headers.extend(error.headers.items())
    return answer


async def _send(send: Send, answer: _Answer) -> None:
    headers = [
        (name.lower().encode("latin1"), value.encode("latin1"))
        for name, value in answer.headers
        if name.lower() != "content-length"
    ]
    if answer.status not in (HTTPStatus.NOT_MODIFIED, HTTPStatus.NO_CONTENT):
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
