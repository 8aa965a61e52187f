"""The one fake controller of the service's tests: real HTTP, a network that is only remembered.

It keeps the last network it was given. It can refuse (409), have a switch away (503), hang up
before or after it has taken the network, or take its time.
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

Mood = Literal["willing", "refuses", "away", "hangs up", "takes it and hangs up"]


class FakeController:
    """What it was told, and how it is going to answer."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.mood: Mood = "willing"
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
        """The network on the switches now."""
        with self.lock:
            return from_plain(DesiredNetwork, self.plain) if self.plain else None

    @property
    def version(self) -> int:
        with self.lock:
            return int(self.plain["configuration_version"]) if self.plain else 0

    def take(self, plain: dict[str, Any]) -> None:
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
        if controller.mood in ("hangs up", "away"):
            self._hang_up()
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
        if controller.mood == "refuses":
            self._answer(409, {"error": "refused", "switch": "core", "rule": "crew 0"})
        elif controller.mood == "away":
            self._answer(503, {"error": "not connected", "switch": "core"})
        elif controller.mood == "hangs up":
            self._hang_up()
        else:
            plain = json.loads(body)
            controller.take(plain)
            if controller.mood == "takes it and hangs up":
                self._hang_up()
                return
            change = {
                "configuration_version": plain["configuration_version"],
                "seconds": 0.001,
                "switches": [],
            }
            self._answer(200, change)

    def _hang_up(self) -> None:
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
    """The controller behind a socket; its URL."""

    class Handler(_Handler):
        pass

    Handler.controller = controller

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, *_: Any) -> None:
            pass  # a client that was killed

    with Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="controller")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)
