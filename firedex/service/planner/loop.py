"""The loop of the planner: wait for changes or for the next check, then plan.

The planner runs sessions. A session lasts as long as it holds the planner lock. Any database error
or unexpected exception ends the session: the loop sends a notice, waits with exponential back-off,
acquires the lock again and reloads everything from the database. So the planner survives an outage
of the database, and two planners are never active at the same time.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from firedex.planning import PlanningError
from firedex.service.errors import PlannerAlreadyRunning, PushFailed, ServiceError, StateError
from firedex.service.planner.controller_client import ControllerClient
from firedex.service.planner.planner import Notice, Planner, SiteSettings
from firedex.service.planner.schedule import PlanSchedule, ScheduleSettings
from firedex.service.state.configuration_store import ConfigurationStore
from firedex.service.state.database import Database
from firedex.transport.http import HttpTarget
from firedex.wire import WireError

__all__ = ["CHANGED", "STATISTICS", "STOP", "Inbox", "PlannerJob", "run_planner"]

log = logging.getLogger("firedex.service")
CHANGED, STATISTICS, STOP = "changed", "statistics", "stop"
REFRESHES_PER_FULL_CHECK = 6
"""Once in this many refreshes, also check that the controller has the active configuration."""
LOCK_RETRY_SECONDS = 0.1
"""Interval of attempts to acquire the lock while another planner holds it."""
ATTEMPTS_BEFORE_NOTICE = 50
"""Attempts after which a notice is sent; the lock of a killed service is free by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerJob:
    """Everything that a planner needs to start."""

    settings: SiteSettings
    state: str
    controller: HttpTarget | None = None
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)


class Inbox(Protocol):
    """Receives messages for the planner."""

    def wait(self, seconds: float | None) -> list[str]:
        """Return the messages that arrived within ``seconds``; empty after a timeout."""


def run_planner(
    job: PlannerJob,
    open_database: Callable[[], Database],
    inbox: Inbox,
    notify: Callable[[Notice], None],
) -> None:
    """Plan whenever necessary, until the message STOP arrives."""
    _Sessions(job, open_database, inbox, notify).run()


class _Sessions:
    """Runs one session after another, with a back-off between them."""

    def __init__(
        self,
        job: PlannerJob,
        open_database: Callable[[], Database],
        inbox: Inbox,
        notify: Callable[[Notice], None],
    ) -> None:
        self._job, self._open = job, open_database
        self._inbox, self._notify = inbox, notify
        self._controller = ControllerClient(job.controller) if job.controller else None
        self._schedule = PlanSchedule(job.schedule)
        self._attempts = 0
        self._followed = 0

    def run(self) -> None:
        while True:
            try:
                return self._run_session()
            except PlannerAlreadyRunning as error:
                wait = self._lock_is_held(error)
            except (SQLAlchemyError, StateError) as error:
                log.warning("the state cannot be used: %s", error)
                wait = self._failed(f"the state cannot be used: {_first_line(error)}")
            except Exception as error:
                log.exception("the planner failed and restarts")
                wait = self._failed(f"the planner failed: {type(error).__name__}: {error}")
            if self._wait_or_stop(wait):
                return None

    def _run_session(self) -> None:
        database = self._open()
        if self._attempts:
            self._follow(database)
        with database.planner_lock() as check_lock:
            self._attempts = 0
            self._schedule.cancel_retry()
            planner = Planner(
                self._job.settings, database, self._controller, self._notify, check_lock
            )
            planner.restore()
            _Loop(planner, self._schedule, self._job.schedule, self._inbox, self._notify).run()

    def _follow(self, database: Database) -> None:
        """While another planner is active: send a notice of each version that it activates."""
        version = ConfigurationStore(database).active_version()
        if version != self._followed or self._attempts == 1:
            self._followed = version
            self._notify(Notice(kind="ready", version=version))

    def _lock_is_held(self, error: PlannerAlreadyRunning) -> float:
        self._attempts += 1
        if self._attempts % ATTEMPTS_BEFORE_NOTICE == 0:
            self._failed(str(error))
        return LOCK_RETRY_SECONDS

    def _failed(self, message: str) -> float:
        wait = self._schedule.record_failure(time.monotonic(), wait_out=True)
        self._notify(
            Notice(
                kind="trouble", error=message, attempts=self._schedule.attempts, retry_seconds=wait
            )
        )
        return wait

    def _wait_or_stop(self, seconds: float) -> bool:
        """Wait; return True if STOP arrives. The next session sees other messages."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if STOP in self._inbox.wait(left):
                return True
        return False


def _first_line(error: Exception) -> str:
    """Return the first line of a driver's message; the rest is the SQL statement and a link."""
    return str(error).strip().split("\n", 1)[0]


class _Loop:
    def __init__(
        self,
        planner: Planner,
        schedule: PlanSchedule,
        settings: ScheduleSettings,
        inbox: Inbox,
        notify: Callable[[Notice], None],
    ) -> None:
        self._planner, self._schedule, self._settings = planner, schedule, settings
        self._inbox, self._notify = inbox, notify
        self._next_refresh = self._next_change_check = 0.0
        self._refreshes = 0

    def run(self) -> None:
        self._refresh()
        self._schedule.record_change(time.monotonic())  # changes from before the start
        while True:
            due = self._schedule.due_at()
            until = min(self._next_refresh, self._next_change_check)
            until = until if due is None else min(due, until)
            messages = self._inbox.wait(max(until - time.monotonic(), 0.0))
            now = time.monotonic()
            if STOP in messages:
                return
            if CHANGED in messages or self._check_changes(now):
                self._schedule.record_change(now)
            if STATISTICS in messages:
                self._schedule.check_rates()
            if now >= self._next_refresh:
                self._refresh()
            due = self._schedule.due_at()
            if due is not None and now >= due:
                self._plan()

    def _check_changes(self, now: float) -> bool:
        if now < self._next_change_check:
            return False
        self._next_change_check = now + self._settings.change_check_seconds
        return self._planner.has_unread_changes()

    def _plan(self) -> None:
        self._schedule.record_start()
        try:
            self._planner.step()
        except StateError:
            raise  # ends the session
        except (PlanningError, ServiceError, WireError, ValueError) as error:
            pushed = isinstance(error, PushFailed)
            wait = self._schedule.record_failure(time.monotonic(), wait_out=pushed)
            message = error.detail if isinstance(error, PushFailed) else str(error)
            log.warning(
                "the configuration is not active: %s; next attempt in %.1f s", message, wait
            )
            self._notify(
                Notice(
                    kind="trouble",
                    error=message,
                    attempts=self._schedule.attempts,
                    retry_seconds=wait,
                )
            )
        else:
            if self._schedule.attempts:
                self._notify(Notice(kind="recovered"))
            self._schedule.record_success()

    def _refresh(self) -> None:
        self._next_refresh = time.monotonic() + self._settings.poll_seconds
        self._refreshes += 1
        thorough = self._refreshes % REFRESHES_PER_FULL_CHECK == 0
        if thorough:
            self._planner.delete_expired()
            self._schedule.check_rates()  # unmeasured rates fall back to declared ones
        try:
            changed = self._planner.refresh_topology()
            if thorough:
                changed |= self._planner.confirm()
        except PushFailed as error:
            log.debug("the controller did not return its topology: %s", error)
            return
        if changed:
            self._schedule.record_change(time.monotonic())
