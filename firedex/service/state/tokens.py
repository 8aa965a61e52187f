"""Access tokens: random strings of which the state stores only the SHA-256 digest."""

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from firedex.service.errors import Conflict, Forbidden, NotFound, Unauthorized
from firedex.service.state import tables
from firedex.service.state.change_ledger import (
    CREATE_TOKEN,
    REVOKE_TOKEN,
    ChangeLedger,
    Entry,
    Origin,
)
from firedex.service.state.database import Database
from firedex.wire.service_api import Role
from firedex.wire.values import IDENTIFIER_RULE, is_identifier

__all__ = ["ANYONE", "ROLES", "Identity", "Role", "TokenRow", "Tokens"]

ROLES: tuple[Role, ...] = get_args(Role)
LONGEST_NAME = 128
PREFIX = "fdx_"
RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a request.

    ``client`` is the only subscriber or publisher that a token of that role covers; ``crew_role``
    is the role, with its budget, under which the client must register. ``owner`` is the person or
    organisation that holds the token; all clients of one owner share one budget.
    """

    name: str
    role: Role
    client: str | None = None
    crew_role: str | None = None
    owner: str | None = None

    @property
    def is_staff(self) -> bool:
        """Whether the token acts for the site, and not for one client."""
        return self.role in ("command", "operator")

    def covers_client(self, kind: Literal["subscriber", "publisher"], identifier: str) -> bool:
        """Return True for command and operators, and for a client itself."""
        if self.is_staff:
            return True
        return self.role == kind and self.client == identifier

    def require(self, kind: Literal["subscriber", "publisher"], identifier: str) -> None:
        """Raise `Forbidden` if the token does not cover this client."""
        if not self.covers_client(kind, identifier):
            raise Forbidden(f"the token {self.name!r} is not for {kind} {identifier!r}")


ANYONE = Identity(name="anyone", role="command")
"""The identity of all requests if the service requires no tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token in a list, without the secret."""

    name: str
    role: str
    client: str | None
    crew_role: str | None
    owner: str
    created_seconds: float
    revoked: bool


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    """The tokens in ``database``; creation and revocation are recorded in the audit log."""

    def __init__(self, database: Database, actor: str = "service") -> None:
        self._database = database
        self._ledger = ChangeLedger(database)
        self._origin = Origin(actor=actor)

    def create(
        self,
        name: str,
        role: Role,
        client: str | None = None,
        crew_role: str | None = None,
        owner: str | None = None,
    ) -> str:
        """Create a token and return it; it cannot be read again later.

        ``owner``: the person or organisation that holds it. Without one, the token owns itself.
        """
        if not (name.strip() and len(name) <= LONGEST_NAME and name.isprintable()):
            raise Conflict(
                f"the name of a token must have 1 to {LONGEST_NAME} printable characters"
            )
        given = ((f"the {role}", client), ("the crew role", crew_role), ("the owner", owner))
        for what, value in given:
            if value is not None and not is_identifier(value):
                raise Conflict(f"{what} {value!r} is not an identifier: {IDENTIFIER_RULE}")
        if role in ("subscriber", "publisher") and client is None:
            raise Conflict(f"a token for a {role} must name the {role}")
        if role not in ("subscriber", "publisher") and (client or crew_role):
            raise Conflict(f"a token with the role {role} cannot be for a subscriber or publisher")
        token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        row = {
            "name": name,
            "role": role,
            "client": client,
            "crew_role": crew_role,
            "owner": owner,
        }

        def write(connection: Connection, _number: int) -> Entry:
            connection.execute(
                insert(tables.token).values(
                    digest=_digest(token), created_seconds=time.time(), **row
                )
            )
            detail = {what: value for what, value in row.items() if what != "name"}
            return Entry(action=CREATE_TOKEN, subject=f"token {name}", detail=detail)

        try:
            self._ledger.make(self._origin, write)
        except IntegrityError as error:
            raise Conflict(f"there is a token named {name!r} already") from error
        return token

    def revoke(self, name: str) -> None:
        """Revoke a token."""

        def write(connection: Connection, _number: int) -> Entry:
            found = connection.execute(
                update(tables.token)
                .where(tables.token.c.name == name, tables.token.c.revoked_seconds.is_(None))
                .values(revoked_seconds=time.time())
            )
            if found.rowcount == 0:
                raise NotFound(f"there is no valid token named {name!r}")
            return Entry(action=REVOKE_TOKEN, subject=f"token {name}")

        self._ledger.make(self._origin, write)

    def all(self) -> Sequence[TokenRow]:
        """Return all tokens in order of creation."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(tables.token).order_by(tables.token.c.created_seconds)
            ).all()
        return [
            TokenRow(
                name=row.name,
                role=row.role,
                client=row.client,
                crew_role=row.crew_role,
                owner=row.owner or row.name,
                created_seconds=row.created_seconds,
                revoked=row.revoked_seconds is not None,
            )
            for row in rows
        ]

    def valid_names(self) -> frozenset[str]:
        """Return the names of all valid tokens."""
        chosen = select(tables.token.c.name).where(tables.token.c.revoked_seconds.is_(None))
        with self._database.reading() as connection:
            return frozenset(connection.execute(chosen).scalars())

    def identify(self, authorization: str | None) -> Identity:
        """Return the identity for the ``Authorization`` header of a request."""
        if not authorization:
            raise Unauthorized("a token is required: Authorization: Bearer TOKEN")
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise Unauthorized("the header must be: Authorization: Bearer TOKEN")
        row = self._find(_digest(token.strip()))
        if row is None or row.revoked_seconds is not None:
            raise Unauthorized("the token is not valid")
        return Identity(
            name=row.name,
            role=row.role,
            client=row.client,
            crew_role=row.crew_role,
            owner=row.owner or row.name,
        )

    def _find(self, digest: str) -> Row[tuple[object, ...]] | None:
        with self._database.reading() as connection:
            return connection.execute(
                select(tables.token).where(tables.token.c.digest == digest)
            ).first()
