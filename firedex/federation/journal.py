"""The journal of a federator: what must survive a crash, in SQLite with group commit.

Operations are submitted from the event loop and executed by one thread. All operations that wait
when the thread is free are committed together, then their callbacks are called in the event loop.
An event is acknowledged to the broker, sent to other sites or acknowledged to its origin only in
such a callback.
"""

import logging
import queue
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from firedex.federation.frames import EventId

__all__ = [
    "Journal",
    "JournalError",
    "JournalState",
    "MemoryJournal",
    "Operation",
    "OutgoingPublish",
    "SqliteJournal",
    "StoredEvent",
    "StoredValue",
    "merge_operations",
]

log = logging.getLogger("firedex.federation")
_INVALID_OPERATION = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    OverflowError,
    TypeError,
    ValueError,
)
"""Errors that would occur again at each attempt; all others may pass, such as a full disk."""

Operation = tuple[str, tuple[Any, ...]]
Done = Callable[[], None]

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (
  epoch INTEGER, number INTEGER, received_at REAL NOT NULL, content BLOB NOT NULL,
  PRIMARY KEY (epoch, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS destinations (
  site TEXT, epoch INTEGER, number INTEGER, qos INTEGER NOT NULL,
  PRIMARY KEY (site, epoch, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS destinations_by_event ON destinations (epoch, number);
CREATE TABLE IF NOT EXISTS delivered (
  origin TEXT PRIMARY KEY, epoch INTEGER NOT NULL, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS finished (
  origin TEXT, epoch INTEGER, number INTEGER,
  PRIMARY KEY (origin, epoch, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS received_packets (packet_id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS outgoing (
  packet_id INTEGER PRIMARY KEY, origin TEXT NOT NULL, epoch INTEGER NOT NULL,
  number INTEGER NOT NULL, released INTEGER NOT NULL, packet BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS outgoing_by_event ON outgoing (origin, epoch, number);
CREATE TABLE IF NOT EXISTS retained (
  topic BLOB PRIMARY KEY, stamp INTEGER NOT NULL, site TEXT NOT NULL, content BLOB NOT NULL,
  changed_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS interest (
  site TEXT, filter TEXT, qos INTEGER NOT NULL, PRIMARY KEY (site, filter)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (
  filter TEXT PRIMARY KEY, qos INTEGER NOT NULL) WITHOUT ROWID;
"""
FORMAT_VERSION = 1
MAX_ROWS = 64
"""Rows in one INSERT statement."""
_TABLE = re.compile(r"(?:INSERT (?:OR REPLACE )?INTO|DELETE FROM|UPDATE) (\w+)")
_INSERT = re.compile(r"INSERT (?:OR REPLACE )?INTO \w+ VALUES \([?0-9, ]+\)")


class JournalError(Exception):
    """The journal file cannot be used."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event that is not acknowledged by all destinations: its content, and QoS by site."""

    id: EventId
    received_at: float
    content: bytes
    destinations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OutgoingPublish:
    """A QoS 2 publication to the local broker that is not complete."""

    packet_id: int
    origin: str
    id: EventId
    released: bool
    packet: bytes


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A retained value or tombstone; ``content`` is an encoded event."""

    stamp: int
    site: str
    content: bytes
    changed_at: float


@dataclass(slots=True)
class JournalState:
    """The content of a journal when the federator starts."""

    epoch: int = 0
    events: list[StoredEvent] = field(default_factory=list)
    delivered: dict[str, EventId] = field(default_factory=dict)
    finished: list[tuple[str, EventId]] = field(default_factory=list)
    """QoS 2 events that are delivered although events of the same origin before them are not."""
    received_packets: set[int] = field(default_factory=set)
    outgoing: list[OutgoingPublish] = field(default_factory=list)
    retained: dict[bytes, StoredValue] = field(default_factory=dict)
    interest: dict[str, dict[str, int]] = field(default_factory=dict)
    subscriptions: dict[str, int] = field(default_factory=dict)


class Journal(Protocol):
    """Where a federator writes what must survive."""

    def load(self) -> JournalState:
        """Return the content at the start."""

    def submit(self, operations: Sequence[Operation], done: Done | None = None) -> None:
        """Execute operations in one transaction; call ``done`` when they are committed."""


class MemoryJournal:
    """A journal for tests and for federators without a state file: commits at once."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.executescript(_TABLES)

    def load(self) -> JournalState:
        """Return the content at the start."""
        return _load(self._connection)

    def submit(self, operations: Sequence[Operation], done: Done | None = None) -> None:
        """Execute the operations and call ``done``."""
        for sql, values in operations:
            self._connection.execute(sql, values)
        if done is not None:
            done()


class SqliteJournal:
    """A journal in a file, written by one thread."""

    def __init__(self, path: Path, call_in_loop: Callable[[Callable[[], None]], Any]) -> None:
        self._path, self._call_in_loop = path, call_in_loop
        self._queue: queue.SimpleQueue[tuple[Sequence[Operation], Done | None] | None] = (
            queue.SimpleQueue()
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=5.0
            )
            path.chmod(0o600)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, FORMAT_VERSION):
                raise JournalError(
                    f"{path}: the journal has format {version}; this version reads {FORMAT_VERSION}"
                )
            self._connection.executescript(_TABLES)
            self._connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            # a second process with the same journal would send the same events
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"cannot use the journal {path}: {error}") from error
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def load(self) -> JournalState:
        """Return the content at the start."""
        return _load(self._connection)

    def submit(self, operations: Sequence[Operation], done: Done | None = None) -> None:
        """Execute operations in one transaction; call ``done`` in the loop when committed."""
        self._queue.put((operations, done))

    def close(self) -> None:
        """Write everything that was submitted, and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _write(self) -> None:
        ending = False
        while not ending:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            ending = None in batch
            work = [entry for entry in batch if entry is not None]
            try:
                self._commit_when_possible(work, ending=ending)
            except _INVALID_OPERATION:
                for entry in work:  # one of them is not valid; the others must not suffer
                    try:
                        self._commit_when_possible([entry], ending=ending)
                    except _INVALID_OPERATION:
                        log.exception("internal error: the journal cannot execute %s", entry[0])

    def _commit_when_possible(
        self, work: list[tuple[Sequence[Operation], Done | None]], *, ending: bool
    ) -> None:
        while work and not self._commit(work) and not ending:
            time.sleep(1.0)  # for example a full disk; nothing is acknowledged meanwhile

    def _commit(self, work: list[tuple[Sequence[Operation], Done | None]]) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for sql, values in merge_operations(
                operation for operations, _ in work for operation in operations
            ):
                self._connection.execute(sql, values)
            self._connection.execute("COMMIT")
        except _INVALID_OPERATION:
            self._roll_back()
            raise
        except sqlite3.Error as error:
            self._roll_back()
            self.failure = f"cannot write the journal {self._path}: {error}"
            return False
        self.failure = None
        callbacks = [done for _, done in work if done is not None]
        if callbacks:
            self._call_in_loop(lambda: _call_all(callbacks))
        return True

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")


def _call_all(callbacks: Sequence[Done]) -> None:
    """Call each callback; an error in one does not keep the others from being called."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("internal error after a commit of the journal")


def merge_operations(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Return operations with the same effect, with many rows in one INSERT statement.

    The thread that writes gives up the interpreter lock at each statement, and may wait several
    milliseconds for it while events are handled, so fewer statements are faster. Operations on one
    table stay in order; the tables do not depend on each other.
    """
    by_table: dict[str, list[Operation]] = {}
    for operation in operations:
        by_table.setdefault(_table_of(operation[0]), []).append(operation)
    for found in by_table.values():
        for sql, run in groupby(found, key=itemgetter(0)):
            rows = [values for _, values in run]
            if len(rows) == 1 or not _INSERT.fullmatch(sql):
                yield from ((sql, values) for values in rows)
                continue
            yield from _insertions(sql, rows)


def _insertions(sql: str, rows: list[tuple[Any, ...]]) -> Iterator[Operation]:
    """Return statements with 64, 32, … rows; few different ones, so that SQLite reuses them."""
    begin, count = 0, MAX_ROWS
    place = sql[sql.rindex("(") :]
    while begin < len(rows):
        while count > len(rows) - begin:
            count //= 2
        part = rows[begin : begin + count]
        begin += count
        yield sql + f", {place}" * (count - 1), tuple(chain.from_iterable(part))


@cache
def _table_of(sql: str) -> str:
    found = _TABLE.match(sql)
    if found is None:
        raise ValueError(f"no table in {sql!r}")
    return found[1]


def _load(connection: sqlite3.Connection) -> JournalState:
    state = JournalState()
    rows = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    state.epoch = rows[0] if rows else 0
    targets: dict[EventId, dict[str, int]] = {}
    for site, epoch, number, qos in connection.execute("SELECT * FROM destinations"):
        targets.setdefault((epoch, number), {})[site] = qos
    for epoch, number, received_at, content in connection.execute(
        "SELECT * FROM events ORDER BY epoch, number"
    ):
        sites = targets.get((epoch, number))
        if sites:
            state.events.append(StoredEvent((epoch, number), received_at, content, sites))
    for origin, epoch, number in connection.execute("SELECT * FROM delivered"):
        state.delivered[origin] = (epoch, number)
    for origin, epoch, number in connection.execute("SELECT * FROM finished"):
        state.finished.append((origin, (epoch, number)))
    state.received_packets = {
        row[0] for row in connection.execute("SELECT * FROM received_packets")
    }
    for packet_id, origin, epoch, number, released, packet in connection.execute(
        "SELECT * FROM outgoing ORDER BY epoch, number"
    ):
        state.outgoing.append(
            OutgoingPublish(packet_id, origin, (epoch, number), bool(released), packet)
        )
    for topic, stamp, site, content, changed_at in connection.execute("SELECT * FROM retained"):
        state.retained[topic] = StoredValue(stamp, site, content, changed_at)
    for site, name, qos in connection.execute("SELECT * FROM interest"):
        state.interest.setdefault(site, {})[name] = qos
    state.subscriptions = dict(connection.execute("SELECT * FROM subscriptions").fetchall())
    return state
