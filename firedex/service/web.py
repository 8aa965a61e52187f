"""The REST interface, ``/v1``. Thin: reads a value, asks the configurator, writes a value."""

from typing import Any

from flask import Flask, Response, request

from firedex.planning import PlanningError
from firedex.service.configurator import Configurator
from firedex.service.errors import PushFailed, ServiceError
from firedex.wire import (
    InvalidValue,
    PublisherRegistration,
    SubscriberRegistration,
    from_json,
    to_json,
)

__all__ = ["create_app"]

LARGEST_BODY_BYTES = 16 * 1024 * 1024


def create_app(configurator: Configurator) -> Flask:
    """The application, for any WSGI server."""
    app = Flask("firedex")
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY_BYTES

    @app.put("/v1/publishers/<identifier>")
    def put_publisher(identifier: str) -> Any:
        registration = from_json(PublisherRegistration, request.get_data())
        if registration.publisher.id != identifier:
            return _error(400, f"the path says {identifier!r}, publisher.id says otherwise")
        return _value(configurator.register(identifier, registration))

    @app.put("/v1/subscribers/<identifier>")
    def put_subscriber(identifier: str) -> Any:
        registration = from_json(SubscriberRegistration, request.get_data())
        if registration.subscriber.id != identifier:
            return _error(400, f"the path says {identifier!r}, subscriber.id says otherwise")
        return _value(configurator.register(identifier, registration))

    @app.get("/v1/configuration")
    def get_configuration() -> Any:
        active = configurator.active
        return _error(404, "nothing is configured yet") if active is None else _value(active)

    @app.get("/v1/health")
    def get_health() -> Any:
        return {"status": "ok"}

    @app.errorhandler(InvalidValue)
    @app.errorhandler(PlanningError)
    def refuse(error: Exception) -> Any:
        return _error(400, str(error))

    @app.errorhandler(PushFailed)
    def not_pushed(error: Exception) -> Any:
        return _error(503, str(error))

    @app.errorhandler(ServiceError)
    def not_possible(error: Exception) -> Any:
        return _error(409, str(error))

    return app


def _value(value: object) -> Response:
    return Response(to_json(value), mimetype="application/json")


def _error(status: int, message: str) -> tuple[dict[str, str], int]:
    return {"error": message}, status
