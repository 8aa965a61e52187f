"""The planner at work: woken by changes, by the clock, and by nothing else.

``run_planner`` is the loop; ``ThreadedPlanner`` runs it beside its caller, ``PlannerProcess`` in a
process of its own, so that planning for ten thousand subscriptions holds up no request. The process
ends with its parent, also by ``kill -9``: the pipe between them closes, and the kernel signals it.
"""

import contextlib
import ctypes
import gc
import logging
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Protocol

from firedex.planning import PlanningError
from firedex.service.controller_client import ControllerClient, ControllerLink
from firedex.service.database import Database
from firedex.service.errors import PushFailed, ServiceError
from firedex.service.planner import Notice, Planner, SiteSettings
from firedex.service.planner_pace import Pace, PaceSettings
from firedex.wire import WireError

__all__ = [
    "CHANGED",
    "STATISTICS",
    "PlannerJob",
    "PlannerProcess",
    "ThreadedPlanner",
    "run_planner",
]

log = logging.getLogger("firedex.service")
CHANGED, STATISTICS, STOP = "changed", "statistics", "stop"
MESSAGES = dict(enumerate((CHANGED, STATISTICS, STOP)))
CODES = {message: code for code, message in MESSAGES.items()}
MOST_BYTES = 65_536
PATIENCE_SECONDS = 10.0
RESTART_SECONDS = 1.0
CONFIRM_EVERY = 6
SET_PARENT_DEATH_SIGNAL = 1
COLLECT_RARELY = (200_000, 20, 50)
"""A large plan makes a hundred thousand values that live; looking at them over and over is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerJob:
    """All that a planner needs to know."""

    settings: SiteSettings
    state: str
    controller: ControllerLink | None = None
    pace: PaceSettings = field(default_factory=PaceSettings)


class Inbox(Protocol):
    """Where a planner is told that something happened."""

    def wait(self, seconds: float | None) -> list[str]:
        """What has come, after at most so many seconds; nothing if nothing has."""


def run_planner(
    job: PlannerJob, database: Database, inbox: Inbox, notify: Callable[[Notice], None]
) -> None:
    """Plan whenever there is reason to, until told to stop."""
    controller = ControllerClient(job.controller) if job.controller else None
    planner = Planner(job.settings, database, controller, notify)
    with database.planners_lock():
        planner.restore()
        _Loop(planner, Pace(job.pace), job.pace, inbox, notify).run()


class _Loop:
    def __init__(
        self,
        planner: Planner,
        pace: Pace,
        settings: PaceSettings,
        inbox: Inbox,
        notify: Callable[[Notice], None],
    ) -> None:
        self._planner, self._pace, self._settings = planner, pace, settings
        self._inbox, self._notify = inbox, notify
        self._next_look = 0.0
        self._looks = 0

    def run(self) -> None:
        self._look()
        self._pace.changed(time.monotonic())  # whatever is there from before
        while True:
            due = self._pace.due_at()
            until = self._next_look if due is None else min(due, self._next_look)
            come = self._inbox.wait(max(until - time.monotonic(), 0.0))
            now = time.monotonic()
            if STOP in come:
                return
            if CHANGED in come:
                self._pace.changed(now)
            if STATISTICS in come:
                self._pace.check_rates()
            if now >= self._next_look:
                self._look()
            due = self._pace.due_at()
            if due is not None and now >= due:
                self._plan()

    def _plan(self) -> None:
        self._pace.began()
        try:
            self._planner.step()
        except (PlanningError, ServiceError, WireError, ValueError) as error:
            wait = self._pace.failed(time.monotonic())
            said = error.detail if isinstance(error, PushFailed) else str(error)
            log.warning("not in force: %s; again in %.1f s", said, wait)
            self._notify(
                Notice(
                    kind="trouble",
                    error=said,
                    attempts=self._pace.attempts,
                    retry_seconds=wait,
                )
            )
        else:
            if self._pace.attempts:
                self._notify(Notice(kind="well"))
            self._pace.succeeded()

    def _look(self) -> None:
        self._next_look = time.monotonic() + self._settings.poll_seconds
        self._looks += 1
        try:
            changed = self._planner.look_around()
            if self._looks % CONFIRM_EVERY == 0:
                changed |= self._planner.confirm()
        except ServiceError as error:
            log.debug("the controller does not say what it sees: %s", error)
            return
        if changed:
            self._pace.changed(time.monotonic())


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
            target=run_planner, args=(job, database, self._inbox, notify), name="planner"
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
    run_planner(job, Database(job.state), _PipeInbox(told), tells.send)


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
            try:
                self._notify(notice)
            except Exception:
                # The database may be away for a moment; the next notice brings it up to date.
                log.exception("a notice of the planner was lost: %s", notice)

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
