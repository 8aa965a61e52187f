"""The database of the state: SQLite by path, PostgreSQL by URL, with the same behaviour.

Write transactions are serialised, and durable when they end. Read transactions see one consistent
snapshot. The planner holds the planner lock, so that a database has one planner.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from firedex.service.errors import LockLost, PlannerAlreadyRunning, StateError
from firedex.service.state.migrations import current_revision, upgrade

__all__ = ["Database", "DatabaseError", "database_url"]

DatabaseError = SQLAlchemyError
"""Raised by all methods while the database cannot be used."""

TIMEOUT_SECONDS = 30
WRITERS, PLANNER = 0x46444558, 0x46444559
"""Keys of PostgreSQL advisory locks: one for all writers, one for the planner."""
POOL = 12
TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Timeouts that detect a PostgreSQL server that no longer answers."""
HOLDS_PLANNER_LOCK = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND pid = pg_backend_pid() AND classid = 0 AND objid = :planner"
).bindparams(planner=PLANNER)


def database_url(state: str) -> str:
    """Return the SQLAlchemy URL for a path or a postgresql:// URL."""
    scheme, separator, rest = state.partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        return f"postgresql+psycopg://{rest}"
    if separator:
        raise StateError(
            f"{scheme}:// is not supported for the state; give the path of a file, or "
            "postgresql://USER@HOST/DATABASE"
        )
    return f"sqlite:///{Path(state).absolute()}"


class Database:
    """Opens the database at ``state`` and upgrades its schema; creates it unless ``must_exist``."""

    def __init__(self, state: str, *, must_exist: bool = False) -> None:
        self.url = database_url(state)
        self._sqlite = self.url.startswith("sqlite")
        self._writer = threading.Lock()
        if must_exist and self._sqlite and not Path(state).exists():
            raise StateError(_missing(state))
        try:
            if self._sqlite:
                _make_private(Path(state).absolute())
            self._engine = self._open()
            self._prepare(state, must_exist)
        except (SQLAlchemyError, ValueError) as error:
            raise StateError(f"cannot use the state at {state}: {error}") from error

    def _prepare(self, state: str, must_exist: bool) -> None:
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            with self.writing() as connection:
                if must_exist and current_revision(connection) is None:
                    raise StateError(
                        f"there is no state at {state}; start the service once to create it"
                    )
                upgrade(connection)
            on_failure.pop_all()

    def _open(self) -> Engine:
        if not self._sqlite:
            given = make_url(self.url).query
            return create_engine(
                self.url,
                pool_size=POOL,
                max_overflow=POOL,
                pool_pre_ping=True,
                connect_args={k: v for k, v in TIMEOUTS.items() if k not in given},
            )
        engine = create_engine(
            self.url,
            pool_size=POOL,
            max_overflow=POOL,
            connect_args={"check_same_thread": False, "timeout": TIMEOUT_SECONDS},
        )
        event.listen(engine, "connect", _prepare_sqlite)
        return engine

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Run a write transaction; it excludes other writers and is durable when it ends."""
        with self._writer, self._engine.connect() as connection:
            if self._sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({WRITERS})"))
            try:
                yield connection
            except BaseException:
                self._end(connection, "ROLLBACK")
                raise
            self._end(connection, "COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run a read transaction on one consistent snapshot."""
        with self._engine.connect() as connection:
            if self._sqlite:
                connection.exec_driver_sql("BEGIN")
            else:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            try:
                yield connection
            finally:
                self._end(connection, "ROLLBACK")

    def _end(self, connection: Connection, how: str) -> None:
        if self._sqlite:
            connection.exec_driver_sql(how)
        if how == "COMMIT":
            connection.commit()
        else:
            connection.rollback()

    @contextmanager
    def planner_lock(self) -> Iterator[Callable[[], None]]:
        """Hold the planner lock; it is released when the process ends, even after a kill.

        Raises `PlannerAlreadyRunning` if another planner holds it. Call the returned function
        before each action that only the planner may do: it raises `LockLost` if the lock was lost.
        """
        if self._sqlite:
            with _locked_file(Path(self.url.removeprefix("sqlite:///") + ".planner")):
                yield lambda: None  # a lock on a file is kept until the process ends
            return
        with self._engine.connect() as connection:
            connection.detach()  # its lock must not return to the pool
            taken = connection.execute(text(f"SELECT pg_try_advisory_lock({PLANNER})")).scalar()
            connection.commit()  # an open transaction would keep old rows
            if not taken:
                raise PlannerAlreadyRunning

            def check() -> None:
                held = connection.execute(HOLDS_PLANNER_LOCK).scalar()
                connection.commit()
                if not held:
                    raise LockLost

            yield check

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def _make_private(path: Path) -> None:
    """Create the file of the state for its owner only, and restrict files that exist already.

    SQLite gives its journals the same permissions.
    """
    _open_private(path).close()
    for suffix in ("-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).chmod(0o600)


def _missing(state: str) -> str:
    return f"there is no state at {state}; start the service once to create it"


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are started here, not by the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={TIMEOUT_SECONDS}000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _open_private(path: Path) -> IO[str]:
    """Open a file for appending that only its owner can read, and so only its owner can lock.

    Raises `StateError` if the file belongs to another user, who could hold the lock.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateError(f"cannot use the state at {path}: {error.strerror}") from error
    file = os.fdopen(descriptor, "a")
    owner = os.fstat(descriptor).st_uid
    if owner not in (os.geteuid(), 0):
        file.close()
        raise StateError(f"{path} belongs to another user (uid {owner}); remove it")
    with suppress(PermissionError):
        os.fchmod(descriptor, 0o600)
    return file


@contextmanager
def _locked_file(path: Path) -> Iterator[None]:
    with _open_private(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PlannerAlreadyRunning from error
        yield
