"""The database behind the state: SQLite by path, PostgreSQL by URL, the same behaviour.

Writers go one after another, each in a transaction that is on disk when it ends; readers see one
moment of the whole. Who plans holds the planner's lock, so that one database has one planner.
"""

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from firedex.service.errors import LockLost, PlannedElsewhere, StateError
from firedex.service.migrations import is_state, migrate

__all__ = ["Database", "database_url"]

PATIENCE_SECONDS = 30
WRITERS, PLANNER = 0x46444558, 0x46444559
"""PostgreSQL's advisory locks: all writers share one, the planner has another."""
POOL = 12
NOTICE_LOSS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""A PostgreSQL that vanished without a word is noticed, not waited for."""
OUR_LOCK = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND pid = pg_backend_pid() AND classid = 0 AND objid = :planner"
).bindparams(planner=PLANNER)


def database_url(state: str) -> str:
    """The URL of a path or URL that somebody gave."""
    scheme, there_is_one, rest = state.partition("://")
    if scheme in ("postgresql", "postgres") and there_is_one:
        return f"postgresql+psycopg://{rest}"
    if there_is_one:
        raise StateError(
            f"{scheme}:// is no state: give a file, or postgresql://USER@HOST/DATABASE"
        )
    return f"sqlite:///{Path(state).absolute()}"


class Database:
    """Opened at ``state``, and brought to the present form; made anew unless it ``must_exist``."""

    def __init__(self, state: str, *, must_exist: bool = False) -> None:
        self.url = database_url(state)
        self._sqlite = self.url.startswith("sqlite")
        self._writer = threading.Lock()
        if must_exist and self._sqlite and not Path(state).exists():
            raise StateError(f"there is no state at {state}")
        try:
            self._engine = self._open()
            self._prepare(state, must_exist)
        except (SQLAlchemyError, ValueError) as error:
            raise StateError(f"cannot use the state at {state}: {error}") from error

    def _prepare(self, state: str, must_exist: bool) -> None:
        with ExitStack() as if_it_fails:
            if_it_fails.callback(self.close)
            with self.writing() as connection:
                if must_exist and not is_state(connection):
                    raise StateError(f"there is no state at {state}")
                migrate(connection)
            if_it_fails.pop_all()

    def _open(self) -> Engine:
        if not self._sqlite:
            given = make_url(self.url).query
            return create_engine(
                self.url,
                pool_size=POOL,
                max_overflow=POOL,
                pool_pre_ping=True,
                connect_args={k: v for k, v in NOTICE_LOSS.items() if k not in given},
            )
        engine = create_engine(
            self.url,
            pool_size=POOL,
            max_overflow=POOL,
            connect_args={"check_same_thread": False, "timeout": PATIENCE_SECONDS},
        )
        event.listen(engine, "connect", _prepare_sqlite)
        return engine

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer is in; durable when it ends."""
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
        """One moment of the whole, however many questions are asked."""
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
    def planners_lock(self) -> Iterator[Callable[[], None]]:
        """Held by the one who plans; the system takes it back from a process that was killed.

        Raises PlannedElsewhere if somebody holds it. What comes out is to be called before
        anything that only the one planner may do: it raises if the lock was lost meanwhile.
        """
        if self._sqlite:
            with _locked_file(Path(self.url.removeprefix("sqlite:///") + ".planner")):
                yield lambda: None  # the process keeps it for as long as it lives
            return
        with self._engine.connect() as connection:
            connection.detach()  # the lock is the session's: it ends with it, not in a pool
            taken = connection.execute(text(f"SELECT pg_try_advisory_lock({PLANNER})")).scalar()
            connection.commit()  # a transaction would keep old rows
            if not taken:
                raise PlannedElsewhere

            def check() -> None:
                held = connection.execute(OUR_LOCK).scalar()
                connection.commit()
                if not held:
                    raise LockLost

            yield check

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by us, not by the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={PATIENCE_SECONDS}000"):
        connection.execute(f"PRAGMA {pragma}").close()


@contextmanager
def _locked_file(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PlannedElsewhere from error
        yield
