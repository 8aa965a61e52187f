"""The persistent sessions of clients and their filters in an SQLite file, for the next start.

Changes are collected in the thread of the table and written by a second one, many in one
transaction, so that relaying never waits for the disk. A change is on disk a few milliseconds after
it was made; a gateway that is killed loses at most those.
"""

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from firedex.gateway.interest import StoredSession

__all__ = ["InterestStore", "StateFileError"]

log = logging.getLogger("firedex.gateway")

LOCK_SECONDS = 1.0
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE session (
    client_id TEXT PRIMARY KEY,
    expiry_seconds INTEGER NOT NULL,
    expires_at REAL,  -- seconds since the epoch; null while the client is connected
    unknown INTEGER NOT NULL,
    over_limit INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE filter (
    client_id TEXT NOT NULL,
    name TEXT NOT NULL,
    qos INTEGER NOT NULL,
    PRIMARY KEY (client_id, name)
) WITHOUT ROWID;
"""
SAVE_SESSION = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?)"
SAVE_FILTER = "INSERT OR REPLACE INTO filter VALUES (?, ?, ?)"
Change = tuple[str, tuple[str | int | float | None, ...]]
"""An SQL statement and its parameters."""


class StateFileError(Exception):
    """The state file cannot be opened."""


class InterestStore:
    """The state file. `write` may run in another thread than the rest, once at a time."""

    def __init__(self, path: Path, wall_clock: Callable[[], float] = time.time) -> None:
        self._path, self._wall_clock = path, wall_clock
        self.on_change: Callable[[], None] | None = None
        self._changes: list[Change] = []
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError as error:
            raise StateFileError(f"cannot open the state file {path}: {error}") from error

    def load(self) -> list[StoredSession]:
        """Return the sessions of the earlier run."""
        now = self._wall_clock()
        filters: dict[str, list[tuple[str, int]]] = {}
        for client_id, name, qos in self._database.execute("SELECT * FROM filter"):
            filters.setdefault(client_id, []).append((name, qos))
        return [
            StoredSession(
                client_id=client_id,
                expiry_seconds=expiry_seconds,
                expires_in_seconds=None if expires_at is None else max(0.0, expires_at - now),
                unknown=bool(unknown),
                over_limit=bool(over_limit),
                filters=tuple(filters.get(client_id, ())),
            )
            for client_id, expiry_seconds, expires_at, unknown, over_limit in (
                self._database.execute("SELECT * FROM session")
            )
        ]

    # -- changes, as in `SessionLog` ---------------------------------------------------------------

    def save_session(self, session: StoredSession) -> None:
        """Record a session without its filters."""
        self._add(SAVE_SESSION, *self._session_row(session))

    def remove_session(self, client_id: str) -> None:
        """Remove a session and its filters."""
        self._add("DELETE FROM session WHERE client_id = ?", client_id)
        self._add("DELETE FROM filter WHERE client_id = ?", client_id)

    def save_filter(self, client_id: str, name: str, qos: int) -> None:
        """Record a filter of a session."""
        self._add(SAVE_FILTER, client_id, name, qos)

    def remove_filter(self, client_id: str, name: str) -> None:
        """Remove a filter of a session."""
        self._add("DELETE FROM filter WHERE client_id = ? AND name = ?", client_id, name)

    def replace_all(self, sessions: list[StoredSession]) -> None:
        """Record exactly these sessions, after `write` failed."""
        self._changes.clear()
        self._add("DELETE FROM session")
        self._add("DELETE FROM filter")
        for session in sessions:
            self._add(SAVE_SESSION, *self._session_row(session))
            for name, qos in session.filters:
                self._add(SAVE_FILTER, session.client_id, name, qos)

    def _add(self, statement: str, *parameters: str | int | float | None) -> None:
        self._changes.append((statement, parameters))
        if len(self._changes) == 1 and self.on_change is not None:
            self.on_change()

    def _session_row(self, session: StoredSession) -> tuple[str | int | float | None, ...]:
        expires_in = session.expires_in_seconds
        expires_at = None if expires_in is None else self._wall_clock() + expires_in
        flags = int(session.unknown), int(session.over_limit)
        return session.client_id, session.expiry_seconds, expires_at, *flags

    # -- the file ----------------------------------------------------------------------------------

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call, for `write`."""
        changes, self._changes = self._changes, []
        return changes

    def write(self, changes: list[Change]) -> None:
        """Write changes to the disk; raise `sqlite3.Error` if that fails."""
        with self._database:
            for statement, parameters in changes:
                self._database.execute(statement, parameters)

    def close(self) -> None:
        """Write what is left, and close the file."""
        try:
            self.write(self.take_changes())
        except sqlite3.Error as error:
            log.error("cannot write the state file %s: %s", self._path, error)  # noqa: TRY400
        self._database.close()


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _open_current(path)
    except sqlite3.OperationalError:
        raise  # no such folder, no permission, disk full: for the operator to repair
    except sqlite3.DatabaseError as error:
        # A site must start without it. Clients whose sessions are lost here count as unknown.
        aside = path.with_name(f"{path.name}.damaged")
        log.error("%s is damaged (%s); it is renamed to %s", path, error, aside.name)  # noqa: TRY400
        path.replace(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _open_current(path)


def _open_current(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False)
    try:
        _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection) -> None:
    # A second gateway with the same file is refused.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    # Each transaction is on disk when it is committed.
    database.execute("PRAGMA synchronous = FULL")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        database.executescript(
            f"BEGIN EXCLUSIVE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    elif version != SCHEMA_VERSION:
        raise sqlite3.OperationalError(
            f"it has version {version}, but this version of FireDeX uses {SCHEMA_VERSION}"
        )
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
