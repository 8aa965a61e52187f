"""Asking the configuration service over HTTP or HTTPS, for clients and gateway alike.

::

    ServiceAccessError
    ├── ServiceAway        it does not answer
    └── ServiceSaidNo      it answered with an error, or with what makes no sense
"""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from firedex.wire import Configuration, Heartbeat, Statistics, WireError, from_json, to_json
from firedex.wire.addresses import http_address

__all__ = [
    "Answer",
    "EventSubscription",
    "ServerEvent",
    "ServiceAccess",
    "ServiceAccessError",
    "ServiceAway",
    "ServiceSaidNo",
    "as_configuration",
    "read_server_events",
]

PATIENCE_SECONDS = 10.0
MOST_REPORTS_AT_ONCE = 10_000
MOST_REPORTED_BYTES_AT_ONCE = 4_000_000
"""The service takes no more reports in one request, and no more than 16 MB."""
QUIET_SECONDS = 40.0
"""The service sends a comment every 15 s; a stream that is quiet for longer is dead."""


class ServiceAccessError(Exception):
    """The root of what is raised here."""


class ServiceAway(ServiceAccessError):
    """The service does not answer."""


class ServiceSaidNo(ServiceAccessError):
    """The service refused, and says why; ``status`` is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    etag: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One server-sent event."""

    kind: str
    data: str


class EventSubscription:
    """An open stream of server-sent events; ``close`` from another thread ends it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        opened: socket.socket,
    ) -> None:
        self._connection, self._response, self._socket = connection, response, opened

    def __iter__(self) -> Iterator[ServerEvent]:
        try:
            yield from read_server_events(iter(self._response.readline, b""))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServiceAway(f"the event stream ended: {error}") from error
        finally:
            self._response.close()
            self._connection.close()

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            # Not TLS's own: that is not for two threads at once.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class ServiceAccess:
    """The service at ``url``; ``token`` goes along with every request.

    Over https its certificate must be trusted: by this machine, or by ``ca_file`` (PEM).
    """

    def __init__(self, url: str, token: str | None = None, *, ca_file: Path | None = None) -> None:
        self.host, self.port = http_address(url, ("http", "https"))
        self._tls = _trust(ca_file) if url.lower().startswith("https:") else None
        if ca_file is not None and self._tls is None:
            raise ValueError(f"{url}: certificates to trust go with https://")
        if token and not _fits_a_header(token):
            raise ValueError("the token has characters that are not printable ASCII without spaces")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=self._tls)

    def ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        etag: str | None = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> Answer:
        """Ask; answers below 400 are returned, all else is raised."""
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        if etag is not None:
            headers["If-None-Match"] = etag
        connection = self._connection(seconds)
        try:
            # Encoded here: http.client would take text for Latin-1.
            connection.request(method, path, None if body is None else body.encode(), headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServiceAway(f"{self.host}:{self.port} does not answer: {error}") from error
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            reason = _reason(content) or response.reason
            raise ServiceSaidNo(f"{method} {path.partition('?')[0]}: {reason}", response.status)
        return Answer(status=response.status, body=content, etag=response.headers.get("ETag"))

    def configuration(
        self, subscriber: str | None = None, *, etag: str | None = None
    ) -> tuple[Configuration | None, str | None]:
        """What is in force, for all or one subscriber, and its tag; None if it is as tagged."""
        path = "/v1/configuration"
        if subscriber is not None:
            path = f"/v1/subscribers/{quote(subscriber, safe='')}/configuration"
        answer = self.ask("GET", path, etag=etag)
        if answer.status == http.client.NOT_MODIFIED:
            return None, etag
        return as_configuration(answer, f"GET {path}"), answer.etag

    def events(self, subscriber: str | None = None) -> EventSubscription:
        """Open the stream of server-sent events."""
        path = "/v1/events"
        if subscriber is not None:
            path += f"?subscriber={quote(subscriber, safe='')}"
        connection = self._connection(QUIET_SECONDS)
        try:
            connection.connect()
            opened = connection.sock  # http.client forgets it when it reads the answer
            headers = {**self._headers, "Accept": "text/event-stream"}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServiceAway(f"{self.host}:{self.port} does not answer: {error}") from error
        if response.status != http.client.OK:
            status, reason = response.status, response.reason
            response.close()
            connection.close()
            raise ServiceSaidNo(f"GET {path}: {reason}", status)
        return EventSubscription(connection, response, opened)

    def post_statistics(self, statistics: Sequence[Statistics]) -> None:
        """Report what was seen, in as many requests as that takes; one refused harms no other."""
        refusal: ServiceSaidNo | None = None
        for body in _bodies(statistics):
            try:
                self.ask("POST", "/v1/statistics", body)
            except ServiceSaidNo as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def post_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Tell that a part is alive."""
        self.ask("POST", "/v1/heartbeats", to_json(heartbeat))

    def now_seconds(self) -> float:
        """The service's clock."""
        answer = self.ask("GET", "/v1/time")
        try:
            return float(json.loads(answer.body)["now_seconds"])
        except (ValueError, LookupError, TypeError) as error:
            raise ServiceSaidNo(f"GET /v1/time: not a time: {error}", answer.status) from error


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"{ca_file}: no certificates can be read there: {error}") from error


def _bodies(statistics: Sequence[Statistics]) -> Iterator[str]:
    waiting, waiting_bytes = list[str](), 0
    for each in statistics:
        text = to_json(each)
        waiting_bytes += len(text.encode())
        if waiting and (
            len(waiting) == MOST_REPORTS_AT_ONCE or waiting_bytes > MOST_REPORTED_BYTES_AT_ONCE
        ):
            yield f"[{','.join(waiting)}]"
            waiting, waiting_bytes = [], len(text.encode())
        waiting.append(text)
    if waiting:
        yield f"[{','.join(waiting)}]"


def _fits_a_header(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def as_configuration(answer: Answer, what: str) -> Configuration:
    """The configuration in an answer."""
    try:
        return from_json(Configuration, answer.body, tolerant=True)
    except WireError as error:
        raise ServiceSaidNo(f"{what}: not a configuration: {error}", answer.status) from error


def _reason(content: bytes) -> str | None:
    try:
        found = json.loads(content)["error"]
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


def read_server_events(lines: Iterator[bytes]) -> Iterator[ServerEvent]:
    """Server-sent events out of a stream's lines; comments are passed over."""
    kind, data = "message", list[str]()
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            if data:
                yield ServerEvent(kind=kind, data="\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
