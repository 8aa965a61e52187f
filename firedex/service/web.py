"""The REST interface, ``/v1``, as a Flask application made of the stated endpoints. Thin.

It never waits for the network: a change is answered when it is kept, and ``server`` waits for it to
be in force if the caller wants that.
"""

import logging
import re
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from flask import Flask, Response, request
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from firedex.service import (
    configuration_endpoints,
    incident_endpoints,
    overview_endpoints,
    registration_endpoints,
    report_endpoints,
)
from firedex.service.change_ledger import Origin
from firedex.service.core import ConfigurationService
from firedex.service.endpoints import (
    EVERYBODY,
    STAFF,
    BadRequest,
    Call,
    Endpoint,
    Reply,
    endpoint,
)
from firedex.service.errors import NotYours, Refused, Unknown
from firedex.service.metrics import ServiceMetrics
from firedex.service.openapi import openapi_document
from firedex.service.query_parameters import WAIT, read_query
from firedex.service.registrations import Condition
from firedex.service.tokens import IDENTIFIER, Identity
from firedex.wire import InvalidValue, format_path, from_json, to_json
from firedex.wire.service_api import ErrorAnswer, ErrorProblem

__all__ = ["ENDPOINTS", "LARGEST_BODY_BYTES", "STATE_IS_AWAY", "create_app", "error_json"]

log = logging.getLogger("firedex.service")
LARGEST_BODY_BYTES = 16 * 1024 * 1024
STATE_IS_AWAY = "the state cannot be used just now; come again"
LONGEST_KEY = 200
NUMBER = re.compile(r"[1-9][0-9]{0,8}")
NOBODY = Identity(name="nobody", role="subscriber")
ETAG = re.compile(r'(?:W/)?"([^"]*)"')
_own: list[Endpoint] = []


@endpoint(_own, "GET", "/v1/openapi.json", roles=EVERYBODY, answers={200: dict[str, Any]})
def get_openapi(_call: Call) -> Reply:
    """This interface as an OpenAPI document."""
    return Reply(value=openapi_document(ENDPOINTS))


@endpoint(_own, "GET", "/metrics", roles=STAFF, answers={200: str}, mimetype="text/plain")
def get_metrics(call: Call) -> Reply:
    """Figures for Prometheus."""
    metrics: ServiceMetrics = call.body
    return Reply(text=metrics.text(), mimetype="text/plain")


ENDPOINTS: tuple[Endpoint, ...] = (
    *registration_endpoints.ENDPOINTS,
    *configuration_endpoints.ENDPOINTS,
    *incident_endpoints.ENDPOINTS,
    *report_endpoints.ENDPOINTS,
    *overview_endpoints.ENDPOINTS,
    *_own,
)


def create_app(service: ConfigurationService) -> Flask:
    """The application, for any WSGI server."""
    app = Flask("firedex", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY_BYTES
    app.url_map.strict_slashes = True
    metrics = ServiceMetrics(service)
    for each in ENDPOINTS:
        rule = re.sub(r"\{(\w+)\}", r"<\1>", each.path)
        app.add_url_rule(
            rule,
            endpoint=each.name,
            view_func=_view(service, metrics, each),
            methods=[each.method],
            provide_automatic_options=False,
        )
    app.add_url_rule("/v1/docs/", "docs", lambda: _asset("index.html"))
    app.add_url_rule("/v1/docs/<path:name>", "asset", _asset)

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        answer = Response(
            error_json(error.description or error.name),
            error.code or 500,
            mimetype="application/json",
        )
        for name, value in error.get_headers():
            if name.lower() == "allow":
                answer.headers[name] = value
        return answer

    return app


def error_json(message: str, problems: tuple[ErrorProblem, ...] = ()) -> str:
    """An error, as every endpoint says it."""
    return to_json(ErrorAnswer(error=message, problems=problems))


def _view(
    service: ConfigurationService, metrics: ServiceMetrics, of: Endpoint
) -> Callable[..., Response]:
    def view(**path: str) -> Response:
        began = time.perf_counter()
        response = _answer(service, metrics, of, path)
        metrics.requests.labels(of.name, str(response.status_code)).inc()
        metrics.seconds.labels(of.name).observe(time.perf_counter() - began)
        return response

    return view


def _answer(
    service: ConfigurationService, metrics: ServiceMetrics, of: Endpoint, path: dict[str, str]
) -> Response:
    try:
        reply = of.handler(_call(service, metrics, of, path))
    except InvalidValue as error:
        problems = tuple(
            ErrorProblem(path=format_path(p.path), message=p.message) for p in error.problems
        )
        return _json(400, error_json(str(error)[:2000], problems[:100]))
    except Refused as error:
        response = _json(error.status, error_json(str(error)))
        response.headers.update(error.headers)
        return response
    except SQLAlchemyError:
        log.exception("the state cannot be used")
        return _json(503, error_json(STATE_IS_AWAY))
    except RequestEntityTooLarge:
        return _json(413, error_json(f"at most {LARGEST_BODY_BYTES} bytes"))
    if reply.status == 304:
        response = Response(status=304)
    else:
        text = reply.text if reply.text is not None else _dump(of, reply)
        response = Response(text, reply.status, mimetype=reply.mimetype)
    response.headers.update(reply.headers)
    return response


def _dump(of: Endpoint, reply: Reply) -> bytes:
    adapter: TypeAdapter[Any] = TypeAdapter(of.answers[reply.status])
    return adapter.dump_json(reply.value, by_alias=True)


def _json(status: int, text: str) -> Response:
    return Response(text, status, mimetype="application/json")


def _call(
    service: ConfigurationService, metrics: ServiceMetrics, of: Endpoint, path: dict[str, str]
) -> Call:
    identity = NOBODY
    if of.roles is not None:
        identity = service.identify(request.headers.get("Authorization"), request.remote_addr or "")
        service.request_limits.count(identity.name)
        if identity.role not in of.roles:
            raise NotYours(f"the role {identity.role!r} may not do this")
    _check_path(path)
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
        raise BadRequest(f"Idempotency-Key: 1 to {LONGEST_KEY} printable characters")
    query = read_query((*of.query, *(WAIT if of.changes else ())), request.args)
    body: Any = metrics if of.name == "get_metrics" else None
    raw = b""
    if of.body is not None:
        if request.mimetype != "application/json":
            raise _Unsupported("send JSON, with Content-Type: application/json")
        raw = request.get_data()
        body = from_json(of.body, raw)
    return Call(
        service=service,
        identity=identity,
        origin=Origin(
            actor=identity.name,
            idempotency_key=key if of.changes else None,
            request=_what_is_asked(of, query, raw),
        ),
        condition=_condition() if of.conditional else Condition(),
        path=path,
        query=query,
        body=body,
        seen=_tags("If-None-Match"),
    )


def _what_is_asked(of: Endpoint, query: dict[str, Any], raw: bytes) -> bytes:
    """By which a repeated request is known; how long the caller waits is not part of it."""
    said = {name: value for name, value in query.items() if name != "wait_seconds"}
    return b" ".join((of.method.encode(), request.path.encode(), repr(said).encode(), raw))


class _Unsupported(Refused):
    status = 415


def _check_path(path: dict[str, str]) -> None:
    for name, value in path.items():
        if name.endswith("version"):
            if not NUMBER.fullmatch(value):
                raise Unknown(f"{value!r} is no version")
        elif not IDENTIFIER.fullmatch(value):
            raise BadRequest(
                f"{value!r} is not an identifier: letters, digits and _ . : @ -, "
                "beginning with a letter or digit"
            )


def _tags(header: str) -> frozenset[str]:
    given = request.headers.get(header, "")
    return frozenset(f'"{found}"' for found in ETAG.findall(given))


def _condition() -> Condition:
    match = request.headers.get("If-Match")
    new = request.headers.get("If-None-Match", "").strip() == "*"
    if match is None or match.strip() == "*":
        return Condition(new=new, there=match is not None)
    tag = ETAG.fullmatch(match.strip())
    if tag is None or not NUMBER.fullmatch(tag.group(1)):
        raise BadRequest('If-Match: one entity tag, such as "17"')
    return Condition(revision=int(tag.group(1)), new=new)


def _asset(name: str) -> Response:
    """The browsable page: Swagger UI, as its Python package brings it, on our document."""
    import swagger_ui_bundle

    if name == "index.html":
        return Response(PAGE, mimetype="text/html")
    folder = files(swagger_ui_bundle) / "vendor"
    kinds = {"css": "text/css", "js": "text/javascript"}
    ending = name.rpartition(".")[2]
    if name not in ASSETS or ending not in kinds:
        return _json(404, error_json(f"there is no {name!r}"))
    (version,) = [each for each in folder.iterdir() if each.name.startswith("swagger-ui")][:1]
    return Response((version / name).read_bytes(), mimetype=kinds[ending])


ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js"}
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>FireDeX: the interface of the service</title>
<link rel="stylesheet" href="swagger-ui.css"></head>
<body><div id="page"></div>
<script src="swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "../openapi.json", dom_id: "#page", deepLinking: true})</script>
</body>
</html>
"""
