"""The switch agent's HTTP interface.

====== ==================== =====================================================
GET    /v1/health           ``AgentHealth``
GET    /v1/bridges          a list of ``BridgeReport``
GET    /v1/ports/NAME       ``PortReport``
PUT    /v1/ports/NAME       ``firedex.wire.ShapedPort`` in, ``PortChange`` out
DELETE /v1/ports/NAME       ``PortChange``
====== ==================== =====================================================
"""

import hmac
import json
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from firedex.wire import InvalidValue, ShapedPort, from_json, to_plain
from firedex_controller.agent.errors import AgentError, CannotShape, NoSuchPort
from firedex_controller.agent.port_keeper import PortKeeper

__all__ = ["AgentServer"]

log = logging.getLogger("firedex.agent.api")
LARGEST_BODY_BYTES = 64 * 1024
PATIENCE_SECONDS = 10.0
PORT_PATH = re.compile(r"/v1/ports/([^/?#]+)")
# What Linux and Open vSwitch both take for a name, and no tool takes for an option.
PORT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}")


class AgentServer(ThreadingHTTPServer):
    """Answers for one keeper of ports; with a token, only those who know it."""

    daemon_threads = True

    def __init__(self, where: tuple[str, int], keeper: PortKeeper, token: str | None) -> None:
        self.keeper, self.token = keeper, token
        super().__init__(where, _Handler)


class _Refused(Exception):
    """A request that is answered with an error and no more."""

    def __init__(self, status: HTTPStatus, said: str) -> None:
        self.status = status
        super().__init__(said)


class _Handler(BaseHTTPRequestHandler):
    server: AgentServer
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS  # of the connection: one that says nothing is closed

    def do_GET(self) -> None:  # the standard library's name
        self._respond(self._get)

    def do_PUT(self) -> None:  # the standard library's name
        self._respond(self._put)

    def do_DELETE(self) -> None:  # the standard library's name
        self._respond(self._delete)

    def _get(self, _body: bytes) -> Any:
        keeper = self.server.keeper
        if self.path == "/v1/health":
            return to_plain(keeper.health())
        if self.path == "/v1/bridges":
            return [to_plain(bridge) for bridge in keeper.bridges()]
        return to_plain(keeper.report(self._port()))

    def _put(self, body: bytes) -> Any:
        port = self._port()
        return to_plain(self.server.keeper.shape(port, from_json(ShapedPort, body)))

    def _delete(self, _body: bytes) -> Any:
        return to_plain(self.server.keeper.clear(self._port()))

    def _port(self) -> str:
        found = PORT_PATH.fullmatch(self.path)
        if found is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
        if not PORT_NAME.fullmatch(found[1]):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{found[1]!r} is not the name of a port")
        return found[1]

    def _respond(self, answer: Callable[[bytes], Any]) -> None:
        try:
            body = self._body()
            self._check_token()
            status, said = HTTPStatus.OK, answer(body)
        except _Refused as error:
            status, said = error.status, {"error": str(error)}
        except (InvalidValue, CannotShape) as error:
            status, said = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except NoSuchPort as error:
            status, said = HTTPStatus.NOT_FOUND, {"error": str(error)}
        except AgentError as error:
            status, said = HTTPStatus.CONFLICT, {"error": str(error)}
        except TimeoutError:
            self.close_connection = True
            return
        except Exception as error:
            log.exception("%s %s", self.command, self.path)
            status, said = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}"}
        self._send(status, said)

    def _body(self) -> bytes:
        """All of it, so that the next request on the connection begins where it should."""
        refused = None
        given = self.headers.get_all("Content-Length") or ["0"]
        if self.headers.get("Transfer-Encoding"):
            refused = _Refused(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length")
        elif len(given) != 1 or not re.fullmatch(r"[0-9]{1,18}", given[0].strip()):
            refused = _Refused(HTTPStatus.BAD_REQUEST, "Content-Length is not one whole number")
        elif int(given[0]) > LARGEST_BODY_BYTES:
            said = f"the body is larger than {LARGEST_BODY_BYTES} bytes"
            refused = _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
        if refused is not None:
            self.close_connection = True
            raise refused
        body = self.rfile.read(int(given[0]))
        if len(body) < int(given[0]):
            self.close_connection = True
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length")
        return body

    def _check_token(self) -> None:
        if self.server.token is None:
            return
        kind, _, given = (self.headers.get("Authorization") or "").partition(" ")
        same = hmac.compare_digest(
            given.strip().encode(errors="surrogateescape"), self.server.token.encode()
        )
        if kind.lower() != "bearer" or not same:
            raise _Refused(
                HTTPStatus.UNAUTHORIZED, "the header Authorization: Bearer TOKEN is needed"
            )

    def _send(self, status: HTTPStatus, said: Any) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # inherited name
        log.debug(format, *args)
