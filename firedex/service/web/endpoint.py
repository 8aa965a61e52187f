"""The declaration of an endpoint, used for routing, roles, validation and the OpenAPI document."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from firedex.service.core import ConfigurationService
from firedex.service.errors import BadRequest
from firedex.service.state.change_ledger import ChangeResult, Origin
from firedex.service.state.registrations import Condition
from firedex.service.state.tokens import ROLES, Identity, Role
from firedex.service.web.metrics import ServiceMetrics
from firedex.wire.service_api import AcceptedChange
from firedex.wire.values import IDENTIFIER_MAX_LENGTH, IDENTIFIER_PATTERN

__all__ = [
    "ANY_ROLE",
    "COMMAND",
    "GATEWAY",
    "IDENTIFIER",
    "MAX_WAIT_SECONDS",
    "PUBLIC",
    "STAFF",
    "WAIT",
    "ApiRequest",
    "ApiResponse",
    "Endpoint",
    "Handler",
    "PendingChange",
    "Query",
    "Roles",
    "accepted_response",
    "endpoint",
    "read_query",
]

Roles = frozenset[Role]
STAFF: Roles = frozenset({"command", "operator"})
COMMAND: Roles = frozenset({"command"})
GATEWAY: Roles = frozenset({"gateway"})
"""The gateway reads configurations and topics, and reports statistics, heartbeats and events."""
ANY_ROLE: Roles = frozenset(ROLES)
PUBLIC: None = None
"""The endpoint requires no token."""
Method = Literal["GET", "PUT", "POST", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query parameter; ``repeated``: it may be given several times."""

    name: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False
    repeated: bool = False


IDENTIFIER = {
    "type": "string",
    "pattern": IDENTIFIER_PATTERN,
    "minLength": 1,
    "maxLength": IDENTIFIER_MAX_LENGTH,
}
MAX_WAIT_SECONDS = 30.0
WAIT = (
    Query(
        name="wait_seconds",
        description="Wait up to this many seconds until the change is active. The response is 200 "
        "if it becomes active in time, otherwise 202.",
        schema={"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "default": 0},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request that is authenticated and validated."""

    service: ConfigurationService
    metrics: ServiceMetrics
    identity: Identity
    origin: Origin
    condition: Condition
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    known_etags: frozenset[str] = frozenset()
    """The entity tags of ``If-None-Match``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A stored change that is not active yet.

    When it is active, the response is the configuration of ``subscriber``, or the part that all
    subscribers share.
    """

    number: int
    subscriber: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A response: a value of the wire contract, `EncodedJson`, or text that is not JSON."""

    status: int = 200
    value: Any = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    mimetype: str = "application/json"
    pending: PendingChange | None = None


Handler = Callable[[ApiRequest], ApiResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    ``writes``: it changes the state, accepts idempotency keys, and callers can wait until the
    change is active. ``conditional``: it accepts ``If-Match``. ``errors``: statuses of errors
    besides those that follow from the other fields.
    """

    method: Method
    path: str
    summary: str
    roles: Roles | None
    handler: Handler
    body: Any = None
    responses: Mapping[int, Any]
    query: tuple[Query, ...] = ()
    errors: frozenset[int] = frozenset()
    writes: bool = False
    conditional: bool = False
    has_etag: bool = False
    mimetype: str = "application/json"

    @property
    def name(self) -> str:
        """The name of the handler, which is the operation id in the OpenAPI document."""
        return self.handler.__name__


def endpoint(
    collection: list[Endpoint],
    method: Method,
    path: str,
    *,
    roles: Roles | None,
    responses: Mapping[int, Any],
    **more: Any,
) -> Callable[[Handler], Handler]:
    """Add the decorated handler to ``collection``; its docstring's first line is the summary."""

    def add(handler: Handler) -> Handler:
        summary = (handler.__doc__ or "").strip().splitlines()[0]
        collection.append(
            Endpoint(
                method=method,
                path=path,
                roles=roles,
                responses=responses,
                summary=summary,
                handler=handler,
                **more,
            )
        )
        return handler

    return add


def accepted_response(done: ChangeResult, subscriber: str | None = None) -> ApiResponse:
    """Return the response to a stored change, which concerns ``subscriber`` or the whole site."""
    return ApiResponse(
        status=202,
        value=AcceptedChange(change=done.change),
        pending=PendingChange(number=done.change, subscriber=subscriber),
    )


class Arguments(Protocol):
    """The query parameters of a request: names, each with one or more values."""

    def keys(self) -> Iterable[str]:
        """Return all names."""

    def getlist(self, key: str) -> list[str]:
        """Return the values of a name."""


def read_query(parameters: tuple[Query, ...], given: Arguments) -> dict[str, Any]:
    """Return the values of the parameters; raise `BadRequest` for unknown or invalid ones."""
    by_name = {query.name: query for query in parameters}
    unknown = sorted(set(given.keys()) - by_name.keys())
    if unknown:
        raise BadRequest(
            f"unknown parameter {unknown[0]!r}; valid parameters: {', '.join(by_name) or 'none'}"
        )
    values: dict[str, Any] = {}
    for name, query in by_name.items():
        texts = given.getlist(name)
        if not texts:
            if query.required:
                raise BadRequest(f"{name}: is required")
            continue
        if len(texts) > 1 and not query.repeated:
            raise BadRequest(f"{name}: is given {len(texts)} times, but may be given once")
        read = [_read(query, text) for text in texts]
        values[name] = read if query.repeated else read[0]
    return values


def _read(query: Query, text: str) -> Any:
    schema = query.schema
    kind = schema["type"]
    if kind == "string":
        if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", math.inf):
            raise BadRequest(f"{query.name}: has the wrong length")
        if not re.fullmatch(schema.get("pattern", ".*"), text, re.DOTALL):
            raise BadRequest(f"{query.name}: {text!r} must match {schema['pattern']}")
        return text
    try:
        number = int(text) if kind == "integer" else float(text)
    except ValueError as error:
        raise BadRequest(f"{query.name}: {text!r} is not a number") from error
    if not schema.get("minimum", -math.inf) <= number <= schema.get("maximum", math.inf):
        raise BadRequest(
            f"{query.name}: must be from {schema.get('minimum')} to {schema.get('maximum')}"
        )
    return number
