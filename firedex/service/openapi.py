"""The OpenAPI document, made of the endpoints as they are stated and the types they name. Pure."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from firedex import __version__
from firedex.service.endpoints import Endpoint, Query
from firedex.service.query_parameters import IDENTIFIER, WAIT
from firedex.wire.service_api import ErrorAnswer

__all__ = ["openapi_document"]

REFUSALS = {
    400: "The request cannot be read; every problem is named with its path.",
    401: "No token, or one that is not valid.",
    403: "The token does not allow it.",
    404: "There is no such thing.",
    409: "It does not fit what is there.",
    412: "Somebody else has changed it meanwhile.",
    413: "Too large.",
    415: "Not JSON.",
    422: "The idempotency key stood for another request.",
    429: "Too many requests; Retry-After says when to come again.",
    503: "Not now; come again.",
}
ANSWERS = {
    200: "So it is; after a change that was waited for: what is in force now.",
    202: "Kept, and durable.",
    304: "As the caller knows it.",
    503: "Not ready.",
}
VERSION = {"type": "integer", "minimum": 1, "maximum": 999_999_999}
REFERENCE = "#/components/schemas/{model}"


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1 of all endpoints."""
    wanted: dict[tuple[int, str], tuple[str, Any]] = {}
    for number, each in enumerate(endpoints):
        if each.body is not None:
            wanted[number, "body"] = ("validation", TypeAdapter(each.body))
        for status, answer in each.answers.items():
            if answer is not None and each.mimetype == "application/json":
                wanted[number, str(status)] = ("serialization", TypeAdapter(answer))
    wanted[-1, "error"] = ("serialization", TypeAdapter(ErrorAnswer))
    inputs = [(key, mode, adapter) for key, (mode, adapter) in wanted.items()]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=REFERENCE)  # type: ignore[arg-type]
    by_key = {key: schema for (key, _), schema in schemas.items()}
    paths: dict[str, dict[str, Any]] = {}
    for number, each in enumerate(endpoints):
        of_body = by_key.get((number, "body"))
        of_answers = {status: by_key.get((number, str(status))) for status in each.answers}
        operation = _operation(each, of_body, of_answers, by_key[-1, "error"])
        paths.setdefault(each.path, {})[each.method.lower()] = operation
    paths["/v1/events"] = {"get": _events(by_key[-1, "error"])}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FireDeX configuration service",
            "version": __version__,
            "description": "Registrations in, plans out, the network told.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    of: Endpoint, body: Any, answers: dict[int, Any], error: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": of.name,
        "summary": of.about,
        "tags": [of.path.split("/")[2] if of.path.startswith("/v1/") else "metrics"],
        "parameters": _parameters(of),
        "responses": {},
    }
    if of.roles is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = "For: " + ", ".join(sorted(of.roles)) + "."
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    for status, schema in answers.items():
        answer: dict[str, Any] = {"description": ANSWERS[status]}
        if schema is not None:
            answer["content"] = {of.mimetype: {"schema": schema}}
        elif of.mimetype != "application/json":
            answer["content"] = {of.mimetype: {"schema": {"type": "string"}}}
        if of.tagged and status in (200, 304):
            answer["headers"] = {"ETag": {"schema": {"type": "string"}}}
        operation["responses"][str(status)] = answer
    for status in sorted(_refusals(of)):
        operation["responses"].setdefault(str(status), _refusal(status, error))
    return operation


def _refusal(status: int, error: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": REFUSALS[status],
        "content": {"application/json": {"schema": error}},
    }


def _refusals(of: Endpoint) -> set[int]:
    found = set(of.refusals) | {400}
    if of.roles is not None:
        found |= {401, 403, 429, 503}
    if of.body is not None:
        found |= {413, 415}
    if of.changes:
        found |= {422}
    if of.conditional:
        found |= {412}
    if "version}" in of.path:
        found |= {404}
    return found


def _parameters(of: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": VERSION if name.endswith("version") else IDENTIFIER,
        }
        for name in re.findall(r"\{(\w+)\}", of.path)
    ]
    found += [_query(query) for query in (*of.query, *(WAIT if of.changes else ()))]
    if of.changes:
        found.append(
            _header(
                "Idempotency-Key",
                "The same request under the same key is done once.",
                {"type": "string", "pattern": "^[ -~]+$", "minLength": 1, "maxLength": 200},
            )
        )
    if of.conditional:
        found.append(_header("If-Match", "Only if this is its revision.", {"type": "string"}))
        if of.method == "PUT":
            star = {"type": "string", "enum": ["*"]}
            found.append(_header("If-None-Match", "*: only if it is not there yet.", star))
    if 304 in of.answers:
        about = "The version that the caller has."
        found.append(_header("If-None-Match", about, {"type": "string"}))
    return found


def _query(query: Query) -> dict[str, Any]:
    schema: Any = {"type": "array", "items": query.schema} if query.many else query.schema
    made: dict[str, Any] = {
        "name": query.name,
        "in": "query",
        "description": query.about,
        "required": query.required,
        "schema": schema,
    }
    if query.many:
        made["schema"] = {**schema, "minItems": 1}
        made |= {"style": "form", "explode": True}
    return made


def _header(name: str, about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": about, "schema": schema}


def _events(error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": "get_events",
        "summary": "Server-sent events: configuration, incident, statistics.",
        "description": 'An endless answer. `event: configuration` has `{"version": N}` as data, '
        "and for a stream of one subscriber `changed`: whether its flows differ. For all roles; a "
        "subscriber asks with its own id.",
        "tags": ["events"],
        "security": [{"token": []}],
        "parameters": [
            {
                "name": "subscriber",
                "in": "query",
                "description": "Whose flows are watched.",
                "schema": IDENTIFIER,
            }
        ],
        "responses": {
            "200": {
                "description": "Events, for as long as the caller stays.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **{str(status): _refusal(status, error) for status in (400, 401, 403, 429, 503)},
        },
    }
