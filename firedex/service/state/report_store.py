"""Stores statistics and heartbeats for a limited time, and measures the offered rates of topics."""

import time
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, true

from firedex.service.errors import Forbidden, PayloadTooLarge
from firedex.service.state import class_history, tables
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import OfferedRate, Window, observe
from firedex.wire import Heartbeat, Statistics, from_json, to_json
from firedex.wire.service_api import HeartbeatRecord
from firedex_models.topic_index import TopicIndex

__all__ = ["GATEWAY", "ReportStore", "offered_windows"]

GATEWAY = "gateway"
MAX_STATISTICS = 100_000
RETENTION_SECONDS = 24 * 3600.0
MAX_REPORTS_PER_CLIENT = 250
MAX_CHARACTERS_PER_CLIENT = 1_000_000
"""Limits of each client (subscriber or publisher), so that it can only displace its own reports."""
MAX_TOPICS = 100_000
MAX_PARTS = 20_000
MAX_PARTS_PER_CLIENT = 16
FiltersOf = Callable[[str, int], tuple[str, ...]]
"""The filters of a subscriber's flow."""
FlowOf = Callable[[Statistics], class_history.ReportedFlow | None]
"""The flow of a report, if it is known."""


def offered_windows(
    reports: Iterable[Statistics],
    now_seconds: float,
    known: Sequence[str] = (),
    filters_of: FiltersOf = lambda _subscriber, _flow: (),
) -> dict[str, Window]:
    """Return the events of each topic that the gateway counted, before any drop.

    Every flow that carries a topic sees all its events, so the highest count is used: that flow was
    connected all the time. A report names only topics with events, so the other ``known`` topics
    that match the filters of the flow had none.
    """
    windows: dict[str, Window] = {}
    reported_seconds: dict[str, float] = {}
    for report in reports:
        if report.reporter != GATEWAY:
            continue
        for name in filters_of(report.subscriber, report.flow):
            reported_seconds[name] = max(reported_seconds.get(name, 0.0), report.window_seconds)
        for count in report.topics:
            if count.offered_events is None:
                continue
            window = Window(
                events=count.offered_events,
                payload_bytes=count.payload_bytes,
                seconds=report.window_seconds,
                at_seconds=now_seconds,
            )
            other = windows.get(count.topic)
            if other is None or window.events / window.seconds > other.events / other.seconds:
                windows[count.topic] = window
    index = TopicIndex(known)
    for name, seconds in sorted(reported_seconds.items(), key=itemgetter(1), reverse=True):
        empty_window = Window(events=0, payload_bytes=0, seconds=seconds, at_seconds=now_seconds)
        for position in index.matching(name).tolist():
            windows.setdefault(known[position], empty_window)
    return windows


class ReportStore:
    """Reports in ``database``; beyond the limits, the oldest reports are deleted."""

    def __init__(
        self,
        database: Database,
        filters_of: FiltersOf = lambda _subscriber, _flow: (),
        flow_of: FlowOf = lambda _report: None,
    ) -> None:
        self._database = database
        self._filters_of, self._flow_of = filters_of, flow_of

    def store(self, reports: Sequence[Statistics], *, client: str | None = None) -> bool:
        """Store reports; return True if any contains counts of the gateway.

        ``client``: the subscriber that sent them; None for command and operators.
        """
        now = time.time()
        rows = [
            {
                "at_seconds": now,
                "reporter": report.reporter,
                "subscriber": report.subscriber,
                "flow": report.flow,
                "body": to_json(report),
            }
            for report in reports
        ]
        if client is not None and any(
            len(str(row["body"])) > MAX_CHARACTERS_PER_CLIENT for row in rows
        ):
            raise PayloadTooLarge(f"a report has at most {MAX_CHARACTERS_PER_CLIENT} characters")
        if client is not None:
            rows = rows[-MAX_REPORTS_PER_CLIENT:]
        windows: dict[str, Window] = {}
        with self._database.writing() as connection:
            if rows:
                connection.execute(insert(tables.statistic), rows)
            if client is None:
                windows = self._measure(connection, reports, now)
            else:
                _delete_oldest_reports(connection, client)
            class_history.add_reports(connection, reports, self._flow_of, now)
            column = tables.statistic.c
            # Count rows, because the numbers of deleted rows leave gaps.
            last_kept = select(column.number).order_by(column.number.desc())
            last_kept = last_kept.offset(MAX_STATISTICS - 1).limit(1)
            for too_old in (
                column.number < last_kept.scalar_subquery(),
                column.at_seconds < now - RETENTION_SECONDS,
            ):
                connection.execute(delete(tables.statistic).where(too_old))
        return bool(windows)

    def _measure(
        self, connection: Connection, reports: Sequence[Statistics], now: float
    ) -> dict[str, Window]:
        known = {
            row.topic: from_json(OfferedRate, row.body, tolerant=True)
            for row in connection.execute(select(tables.offered_rate)).all()
        }
        # Declared topics without any event count as well, so that a false declaration is corrected.
        declared = connection.execute(select(tables.topic.c.name)).scalars()
        topics = list(dict.fromkeys((*known, *declared)))
        windows = offered_windows(reports, now, topics, self._filters_of)
        rates: dict[str, OfferedRate] = {}
        free = MAX_TOPICS - len(known)
        for topic, window in windows.items():
            if topic not in known:
                if free <= 0:
                    continue
                free -= 1
            rates[topic] = observe(known.get(topic), window)
        if rates:
            column = tables.offered_rate.c
            connection.execute(
                delete(tables.offered_rate).where(column.topic == bindparam("counted")),
                [{"counted": topic} for topic in rates],
            )
            connection.execute(
                insert(tables.offered_rate),
                [{"topic": topic, "body": to_json(rate)} for topic, rate in rates.items()],
            )
        return windows

    def statistics(
        self, subscriber: str | None, before: int | None, limit: int
    ) -> Sequence[Statistics]:
        """Return statistics, newest first."""
        column = tables.statistic.c
        chosen = select(column.body).order_by(column.number.desc()).limit(limit)
        if subscriber is not None:
            chosen = chosen.where(column.subscriber == subscriber)
        if before is not None:
            chosen = chosen.where(column.number < before)
        with self._database.reading() as connection:
            bodies = list(connection.execute(chosen).scalars())
        return [from_json(Statistics, body, tolerant=True) for body in bodies]

    def latest_of_clients(
        self, since_seconds: float, subscriber: str | None = None
    ) -> Sequence[tuple[float, Statistics]]:
        """Return the last report of each flow by its own subscriber, with its time of arrival."""
        column = tables.statistic.c
        chosen = (
            select(func.max(column.number).label("number"))
            .where(column.at_seconds >= since_seconds, column.reporter == column.subscriber)
            .group_by(column.subscriber, column.flow)
        )
        if subscriber is not None:
            chosen = chosen.where(column.subscriber == subscriber)
        newest = chosen.subquery()
        with self._database.reading() as connection:
            rows = connection.execute(
                select(column.at_seconds, column.body)
                .join(newest, column.number == newest.c.number)
                .order_by(column.number)
            ).all()
        return [(row.at_seconds, from_json(Statistics, row.body, tolerant=True)) for row in rows]

    def store_heartbeat(self, heartbeat: Heartbeat, *, client: str | None = None) -> None:
        """Store the heartbeat of a component.

        ``client``: the client that sent it; None for command and operators.
        """
        part = tables.heartbeat.c
        with self._database.writing() as connection:
            known = connection.execute(
                select(part.client).where(part.part == heartbeat.part)
            ).one_or_none()
            own = client in (
                None,
                heartbeat.part,
            )  # allowed, even if another client sent the last one
            if not own and known is not None and known.client not in (None, client):
                raise Forbidden(f"the heartbeats of {heartbeat.part!r} belong to another client")
            connection.execute(delete(tables.heartbeat).where(part.part == heartbeat.part))
            if client is not None:
                _delete_oldest_part(connection, MAX_PARTS_PER_CLIENT, part.client == client)
            _delete_oldest_part(connection, MAX_PARTS, true())
            connection.execute(
                insert(tables.heartbeat).values(
                    part=heartbeat.part,
                    at_seconds=time.time(),
                    body=to_json(heartbeat),
                    client=client,
                )
            )

    def heartbeats(self) -> Sequence[HeartbeatRecord]:
        """Return the last heartbeat of each component."""
        now = time.time()
        with self._database.reading() as connection:
            rows = connection.execute(
                select(tables.heartbeat).order_by(tables.heartbeat.c.part)
            ).all()
        return [
            HeartbeatRecord(
                heartbeat=from_json(Heartbeat, row.body, tolerant=True),
                seconds_ago=max(now - row.at_seconds, 0.0),
            )
            for row in rows
        ]


def _delete_oldest_reports(connection: Connection, reporter: str) -> None:
    """Delete the oldest statistics of a reporter that exceed the limits of number or length."""
    column = tables.statistic.c
    newest_first = column.number.desc()
    counted = (
        select(
            column.number,
            func.row_number().over(order_by=newest_first).label("place"),
            func.sum(func.length(column.body)).over(order_by=newest_first).label("characters"),
        )
        .where(column.reporter == reporter)
        .subquery()
    )
    excess = select(counted.c.number).where(
        (counted.c.place > MAX_REPORTS_PER_CLIENT)
        | (counted.c.characters > MAX_CHARACTERS_PER_CLIENT)
    )
    connection.execute(delete(tables.statistic).where(column.number.in_(excess)))


def _delete_oldest_part(connection: Connection, most: int, where: ColumnElement[bool]) -> None:
    """Delete the oldest heartbeat of the selected components if there are ``most`` of them."""
    part = tables.heartbeat.c
    count = connection.execute(
        select(func.count()).select_from(tables.heartbeat).where(where)
    ).scalar_one()
    if count >= most:
        oldest = select(part.part).where(where).order_by(part.at_seconds).limit(1)
        connection.execute(delete(tables.heartbeat).where(part.part.in_(oldest)))
