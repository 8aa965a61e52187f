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

    def next_version(self) -> int:
        """A number that no configuration had before, also not before a restart."""
        with self._database.reading() as connection:
            return int(connection.execute(select(func.max(_columns.version))).scalar() or 0) + 1

    def keep_planned(
        self,
        document: ConfigurationDocument,
        *,
        version: int,
        through_change: int,
        reason: str,
        basis: Basis,
        planned_seconds: float,
    ) -> None:
        """Keep a configuration before the network is told of it."""
        kept = document.to_bytes()
        with self._database.writing() as connection:
            connection.execute(
                insert(tables.configuration).values(
                    version=version,
                    state=PLANNED,
                    through_change=through_change,
                    created_seconds=time.time(),
                    reason=reason,
                    document=kept,
                    basis=_basis_bytes(basis),
                    planned_seconds=planned_seconds,
                )
            )

    def activate(self, version: int, pushed_seconds: float) -> None:
        """The network follows it: it is in force, and the one before is not."""
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.state == IN_FORCE)
                .values(state=REPLACED)
            )
            connection.execute(
                update(tables.configuration)
                .where(_columns.version == version)
                .values(
                    state=IN_FORCE,
                    pushed_seconds=pushed_seconds,
                    in_force_seconds=time.time(),
                    error=None,
                )
            )

    def fail(self, version: int, error: str) -> None:
        """The network did not take it."""
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.version == version)
                .values(state=FAILED, error=error)
            )

    def fail_without_plan(self, version: int, through_change: int, reason: str, why: str) -> None:
        """No plan came out at all."""
        with self._database.writing() as connection:
            connection.execute(
                insert(tables.configuration).values(
                    version=version,
                    state=FAILED,
                    through_change=through_change,
                    created_seconds=time.time(),
                    reason=reason,
                    error=why,
                )
            )

    def in_force(self) -> InForce | None:
        """What is in force, also after a restart."""
        with self._database.reading() as connection:
            return self._load(connection, _columns.state == IN_FORCE)

    def planned(self) -> InForce | None:
        """What was about to be pushed last, if the service ended before it knew what became of it.

        ``in_force_seconds`` has no meaning for it.
        """
        with self._database.reading() as connection:
            return self._load(connection, _columns.state == PLANNED)

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
        chosen = select(
            *(c for c in _columns if c.name not in ("document", "basis"))
        ).order_by(_columns.version.desc())
        if before is not None:
            chosen = chosen.where(_columns.version < before)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.limit(limit)).all()
        return [_record(row) for row in rows]

    def prune(self, keep_documents: int) -> None:
        """Let go of the documents of failed plans that nobody can go back to."""
        with self._database.writing() as connection:
            newest = connection.execute(select(func.max(_columns.version))).scalar() or 0
            connection.execute(
                update(tables.configuration)
                .where(_columns.state == FAILED, _columns.version <= newest - keep_documents)
                .values(document=None)
            )


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
