"""The controller's HTTP interface.

====== ==================== ===============================================================
GET    /v1/health           ``{"status": "ok"}``; needs no token
GET    /v1/network          the desired ``firedex.wire.DesiredNetwork``
PUT    /v1/network          ``DesiredNetwork`` in, ``NetworkChange`` out after the last barrier
GET    /v1/topology         ``firedex.wire.NetworkTopology``
GET    /v1/capabilities     a list of ``firedex.wire.SwitchCapabilities``
GET    /v1/statistics       ``firedex.wire.NetworkStatistics``
====== ==================== ===============================================================
"""

from http import HTTPStatus
from typing import Protocol

from firedex.transport.http_server import JsonServer, Request, RequestError, Route
from firedex.wire import (
    DesiredNetwork,
    InvalidValue,
    NetworkChange,
    NetworkStatistics,
    NetworkTopology,
    SwitchCapabilities,
    from_json,
)
from firedex_controller.errors import (
    ControllerError,
    InvalidNetwork,
    SwitchNotConnected,
    SwitchRefused,
    UnknownSwitch,
)

__all__ = ["Controller", "api_server"]

MAX_BODY_BYTES = 64 * 1024 * 1024
IDLE_SECONDS = 60.0


class Controller(Protocol):
    """The application behind the interface."""

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        """Apply ``network`` to all switches, or to none of them."""

    def network(self) -> DesiredNetwork | None:
        """Return the desired network."""

    def topology(self) -> NetworkTopology:
        """Return switches, links and hosts."""

    def capabilities(self) -> list[SwitchCapabilities]:
        """Return the capabilities of the connected switches."""

    def statistics(self) -> NetworkStatistics:
        """Return the counters of all switches."""


def api_server(
    controller: Controller, address: tuple[str, int], token: str | None = None
) -> JsonServer:
    """Return a server of the interface; the caller runs it."""

    def network(_request: Request) -> DesiredNetwork:
        desired = controller.network()
        if desired is None:
            raise RequestError(HTTPStatus.NOT_FOUND, "no network has been set yet")
        return desired

    def put_network(request: Request) -> NetworkChange:
        return controller.put_network(from_json(DesiredNetwork, request.body))

    return JsonServer(
        address,
        [
            Route(method="GET", path="/v1/health", respond=lambda _: {"status": "ok"}, public=True),
            Route(method="GET", path="/v1/network", respond=network),
            Route(method="PUT", path="/v1/network", respond=put_network),
            Route(method="GET", path="/v1/topology", respond=lambda _: controller.topology()),
            Route(
                method="GET", path="/v1/capabilities", respond=lambda _: controller.capabilities()
            ),
            Route(method="GET", path="/v1/statistics", respond=lambda _: controller.statistics()),
        ],
        token=token,
        describe_error=_describe_error,
        name="controller",
        max_body_bytes=MAX_BODY_BYTES,
        idle_seconds=IDLE_SECONDS,
    )


def _describe_error(error: Exception) -> RequestError | None:
    if isinstance(error, (InvalidNetwork, InvalidValue, UnknownSwitch)):
        return RequestError(HTTPStatus.BAD_REQUEST, str(error))
    if isinstance(error, SwitchNotConnected):
        return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), switch=error.switch)
    if isinstance(error, SwitchRefused):
        return RequestError(HTTPStatus.CONFLICT, str(error), switch=error.switch, rule=error.rule)
    if isinstance(error, ControllerError):
        return RequestError(HTTPStatus.CONFLICT, str(error))
    return None
