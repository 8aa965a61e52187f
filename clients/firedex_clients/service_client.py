"""Talking to the configuration service."""

import http.client
import json

from firedex.wire import (
    Configuration,
    PublisherRegistration,
    SubscriberRegistration,
    WireError,
    from_json,
    to_json,
)
from firedex.wire.addresses import http_address
from firedex_clients.errors import ServiceRefused

__all__ = ["ServiceClient"]

PATIENCE_SECONDS = 30.0


class ServiceClient:
    """The service's REST interface at ``url``."""

    def __init__(self, url: str) -> None:
        try:
            self._host, self._port = http_address(url)
        except ValueError as error:
            raise ServiceRefused(str(error)) from error

    def register_publisher(self, registration: PublisherRegistration) -> Configuration:
        """Declare a publisher; answered when the network follows."""
        return self._put(f"/v1/publishers/{registration.publisher.id}", to_json(registration))

    def register_subscriber(self, registration: SubscriberRegistration) -> Configuration:
        """Declare a subscriber and all it wants; answered when the network follows."""
        return self._put(f"/v1/subscribers/{registration.subscriber.id}", to_json(registration))

    def configuration(self) -> Configuration:
        """What is in force now."""
        return self._ask("GET", "/v1/configuration", None)

    def _put(self, path: str, body: str) -> Configuration:
        return self._ask("PUT", path, body)

    def _ask(self, method: str, path: str, body: str | None) -> Configuration:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServiceRefused(f"{self._host}:{self._port} does not answer: {error}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            try:
                reason = json.loads(answer)["error"]
            except (ValueError, LookupError, TypeError):
                reason = response.reason
            raise ServiceRefused(f"{method} {path}: {reason}")
        try:
            return from_json(Configuration, answer, tolerant=True)
        except WireError as error:
            raise ServiceRefused(f"{method} {path}: not a configuration: {error}") from error
