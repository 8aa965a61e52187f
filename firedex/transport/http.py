"""The HTTP client of all parts: requests, server-sent events, and errors with the server's reason.

::

    HttpError
    ├── Unreachable      no complete response arrived
    └── ErrorResponse    the server answered with status 400 or above, or with an unreadable body

`HttpClient` blocks and is for command lines and threads; `AsyncHttpClient` is for event loops. Both
ignore proxy settings of the environment, because parts of a site connect to each other directly.
"""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from httpx_sse import EventSource

from firedex.wire.addresses import parse_http_url

__all__ = [
    "AsyncHttpClient",
    "ErrorResponse",
    "HttpClient",
    "HttpError",
    "HttpTarget",
    "Response",
    "ServerEvent",
    "Unreachable",
]

TIMEOUT_SECONDS = 10.0
MAX_BODY_BYTES = 64 * 1024 * 1024
STREAM_SILENCE_SECONDS = 40.0
"""The service sends a comment every 15 s; an event stream that is silent for longer is broken."""


class HttpError(Exception):
    """Base class of all errors of this module."""


class Unreachable(HttpError):
    """The server did not send a complete response."""


class ErrorResponse(HttpError):
    """The server answered with an error; ``detail`` is the JSON body of its response, if any."""

    def __init__(self, message: str, status: int, detail: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response with a status below 400."""

    status: int
    body: bytes
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One server-sent event."""

    kind: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """A server: its URL, the bearer token to send, and the certificates to trust.

    Raises ``ValueError`` if the URL is not http or https, if ``ca_file`` (PEM) is given without
    https or cannot be read, or if the token cannot be sent in a header.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        """Check the fields."""
        parse_http_url(self.url, ("http", "https"))
        if self.ca_file is not None and not self.secure:
            raise ValueError(f"{self.url}: a CA file can only be used with https://")
        if self.token and not _fits_header(self.token):
            raise ValueError("the token must be printable ASCII without spaces")

    @property
    def secure(self) -> bool:
        """Whether the server is reached over TLS."""
        return self.url.lower().startswith("https:")

    def options(self) -> dict[str, Any]:
        """Return the arguments for an httpx client."""
        return {
            "base_url": self.url.rstrip("/"),
            "headers": {"Authorization": f"Bearer {self.token}"} if self.token else {},
            "timeout": self.timeout_seconds,
            "trust_env": False,
            "verify": _tls_context(self.ca_file) if self.secure else False,
        }


class HttpClient:
    """A blocking client of one server; threads may share it."""

    def __init__(self, target: HttpTarget) -> None:
        self.target = target
        self._client = httpx.Client(**target.options())

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        *,
        etag: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Send a request; raise `Unreachable` or `ErrorResponse` if it fails."""
        arguments = _request_arguments(self.target, body, etag, timeout_seconds)
        try:
            with self._client.stream(method, path, **arguments) as response:
                content = bytearray()
                for part in response.iter_bytes():
                    content += part
                    _check_size(content, method, path)
        except (httpx.HTTPError, OSError) as error:
            raise _unreachable(self.target, error) from error
        return _check_response(response, bytes(content), method, path)


class AsyncHttpClient:
    """A client of one server for use in an event loop."""

    def __init__(self, target: HttpTarget) -> None:
        self.target = target
        self._client = httpx.AsyncClient(**target.options())

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def request(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        *,
        etag: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Send a request; raise `Unreachable` or `ErrorResponse` if it fails."""
        arguments = _request_arguments(self.target, body, etag, timeout_seconds)
        try:
            async with self._client.stream(method, path, **arguments) as response:
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    _check_size(content, method, path)
        except (httpx.HTTPError, OSError) as error:
            raise _unreachable(self.target, error) from error
        return _check_response(response, bytes(content), method, path)

    @asynccontextmanager
    async def events(self, path: str) -> AsyncIterator[AsyncIterator[ServerEvent]]:
        """Open a stream of server-sent events; it is closed at the end of the ``with`` block."""
        request = self._client.build_request(
            "GET",
            path,
            headers={"Accept": "text/event-stream", "Cache-Control": "no-store"},
            timeout=httpx.Timeout(self.target.timeout_seconds, read=STREAM_SILENCE_SECONDS),
        )
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.HTTPError, OSError) as error:
            raise _unreachable(self.target, error) from error
        try:
            await self._raise_for_status(response, path)
            async with aclosing(self._read_events(response)) as events:
                yield events
        finally:
            await response.aclose()

    async def _raise_for_status(self, response: httpx.Response, path: str) -> None:
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            try:
                content = await response.aread()
            except (httpx.HTTPError, OSError) as error:
                raise _unreachable(self.target, error) from error
            _check_response(response, content, "GET", path)

    async def _read_events(self, response: httpx.Response) -> AsyncGenerator[ServerEvent]:
        try:
            async for event in EventSource(response).aiter_sse():
                if event.data:
                    yield ServerEvent(kind=event.event, data=event.data)
        except (httpx.HTTPError, OSError) as error:
            raise Unreachable(f"{self.target.url}: the event stream ended: {error}") from error


def _request_arguments(
    target: HttpTarget, body: str | bytes | None, etag: str | None, timeout_seconds: float | None
) -> dict[str, Any]:
    headers = {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if etag is not None:
        headers["If-None-Match"] = etag
    return {
        "content": body.encode() if isinstance(body, str) else body,
        "headers": headers,
        "timeout": target.timeout_seconds if timeout_seconds is None else timeout_seconds,
    }


def _check_size(content: bytearray, method: str, path: str) -> None:
    if len(content) > MAX_BODY_BYTES:
        raise Unreachable(f"{method} {path}: the response is larger than {MAX_BODY_BYTES} bytes")


def _check_response(response: httpx.Response, content: bytes, method: str, path: str) -> Response:
    status = response.status_code
    if status >= HTTPStatus.BAD_REQUEST:
        detail = _parse_json(content)
        server_reason = detail.get("error") if isinstance(detail, dict) else None
        reason = (
            server_reason
            if isinstance(server_reason, str)
            else response.reason_phrase or f"HTTP {status}"
        )
        raise ErrorResponse(f"{method} {path.partition('?')[0]}: {reason}", status, detail)
    return Response(status=status, body=content, etag=response.headers.get("ETag"))


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _unreachable(target: HttpTarget, error: Exception) -> Unreachable:
    return Unreachable(f"{target.url} does not answer: {str(error) or type(error).__name__}")


def _fits_header(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(
            f"{ca_file}: no certificates can be read from this file: {error}"
        ) from error
