"""Asking the controller: one PUT for all switches, answered after the last barrier."""

import http.client
import json
from dataclasses import dataclass
from typing import TypeVar

from firedex.service.errors import PushFailed
from firedex.wire import (
    DesiredNetwork,
    InvalidValue,
    NetworkChange,
    NetworkStatistics,
    NetworkTopology,
    SwitchCapabilities,
    from_json,
    to_json,
)
from firedex.wire.addresses import http_address

__all__ = ["ControllerClient", "ControllerLink"]

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ControllerLink:
    """Where the controller is, and the token it asks for."""

    url: str
    token: str | None = None
    patience_seconds: float = PATIENCE_SECONDS


class ControllerClient:
    """The controller's HTTP interface."""

    def __init__(self, link: ControllerLink) -> None:
        self._host, self._port = http_address(link.url)
        self._link = link

    def push(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to their desired state, or none."""
        body = self._ask("PUT", "/v1/network", to_json(network))
        return self._read(NetworkChange, body)

    def network_version(self) -> int:
        """The version of the desired state that the controller has; 0 if it has none."""
        try:
            body = self._ask("GET", "/v1/network")
        except _NotFound:
            return 0
        try:
            return int(json.loads(body)["configuration_version"])
        except (ValueError, TypeError, LookupError):
            return 0

    def network(self) -> DesiredNetwork | None:
        """The desired state that the controller has, if any."""
        try:
            return self._read(DesiredNetwork, self._ask("GET", "/v1/network"))
        except _NotFound:
            return None

    def statistics(self) -> NetworkStatistics:
        """What the switches count; nothing of a controller that does not say."""
        try:
            return self._read(NetworkStatistics, self._ask("GET", "/v1/statistics"))
        except _NotFound:
            return NetworkStatistics()

    def topology(self) -> NetworkTopology:
        """Switches, links and hosts as seen now."""
        return self._read(NetworkTopology, self._ask("GET", "/v1/topology"))

    def capabilities(self) -> tuple[SwitchCapabilities, ...]:
        """What the switches say that they can do."""
        body = self._ask("GET", "/v1/capabilities")
        return self._read(tuple[SwitchCapabilities, ...], body)

    def _read(self, of: type[T], body: bytes) -> T:
        try:
            return from_json(of, body, tolerant=True)
        except InvalidValue as error:
            raise PushFailed(f"{self._host}:{self._port}: {error}") from error

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(
            self._host, self._port, timeout=self._link.patience_seconds
        )
        headers = {"Content-Type": "application/json"}
        if self._link.token:
            headers["Authorization"] = f"Bearer {self._link.token}"
        try:
            connection.request(method, path, None if body is None else body.encode(), headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise PushFailed(
                f"{self._host}:{self._port}: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        if response.status == http.client.NOT_FOUND and method == "GET":
            raise _NotFound(f"{path}: not found")
        if response.status != http.client.OK:
            raise PushFailed(f"{response.status} {_reason(answer, response.reason)}")
        return answer


class _NotFound(PushFailed):
    """The controller has nothing there."""


def _reason(answer: bytes, otherwise: str) -> str:
    try:
        said = json.loads(answer)
    except ValueError:
        return otherwise
    if not isinstance(said, dict):
        return otherwise
    where = " ".join(f"{key} {said[key]}" for key in ("switch", "rule") if said.get(key))
    return " ".join(str(part) for part in (said.get("error", otherwise), where) if part)
