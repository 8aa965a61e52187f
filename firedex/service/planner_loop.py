"""The planner at work: woken by changes, by the clock, and by nothing else.

It plans for as long as it holds the planner's lock: its tenure. Whatever goes wrong with the state,
and whatever nobody thought of, ends the tenure: it is told as trouble, and after a back-off the
lock is taken anew and everything begins from what is on disk. So it outlives a database that is
away, and two planners never both plan.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from firedex.planning import PlanningError
from firedex.service.configuration_store import ConfigurationStore
from firedex.service.controller_client import ControllerClient, ControllerLink
from firedex.service.database import Database
from firedex.service.errors import PlannedElsewhere, PushFailed, ServiceError, StateError
from firedex.service.planner import Notice, Planner, SiteSettings
from firedex.service.planner_pace import Pace, PaceSettings
from firedex.wire import WireError

__all__ = ["CHANGED", "STATISTICS", "STOP", "Inbox", "PlannerJob", "run_planner"]

log = logging.getLogger("firedex.service")
CHANGED, STATISTICS, STOP = "changed", "statistics", "stop"
THOROUGH_EVERY = 6
"""Looks; among them: whether the network still has what is in force."""
ELSEWHERE_SECONDS = 0.1
"""How often the lock is asked for while another planner has it."""
LONG_ELSEWHERE = 50
"""So many times of asking later it is told: a service that was just killed is gone by then."""


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
    job: PlannerJob,
    open_database: Callable[[], Database],
    inbox: Inbox,
    notify: Callable[[Notice], None],
) -> None:
    """Plan whenever there is reason to, until told to stop."""
    _Tenures(job, open_database, inbox, notify).run()


class _Tenures:
    """One tenure after another, with a wait between them."""

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
        self._pace = Pace(job.pace)
        self._asked = 0
        self._followed = 0

    def run(self) -> None:
        while True:
            try:
                return self._tenure()
            except PlannedElsewhere as error:
                wait = self._elsewhere(error)
            except (SQLAlchemyError, StateError) as error:
                log.warning("the state cannot be used: %s", error)
                wait = self._failed(f"the state cannot be used: {_first_line(error)}")
            except Exception as error:
                log.exception("the planner begins anew")
                wait = self._failed(f"the planner failed: {type(error).__name__}: {error}")
            if self._told_to_stop(wait):
                return None

    def _tenure(self) -> None:
        database = self._open()
        if self._asked:
            self._follow(database)
        with database.planners_lock() as check_lock:
            self._asked = 0
            self._pace.waited()
            planner = Planner(
                self._job.settings, database, self._controller, self._notify, check_lock
            )
            planner.restore()
            _Loop(planner, self._pace, self._job.pace, self._inbox, self._notify).run()

    def _follow(self, database: Database) -> None:
        """While another plans: tell what it brings into force."""
        version = ConfigurationStore(database).version_in_force()
        if version != self._followed or self._asked == 1:
            self._followed = version
            self._notify(Notice(kind="ready", version=version))

    def _elsewhere(self, error: PlannedElsewhere) -> float:
        self._asked += 1
        if self._asked % LONG_ELSEWHERE == 0:
            self._failed(str(error))
        return ELSEWHERE_SECONDS

    def _failed(self, said: str) -> float:
        wait = self._pace.failed(time.monotonic(), wait_out=True)
        self._notify(
            Notice(kind="trouble", error=said, attempts=self._pace.attempts, retry_seconds=wait)
        )
        return wait

    def _told_to_stop(self, seconds: float) -> bool:
        """Wait; changes that come meanwhile are seen when the next tenure begins."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if STOP in self._inbox.wait(left):
                return True
        return False


def _first_line(error: Exception) -> str:
    """Of a driver's message; the rest is the statement and where to read about it."""
    return str(error).strip().split("\n", 1)[0]


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
        self._next_look = self._next_glance = 0.0
        self._looks = 0

    def run(self) -> None:
        self._look()
        self._pace.changed(time.monotonic())  # whatever is there from before
        while True:
            due = self._pace.due_at()
            until = min(self._next_look, self._next_glance)
            until = until if due is None else min(due, until)
            come = self._inbox.wait(max(until - time.monotonic(), 0.0))
            now = time.monotonic()
            if STOP in come:
                return
            if CHANGED in come or self._glance(now):
                self._pace.changed(now)
            if STATISTICS in come:
                self._pace.check_rates()
            if now >= self._next_look:
                self._look()
            due = self._pace.due_at()
            if due is not None and now >= due:
                self._plan()

    def _glance(self, now: float) -> bool:
        if now < self._next_glance:
            return False
        self._next_glance = now + self._settings.glance_seconds
        return self._planner.has_news()

    def _plan(self) -> None:
        self._pace.began()
        try:
            self._planner.step()
        except StateError:
            raise  # the tenure is over
        except (PlanningError, ServiceError, WireError, ValueError) as error:
            pushed = isinstance(error, PushFailed)
            wait = self._pace.failed(time.monotonic(), wait_out=pushed)
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
        thorough = self._looks % THOROUGH_EVERY == 0
        if thorough:
            self._planner.tidy()
            self._pace.check_rates()  # those that are no longer measured fall back by themselves
        try:
            changed = self._planner.look_around()
            if thorough:
                changed |= self._planner.confirm()
        except PushFailed as error:
            log.debug("the controller does not say what it sees: %s", error)
            return
        if changed:
            self._pace.changed(time.monotonic())
