"""Asking the controller: one PUT for all switches, answered after the last barrier."""

import http.client
import json

from firedex.service.errors import PushFailed
from firedex.wire import DesiredNetwork, InvalidValue, NetworkChange, from_json, to_json
from firedex.wire.addresses import http_address

__all__ = ["ControllerClient"]

PATIENCE_SECONDS = 30.0


class ControllerClient:
    """The controller's HTTP interface at ``url``."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._host, self._port = http_address(url)
        self._token = token

    def push(self, network: DesiredNetwork) -> NetworkChange:
        """Bring all switches to their desired state, or none."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_SECONDS)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request("PUT", "/v1/network", to_json(network), headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                raise PushFailed(str(json.loads(body).get("error", response.reason)))
            return from_json(NetworkChange, body, tolerant=True)
        except (OSError, ValueError, InvalidValue, http.client.HTTPException) as error:
            raise PushFailed(f"{self._host}:{self._port}: {error}") from error
        finally:
            connection.close()
