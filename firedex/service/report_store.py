"""Statistics and heartbeats: kept for a while, and made into offered rates of topics."""

import time
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import Connection, delete, func, insert, select

from firedex.service import tables
from firedex.service.database import Database
from firedex.service.offered_rates import OfferedRate, Window, observe
from firedex.wire import Heartbeat, Statistics, from_json, to_json
from firedex.wire.mqtt_names import matches
from firedex.wire.service_api import KeptHeartbeat

__all__ = ["GATEWAY", "ReportStore", "offered_windows"]

GATEWAY = "gateway"
MOST_STATISTICS = 100_000
MOST_TOPICS = 100_000
MOST_PARTS = 20_000
FiltersOf = Callable[[str, int], tuple[str, ...]]
"""The filters of a subscriber's flow."""


def offered_windows(
    reports: Iterable[Statistics],
    now_seconds: float,
    measured: Iterable[str] = (),
    filters_of: FiltersOf = lambda _subscriber, _flow: (),
) -> dict[str, Window]:
    """What the gateway counted of each topic, before any drop.

    Every flow that carries a topic sees all of it; the one that saw most was connected throughout.
    A flow reports whatever it saw: of the ``measured`` topics that its filters match, those that it
    does not name had no event.
    """
    windows: dict[str, Window] = {}
    heard: dict[str, float] = {}
    for report in reports:
        if report.reporter != GATEWAY:
            continue
        for name in filters_of(report.subscriber, report.flow):
            heard[name] = max(heard.get(name, 0.0), report.window_seconds)
        for count in report.topics:
            if count.offered_events is None:
                continue
            window = Window(
                events=count.offered_events,
                payload_bytes=count.payload_bytes,
                seconds=report.window_seconds,
                at_seconds=now_seconds,
            )
            known = windows.get(count.topic)
            if known is None or window.events / window.seconds > known.events / known.seconds:
                windows[count.topic] = window
    for topic in measured:
        if topic in windows:
            continue
        seconds = max((w for name, w in heard.items() if matches(name, topic)), default=0.0)
        if seconds > 0:
            windows[topic] = Window(
                events=0, payload_bytes=0, seconds=seconds, at_seconds=now_seconds
            )
    return windows


class ReportStore:
    """Reports in ``database``, bounded: the oldest make room."""

    def __init__(
        self, database: Database, filters_of: FiltersOf = lambda _subscriber, _flow: ()
    ) -> None:
        self._database = database
        self._filters_of = filters_of

    def keep(self, reports: Sequence[Statistics], *, trusted: bool) -> bool:
        """Keep reports; those of a ``trusted`` gateway count as measurements. True if any did."""
        now = time.time()
        windows: dict[str, Window] = {}
        with self._database.writing() as connection:
            if reports:
                connection.execute(
                    insert(tables.statistic),
                    [
                        {
                            "at_seconds": now,
                            "reporter": report.reporter,
                            "subscriber": report.subscriber,
                            "flow": report.flow,
                            "body": to_json(report),
                        }
                        for report in reports
                    ],
                )
            if trusted:
                windows = self._measure(connection, reports, now)
            newest = connection.execute(select(func.max(tables.statistic.c.number))).scalar()
            connection.execute(
                delete(tables.statistic).where(
                    tables.statistic.c.number <= (newest or 0) - MOST_STATISTICS
                )
            )
        return bool(windows)

    def _measure(
        self, connection: Connection, reports: Sequence[Statistics], now: float
    ) -> dict[str, Window]:
        known = {
            row.topic: from_json(OfferedRate, row.body, tolerant=True)
            for row in connection.execute(select(tables.measured)).all()
        }
        windows = offered_windows(reports, now, known, self._filters_of)
        for topic, window in windows.items():
            if topic not in known and len(known) >= MOST_TOPICS:
                continue
            rate = observe(known.get(topic), window)
            connection.execute(delete(tables.measured).where(tables.measured.c.topic == topic))
            connection.execute(insert(tables.measured).values(topic=topic, body=to_json(rate)))
            known[topic] = rate
        return windows

    def statistics(
        self, subscriber: str | None, before: int | None, limit: int
    ) -> Sequence[Statistics]:
        """What was reported, newest first."""
        column = tables.statistic.c
        chosen = select(column.body).order_by(column.number.desc()).limit(limit)
        if subscriber is not None:
            chosen = chosen.where(column.subscriber == subscriber)
        if before is not None:
            chosen = chosen.where(column.number < before)
        with self._database.reading() as connection:
            bodies = list(connection.execute(chosen).scalars())
        return [from_json(Statistics, body, tolerant=True) for body in bodies]

    def latest_of_clients(self, since_seconds: float) -> Sequence[tuple[float, Statistics]]:
        """The last report of each flow by its own subscriber, with when it came."""
        column = tables.statistic.c
        newest = (
            select(func.max(column.number).label("number"))
            .where(column.at_seconds >= since_seconds, column.reporter == column.subscriber)
            .group_by(column.subscriber, column.flow)
            .subquery()
        )
        with self._database.reading() as connection:
            rows = connection.execute(
                select(column.at_seconds, column.body)
                .join(newest, column.number == newest.c.number)
                .order_by(column.number)
            ).all()
        return [(row.at_seconds, from_json(Statistics, row.body, tolerant=True)) for row in rows]

    def beat(self, heartbeat: Heartbeat) -> None:
        """A part is alive."""
        parts = tables.heartbeat
        with self._database.writing() as connection:
            connection.execute(delete(parts).where(parts.c.part == heartbeat.part))
            there = connection.execute(select(func.count()).select_from(parts)).scalar_one()
            if there >= MOST_PARTS:
                oldest = select(func.min(parts.c.at_seconds)).scalar_subquery()
                connection.execute(delete(parts).where(parts.c.at_seconds <= oldest))
            connection.execute(
                insert(parts).values(
                    part=heartbeat.part, at_seconds=time.time(), body=to_json(heartbeat)
                )
            )

    def heartbeats(self) -> Sequence[KeptHeartbeat]:
        """The last of each part."""
        now = time.time()
        with self._database.reading() as connection:
            rows = connection.execute(
                select(tables.heartbeat).order_by(tables.heartbeat.c.part)
            ).all()
        return [
            KeptHeartbeat(
                heartbeat=from_json(Heartbeat, row.body, tolerant=True),
                seconds_ago=max(now - row.at_seconds, 0.0),
            )
            for row in rows
        ]
