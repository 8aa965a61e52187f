"""How the controller asks a switch agent."""

import http.client
import json
from http import HTTPStatus
from typing import Any, TypeVar

from firedex.wire import InvalidValue, QueueCounters, ShapedPort, from_plain, to_json
from firedex.wire.addresses import http_address
from firedex_controller.agent.errors import (
    AgentRefused,
    AgentUnreachable,
    CannotShape,
    NoSuchPort,
    QueuesNotApplied,
)
from firedex_controller.agent.messages import AgentHealth, BridgeReport, PortChange, PortReport

__all__ = ["AgentClient"]

T = TypeVar("T")
LARGEST_ANSWER_BYTES = 16 * 1024 * 1024


class AgentClient:
    """Asks the agent at ``url``; a connection for each question, so threads may share it."""

    def __init__(
        self, url: str, *, token: str | None = None, timeout_seconds: float = 20.0
    ) -> None:
        self.url = url
        self._host, self._port = http_address(url)
        self._token = token
        self._timeout_seconds = timeout_seconds

    def shape(self, port: str, shaped: ShapedPort) -> bool:
        """Bring a port to ``shaped``; whether anything had to be changed."""
        return self._asked(PortChange, "PUT", f"/v1/ports/{port}", to_json(shaped)).changed

    def clear(self, port: str) -> bool:
        """Take everything of ours off a port; whether there was anything.

        On a port that has gone there is nothing.
        """
        try:
            return self._asked(PortChange, "DELETE", f"/v1/ports/{port}").changed
        except NoSuchPort:
            return False

    def report(self, port: str) -> PortReport:
        """How a port is meant to be shaped, and its counters."""
        return self._asked(PortReport, "GET", f"/v1/ports/{port}")

    def counters(self, port: str) -> tuple[QueueCounters, ...]:
        """The counters of a port's classes, highest first; they begin at 0 with their class."""
        return self.report(port).queues

    def bridges(self) -> tuple[BridgeReport, ...]:
        """The bridges of the switch host."""
        answer: tuple[BridgeReport, ...] = self._asked(
            tuple[BridgeReport, ...], "GET", "/v1/bridges"
        )
        return answer

    def health(self) -> AgentHealth:
        """Whether every port is as it is meant to be."""
        return self._asked(AgentHealth, "GET", "/v1/health")

    def _asked(self, of: type[T], method: str, path: str, body: str | None = None) -> T:
        status, said = self._exchange(method, path, body)
        if status == HTTPStatus.OK:
            try:
                return from_plain(of, said, tolerant=True)
            except InvalidValue as error:
                raise AgentUnreachable(
                    self.url, f"its answer is not an agent's: {error}"
                ) from error
        error_text = said.get("error") if isinstance(said, dict) else None
        detail = error_text if isinstance(error_text, str) else f"HTTP status {status}"
        port = path.rpartition("/")[2]
        if status == HTTPStatus.CONFLICT:
            raise QueuesNotApplied(f"port {port} at {self.url}", detail)
        if status == HTTPStatus.BAD_REQUEST and method == "PUT":
            raise CannotShape(f"port {port} at {self.url}: {detail}")
        if status == HTTPStatus.NOT_FOUND and path.startswith("/v1/ports/") and error_text:
            raise NoSuchPort(port)
        raise AgentRefused(self.url, detail)

    def _exchange(self, method: str, path: str, body: str | None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPConnection(
            self._host, self._port, timeout=self._timeout_seconds
        )
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read(LARGEST_ANSWER_BYTES))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AgentUnreachable(self.url, str(error) or type(error).__name__) from error
        finally:
            connection.close()
