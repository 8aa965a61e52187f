"""A fake configuration service without a planner: tests assign filters to flows.

It implements the HTTP interface of the service, with server-sent events and ETags.
"""

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from typing import Any

from firedex.wire import (
    Configuration,
    Flow,
    FlowEndpoints,
    Heartbeat,
    PublisherRegistration,
    Statistics,
    SubscriberRegistration,
    from_json,
    from_plain,
    to_json,
)
from tests.support.waiting import wait_until

__all__ = ["FakeService", "running_service"]

FIRST_PORT = 20_000


class FakeService:
    """The registrations and the active configuration; ``flow_numbers`` maps filters to flows."""

    def __init__(self, gateway_port: int, *, udp_port: int | None = None) -> None:
        self.gateway_port, self.udp_port = gateway_port, udp_port
        self.subscribers: dict[str, SubscriberRegistration] = {}
        self.publishers: dict[str, PublisherRegistration] = {}
        self.flow_numbers: dict[str, int] = {}
        self.drop_rates: dict[int, float] = {}
        self.priorities: dict[int, int] = {}
        self.statistics: list[Statistics] = []
        self.heartbeats: list[Heartbeat] = []
        self.requests: list[tuple[str, str, str | None]] = []
        self.token: str | None = None
        self.clock_ahead_seconds = 0.0
        self.answer_later = False
        self.version = 0
        self.changed = threading.Condition()

    def set_plan(
        self, flow_numbers: Mapping[str, int], drop_rates: Mapping[int, float] | None = None
    ) -> int:
        """Assign filters to flows; return the version of the new active configuration."""
        with self.changed:
            self.flow_numbers = dict(flow_numbers)
            if drop_rates is not None:
                self.drop_rates = dict(drop_rates)
            return self._increment_version()

    def _increment_version(self) -> int:
        self.version += 1
        self.changed.notify_all()
        return self.version

    def register(self, kind: str, body: str) -> str:
        with self.changed:
            if kind == "publishers":
                publisher = from_json(PublisherRegistration, body)
                self.publishers[publisher.publisher.id] = publisher
                name = publisher.publisher.id
            else:
                subscriber = from_json(SubscriberRegistration, body)
                self.subscribers[subscriber.subscriber.id] = subscriber
                name = subscriber.subscriber.id
            self._increment_version()
            return name

    def configuration(self, subscriber: str | None = None) -> Configuration:
        flows = [
            flow
            for name, registration in self.subscribers.items()
            if subscriber in (None, name)
            for flow in self._flows(registration, 1000 * list(self.subscribers).index(name))
        ]
        return Configuration(
            version=max(self.version, 1),
            broker="edge",
            created_at=datetime.now(UTC),
            reason="set by the test",
            flows=tuple(flows),
        )

    def _flows(self, registration: SubscriberRegistration, offset: int) -> Iterator[Flow]:
        subscriber = registration.subscriber
        by_flow: dict[int, list[Any]] = {}
        for subscription in subscriber.subscriptions:
            number = self.flow_numbers.get(subscription.filter, 0)
            by_flow.setdefault(number, []).append(subscription)
        udp = subscriber.transport == "udp"
        for number, subscriptions in sorted(by_flow.items()):
            first = FIRST_PORT + offset + 2 * number
            yield Flow(
                subscriber=subscriber.id,
                flow=number,
                priority=self.priorities.get(number, min(number, 7)),
                drop_rate=self.drop_rates.get(number, 0.0),
                qos=max(each.qos for each in subscriptions),
                filters=tuple(each.filter for each in subscriptions),
                endpoints=FlowEndpoints(
                    transport="udp" if udp else "tcp",
                    subscriber_address=registration.address,
                    subscriber_ports=(first, first + 1),
                    gateway_address=IPv4Address("127.0.0.1"),
                    gateway_port=(self.udp_port or self.gateway_port) if udp else self.gateway_port,
                ),
            )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: FakeService
    stopping: threading.Event

    def _reply(self, status: int, plain: Any = None, etag: str | None = None) -> None:
        body = (
            b""
            if plain is None
            else (plain if isinstance(plain, str) else json.dumps(plain)).encode()
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> str:
        return self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()

    def _reject_without_token(self) -> bool:
        token = self.headers.get("Authorization")
        self.service.requests.append((self.command, self.path, token))
        expected = self.service.token
        if expected is None or token == f"Bearer {expected}" or self.path == "/v1/time":
            return False
        self._body()
        self._reply(401, {"error": "a token is required", "problems": []})
        return True

    def do_PUT(self) -> None:
        if self._reject_without_token():
            return
        path, _, query = self.path.partition("?")
        kind = path.split("/")[2]
        name = self.service.register(kind, self._body())
        if "wait_seconds" not in query or self.service.answer_later:
            self._reply(202, {"change": self.service.version})
        else:
            found = self.service.configuration(name if kind == "subscribers" else "")
            self._reply(200, to_json(found))

    def do_DELETE(self) -> None:
        if self._reject_without_token():
            return
        with self.service.changed:
            removed = self.service.subscribers.pop(self.path.split("/")[3], None)
            self.service._increment_version()
        self._reply(404 if removed is None else 202, {})

    def do_POST(self) -> None:
        if self._reject_without_token():
            return
        body = json.loads(self._body())
        if self.path == "/v1/statistics":
            self.service.statistics.extend(from_plain(Statistics, each) for each in body)
        else:
            self.service.heartbeats.append(from_plain(Heartbeat, body))
        self._reply(202, {})

    def do_GET(self) -> None:
        if self._reject_without_token():
            return
        path = self.path.partition("?")[0]
        if path == "/v1/time":
            self._reply(200, {"now_seconds": time.time() + self.service.clock_ahead_seconds})
        elif path == "/v1/topics":
            topics = [t for p in self.service.publishers.values() for t in p.topics]
            self._reply(200, [{"name": t.name, "event_bytes": t.event_bytes} for t in topics])
        elif path == "/v1/events":
            self._events()
        elif path == "/v1/configuration" or path.endswith("/configuration"):
            self._configuration(None if path == "/v1/configuration" else path.split("/")[3])
        else:
            self._reply(404, {"error": "not found", "problems": []})

    def _configuration(self, name: str | None) -> None:
        with self.service.changed:
            etag = f'"{self.service.version}"'
            if self.service.version == 0 or (name and name not in self.service.subscribers):
                self._reply(404, {"error": "no configuration is active", "problems": []})
            elif self.headers.get("If-None-Match") == etag:
                self._reply(304, etag=etag)
            else:
                self._reply(200, to_json(self.service.configuration(name)), etag)

    def _events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        sent_version = -1

        def changed() -> bool:
            return self.service.version != sent_version

        with suppress(OSError):
            while not self.stopping.is_set():
                with self.service.changed:
                    self.service.changed.wait_for(changed, 0.1)
                    version = self.service.version
                if version != sent_version and version:
                    sent_version = version
                    data = json.dumps({"version": version})
                    self.wfile.write(
                        f"id: {version}\nevent: configuration\ndata: {data}\n\n".encode()
                    )
                else:
                    self.wfile.write(b": keep-alive\n\n")

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Ignore clients that close their connection during a request."""


@contextmanager
def running_service(
    service: FakeService, port: int = 0, *, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve the fake over HTTP; yield its URL. Call it again with its port for a restart."""
    stopping_ = threading.Event()

    class Handler(_Handler):
        stopping = stopping_

    Handler.service = service
    with _Server(("127.0.0.1", port), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="fake service")
        thread.start()
        try:
            yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_address[1]}"
        finally:
            stopping_.set()
            server.shutdown()
            thread.join(10)
            wait_until(lambda: not thread.is_alive(), "the fake service to end")
