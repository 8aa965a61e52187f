"""Stores every configuration with its version, state, reason, times and document."""

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select, update

from firedex.service.errors import LockLost
from firedex.service.state import tables
from firedex.service.state.configuration_document import ConfigurationDocument
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import RateSnapshot, SnapshotRate
from firedex.wire import from_plain, to_plain
from firedex.wire.service_api import ConfigurationRecord

__all__ = ["ActiveConfiguration", "ConfigurationStore"]

_columns = tables.configuration.c
PLANNED, ACTIVE, REPLACED, FAILED = "planned", "active", "replaced", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveConfiguration:
    """The active configuration, and the last change that it includes."""

    version: int
    through_change: int
    since_seconds: float
    document: ConfigurationDocument
    rate_snapshot: RateSnapshot


class ConfigurationStore:
    """Configurations in ``database``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, *, through_change: int, reason: str, planned_seconds: float) -> int:
        """Store a new, unused version before the push and return it."""
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
        self,
        version: int,
        document: ConfigurationDocument,
        rate_snapshot: RateSnapshot,
        pushed_seconds: float,
    ) -> float:
        """Make a pushed configuration the active one and return the time.

        Raises `LockLost` if another planner has marked it as failed.
        """
        stored = document.to_bytes()
        now = time.time()
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration).where(_columns.state == ACTIVE).values(state=REPLACED)
            )
            updated = connection.execute(
                update(tables.configuration)
                .where(_columns.version == version, _columns.state == PLANNED)
                .values(
                    state=ACTIVE,
                    document=stored,
                    rate_snapshot=_snapshot_bytes(rate_snapshot),
                    pushed_seconds=pushed_seconds,
                    active_since_seconds=now,
                )
            )
            if updated.rowcount == 0:
                raise LockLost
        return now

    def fail(self, version: int, error: str) -> None:
        """Mark a configuration as failed."""
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.version == version)
                .values(state=FAILED, error=error.replace("\0", "\N{REPLACEMENT CHARACTER}"))
            )

    def fail_unfinished(self) -> None:
        """Mark configurations as failed whose push was interrupted by the end of the service."""
        with self._database.writing() as connection:
            connection.execute(
                update(tables.configuration)
                .where(_columns.state == PLANNED)
                .values(state=FAILED, error="the service ended before it became active")
            )

    def active(self) -> ActiveConfiguration | None:
        """Return the active configuration; None before the first."""
        with self._database.reading() as connection:
            return self._load(connection, _columns.state == ACTIVE)

    def active_version(self) -> int:
        """Return the version of the active configuration; 0 before the first."""
        with self._database.reading() as connection:
            chosen = select(func.max(_columns.version)).where(_columns.state == ACTIVE)
            return int(connection.execute(chosen).scalar() or 0)

    def _load(self, connection: Connection, where: object) -> ActiveConfiguration | None:
        row = connection.execute(
            select(tables.configuration)
            .where(where)  # type: ignore[arg-type]
            .order_by(_columns.version.desc())
            .limit(1)
        ).first()
        if row is None or row.document is None:
            return None
        return ActiveConfiguration(
            version=row.version,
            through_change=row.through_change,
            since_seconds=row.active_since_seconds or row.created_seconds,
            document=ConfigurationDocument.from_bytes(row.document),
            rate_snapshot=_snapshot_from(row.rate_snapshot),
        )

    def document(self, version: int) -> ConfigurationDocument | None:
        """Return the document of a version; None if it is unknown or planning failed."""
        with self._database.reading() as connection:
            stored = connection.execute(
                select(_columns.document).where(_columns.version == version)
            ).scalar()
        return ConfigurationDocument.from_bytes(stored) if stored else None

    def records(self, before: int | None, limit: int) -> Sequence[ConfigurationRecord]:
        """Return up to ``limit`` records, newest first, older than the version ``before``."""
        chosen = select(
            *(c for c in _columns if c.name not in ("document", "rate_snapshot"))
        ).order_by(_columns.version.desc())
        if before is not None:
            chosen = chosen.where(_columns.version < before)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.limit(limit)).all()
        return [_record(row) for row in rows]


def _record(row: object) -> ConfigurationRecord:
    fields = row._mapping  # type: ignore[attr-defined]
    since = fields["active_since_seconds"]
    return ConfigurationRecord(
        version=fields["version"],
        state=fields["state"],
        reason=fields["reason"],
        through_change=fields["through_change"],
        created_at=datetime.fromtimestamp(fields["created_seconds"], UTC),
        planned_seconds=fields["planned_seconds"],
        pushed_seconds=fields["pushed_seconds"],
        activated_at=None if since is None else datetime.fromtimestamp(since, UTC),
        error=fields["error"],
    )


def _snapshot_bytes(rate_snapshot: RateSnapshot) -> bytes:
    plain = {topic: to_plain(rate) for topic, rate in rate_snapshot.rates.items()}
    return zlib.compress(json.dumps(plain).encode(), 1)


def _snapshot_from(stored: bytes | None) -> RateSnapshot:
    plain = json.loads(zlib.decompress(stored)) if stored else {}
    return RateSnapshot({topic: from_plain(SnapshotRate, rate) for topic, rate in plain.items()})
