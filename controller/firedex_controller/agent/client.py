"""The client of a switch agent."""

from http import HTTPStatus
from typing import TypeVar

from firedex.transport.http import ErrorResponse, HttpClient, HttpTarget, Unreachable
from firedex.wire import InvalidValue, QueueCounters, ShapedPort, from_json, to_json
from firedex_controller.agent.messages import AgentHealth, BridgeReport, PortChange, PortReport
from firedex_controller.errors import (
    AgentRefused,
    AgentUnreachable,
    CannotShape,
    NoSuchPort,
    QueuesNotApplied,
)

__all__ = ["AgentClient"]

T = TypeVar("T")


class AgentClient:
    """A client of the agent at ``url``; threads may share it.

    Each request opens a new connection, because the agent closes idle connections at any time.
    """

    def __init__(
        self, url: str, *, token: str | None = None, timeout_seconds: float = 20.0
    ) -> None:
        self.url = url
        self._target = HttpTarget(url=url, token=token, timeout_seconds=timeout_seconds)

    def shape(self, port: str, shaped: ShapedPort) -> bool:
        """Give a port the queues of ``shaped``; return whether anything had to be changed."""
        return self._request(PortChange, "PUT", f"/v1/ports/{port}", to_json(shaped)).changed

    def clear(self, port: str) -> bool:
        """Remove the agent's queues from a port; return whether there were any.

        A port that no longer exists has none.
        """
        try:
            return self._request(PortChange, "DELETE", f"/v1/ports/{port}").changed
        except NoSuchPort:
            return False

    def report(self, port: str) -> PortReport:
        """Return the desired queues of a port and their counters."""
        return self._request(PortReport, "GET", f"/v1/ports/{port}")

    def counters(self, port: str) -> tuple[QueueCounters, ...]:
        """Return the counters of a port's classes, highest class first.

        A counter starts at 0 when its class is created.
        """
        return self.report(port).queues

    def bridges(self) -> tuple[BridgeReport, ...]:
        """Return the bridges of the switch host."""
        bridges: tuple[BridgeReport, ...] = self._request(
            tuple[BridgeReport, ...], "GET", "/v1/bridges"
        )
        return bridges

    def health(self) -> AgentHealth:
        """Return whether every port has its desired queues."""
        return self._request(AgentHealth, "GET", "/v1/health")

    def _request(self, result: type[T], method: str, path: str, body: str | None = None) -> T:
        try:
            with HttpClient(self._target) as http:
                response = http.request(method, path, body)
            return from_json(result, response.body, tolerant=True)
        except Unreachable as error:
            raise AgentUnreachable(self.url, str(error)) from error
        except InvalidValue as error:
            raise AgentUnreachable(
                self.url, f"{self.url} sent an unexpected response: {error}"
            ) from error
        except ErrorResponse as error:
            raise self._agent_error(error, method, path) from error

    def _agent_error(self, error: ErrorResponse, method: str, path: str) -> Exception:
        server_reason = error.detail.get("error") if isinstance(error.detail, dict) else None
        reason = server_reason if isinstance(server_reason, str) else f"HTTP status {error.status}"
        port = path.rpartition("/")[2]
        if error.status == HTTPStatus.CONFLICT:
            return QueuesNotApplied(f"port {port} at {self.url}", reason)
        if error.status == HTTPStatus.BAD_REQUEST and method == "PUT":
            return CannotShape(f"port {port} at {self.url}: {reason}")
        if error.status == HTTPStatus.NOT_FOUND and path.startswith("/v1/ports/") and server_reason:
            return NoSuchPort(port)
        return AgentRefused(self.url, reason)
