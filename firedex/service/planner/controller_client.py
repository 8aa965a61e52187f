"""Client of the controller's HTTP interface."""

import json
from http import HTTPStatus
from typing import TypeVar

from firedex.service.errors import PushFailed
from firedex.transport.http import ErrorResponse, HttpClient, HttpTarget, Unreachable
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

__all__ = ["CONTROLLER_TIMEOUT_SECONDS", "ControllerClient"]

T = TypeVar("T")
CONTROLLER_TIMEOUT_SECONDS = 30.0
"""The controller answers a PUT only after the last switch has confirmed its rules."""


class ControllerClient:
    """Reads and replaces the state of all switches; every method raises `PushFailed`."""

    def __init__(self, target: HttpTarget) -> None:
        self._http = HttpClient(target)

    def push(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to their desired state, or none of them."""
        return self._read(NetworkChange, self._request("PUT", "/v1/network", to_json(network)))

    def network_version(self) -> int:
        """Return the configuration version of the controller's desired state; 0 if it has none."""
        body = self._get("/v1/network")
        try:
            return int(json.loads(body or b"{}")["configuration_version"])
        except (ValueError, TypeError, LookupError):
            return 0

    def network(self) -> DesiredNetwork | None:
        """Return the desired state that the controller has, if any."""
        body = self._get("/v1/network")
        return None if body is None else self._read(DesiredNetwork, body)

    def statistics(self) -> NetworkStatistics:
        """Return the counters of all switches; empty if the controller does not offer them."""
        body = self._get("/v1/statistics")
        return NetworkStatistics() if body is None else self._read(NetworkStatistics, body)

    def topology(self) -> NetworkTopology:
        """Return the switches, links and hosts that the controller sees."""
        return self._read(NetworkTopology, self._request("GET", "/v1/topology"))

    def capabilities(self) -> tuple[SwitchCapabilities, ...]:
        """Return what each connected switch supports."""
        body = self._request("GET", "/v1/capabilities")
        return self._read(tuple[SwitchCapabilities, ...], body)

    def _get(self, path: str) -> bytes | None:
        try:
            return self._request("GET", path)
        except _NotFound:
            return None

    def _request(self, method: str, path: str, body: str | None = None) -> bytes:
        try:
            return self._http.request(method, path, body).body
        except Unreachable as error:
            raise PushFailed(f"controller {error}") from error
        except ErrorResponse as error:
            failure = _NotFound if error.status == HTTPStatus.NOT_FOUND else PushFailed
            raise failure(_reason(error)) from error

    def _read(self, kind: type[T], body: bytes) -> T:
        try:
            return from_json(kind, body, tolerant=True)
        except InvalidValue as error:
            raise PushFailed(f"{self._http.target.url}: {error}") from error


class _NotFound(PushFailed):
    """The controller answered 404."""


def _reason(error: ErrorResponse) -> str:
    detail = error.detail if isinstance(error.detail, dict) else {}
    where = [f"{key} {detail[key]}" for key in ("switch", "rule") if detail.get(key)]
    return " ".join([str(error.status), str(detail.get("error", error)), *where])
