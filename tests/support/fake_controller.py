"""The fake controller of the service's tests: real HTTP without switches.

It keeps the last network that it received. ``behaviour`` selects its replies: it can reject a
network (409), report a disconnected switch (503), or disconnect before or after it has stored it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from firedex.wire import DesiredNetwork, from_plain

__all__ = ["FakeController", "running_controller"]

Behaviour = Literal[
    "accepts", "rejects", "switch missing", "disconnects", "accepts and disconnects"
]


class FakeController:
    """The networks that were set, and the replies to the next requests."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.behaviour: Behaviour = "accepts"
        self.delay_seconds = 0.0
        self.ready = threading.Event()
        self.ready.set()
        self.plain: dict[str, Any] | None = None
        self.pushes: list[int] = []
        self.at: dict[int, float] = {}
        self.hosts: list[dict[str, Any]] = []
        self.switches: list[dict[str, Any]] = []
        self.links: list[dict[str, Any]] = []
        self.statistics: list[dict[str, Any]] = []
        self.capabilities: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    @property
    def network(self) -> DesiredNetwork | None:
        """The last network that was set."""
        with self.lock:
            return from_plain(DesiredNetwork, self.plain) if self.plain else None

    @property
    def version(self) -> int:
        with self.lock:
            return int(self.plain["configuration_version"]) if self.plain else 0

    def store(self, plain: dict[str, Any]) -> None:
        with self.lock:
            self.plain = plain
            version = plain["configuration_version"]
            self.pushes.append(version)
            self.at[version] = time.monotonic()


class _Handler(BaseHTTPRequestHandler):
    controller: FakeController
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        controller = self.controller
        answers: dict[str, Any] = {
            "/v1/topology": {
                "switches": controller.switches,
                "links": controller.links,
                "hosts": controller.hosts,
            },
            "/v1/statistics": {"switches": controller.statistics},
            "/v1/capabilities": controller.capabilities,
        }
        if controller.behaviour in ("disconnects", "switch missing"):
            self._close_without_reply()
        elif self.path == "/v1/network":
            plain = controller.plain
            self._answer(200, plain) if plain else self._answer(404, {"error": "none yet"})
        elif self.path in answers:
            self._answer(200, answers[self.path])
        else:
            self._answer(404, {"error": f"no {self.path}"})

    def do_PUT(self) -> None:
        controller = self.controller
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if controller.token and self.headers["Authorization"] != f"Bearer {controller.token}":
            self._answer(401, {"error": "no token"})
            return
        time.sleep(controller.delay_seconds)
        controller.ready.wait(30)
        if controller.behaviour == "rejects":
            self._answer(409, {"error": "refused", "switch": "core", "rule": "crew 0"})
        elif controller.behaviour == "switch missing":
            self._answer(503, {"error": "not connected", "switch": "core"})
        elif controller.behaviour == "disconnects":
            self._close_without_reply()
        else:
            plain = json.loads(body)
            controller.store(plain)
            if controller.behaviour == "accepts and disconnects":
                self._close_without_reply()
                return
            change = {
                "configuration_version": plain["configuration_version"],
                "seconds": 0.001,
                "switches": [],
            }
            self._answer(200, change)

    def _close_without_reply(self) -> None:
        self.close_connection = True

    def _answer(self, status: int, plain: Any) -> None:
        body = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running_controller(controller: FakeController, port: int = 0) -> Iterator[str]:
    """Serve the controller's HTTP interface; yield its URL."""

    class Handler(_Handler):
        pass

    Handler.controller = controller

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, *_: Any) -> None:
            pass  # a client was killed

    with Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="controller")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)
