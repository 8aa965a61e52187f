"""The OpenAPI document, generated from the declared endpoints and their types."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from firedex import __version__
from firedex.service.web.endpoint import IDENTIFIER, WAIT, Endpoint, Query
from firedex.wire.service_api import ErrorResponse

__all__ = ["openapi_document"]

ERRORS = {
    400: "The request is invalid. `problems` names each invalid field.",
    401: "The token is missing or invalid.",
    403: "The token does not permit this request.",
    404: "Not found.",
    409: "The request conflicts with the current state, or with the network of the site.",
    412: "Precondition failed: the revision of the resource differs from `If-Match`.",
    413: "The request body is too large.",
    415: "The request body is not JSON.",
    422: "The idempotency key was used before, with another request.",
    429: "Too many requests. Retry after the time in `Retry-After`.",
    503: "Temporarily unavailable. Retry after the time in `Retry-After`.",
}
RESPONSES = {
    200: "OK.",
    202: "Accepted and stored.",
    304: "Not modified: the caller has this version.",
    503: "Not ready.",
}
WRITE_RESPONSES = {
    200: "OK. With `wait_seconds`, the body is the active configuration.",
    202: "Accepted and stored, but not active yet.",
}
VERSION = {"type": "integer", "minimum": 1, "maximum": 999_999_999}
REFERENCE = "#/components/schemas/{model}"


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the endpoints."""
    types: dict[tuple[int, str], tuple[str, Any]] = {}
    for number, endpoint in enumerate(endpoints):
        if endpoint.body is not None:
            types[number, "body"] = ("validation", TypeAdapter(endpoint.body))
        for status, response in endpoint.responses.items():
            if response is not None and endpoint.mimetype == "application/json":
                types[number, str(status)] = ("serialization", TypeAdapter(response))
    types[-1, "error"] = ("serialization", TypeAdapter(ErrorResponse))
    inputs = [(key, mode, adapter) for key, (mode, adapter) in types.items()]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=REFERENCE)  # type: ignore[arg-type]
    by_key = {key: schema for (key, _), schema in schemas.items()}
    paths: dict[str, dict[str, Any]] = {}
    for number, endpoint in enumerate(endpoints):
        body = by_key.get((number, "body"))
        responses = {status: by_key.get((number, str(status))) for status in endpoint.responses}
        operation = _operation(endpoint, body, responses, by_key[-1, "error"])
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    paths["/v1/events"] = {"get": _events(by_key[-1, "error"])}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FireDeX configuration service",
            "version": __version__,
            "description": "Stores registrations of publishers and subscribers, plans "
            "priorities and drop rates, and has the controller apply them to the network.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    endpoint: Endpoint, body: Any, responses: dict[int, Any], error: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[2] if endpoint.path.startswith("/v1/") else "metrics"],
        "parameters": _parameters(endpoint),
        "responses": {},
    }
    if endpoint.roles is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = "Allowed roles: " + ", ".join(sorted(endpoint.roles)) + "."
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    for status, schema in responses.items():
        descriptions = {**RESPONSES, **(WRITE_RESPONSES if endpoint.writes else {})}
        response: dict[str, Any] = {"description": descriptions[status]}
        if schema is not None:
            response["content"] = {endpoint.mimetype: {"schema": schema}}
        elif endpoint.mimetype != "application/json":
            response["content"] = {endpoint.mimetype: {"schema": {"type": "string"}}}
        if endpoint.has_etag and status in (200, 304):
            response["headers"] = {"ETag": {"schema": {"type": "string"}}}
        operation["responses"][str(status)] = response
    for status in sorted(_errors(endpoint)):
        operation["responses"].setdefault(str(status), _error(status, error))
    return operation


def _error(status: int, error: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": ERRORS[status],
        "content": {"application/json": {"schema": error}},
    }


def _errors(endpoint: Endpoint) -> set[int]:
    found = set(endpoint.errors) | {400}
    if endpoint.roles is not None:
        found |= {401, 403, 429, 503}
    if endpoint.body is not None:
        found |= {413, 415}
    if endpoint.writes:
        found |= {422}
    if endpoint.conditional:
        found |= {412}
    if "version}" in endpoint.path:
        found |= {404}
    return found


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": VERSION if name.endswith("version") else IDENTIFIER,
        }
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]
    found += [_query(query) for query in (*endpoint.query, *(WAIT if endpoint.writes else ()))]
    if endpoint.writes:
        found.append(
            _header(
                "Idempotency-Key",
                "A request that is repeated with the same key is executed once.",
                {"type": "string", "pattern": "^[ -~]+$", "minLength": 1, "maxLength": 200},
            )
        )
    if endpoint.conditional:
        found.append(
            _header(
                "If-Match",
                "Execute the request only if the resource has this revision (ETag).",
                {"type": "string"},
            )
        )
        if endpoint.method == "PUT":
            star = {"type": "string", "enum": ["*"]}
            found.append(
                _header(
                    "If-None-Match",
                    "With `*`, execute the request only if the resource does not exist yet.",
                    star,
                )
            )
    if 304 in endpoint.responses:
        description = "The ETag that the caller has; if it is current, the response is 304."
        found.append(_header("If-None-Match", description, {"type": "string"}))
    return found


def _query(query: Query) -> dict[str, Any]:
    schema: Any = {"type": "array", "items": query.schema} if query.repeated else query.schema
    parameter: dict[str, Any] = {
        "name": query.name,
        "in": "query",
        "description": query.description,
        "required": query.required,
        "schema": schema,
    }
    if query.repeated:
        parameter["schema"] = {**schema, "minItems": 1}
        parameter |= {"style": "form", "explode": True}
    return parameter


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _events(error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": "get_events",
        "summary": "Stream server-sent events: configuration, incident, statistics.",
        "description": "The stream does not end. The data of `event: configuration` is "
        '`{"version": N}`; '
        "in a stream of one subscriber, `changed` states whether its flows differ. All roles are "
        "allowed; with the token of a subscriber, the stream is that of the subscriber.",
        "tags": ["events"],
        "security": [{"token": []}],
        "parameters": [
            {
                "name": "subscriber",
                "in": "query",
                "description": "Subscriber whose flows the stream follows.",
                "schema": IDENTIFIER,
            }
        ],
        "responses": {
            "200": {
                "description": "OK. Events follow until the caller closes the connection.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **{str(status): _error(status, error) for status in (400, 401, 403, 429, 503)},
        },
    }
