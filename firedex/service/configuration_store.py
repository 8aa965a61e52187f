"""Every configuration that was ever planned: its number, state, reason, timing and document."""

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select, update

from firedex.service import tables
from firedex.service.configuration_document import ConfigurationDocument
from firedex.service.database import Database
from firedex.service.errors import LockLost
from firedex.service.planning_scenario import Basis, BasisRate
from firedex.wire import from_plain, to_plain
from firedex.wire.service_api import ConfigurationRecord

__all__ = ["ConfigurationStore", "InForce"]

_columns = tables.configuration.c
PLANNED, IN_FORCE, REPLACED, FAILED = "planned", "in-force", "replaced", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The configuration in force, and the last change that it includes."""

    version: int
    through_change: int
    since_seconds: float
    document: ConfigurationDocument
    basis: Basis


class ConfigurationStore:
    """Configurations in ``database``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, *, through_change: int, reason: str, planned_seconds: float) -> int:
        """Before the network is told: a number that no configuration ever had, on disk."""
        with self._database.writing() as connection:
            last = connection.execute(select(func.max(_columns.version))).scalar() or 0
            version = int(last) + 1
            connection.execute(
                insert(tables.configuration).values(
                    version=version,
                    state=PLANNED,
                    through_change=through_change,
                    created_seconds=time.time(),
                    reason=reason,
                    planned_seconds=planned_seconds,
                )
            )
        return version

    def activate(
        self, version: int, document: ConfigurationDocument, basis: Basis, pushed_seconds: float
    ) -> float:
        """The network follows it: it is in force from now on, and the one before is not.

        Raises LockLost if another planner has given it up meanwhile.
        """
        kept = document.to_bytes()
        now = time.time()
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.state == IN_FORCE)
                .values(state=REPLACED)
            )
            made = connection.execute(
                update(tables.configuration)
                .where(_columns.version == version, _columns.state == PLANNED)
                .values(
                    state=IN_FORCE,
                    document=kept,
                    basis=_basis_bytes(basis),
                    pushed_seconds=pushed_seconds,
                    in_force_seconds=now,
                )
            )
            if made.rowcount == 0:
                raise LockLost
        return now

    def fail(self, version: int, error: str) -> None:
        """The network did not take it."""
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.version == version)
                .values(state=FAILED, error=error.replace("\0", "\N{REPLACEMENT CHARACTER}"))
            )

    def fail_unfinished(self) -> None:
        """After a start: nobody knows what became of those that were being pushed."""
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.state == PLANNED)
                .values(state=FAILED, error="the service ended before it was in force")
            )

    def in_force(self) -> InForce | None:
        """What is in force, also after a restart."""
        with self._database.reading() as connection:
            return self._load(connection, _columns.state == IN_FORCE)

    def version_in_force(self) -> int:
        """Its version alone; 0 before the first."""
        with self._database.reading() as connection:
            chosen = select(func.max(_columns.version)).where(_columns.state == IN_FORCE)
            return int(connection.execute(chosen).scalar() or 0)

    def _load(self, connection: Connection, where: object) -> InForce | None:
        row = connection.execute(
            select(tables.configuration)
            .where(where)  # type: ignore[arg-type]
            .order_by(_columns.version.desc())
            .limit(1)
        ).first()
        if row is None or row.document is None:
            return None
        return InForce(
            version=row.version,
            through_change=row.through_change,
            since_seconds=row.in_force_seconds or row.created_seconds,
            document=ConfigurationDocument.from_bytes(row.document),
            basis=_basis_from(row.basis),
        )

    def document(self, version: int) -> ConfigurationDocument | None:
        """Any configuration that came out as a plan."""
        with self._database.reading() as connection:
            kept = connection.execute(
                select(_columns.document).where(_columns.version == version)
            ).scalar()
        return ConfigurationDocument.from_bytes(kept) if kept else None

    def records(self, before: int | None, limit: int) -> Sequence[ConfigurationRecord]:
        """The list of all, newest first, ``limit`` of those before a version."""
        chosen = select(*(c for c in _columns if c.name not in ("document", "basis"))).order_by(
            _columns.version.desc()
        )
        if before is not None:
            chosen = chosen.where(_columns.version < before)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.limit(limit)).all()
        return [_record(row) for row in rows]


def _record(row: object) -> ConfigurationRecord:
    fields = row._mapping  # type: ignore[attr-defined]
    since = fields["in_force_seconds"]
    return ConfigurationRecord(
        version=fields["version"],
        state=fields["state"],
        reason=fields["reason"],
        through_change=fields["through_change"],
        created_at=datetime.fromtimestamp(fields["created_seconds"], UTC),
        planned_seconds=fields["planned_seconds"],
        pushed_seconds=fields["pushed_seconds"],
        in_force_at=None if since is None else datetime.fromtimestamp(since, UTC),
        error=fields["error"],
    )


def _basis_bytes(basis: Basis) -> bytes:
    plain = {topic: to_plain(rate) for topic, rate in basis.rates.items()}
    return zlib.compress(json.dumps(plain).encode(), 1)


def _basis_from(kept: bytes | None) -> Basis:
    plain = json.loads(zlib.decompress(kept)) if kept else {}
    return Basis({topic: from_plain(BasisRate, rate) for topic, rate in plain.items()})
