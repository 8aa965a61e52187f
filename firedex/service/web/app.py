"""The REST API under ``/v1`` as a Flask application, made from the declared endpoints.

A change is answered as soon as it is stored; ``activation`` waits for it to become active.
"""

import functools
import logging
import re
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from flask import Flask, Response, request
from pydantic import TypeAdapter
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from firedex.service.core import ConfigurationService
from firedex.service.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    PayloadTooLarge,
    RequestError,
    UnsupportedMediaType,
)
from firedex.service.state.change_ledger import Origin
from firedex.service.state.database import DatabaseError
from firedex.service.state.registrations import Condition
from firedex.service.state.tokens import Identity
from firedex.service.web import (
    configuration_endpoints,
    incident_endpoints,
    overview_endpoints,
    registration_endpoints,
    report_endpoints,
)
from firedex.service.web.activation import WaitRequest, request_wait
from firedex.service.web.body_limits import MAX_BODY_BYTES
from firedex.service.web.endpoint import (
    PUBLIC,
    STAFF,
    WAIT,
    ApiRequest,
    ApiResponse,
    Endpoint,
    endpoint,
    read_query,
)
from firedex.service.web.metrics import ServiceMetrics
from firedex.service.web.openapi import openapi_document
from firedex.service.web.responses import database_unavailable, error_body
from firedex.wire import EncodedJson, InvalidValue, format_path, from_json
from firedex.wire.service_api import ErrorProblem
from firedex.wire.values import IDENTIFIER_RULE, is_identifier

__all__ = ["ENDPOINTS", "create_app"]

log = logging.getLogger("firedex.service")
MAX_KEY_LENGTH = 200
MAX_ERROR_LENGTH, MAX_PROBLEMS = 2000, 100
NUMBER = re.compile(r"[1-9][0-9]{0,8}")
NO_IDENTITY = Identity(name="anonymous", role="subscriber")
"""Stands for the caller of an endpoint that requires no token."""
ETAG = re.compile(r'(?:W/)?"([^"]*)"')
_own: list[Endpoint] = []


@endpoint(_own, "GET", "/v1/openapi.json", roles=PUBLIC, responses={200: dict[str, Any]})
def get_openapi(_request: ApiRequest) -> ApiResponse:
    """Return the OpenAPI document of this API."""
    return ApiResponse(value=openapi_document(ENDPOINTS))


@endpoint(_own, "GET", "/metrics", roles=STAFF, responses={200: str}, mimetype="text/plain")
def get_metrics(request: ApiRequest) -> ApiResponse:
    """Return metrics in the text format of Prometheus."""
    return ApiResponse(text=request.metrics.text(), mimetype="text/plain")


ENDPOINTS: tuple[Endpoint, ...] = (
    *registration_endpoints.ENDPOINTS,
    *configuration_endpoints.ENDPOINTS,
    *incident_endpoints.ENDPOINTS,
    *report_endpoints.ENDPOINTS,
    *overview_endpoints.ENDPOINTS,
    *_own,
)


def create_app(service: ConfigurationService) -> Flask:
    """Return the WSGI application of a service."""
    app = Flask("firedex", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.url_map.strict_slashes = True
    metrics = ServiceMetrics(service)
    for declared in ENDPOINTS:
        rule = re.sub(r"\{(\w+)\}", r"<\1>", declared.path)
        app.add_url_rule(
            rule,
            endpoint=declared.name,
            view_func=_view(service, metrics, declared),
            methods=[declared.method],
            provide_automatic_options=False,
        )
    app.add_url_rule("/v1/docs/", "docs", lambda: _asset("index.html"))
    app.add_url_rule("/v1/docs/<path:name>", "asset", _asset)

    @app.errorhandler(HTTPException)
    def reject(error: HTTPException) -> Response:
        response = _json(error.code or 500, error_body(error.description or error.name))
        for name, value in error.get_headers():
            if name.lower() == "allow":
                response.headers[name] = value
        return response

    return app


def _view(
    service: ConfigurationService, metrics: ServiceMetrics, declared: Endpoint
) -> Callable[..., Response]:
    def view(**path: str) -> Response:
        start = time.perf_counter()
        response = _respond(service, metrics, declared, path)
        metrics.requests.labels(declared.name, str(response.status_code)).inc()
        metrics.seconds.labels(declared.name).observe(time.perf_counter() - start)
        return response

    return view


def _respond(
    service: ConfigurationService, metrics: ServiceMetrics, declared: Endpoint, path: dict[str, str]
) -> Response:
    """Call the handler; errors become responses."""
    try:
        parsed = _read_request(service, metrics, declared, path)
        result = declared.handler(parsed)
    except InvalidValue as error:
        problems = tuple(
            ErrorProblem(path=format_path(p.path), message=p.message) for p in error.problems
        )
        return _json(400, error_body(str(error)[:MAX_ERROR_LENGTH], problems[:MAX_PROBLEMS]))
    except RequestError as error:
        return _rejection(error)
    except DatabaseError:
        log.exception("the database cannot be used")
        return _rejection(database_unavailable())
    except RequestEntityTooLarge:
        too_large = PayloadTooLarge(f"the request body has more than {MAX_BODY_BYTES} bytes")
        return _rejection(too_large)
    if result.status == 304:
        response = Response(status=304)
    else:
        response = Response(_encoded(declared, result), result.status, mimetype=result.mimetype)
    response.headers.update(result.headers)
    seconds = parsed.query.get("wait_seconds", 0.0)
    if result.pending is not None and seconds > 0:
        change, subscriber = result.pending.number, result.pending.subscriber
        wait = WaitRequest(change=change, seconds=seconds, subscriber=subscriber)
        request_wait(request.environ, wait)
    return response


def _encoded(declared: Endpoint, result: ApiResponse) -> str | bytes:
    if result.text is not None:
        return result.text
    if isinstance(result.value, EncodedJson):
        return result.value.text
    return _adapter(declared.responses[result.status]).dump_json(result.value, by_alias=True)


@functools.cache
def _adapter(declared: Any) -> TypeAdapter[Any]:
    return TypeAdapter(declared)


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, mimetype="application/json")


def _rejection(error: RequestError) -> Response:
    response = _json(error.status, error_body(str(error)))
    response.headers.update(error.headers)
    return response


def _read_request(
    service: ConfigurationService, metrics: ServiceMetrics, declared: Endpoint, path: dict[str, str]
) -> ApiRequest:
    """Authenticate the caller, and validate every part of the request."""
    identity = NO_IDENTITY
    if declared.roles is not None:
        identity = service.identify(request.headers.get("Authorization"), request.remote_addr or "")
        service.request_limits.count(identity.name)
        if identity.role not in declared.roles:
            allowed = ", ".join(sorted(declared.roles))
            raise Forbidden(
                f"a token with the role {identity.role!r} may not do this; it needs: {allowed}"
            )
    _check_path(path)
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isprintable()):
        raise BadRequest(f"Idempotency-Key: must have 1 to {MAX_KEY_LENGTH} printable characters")
    query = read_query((*declared.query, *(WAIT if declared.writes else ())), request.args)
    body: Any = None
    raw = b""
    if declared.body is not None:
        if request.mimetype != "application/json":
            raise UnsupportedMediaType("the body must be JSON, with Content-Type: application/json")
        raw = request.get_data()
        body = from_json(declared.body, raw)
    return ApiRequest(
        service=service,
        metrics=metrics,
        identity=identity,
        origin=Origin(
            actor=identity.name,
            idempotency_key=key if declared.writes else None,
            request=_fingerprint(declared, query, raw),
        ),
        condition=_condition() if declared.conditional else Condition(),
        path=path,
        query=query,
        body=body,
        known_etags=_etags("If-None-Match"),
    )


def _fingerprint(declared: Endpoint, query: dict[str, Any], raw: bytes) -> bytes:
    """Return what identifies a repeated request; ``wait_seconds`` is not part of it."""
    relevant = {name: value for name, value in query.items() if name != "wait_seconds"}
    return b" ".join(
        (declared.method.encode(), request.path.encode(), repr(relevant).encode(), raw)
    )


def _check_path(path: dict[str, str]) -> None:
    for name, value in path.items():
        if name.endswith("version"):
            if not NUMBER.fullmatch(value):
                raise NotFound(f"{value!r} is not a configuration version")
        elif not is_identifier(value):
            raise BadRequest(f"{value!r} is not an identifier: {IDENTIFIER_RULE}")


def _etags(header: str) -> frozenset[str]:
    given = request.headers.get(header, "")
    return frozenset(f'"{found}"' for found in ETAG.findall(given))


def _condition() -> Condition:
    match = request.headers.get("If-Match")
    new = request.headers.get("If-None-Match", "").strip() == "*"
    if match is None or match.strip() == "*":
        return Condition(new=new, exists=match is not None)
    tag = ETAG.fullmatch(match.strip())
    if tag is None or not NUMBER.fullmatch(tag.group(1)):
        raise BadRequest('If-Match: must be one entity tag, such as "17"')
    return Condition(revision=int(tag.group(1)), new=new)


def _asset(name: str) -> Response:
    """Return a file of the page that shows the OpenAPI document with Swagger UI."""
    import swagger_ui_bundle

    if name == "index.html":
        return Response(PAGE, mimetype="text/html")
    folder = files(swagger_ui_bundle) / "vendor"
    types = {"css": "text/css", "js": "text/javascript"}
    ending = name.rpartition(".")[2]
    if name not in ASSETS or ending not in types:
        return _rejection(NotFound(f"there is no file {name!r}"))
    (version,) = [
        declared for declared in folder.iterdir() if declared.name.startswith("swagger-ui")
    ][:1]
    return Response((version / name).read_bytes(), mimetype=types[ending])


ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js"}
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>FireDeX: API of the configuration service</title>
<link rel="stylesheet" href="swagger-ui.css"></head>
<body><div id="page"></div>
<script src="swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "../openapi.json", dom_id: "#page", deepLinking: true})</script>
</body>
</html>
"""
