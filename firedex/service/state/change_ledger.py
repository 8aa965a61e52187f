"""Changes of the state: numbered, idempotent, and recorded in the audit log.

A change is one transaction. Its effect, its number, its entry in the audit log and its idempotency
key are stored together, or not at all.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from firedex.service.errors import IdempotencyKeyReused
from firedex.service.state import tables
from firedex.service.state.database import Database

__all__ = [
    "ACTIONS_WITHOUT_PLAN",
    "CREATE_TOKEN",
    "REVOKE_TOKEN",
    "ChangeLedger",
    "ChangeResult",
    "Entry",
    "Origin",
    "PendingCount",
    "Write",
    "last_change",
    "pending_changes",
]

KEY_LIFETIME_SECONDS = 24 * 3600.0
CREATE_TOKEN, REVOKE_TOKEN = "create-token", "revoke-token"
ACTIONS_WITHOUT_PLAN = (CREATE_TOKEN, REVOKE_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The actor of a request, and its idempotency key: a repeated request changes nothing."""

    actor: str
    idempotency_key: str | None = None
    request: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The entry of a change in the audit log."""

    action: str
    subject: str
    detail: object = None


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The number of a change; ``repeated`` if an earlier request made it already."""

    change: int
    repeated: bool = False


Write = Callable[[Connection, int], Entry | ChangeResult]
"""Makes the change with a number, or returns the earlier change that had the same effect."""


def last_change(connection: Connection) -> int:
    """Return the number of the last change; 0 before the first."""
    return int(connection.execute(select(func.max(tables.change.c.number))).scalar() or 0)


@dataclass(frozen=True, slots=True)
class PendingCount:
    """Changes that need a new plan, and the time of the first of them."""

    changes: int
    since_seconds: float | None = None


def pending_changes(connection: Connection, after: int) -> PendingCount:
    """Count the changes after ``after`` that need a new plan."""
    column = tables.change.c
    counted = select(func.count(), func.min(column.at_seconds)).where(
        column.number > after, column.action.not_in(ACTIONS_WITHOUT_PLAN)
    )
    changes, since = connection.execute(counted).one()
    return PendingCount(int(changes), since)


class ChangeLedger:
    """Makes changes in ``database`` and calls ``after`` with the number of each."""

    def __init__(self, database: Database, after: Callable[[int], None] | None = None) -> None:
        self._database = database
        self._after = after

    def make(self, origin: Origin, write: Write) -> ChangeResult:
        """Call ``write`` with the next number in a transaction; an exception rolls it back."""
        digest = hashlib.sha256(origin.request).hexdigest()
        with self._database.writing() as connection:
            earlier = self._earlier_change(connection, origin, digest)
            if earlier is not None:
                return ChangeResult(earlier, repeated=True)
            number = last_change(connection) + 1
            result = write(connection, number)
            if isinstance(result, Entry):
                _record(connection, number, origin, result)
            change = result if isinstance(result, ChangeResult) else ChangeResult(number)
            if origin.idempotency_key is not None:
                connection.execute(
                    insert(tables.idempotency).values(
                        actor=origin.actor,
                        key=origin.idempotency_key,
                        digest=digest,
                        change=change.change,
                        at_seconds=time.time(),
                    )
                )
        if self._after is not None and not change.repeated:
            self._after(number)
        return change

    def _earlier_change(self, connection: Connection, origin: Origin, digest: str) -> int | None:
        if origin.idempotency_key is None:
            return None
        keys = tables.idempotency
        connection.execute(
            delete(keys).where(keys.c.at_seconds < time.time() - KEY_LIFETIME_SECONDS)
        )
        found = connection.execute(
            select(keys.c.digest, keys.c.change).where(
                keys.c.actor == origin.actor, keys.c.key == origin.idempotency_key
            )
        ).first()
        if found is None:
            return None
        if found.digest != digest:
            raise IdempotencyKeyReused(
                f"the idempotency key {origin.idempotency_key!r} was used for another request"
            )
        return int(found.change)


def _record(connection: Connection, number: int, origin: Origin, entry: Entry) -> None:
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
