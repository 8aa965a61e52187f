"""A small HTTP server with JSON bodies, used by the controller, the switch agent and the gateway.

It is built on the standard library: each interface has a few clients that send a few requests a
second, the code runs unchanged in threads (os-ken) and under eventlet (Ryu), and a switch host
needs no further package. It limits the number of threads, the size of a request and the time that
a connection may be idle. A route may block for a long poll; each waiting request uses one thread.
"""

import hmac
import json
import logging
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from firedex.wire import to_plain

__all__ = ["JsonServer", "Request", "RequestError", "Route"]

MAX_THREADS = 32
MAX_UNAUTHORIZED_BYTES = 64 * 1024
"""A longer body of an unauthorized request is not read; the connection is closed instead."""
CONTENT_LENGTH = re.compile(r"[0-9]{1,18}")
SERVICE_UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class RequestError(Exception):
    """A request that is answered with an HTTP error; ``details`` are more keys of the body."""

    def __init__(self, status: HTTPStatus, message: str, **details: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.details = {key: value for key, value in details.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The body of a request, the parts of its path that a route names in braces, and its query."""

    body: bytes
    arguments: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The function that answers one method of one path, such as ``/v1/ports/{port}``.

    It returns a value of ``firedex.wire``, a list of them, or a dict. A public route needs no
    token. ``parameters`` are the names that the query may have; without any, a path with a query is
    not found.
    """

    method: str
    path: str
    respond: Callable[[Request], object]
    public: bool = False
    parameters: frozenset[str] = frozenset()

    def match(self, target: str) -> re.Match[str] | None:
        """Match the target of a request; the groups are the arguments."""
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/?#]+)", re.escape(self.path))
        return re.fullmatch(pattern, target.partition("?")[0] if self.parameters else target)

    def read_query(self, target: str) -> dict[str, str]:
        """Return the query parameters; raise `RequestError` if one is unknown or repeated."""
        if not self.parameters:
            return {}
        pairs = parse_qsl(target.partition("?")[2], keep_blank_values=True)
        for name, _ in pairs:
            if name not in self.parameters:
                known = ", ".join(sorted(self.parameters))
                raise RequestError(
                    HTTPStatus.BAD_REQUEST, f"unknown parameter {name!r}; known are {known}"
                )
        if len(dict(pairs)) < len(pairs):
            raise RequestError(HTTPStatus.BAD_REQUEST, "a parameter is repeated")
        return dict(pairs)


class JsonServer(ThreadingHTTPServer):
    """A server of ``routes``; if ``token`` is set, requests must send it.

    ``describe_error`` turns an exception of a route into a response; it returns None for an
    exception that is a programming error, which is logged with a request id.
    """

    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        routes: Iterable[Route],
        *,
        token: str | None,
        describe_error: Callable[[Exception], RequestError | None],
        name: str,
        max_body_bytes: int,
        idle_seconds: float,
    ) -> None:
        self.routes = tuple(routes)
        self.token = token
        self.describe_error = describe_error
        self.name = name
        self.max_body_bytes = max_body_bytes
        self.idle_seconds = idle_seconds
        self.log = logging.getLogger(f"firedex.{name}.api")
        self._free_threads = threading.Semaphore(MAX_THREADS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in its own thread, or refuse it if there are too many."""
        if self._free_threads.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.sendall(SERVICE_UNAVAILABLE)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a connection until it is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_threads.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log an error of a connection, at level DEBUG if the client closed it."""
        error = sys.exception()
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        self.log.log(level, "connection of %s failed", client_address, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: JsonServer
    connection: socket.socket
    protocol_version = "HTTP/1.1"
    # Otherwise the body may wait for the acknowledgement of the headers, up to 40 ms.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.idle_seconds)

    def _respond(self) -> None:
        try:
            status, content = HTTPStatus.OK, self._result()
        except TimeoutError:  # the body did not arrive
            self.close_connection = True
            return
        except Exception as error:
            problem = self._problem(error)
            status, content = problem.status, {"error": str(problem), **problem.details}
        self._send(status, json.dumps(content).encode())

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _respond  # noqa: N815  # inherited names

    def _result(self) -> Any:
        matches = [(route, route.match(self.path)) for route in self.server.routes]
        matches = [(route, match) for route, match in matches if match is not None]
        route, match = next(((r, m) for r, m in matches if r.method == self.command), (None, None))
        body = self._read_body(authorized=bool(route and route.public) or self._has_token())
        if not matches:
            raise RequestError(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
        if route is None or match is None:
            allowed = ", ".join(sorted(r.method for r, _ in matches))
            raise RequestError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{self.path} allows the methods {allowed}"
            )
        query = route.read_query(self.path)
        request = Request(body=body, arguments=match.groupdict(), query=query)
        return _plain_result(route.respond(request))

    def _read_body(self, *, authorized: bool) -> bytes:
        """Read the whole body, so that the next request on the connection starts after it."""
        limit = self.server.max_body_bytes if authorized else MAX_UNAUTHORIZED_BYTES
        self.close_connection, stays_open = True, not self.close_connection
        length = self._content_length()
        if length > limit and authorized:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {limit} bytes"
            )
        body = self.rfile.read(length) if length <= limit else b""
        if not authorized:
            self.close_connection = length > limit
            raise RequestError(
                HTTPStatus.UNAUTHORIZED,
                "missing or wrong token; send the header Authorization: Bearer TOKEN",
            )
        if len(body) < length:
            raise RequestError(
                HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length"
            )
        self.close_connection = not stays_open
        return body

    def _content_length(self) -> int:
        values = [value.strip() for value in self.headers.get_all("Content-Length") or ()]
        needed = self.command in ("PUT", "POST", "PATCH")
        if self.headers.get("Transfer-Encoding") or (needed and not any(values)):
            raise RequestError(
                HTTPStatus.LENGTH_REQUIRED, "send the body with the header Content-Length"
            )
        if not values:
            return 0
        if len(values) > 1 or not CONTENT_LENGTH.fullmatch(values[0]):
            raise RequestError(HTTPStatus.BAD_REQUEST, "Content-Length must be one whole number")
        return int(values[0])

    def _has_token(self) -> bool:
        if self.server.token is None:
            return True
        scheme, _, given = (self.headers.get("Authorization") or "").partition(" ")
        is_equal = hmac.compare_digest(
            given.strip().encode(errors="surrogateescape"), self.server.token.encode()
        )
        return scheme.lower() == "bearer" and is_equal

    def _problem(self, error: Exception) -> RequestError:
        if isinstance(error, RequestError):
            return error
        described = self.server.describe_error(error)
        if described is not None:
            return described
        request_id = secrets.token_hex(4)
        self.server.log.error(
            "request %s (%s %s) failed", request_id, self.command, self.path, exc_info=error
        )
        return RequestError(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            f"internal error; see the {self.server.name} log (request id {request_id})",
        )

    def _send(self, status: HTTPStatus, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # inherited name
        self.server.log.debug(format, *args)


def _plain_result(result: object) -> Any:
    if isinstance(result, dict):
        return result
    if isinstance(result, (list, tuple)):
        return [to_plain(each) for each in result]
    return to_plain(result)
