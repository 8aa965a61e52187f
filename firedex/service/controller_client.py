"""Asking the controller: one PUT for each switch, answered after its barrier."""

import http.client
import json

from firedex.service.errors import PushFailed
from firedex.wire import SwitchRules, to_json
from firedex.wire.addresses import http_address

__all__ = ["ControllerClient"]

PATIENCE_SECONDS = 30.0


class ControllerClient:
    """The controller's HTTP interface at ``url``."""

    def __init__(self, url: str) -> None:
        self._host, self._port = http_address(url)

    def push(self, rules: SwitchRules) -> float:
        """Bring one switch to its rules; return the seconds until the last barrier."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(
                "PUT",
                f"/v1/switches/{rules.switch}/rules",
                to_json(rules),
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PushFailed(f"{self._host}:{self._port}: {error}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise PushFailed(str(answer.get("error", response.reason)))
        return float(answer["seconds_to_barrier"])
