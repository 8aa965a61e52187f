"""The switch agent's HTTP interface.

====== ==================== =====================================================
GET    /v1/health           ``AgentHealth``
GET    /v1/bridges          a list of ``BridgeReport``
GET    /v1/ports/NAME       ``PortReport``
PUT    /v1/ports/NAME       ``firedex.wire.ShapedPort`` in, ``PortChange`` out
DELETE /v1/ports/NAME       ``PortChange``
====== ==================== =====================================================
"""

import re
from http import HTTPStatus

from firedex.transport.http_server import JsonServer, Request, RequestError, Route
from firedex.wire import InvalidValue, ShapedPort, from_json
from firedex_controller.agent.port_keeper import PortKeeper
from firedex_controller.errors import AgentError, CannotShape, NoSuchPort

__all__ = ["MAX_BODY_BYTES", "agent_server"]

MAX_BODY_BYTES = 64 * 1024
IDLE_SECONDS = 10.0
# A name that both Linux and Open vSwitch accept, and that no tool reads as an option.
PORT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}")


def agent_server(address: tuple[str, int], keeper: PortKeeper, token: str | None) -> JsonServer:
    """Return a server of the interface; the caller runs it."""

    def put_port(request: Request) -> object:
        return keeper.shape(_port(request), from_json(ShapedPort, request.body))

    port = "/v1/ports/{port}"
    return JsonServer(
        address,
        [
            Route(method="GET", path="/v1/health", respond=lambda _: keeper.health()),
            Route(method="GET", path="/v1/bridges", respond=lambda _: keeper.bridges()),
            Route(method="GET", path=port, respond=lambda request: keeper.report(_port(request))),
            Route(method="PUT", path=port, respond=put_port),
            Route(method="DELETE", path=port, respond=lambda request: keeper.clear(_port(request))),
        ],
        token=token,
        describe_error=_describe_error,
        name="switch-agent",
        max_body_bytes=MAX_BODY_BYTES,
        idle_seconds=IDLE_SECONDS,
    )


def _port(request: Request) -> str:
    name = request.arguments["port"]
    if not PORT_NAME.fullmatch(name):
        raise RequestError(HTTPStatus.BAD_REQUEST, f"{name!r} is not a valid port name")
    return name


def _describe_error(error: Exception) -> RequestError | None:
    if isinstance(error, (InvalidValue, CannotShape)):
        return RequestError(HTTPStatus.BAD_REQUEST, str(error))
    if isinstance(error, NoSuchPort):
        return RequestError(HTTPStatus.NOT_FOUND, str(error))
    if isinstance(error, AgentError):
        return RequestError(HTTPStatus.CONFLICT, str(error))
    return None
