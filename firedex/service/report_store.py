"""Statistics and heartbeats: kept for a while, and made into offered rates of topics."""

import time
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, true

from firedex.service import class_history, tables
from firedex.service.database import Database
from firedex.service.errors import NotYours, TooLarge
from firedex.service.offered_rates import OfferedRate, Window, observe
from firedex.wire import Heartbeat, Statistics, from_json, to_json
from firedex.wire.service_api import KeptHeartbeat
from firedex_models.topic_index import TopicIndex

__all__ = ["GATEWAY", "ReportStore", "offered_windows"]

GATEWAY = "gateway"
MOST_STATISTICS = 100_000
KEPT_SECONDS = 24 * 3600.0
MOST_OF_A_PARTY = 250
MOST_CHARACTERS_OF_A_PARTY = 1_000_000
"""Whatever a party reports makes room for its own next report, not for others'."""
MOST_TOPICS = 100_000
MOST_PARTS = 20_000
MOST_PARTS_OF_A_PARTY = 16
FiltersOf = Callable[[str, int], tuple[str, ...]]
"""The filters of a subscriber's flow."""
FlowOf = Callable[[Statistics], class_history.ReportedFlow | None]
"""The flow that a report is of, if that is known."""


def offered_windows(
    reports: Iterable[Statistics],
    now_seconds: float,
    known: Sequence[str] = (),
    filters_of: FiltersOf = lambda _subscriber, _flow: (),
) -> dict[str, Window]:
    """What the gateway counted of each topic, before any drop.

    Every flow that carries a topic sees all of it; the one that saw most was connected throughout.
    A flow reports whatever it saw: of the ``known`` topics that its filters match, those that it
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
            other = windows.get(count.topic)
            if other is None or window.events / window.seconds > other.events / other.seconds:
                windows[count.topic] = window
    index = TopicIndex(known)
    for name, seconds in sorted(heard.items(), key=itemgetter(1), reverse=True):
        silence = Window(events=0, payload_bytes=0, seconds=seconds, at_seconds=now_seconds)
        for position in index.matching(name).tolist():
            windows.setdefault(known[position], silence)
    return windows


class ReportStore:
    """Reports in ``database``, bounded for each party and in all: the oldest make room."""

    def __init__(
        self,
        database: Database,
        filters_of: FiltersOf = lambda _subscriber, _flow: (),
        flow_of: FlowOf = lambda _report: None,
    ) -> None:
        self._database = database
        self._filters_of, self._flow_of = filters_of, flow_of

    def keep(self, reports: Sequence[Statistics], *, party: str | None = None) -> bool:
        """Keep reports, a ``party``'s or staff's; True if any was a measurement of the gateway."""
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
        if party is not None and any(
            len(str(row["body"])) > MOST_CHARACTERS_OF_A_PARTY for row in rows
        ):
            raise TooLarge(f"a report has at most {MOST_CHARACTERS_OF_A_PARTY} characters")
        if party is not None:
            rows = rows[-MOST_OF_A_PARTY:]
        windows: dict[str, Window] = {}
        with self._database.writing() as connection:
            if rows:
                connection.execute(insert(tables.statistic), rows)
            if party is None:
                windows = self._measure(connection, reports, now)
            else:
                _make_room_of(connection, party)
            class_history.count_in(connection, reports, self._flow_of, now)
            column = tables.statistic.c
            # By place, not by number: numbers are used up by what a party's room was too small for.
            last_kept = select(column.number).order_by(column.number.desc())
            last_kept = last_kept.offset(MOST_STATISTICS - 1).limit(1)
            for too_old in (
                column.number < last_kept.scalar_subquery(),
                column.at_seconds < now - KEPT_SECONDS,
            ):
                connection.execute(delete(tables.statistic).where(too_old))
        return bool(windows)

    def _measure(
        self, connection: Connection, reports: Sequence[Statistics], now: float
    ) -> dict[str, Window]:
        known = {
            row.topic: from_json(OfferedRate, row.body, tolerant=True)
            for row in connection.execute(select(tables.measured)).all()
        }
        # Those that are declared count from the first report on: who declares what nobody
        # publishes is not believed for ever.
        declared = connection.execute(select(tables.topic.c.name)).scalars()
        topics = list(dict.fromkeys((*known, *declared)))
        windows = offered_windows(reports, now, topics, self._filters_of)
        rates: dict[str, OfferedRate] = {}
        room = MOST_TOPICS - len(known)
        for topic, window in windows.items():
            if topic not in known:
                if room <= 0:
                    continue
                room -= 1
            rates[topic] = observe(known.get(topic), window)
        if rates:
            column = tables.measured.c
            connection.execute(
                delete(tables.measured).where(column.topic == bindparam("counted")),
                [{"counted": topic} for topic in rates],
            )
            connection.execute(
                insert(tables.measured),
                [{"topic": topic, "body": to_json(rate)} for topic, rate in rates.items()],
            )
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

    def latest_of_clients(
        self, since_seconds: float, subscriber: str | None = None
    ) -> Sequence[tuple[float, Statistics]]:
        """The last report of each flow by its own subscriber, with when it came."""
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

    def beat(self, heartbeat: Heartbeat, *, party: str | None = None) -> None:
        """A part is alive, as ``party`` or staff says."""
        part = tables.heartbeat.c
        with self._database.writing() as connection:
            known = connection.execute(
                select(part.party).where(part.part == heartbeat.part)
            ).one_or_none()
            own = party in (None, heartbeat.part)  # whoever else has spoken for it
            if not own and known is not None and known.party not in (None, party):
                raise NotYours(f"the part {heartbeat.part!r} is another party's")
            connection.execute(delete(tables.heartbeat).where(part.part == heartbeat.part))
            if party is not None:
                _drop_oldest_part(connection, MOST_PARTS_OF_A_PARTY, part.party == party)
            _drop_oldest_part(connection, MOST_PARTS, true())
            connection.execute(
                insert(tables.heartbeat).values(
                    part=heartbeat.part,
                    at_seconds=time.time(),
                    body=to_json(heartbeat),
                    party=party,
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


def _make_room_of(connection: Connection, reporter: str) -> None:
    """Of one reporter's statistics the newest stay, within their number and their length."""
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
    beyond = select(counted.c.number).where(
        (counted.c.place > MOST_OF_A_PARTY) | (counted.c.characters > MOST_CHARACTERS_OF_A_PARTY)
    )
    connection.execute(delete(tables.statistic).where(column.number.in_(beyond)))


def _drop_oldest_part(connection: Connection, most: int, whose: ColumnElement[bool]) -> None:
    """Make room for one more."""
    part = tables.heartbeat.c
    there = connection.execute(
        select(func.count()).select_from(tables.heartbeat).where(whose)
    ).scalar_one()
    if there >= most:
        oldest = select(part.part).where(whose).order_by(part.at_seconds).limit(1)
        connection.execute(delete(tables.heartbeat).where(part.part.in_(oldest)))
