"""Measurements of each class in steps of ten seconds, kept for one day."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import BigInteger, Connection, Float, cast, delete, func, insert, select, update

from firedex.dashboard.flow_measurements import credible_part
from firedex.service.state import tables
from firedex.service.state.database import Database
from firedex.wire import Statistics
from firedex.wire.overview import ClassHistory
from firedex.wire.service_api import count_numbered_events

__all__ = [
    "STEP_SECONDS",
    "ReportedFlow",
    "add_missing",
    "add_reports",
    "history",
    "step_seconds",
]

LARGEST_COUNT = 2**53 - 1
STEP_SECONDS = 10.0
RETENTION_SECONDS = 24 * 3600.0
_column = tables.class_history.c


@dataclass(frozen=True, slots=True)
class ReportedFlow:
    """The class of a reported flow, and its predicted offered rate."""

    priority: int
    offered_per_second: float


@dataclass(slots=True)
class _ClassCounts:
    """The sum of several reports for one class."""

    version: int = 0
    delivered: int = 0
    numbered: int = 0
    missing: int = 0
    timed: int = 0
    delay_sum_seconds: float = 0.0
    delay_p95_seconds: float | None = None

    def add(self, report: Statistics, part: float) -> None:
        counts = (_delivered(report), *count_numbered_events(report.topics))
        delivered, numbered, missing = (round(part * count) for count in counts)
        self.version = max(self.version, report.configuration_version)
        self.delivered = _limit(self.delivered + delivered)
        self.numbered = _limit(self.numbered + numbered)
        self.missing = _limit(self.missing + missing)
        if report.delay_mean_seconds is not None:
            self.timed = _limit(self.timed + delivered)
            self.delay_sum_seconds += delivered * report.delay_mean_seconds
        if report.delay_p95_seconds is not None:
            self.delay_p95_seconds = max(self.delay_p95_seconds or 0.0, report.delay_p95_seconds)


def _limit(count: int) -> int:
    """Limit a sum, so that one client with absurd numbers cannot break the statistics."""
    return min(count, LARGEST_COUNT)


def _delivered(report: Statistics) -> int:
    return sum(count.delivered_events or 0 for count in report.topics)


def _credible_part(reports: Sequence[Statistics], offered_per_second: float) -> float:
    """Return the credible part of all reports of one flow together."""
    events = sum(_delivered(each) + count_numbered_events(each.topics)[1] for each in reports)
    seconds = sum(report.window_seconds for report in reports)
    return credible_part(events, offered_per_second, seconds)


def add_reports(
    connection: Connection,
    reports: Sequence[Statistics],
    flow_of: Callable[[Statistics], ReportedFlow | None],
    now_seconds: float,
) -> None:
    """Add the reports of clients about their own flows to the present step of each class."""
    classes: dict[int, _ClassCounts] = {}
    by_flow: dict[tuple[str, int], list[Statistics]] = {}
    for report in reports:
        if report.reporter == report.subscriber:
            by_flow.setdefault((report.subscriber, report.flow), []).append(report)
    for group in by_flow.values():
        known = [(report, flow) for report in group if (flow := flow_of(report)) is not None]
        if not known:
            continue
        counted = classes.setdefault(known[0][1].priority, _ClassCounts())
        part = _credible_part([report for report, _ in known], known[0][1].offered_per_second)
        for report, _ in known:
            counted.add(report, part)
    _add(connection, classes, now_seconds)


def add_missing(
    connection: Connection, events: Mapping[int, float], version: int, now_seconds: float
) -> None:
    """Add events of each class that were not delivered and could not be reported."""
    classes = {
        priority: _ClassCounts(version=version, missing=_limit(round(missing)))
        for priority, missing in events.items()
        if missing >= 1
    }
    _add(connection, classes, now_seconds)


def _add(connection: Connection, classes: Mapping[int, _ClassCounts], now_seconds: float) -> None:
    at = now_seconds // STEP_SECONDS * STEP_SECONDS
    for priority, counted in classes.items():
        _write(connection, at, priority, counted)
    if classes:
        too_old = _column.at_seconds < now_seconds - RETENTION_SECONDS
        connection.execute(delete(tables.class_history).where(too_old))


def _write(connection: Connection, at: float, priority: int, counted: _ClassCounts) -> None:
    where = (_column.at_seconds == at) & (_column.priority == priority)
    known = connection.execute(select(tables.class_history).where(where)).first()
    if known is None:
        connection.execute(
            insert(tables.class_history).values(at_seconds=at, priority=priority, **asdict(counted))
        )
        return
    p95 = [p for p in (known.delay_p95_seconds, counted.delay_p95_seconds) if p is not None]
    connection.execute(
        update(tables.class_history)
        .where(where)
        .values(
            version=max(known.version, counted.version),
            delivered=_limit(known.delivered + counted.delivered),
            numbered=_limit(known.numbered + counted.numbered),
            missing=_limit(known.missing + counted.missing),
            timed=_limit(known.timed + counted.timed),
            delay_sum_seconds=known.delay_sum_seconds + counted.delay_sum_seconds,
            delay_p95_seconds=max(p95, default=None),
        )
    )


def history(
    database: Database, from_seconds: float, to_seconds: float, most_steps: int
) -> list[ClassHistory]:
    """Return the steps between two times; the 95th percentile is that of the worst flow.

    Steps have ten seconds, or a multiple of it so that there are at most ``most_steps``.
    """
    length = step_seconds(min(to_seconds - from_seconds, RETENTION_SECONDS), most_steps)
    step = (cast(_column.at_seconds, BigInteger) // length).label("step")
    total = {
        name: func.sum(cast(_column[name], Float)).label(name)
        for name in ("delivered", "numbered", "missing", "timed", "delay_sum_seconds")
    }
    chosen = (
        select(
            step,
            _column.priority,
            func.max(_column.version).label("version"),
            *total.values(),
            func.max(_column.delay_p95_seconds).label("delay_p95_seconds"),
        )
        .where(_column.at_seconds >= from_seconds, _column.at_seconds <= to_seconds)
        .group_by(step, _column.priority)
        .order_by(step, _column.priority)
    )
    with database.reading() as connection:
        rows = connection.execute(chosen).all()
    return [
        ClassHistory(
            at=datetime.fromtimestamp(row.step * length, UTC),
            seconds=length,
            priority=row.priority,
            configuration_version=row.version,
            delivered_events=_limit(int(row.delivered)),
            missing_events=_limit(int(row.missing)) if row.numbered or row.missing else None,
            success_rate=_share(row.numbered, row.numbered + row.missing),
            delay_mean_seconds=row.delay_sum_seconds / row.timed if row.timed else None,
            delay_p95_seconds=row.delay_p95_seconds,
        )
        for row in rows
    ]


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def step_seconds(seconds: float, most_steps: int) -> int:
    """Return the length of a step so that at most ``most_steps`` cover ``seconds``."""
    several = math.ceil(seconds / STEP_SECONDS / most_steps)
    return int(STEP_SECONDS) * max(several, 1)
