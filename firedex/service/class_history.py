"""How each class has done, in steps of ten seconds: small enough to keep a day of it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select, update

from firedex.service import tables
from firedex.service.database import Database
from firedex.wire import Statistics
from firedex.wire.overview import ClassHistory

__all__ = ["STEP_SECONDS", "count_in", "history"]

STEP_SECONDS = 10.0
KEPT_SECONDS = 24 * 3600.0
_column = tables.class_history.c


def count_in(
    connection: Connection,
    reports: Sequence[Statistics],
    priority_of: Callable[[str, int], int | None],
    now_seconds: float,
) -> None:
    """Add what clients say of their own flows to the present step."""
    at = now_seconds // STEP_SECONDS * STEP_SECONDS
    counted = False
    for report in reports:
        priority = priority_of(report.subscriber, report.flow)
        if report.reporter != report.subscriber or priority is None:
            continue
        _add(connection, at, priority, report)
        counted = True
    if counted:
        too_old = _column.at_seconds < now_seconds - KEPT_SECONDS
        connection.execute(delete(tables.class_history).where(too_old))


def _add(connection: Connection, at: float, priority: int, report: Statistics) -> None:
    delivered = sum(count.delivered_events or 0 for count in report.topics)
    mean, p95 = report.delay_mean_seconds, report.delay_p95_seconds
    where = (_column.at_seconds == at) & (_column.priority == priority)
    known = connection.execute(select(tables.class_history).where(where)).first()
    timed = delivered if mean is not None else 0
    row = {
        "version": report.configuration_version,
        "delivered": delivered + (known.delivered if known else 0),
        "missing": sum(count.missing_events or 0 for count in report.topics)
        + (known.missing if known else 0),
        "timed": timed + (known.timed if known else 0),
        "delay_sum_seconds": timed * (mean or 0.0) + (known.delay_sum_seconds if known else 0.0),
        "delay_p95_seconds": max(
            (each for each in (p95, known.delay_p95_seconds if known else None) if each is not None),
            default=None,
        ),
    }
    if known:
        connection.execute(update(tables.class_history).where(where).values(**row))
    else:
        connection.execute(
            insert(tables.class_history).values(at_seconds=at, priority=priority, **row)
        )


def history(database: Database, from_seconds: float, to_seconds: float) -> list[ClassHistory]:
    """Every step between two moments, in order; the 95th percentile is the worst flow's."""
    chosen = (
        select(tables.class_history)
        .where(_column.at_seconds >= from_seconds, _column.at_seconds <= to_seconds)
        .order_by(_column.at_seconds, _column.priority)
    )
    with database.reading() as connection:
        rows = connection.execute(chosen).all()
    return [
        ClassHistory(
            at=datetime.fromtimestamp(row.at_seconds, UTC),
            seconds=STEP_SECONDS,
            priority=row.priority,
            configuration_version=row.version,
            delivered_events=row.delivered,
            missing_events=row.missing,
            delay_mean_seconds=row.delay_sum_seconds / row.timed if row.timed else None,
            delay_p95_seconds=row.delay_p95_seconds,
        )
        for row in rows
    ]
