"""Where a planner runs: beside its caller in a thread, or in a process of its own.

A process, so that planning for ten thousand subscriptions holds up no request. It ends with its
parent, also by ``kill -9``: the pipe between them closes, and the kernel signals it.
"""

import contextlib
import ctypes
import functools
import gc
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait

from sqlalchemy.exc import SQLAlchemyError

from firedex.service.database import Database
from firedex.service.planner import Notice
from firedex.service.planner_loop import CHANGED, STATISTICS, STOP, PlannerJob, run_planner

__all__ = ["PlannerProcess", "ThreadedPlanner"]

log = logging.getLogger("firedex.service")
MESSAGES = dict(enumerate((CHANGED, STATISTICS, STOP)))
CODES = {message: code for code, message in MESSAGES.items()}
MOST_BYTES = 65_536
PATIENCE_SECONDS = 10.0
RESTART_SECONDS = 1.0
SET_PARENT_DEATH_SIGNAL = 1
COLLECT_RARELY = (200_000, 20, 50)
"""A large plan makes a hundred thousand values that live; looking at them over and over is slow."""


class _QueueInbox:
    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[str] = queue.SimpleQueue()

    def wait(self, seconds: float | None) -> list[str]:
        come = []
        try:
            come.append(self.messages.get(timeout=seconds))
            while True:
                come.append(self.messages.get_nowait())
        except queue.Empty:
            return come


class ThreadedPlanner:
    """The planner in a thread of this process: for small sites and tests."""

    def __init__(
        self, job: PlannerJob, database: Database, notify: Callable[[Notice], None]
    ) -> None:
        self._inbox = _QueueInbox()
        self._thread = threading.Thread(
            target=run_planner, args=(job, lambda: database, self._inbox, notify), name="planner"
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def tell(self, what: str) -> None:
        """Say that something happened."""
        self._inbox.messages.put(what)

    @property
    def alive(self) -> bool:
        """Whether it is at work."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End, and wait for it."""
        self.tell(STOP)
        self._thread.join(PATIENCE_SECONDS)


class _PipeInbox:
    """A byte for everything that happened; a planner that is busy reads them all at once."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def wait(self, seconds: float | None) -> list[str]:
        if not wait([self._pipe], seconds):
            return []
        come = os.read(self._pipe.fileno(), MOST_BYTES)
        return sorted({MESSAGES[byte] for byte in come}) if come else [STOP]


def _process(job: PlannerJob, told: Connection, tells: Connection, parent: int) -> None:
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it was gone before the kernel knew
    gc.set_threshold(*COLLECT_RARELY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    opened = functools.cache(lambda: Database(job.state))
    run_planner(job, opened, _PipeInbox(told), tells.send)


class PlannerProcess:
    """The planner in a process of its own, started again if it ends by itself."""

    def __init__(self, job: PlannerJob, notify: Callable[[Notice], None]) -> None:
        self._job, self._notify = job, notify
        self._context = multiprocessing.get_context("spawn")
        self._sending = threading.Lock()
        self._pipe: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="planner", daemon=True)
        self.alive = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            told, telling = self._context.Pipe(duplex=False)
            listening, tells = self._context.Pipe(duplex=False)
            os.set_blocking(telling.fileno(), False)
            process = self._context.Process(
                target=_process,
                args=(self._job, told, tells, os.getpid()),
                daemon=True,
                name="planner",
            )
            process.start()
            told.close()
            tells.close()
            with self._sending:
                self._pipe = telling
            self.alive = True
            self._listen(listening)
            self.alive = False
            with self._sending:
                self._pipe = None
                telling.close()
            listening.close()
            process.join(PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            if not self._stopping.is_set():
                log.error("the planner ended with %s; it is started again", process.exitcode)
                self._stopping.wait(RESTART_SECONDS)

    def _listen(self, pipe: Connection) -> None:
        while True:
            try:
                notice = pipe.recv()
            except (EOFError, OSError):
                return
            self._pass_on(notice)

    def _pass_on(self, notice: Notice) -> None:
        """There may be no later notice: if the database is away for a moment, wait for it."""
        while not self._stopping.is_set():
            try:
                self._notify(notice)
            except SQLAlchemyError as error:
                log.warning("the state cannot be used, and %s waits: %s", notice, error)
                self._stopping.wait(RESTART_SECONDS)
            except Exception:
                log.exception("a notice of the planner was lost: %s", notice)
                return
            else:
                return

    def tell(self, what: str) -> None:
        """Say that something happened; never waits.

        A planner that is starting looks by itself, and one with a full pipe has been told enough.
        """
        with self._sending:
            if self._pipe is not None:
                with contextlib.suppress(OSError):
                    os.write(self._pipe.fileno(), bytes([CODES[what]]))

    def stop(self) -> None:
        """End, and wait for it."""
        self._stopping.set()
        self.tell(STOP)
        self._thread.join(2 * PATIENCE_SECONDS)
