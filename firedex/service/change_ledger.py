"""Every change of the state: numbered, conditional, repeatable, and kept with who made it.

A change is one transaction: what it asks for, its place in the order of all changes, its entry in
the audit log, and its idempotency key are on disk together, or not at all.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from firedex.service import tables
from firedex.service.database import Database
from firedex.service.errors import KeyReused

__all__ = [
    "CREATE_TOKEN",
    "NO_PLAN_FOLLOWS",
    "REVOKE_TOKEN",
    "ChangeLedger",
    "Done",
    "Entry",
    "Origin",
    "Pending",
    "Write",
    "last_change",
    "to_be_planned",
]

KEYS_ARE_KEPT_SECONDS = 24 * 3600.0
CREATE_TOKEN, REVOKE_TOKEN = "create-token", "revoke-token"
NO_PLAN_FOLLOWS = (CREATE_TOKEN, REVOKE_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who asks, and under which key, so that asking again changes nothing."""

    actor: str
    idempotency_key: str | None = None
    request: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the audit log says of a change."""

    action: str
    subject: str
    detail: object = None


@dataclass(frozen=True, slots=True)
class Done:
    """The number of a change; ``repeated`` if an earlier request made it."""

    change: int
    repeated: bool = False


Write = Callable[[Connection, int], Entry | Done]
"""Makes the change of a number; or leaves all as it is, and says which change made it so."""


def last_change(connection: Connection) -> int:
    """The number of the last change; 0 before the first."""
    return int(connection.execute(select(func.max(tables.change.c.number))).scalar() or 0)


@dataclass(frozen=True, slots=True)
class Pending:
    """How many changes a plan has to follow, and when the first of them was made."""

    changes: int
    since_seconds: float | None = None


def to_be_planned(connection: Connection, after: int) -> Pending:
    """The changes after ``after`` that a plan has to follow."""
    column = tables.change.c
    counted = select(func.count(), func.min(column.at_seconds)).where(
        column.number > after, column.action.not_in(NO_PLAN_FOLLOWS)
    )
    changes, since = connection.execute(counted).one()
    return Pending(int(changes), since)


class ChangeLedger:
    """Makes changes in ``database``; ``after`` is called with the number of each."""

    def __init__(self, database: Database, after: Callable[[int], None] | None = None) -> None:
        self._database = database
        self._after = after

    def make(self, origin: Origin, write: Write) -> Done:
        """Let ``write`` change the state under the next number; whatever it raises undoes it."""
        digest = hashlib.sha256(origin.request).hexdigest()
        with self._database.writing() as connection:
            known = self._known(connection, origin, digest)
            if known is not None:
                return Done(known, repeated=True)
            number = last_change(connection) + 1
            made = write(connection, number)
            if isinstance(made, Entry):
                _enter(connection, number, origin, made)
            done = made if isinstance(made, Done) else Done(number)
            if origin.idempotency_key is not None:
                connection.execute(
                    insert(tables.idempotency).values(
                        actor=origin.actor,
                        key=origin.idempotency_key,
                        digest=digest,
                        change=done.change,
                        at_seconds=time.time(),
                    )
                )
        if self._after is not None and not done.repeated:
            self._after(number)
        return done

    def _known(self, connection: Connection, origin: Origin, digest: str) -> int | None:
        if origin.idempotency_key is None:
            return None
        keys = tables.idempotency
        connection.execute(
            delete(keys).where(keys.c.at_seconds < time.time() - KEYS_ARE_KEPT_SECONDS)
        )
        found = connection.execute(
            select(keys.c.digest, keys.c.change).where(
                keys.c.actor == origin.actor, keys.c.key == origin.idempotency_key
            )
        ).first()
        if found is None:
            return None
        if found.digest != digest:
            raise KeyReused(
                f"the idempotency key {origin.idempotency_key!r} stood for another request"
            )
        return int(found.change)


def _enter(connection: Connection, number: int, origin: Origin, entry: Entry) -> None:
    connection.execute(
        insert(tables.change).values(
            number=number,
            at_seconds=time.time(),
            actor=origin.actor,
            action=entry.action,
            subject=entry.subject,
            detail=None if entry.detail is None else json.dumps(entry.detail),
        )
    )
