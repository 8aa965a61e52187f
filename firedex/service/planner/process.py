"""Run the planner in a thread or in a process of its own.

In a process, planning for ten thousand subscriptions does not delay requests. The process ends
with its parent, even after ``kill -9``: the pipe between them closes and the kernel sends a signal.
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

from firedex.service.planner.loop import CHANGED, STATISTICS, STOP, PlannerJob, run_planner
from firedex.service.planner.planner import Notice
from firedex.service.state.database import Database

__all__ = ["PlannerProcess", "ThreadedPlanner"]

log = logging.getLogger("firedex.service")
MESSAGES = dict(enumerate((CHANGED, STATISTICS, STOP)))
CODES = {message: code for code, message in MESSAGES.items()}
MAX_READ_BYTES = 65_536
TIMEOUT_SECONDS = 10.0
RESTART_SECONDS = 1.0
SET_PARENT_DEATH_SIGNAL = 1
GC_THRESHOLDS = (200_000, 20, 50)
"""A large plan creates 100,000 live objects, and frequent garbage collection is slow."""


class _QueueInbox:
    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[str] = queue.SimpleQueue()

    def wait(self, seconds: float | None) -> list[str]:
        messages = []
        try:
            messages.append(self.messages.get(timeout=seconds))
            while True:
                messages.append(self.messages.get_nowait())
        except queue.Empty:
            return messages


class ThreadedPlanner:
    """Runs the planner in a thread of this process, for small sites and tests."""

    def __init__(
        self, job: PlannerJob, database: Database, notify: Callable[[Notice], None]
    ) -> None:
        self._inbox = _QueueInbox()
        self._thread = threading.Thread(
            target=run_planner, args=(job, lambda: database, self._inbox, notify), name="planner"
        )

    def start(self) -> None:
        """Start planning."""
        self._thread.start()

    def send(self, message: str) -> None:
        """Send a message to the planner."""
        self._inbox.messages.put(message)

    @property
    def alive(self) -> bool:
        """Whether the planner is running."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the planner and wait until it has ended."""
        self.send(STOP)
        self._thread.join(TIMEOUT_SECONDS)


class _PipeInbox:
    """Each message is one byte; a busy planner reads all pending messages at once."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def wait(self, seconds: float | None) -> list[str]:
        if not wait([self._pipe], seconds):
            return []
        received = os.read(self._pipe.fileno(), MAX_READ_BYTES)
        return sorted({MESSAGES[byte] for byte in received}) if received else [STOP]


def _process(
    job: PlannerJob, planner_reader: Connection, service_writer: Connection, parent: int
) -> None:
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return  # the parent ended before the signal was set
    gc.set_threshold(*GC_THRESHOLDS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the planner
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    open_database = functools.cache(lambda: Database(job.state))
    run_planner(job, open_database, _PipeInbox(planner_reader), service_writer.send)


class PlannerProcess:
    """Runs the planner in a process of its own and restarts it if it ends unexpectedly."""

    def __init__(self, job: PlannerJob, notify: Callable[[Notice], None]) -> None:
        self._job, self._notify = job, notify
        self._context = multiprocessing.get_context("spawn")
        self._sending = threading.Lock()
        self._pipe: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="planner", daemon=True)
        self.alive = False

    def start(self) -> None:
        """Start planning."""
        self._thread.start()

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            planner_reader, planner_writer = self._context.Pipe(duplex=False)
            service_reader, service_writer = self._context.Pipe(duplex=False)
            os.set_blocking(planner_writer.fileno(), False)
            process = self._context.Process(
                target=_process,
                args=(self._job, planner_reader, service_writer, os.getpid()),
                daemon=True,
                name="planner",
            )
            process.start()
            planner_reader.close()
            service_writer.close()
            with self._sending:
                self._pipe = planner_writer
            self.alive = True
            self._listen(service_reader)
            self.alive = False
            with self._sending:
                self._pipe = None
                planner_writer.close()
            service_reader.close()
            process.join(TIMEOUT_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            if not self._stopping.is_set():
                log.error("the planner ended with exit code %s and is restarted", process.exitcode)
                self._stopping.wait(RESTART_SECONDS)

    def _listen(self, pipe: Connection) -> None:
        while True:
            try:
                notice = pipe.recv()
            except (EOFError, OSError):
                return
            self._handle_notice(notice)

    def _handle_notice(self, notice: Notice) -> None:
        """Pass a notice to the service; retry while the database is unavailable.

        It may be the last notice for a long time.
        """
        while not self._stopping.is_set():
            try:
                self._notify(notice)
            except SQLAlchemyError as error:
                log.warning("the state is unavailable; retrying to handle %s: %s", notice, error)
                self._stopping.wait(RESTART_SECONDS)
            except Exception:
                log.exception("a notice of the planner could not be handled: %s", notice)
                return
            else:
                return

    def send(self, message: str) -> None:
        """Send a message to the planner without waiting.

        It is dropped if the planner is starting, because it then reads the whole state, or if the
        pipe is full, because the planner then has enough messages to read.
        """
        with self._sending:
            if self._pipe is not None:
                with contextlib.suppress(OSError):
                    os.write(self._pipe.fileno(), bytes([CODES[message]]))

    def stop(self) -> None:
        """Stop the planner and wait until it has ended."""
        self._stopping.set()
        self.send(STOP)
        self._thread.join(2 * TIMEOUT_SECONDS)
