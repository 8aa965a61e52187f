"""Who may ask: random tokens, of which the state keeps the SHA-256 alone."""

import hashlib
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from firedex.service import tables
from firedex.service.change_ledger import (
    CREATE_TOKEN,
    REVOKE_TOKEN,
    ChangeLedger,
    Entry,
    Origin,
)
from firedex.service.database import Database
from firedex.service.errors import Conflict, NoToken, NotYours, Unknown

__all__ = ["ANYONE", "IDENTIFIER", "ROLES", "Identity", "Role", "TokenRow", "Tokens"]

Role = Literal["command", "operator", "subscriber", "publisher"]
ROLES: tuple[Role, ...] = get_args(Role)
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
LONGEST_NAME = 128
PREFIX = "fdx_"
RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who asks. ``party``: the one subscriber or publisher that a token of that role stands for;
    ``crew_role``: the role, with its budget, under which it must register.
    """

    name: str
    role: Role
    party: str | None = None
    crew_role: str | None = None

    def may_touch(self, kind: Literal["subscriber", "publisher"], identifier: str) -> bool:
        """Command and operators touch everything, the others themselves."""
        if self.role in ("command", "operator"):
            return True
        return self.role == kind and self.party == identifier

    def require(self, kind: Literal["subscriber", "publisher"], identifier: str) -> None:
        """Refuse what is somebody else's."""
        if not self.may_touch(kind, identifier):
            raise NotYours(f"the token {self.name!r} is not for {kind} {identifier!r}")


ANYONE = Identity(name="anyone", role="command")
"""Where no tokens are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as it is listed; the token itself is nowhere."""

    name: str
    role: str
    party: str | None
    crew_role: str | None
    created_seconds: float
    revoked: bool


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    """The tokens in ``database``; whoever makes and revokes them is in the audit log."""

    def __init__(self, database: Database, actor: str = "service") -> None:
        self._database = database
        self._ledger = ChangeLedger(database)
        self._origin = Origin(actor=actor)

    def create(
        self, name: str, role: Role, party: str | None = None, crew_role: str | None = None
    ) -> str:
        """A new token. It is shown now and never again."""
        if not (name.strip() and len(name) <= LONGEST_NAME and name.isprintable()):
            raise Conflict(f"the name of a token: 1 to {LONGEST_NAME} printable characters")
        for what, given in ((f"the {role}", party), ("the crew role", crew_role)):
            if given is not None and not IDENTIFIER.fullmatch(given):
                raise Conflict(
                    f"{what} {given!r}: letters, digits and _ . : @ -, at most 128 of them, "
                    "beginning with a letter or digit"
                )
        if role in ("subscriber", "publisher") and party is None:
            raise Conflict(f"a token for a {role} names the {role} that it is for")
        if role in ("command", "operator") and (party or crew_role):
            raise Conflict(f"a token for {role} is for no party")
        token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        row = {"name": name, "role": role, "party": party, "crew_role": crew_role}

        def write(connection: Connection, _number: int) -> Entry:
            connection.execute(
                insert(tables.token).values(
                    digest=_digest(token), created_seconds=time.time(), **row
                )
            )
            detail = {what: given for what, given in row.items() if what != "name"}
            return Entry(action=CREATE_TOKEN, subject=f"token {name}", detail=detail)

        try:
            self._ledger.make(self._origin, write)
        except IntegrityError as error:
            raise Conflict(f"there is a token named {name!r} already") from error
        return token

    def revoke(self, name: str) -> None:
        """From now on it is not valid."""

        def write(connection: Connection, _number: int) -> Entry:
            found = connection.execute(
                update(tables.token)
                .where(tables.token.c.name == name, tables.token.c.revoked_seconds.is_(None))
                .values(revoked_seconds=time.time())
            )
            if found.rowcount == 0:
                raise Unknown(f"there is no valid token named {name!r}")
            return Entry(action=REVOKE_TOKEN, subject=f"token {name}")

        self._ledger.make(self._origin, write)

    def listed(self) -> Sequence[TokenRow]:
        """All, in the order in which they were made."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(tables.token).order_by(tables.token.c.created_seconds)
            ).all()
        return [
            TokenRow(
                name=row.name,
                role=row.role,
                party=row.party,
                crew_role=row.crew_role,
                created_seconds=row.created_seconds,
                revoked=row.revoked_seconds is not None,
            )
            for row in rows
        ]

    def valid_names(self) -> frozenset[str]:
        """The names of all that are not revoked."""
        chosen = select(tables.token.c.name).where(tables.token.c.revoked_seconds.is_(None))
        with self._database.reading() as connection:
            return frozenset(connection.execute(chosen).scalars())

    def identify(self, authorization: str | None) -> Identity:
        """Who a request is from, by its ``Authorization`` header."""
        if not authorization:
            raise NoToken("a token is needed: Authorization: Bearer TOKEN")
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise NoToken("the header must be: Authorization: Bearer TOKEN")
        row = self._find(_digest(token.strip()))
        if row is None or row.revoked_seconds is not None:
            raise NoToken("the token is not valid")
        return Identity(name=row.name, role=row.role, party=row.party, crew_role=row.crew_role)

    def _find(self, digest: str) -> Row[tuple[object, ...]] | None:
        with self._database.reading() as connection:
            return connection.execute(
                select(tables.token).where(tables.token.c.digest == digest)
            ).first()
