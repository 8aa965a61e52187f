"""The controller's HTTP interface: desired network in, an answer after the last barrier out."""

import hmac
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from firedex.wire import (
    DesiredNetwork,
    InvalidValue,
    NetworkChange,
    NetworkStatistics,
    NetworkTopology,
    SwitchCapabilities,
    from_json,
    to_json,
    to_plain,
)
from firedex_controller.errors import (
    ControllerError,
    InvalidNetwork,
    SwitchNotConnected,
    SwitchRefused,
    UnknownSwitch,
)
from firedex_controller.settings import ControllerSettings

__all__ = ["Controller", "serve_api"]

log = logging.getLogger("firedex.controller.api")
LARGEST_BODY_BYTES = 64 * 1024 * 1024
LONGEST_LENGTH_DIGITS = 18
PATIENCE_SECONDS = 60.0


class Controller(Protocol):
    """What the interface needs of the app."""

    settings: ControllerSettings

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to ``network``, or none."""

    def network(self) -> DesiredNetwork | None:
        """What is desired now."""

    def topology(self) -> NetworkTopology:
        """Who is where."""

    def capabilities(self) -> list[SwitchCapabilities]:
        """What switches can do."""

    def statistics(self) -> NetworkStatistics:
        """The counters."""


def serve_api(controller: Controller) -> None:
    """Answer requests until the process ends."""

    class Handler(_Handler):
        app = controller

    settings = controller.settings
    with ThreadingHTTPServer((settings.api_host, settings.api_port), Handler) as server:
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    app: Controller
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS

    def do_GET(self) -> None:  # the standard library's name
        if self.path == "/v1/health":
            self._answer(HTTPStatus.OK, {"status": "ok"})
            return
        readings: dict[str, Callable[[], Any]] = {
            "/v1/network": self._network,
            "/v1/topology": lambda: to_plain(self.app.topology()),
            "/v1/capabilities": lambda: [to_plain(each) for each in self.app.capabilities()],
            "/v1/statistics": lambda: to_plain(self.app.statistics()),
        }
        if not self._may():
            return
        reading = readings.get(self.path)
        if reading is None:
            self._error(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
            return
        try:
            found = reading()
        except Exception:
            log.exception("a request failed")
            self._error(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a mistake of ours; see the log")
            return
        if found is None:
            self._error(HTTPStatus.NOT_FOUND, "nothing is desired yet")
        else:
            self._answer(HTTPStatus.OK, found)

    def do_PUT(self) -> None:  # the standard library's name
        if not self._may():
            self.close_connection = True  # what it sends is not read
            return
        body = self._body()
        if body is None:
            return
        if self.path != "/v1/network":
            self._error(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
            return
        try:
            changed = self.app.put_network(from_json(DesiredNetwork, body))
        except (InvalidNetwork, InvalidValue, UnknownSwitch) as error:
            self._error(HTTPStatus.BAD_REQUEST, str(error))
        except SwitchNotConnected as error:
            self._error(HTTPStatus.SERVICE_UNAVAILABLE, str(error), switch=error.switch)
        except SwitchRefused as error:
            self._error(HTTPStatus.CONFLICT, str(error), switch=error.switch, rule=error.rule)
        except ControllerError as error:
            self._error(HTTPStatus.CONFLICT, str(error))
        except Exception:
            log.exception("a request failed")
            self._error(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a mistake of ours; see the log")
        else:
            self._send(HTTPStatus.OK, to_json(changed).encode())

    def _network(self) -> Any:
        network = self.app.network()
        return None if network is None else to_plain(network)

    def _body(self) -> bytes | None:
        stated = self.headers.get("Content-Length") or ""
        if not stated.isdecimal() or len(stated) > LONGEST_LENGTH_DIGITS:
            self.close_connection = True
            self._error(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing or not a number")
            return None
        if int(stated) > LARGEST_BODY_BYTES:
            self.close_connection = True
            self._error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LARGEST_BODY_BYTES} bytes"
            )
            return None
        return self.rfile.read(int(stated))

    def _may(self) -> bool:
        token = self.app.settings.token
        given = self.headers.get("Authorization", "")
        if token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return True
        self._error(HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Bearer …")
        return False

    def _error(self, status: HTTPStatus, message: str, **more: str | None) -> None:
        self._answer(status, {"error": message, **{k: v for k, v in more.items() if v is not None}})

    def _answer(self, status: HTTPStatus, body: Any) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: HTTPStatus, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # inherited name
        log.debug(format, *args)
