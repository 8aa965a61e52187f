"""How an endpoint is stated: once, for routing, roles, checks and the OpenAPI document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from firedex.service.change_ledger import Done, Origin
from firedex.service.core import ConfigurationService
from firedex.service.errors import Refused
from firedex.service.registrations import Condition
from firedex.service.tokens import ROLES, Identity, Role
from firedex.wire.service_api import Accepted

__all__ = [
    "ALL",
    "COMMAND",
    "EVERYBODY",
    "STAFF",
    "Call",
    "Endpoint",
    "Query",
    "Reply",
    "Roles",
    "accepted",
    "endpoint",
]

Roles = frozenset[Role]
STAFF: Roles = frozenset({"command", "operator"})
COMMAND: Roles = frozenset({"command"})
ALL: Roles = frozenset(ROLES)
EVERYBODY: None = None
"""No token is asked for."""
Method = Literal["GET", "PUT", "POST", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parameter after the question mark."""

    name: str
    about: str
    schema: Mapping[str, Any]
    required: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request, read and checked."""

    service: ConfigurationService
    identity: Identity
    origin: Origin
    condition: Condition
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    seen: frozenset[str] = frozenset()
    """The entity tags that the caller has (``If-None-Match``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: a value of the contract, or text that is JSON already."""

    status: int = 200
    value: Any = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    mimetype: str = "application/json"


Handler = Callable[[Call], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path. ``changes``: it takes idempotency keys and can be waited for."""

    method: Method
    path: str
    about: str
    roles: Roles | None
    handler: Handler
    body: Any = None
    answers: Mapping[int, Any]
    query: tuple[Query, ...] = ()
    refusals: frozenset[int] = frozenset()
    changes: bool = False
    conditional: bool = False
    tagged: bool = False
    mimetype: str = "application/json"

    @property
    def name(self) -> str:
        """Its handler's name."""
        return self.handler.__name__


def endpoint(
    collection: list[Endpoint],
    method: Method,
    path: str,
    *,
    roles: Roles | None,
    answers: Mapping[int, Any],
    **more: Any,
) -> Callable[[Handler], Handler]:
    """Add the decorated handler to ``collection``; its docstring's first line is what it is for."""

    def add(handler: Handler) -> Handler:
        about = (handler.__doc__ or "").strip().splitlines()[0]
        collection.append(
            Endpoint(
                method=method,
                path=path,
                roles=roles,
                answers=answers,
                about=about,
                handler=handler,
                **more,
            )
        )
        return handler

    return add


def accepted(done: Done) -> Reply:
    """A change that is kept. The header lets the server wait until it is in force."""
    return Reply(
        status=202, value=Accepted(change=done.change), headers={"Firedex-Change": str(done.change)}
    )


class BadRequest(Refused):
    """The request itself cannot be read."""

    status = 400
