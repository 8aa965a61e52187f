"""The controller's HTTP interface: desired rules in, an answer after the barrier out."""

import json
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from firedex.wire import InvalidValue, SwitchRules, from_json
from firedex_controller.errors import ControllerError, SwitchNotConnected
from firedex_controller.settings import ControllerSettings

__all__ = ["serve_api"]

log = logging.getLogger("firedex.controller.api")
LARGEST_BODY_BYTES = 64 * 1024 * 1024


class Controller(Protocol):
    """What the interface needs of the app."""

    settings: ControllerSettings

    def connected(self) -> dict[str, bool]:
        """Which switches are there."""

    def put_rules(self, rules: SwitchRules) -> float:
        """Bring a switch to ``rules``."""


def serve_api(controller: Controller) -> None:
    """Answer requests until the process ends."""

    class Handler(_Handler):
        app = controller

    settings = controller.settings
    with ThreadingHTTPServer((settings.api_host, settings.api_port), Handler) as server:
        server.serve_forever()


def _rules_for(name: str, body: bytes) -> SwitchRules:
    rules = from_json(SwitchRules, body)
    if rules.switch != name:
        raise ControllerError(f"the path says {name!r}, the rules say {rules.switch!r}")
    return rules


class _Handler(BaseHTTPRequestHandler):
    app: Controller
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the standard library's name
        if self.path == "/v1/switches":
            self._answer(HTTPStatus.OK, {"connected": self.app.connected()})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such path: {self.path}"})

    def do_PUT(self) -> None:  # the standard library's name
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST_BODY_BYTES:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": "too large"})
            return
        body = self.rfile.read(length)
        name = self.path.removeprefix("/v1/switches/").removesuffix("/rules")
        if self.path != f"/v1/switches/{name}/rules":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such path: {self.path}"})
            return
        try:
            seconds = self.app.put_rules(_rules_for(name, body))
        except InvalidValue as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except SwitchNotConnected as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        except ControllerError as error:
            self._answer(HTTPStatus.CONFLICT, {"error": str(error)})
        else:
            self._answer(HTTPStatus.OK, {"switch": name, "seconds_to_barrier": seconds})

    def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # inherited name
        log.info(format, *args)
