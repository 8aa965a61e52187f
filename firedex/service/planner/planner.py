"""One planning step: read the state, plan, store, push to the controller, then activate.

A database has one planner. It behaves the same in a thread and in a process of its own: it is
notified of changes and sends notices about new active configurations.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import Connection, bindparam, delete, func, select

from firedex.planning import PlanningError
from firedex.service.errors import PushFailed, ServiceError
from firedex.service.planner.configuration_difference import materially_different
from firedex.service.planner.controller_client import ControllerClient
from firedex.service.planner.controller_sync import sync_from_controller
from firedex.service.planner.desired_network import desired_network
from firedex.service.planner.planned_rates import drifted_topics, rate_snapshot
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.planner.site_plan import Gateway, PlannedSite, plan_site
from firedex.service.state import tables
from firedex.service.state.change_ledger import ACTIONS_WITHOUT_PLAN, ChangeLedger, last_change
from firedex.service.state.configuration_store import ActiveConfiguration, ConfigurationStore
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import RateSnapshot
from firedex.service.state.site_state import SiteState, find_expired_state
from firedex.service.state.state_reader import StateReader
from firedex.wire import ControlEndpoint, Flow, Scenario, WireError
from firedex.wire.incident import Budgets

__all__ = ["Notice", "Planner", "SiteSettings", "summarise_changes"]

log = logging.getLogger("firedex.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """Settings of the site that do not change while the service runs."""

    site: Scenario
    gateway: Gateway
    control: tuple[ControlEndpoint, ...] = ()
    default_budgets: Budgets = field(default_factory=Budgets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message of the planner: a configuration became active, planning failed, or recovered."""

    kind: Literal["active", "trouble", "ready", "recovered"]
    version: int = 0
    error: str = ""
    attempts: int = 0
    retry_seconds: float = 0.0


class Planner:
    """Owns the active configuration while it holds the planner lock.

    ``check_lock`` raises `LockLost` if the lock was lost.
    """

    def __init__(
        self,
        settings: SiteSettings,
        database: Database,
        controller: ControllerClient | None,
        notify: Callable[[Notice], None] = lambda _: None,
        check_lock: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._controller, self._notify = settings, controller, notify
        self._check_lock = check_lock
        self._reader = StateReader(database, settings.default_budgets)
        self._database = database
        self._ledger = ChangeLedger(database)
        self.store = ConfigurationStore(database)
        self._active: ActiveConfiguration | None = None
        self._flows: tuple[Flow, ...] = ()
        self._last_snapshot = RateSnapshot({})
        self._must_push = False
        self._seen_change = 0

    def restore(self) -> None:
        """Load the active configuration after a start, also if the last service was killed.

        If it was killed after the push and before the activation, the switches have newer rules
        than the active configuration. The next step then plans and pushes again.
        """
        self.store.fail_unfinished()
        self._active = self.store.active()
        known = self._active.version if self._active else 0
        self._flows = self._active.document.value().flows if self._active else ()
        self._last_snapshot = self._active.rate_snapshot if self._active else RateSnapshot({})
        if self._controller is not None:
            try:
                self._must_push = self._controller.network_version() != known
            except PushFailed as error:
                self._must_push = self._active is not None
                log.warning("the controller is unreachable: %s", error)
        self._notify(Notice(kind="ready", version=known))

    def refresh_topology(self) -> bool:
        """Update hosts and switch capabilities from the controller; return True if any changed."""
        if self._controller is None:
            return False
        self._check_lock()
        return sync_from_controller(
            self._controller, self._database, self._ledger, self._reader, self._settings.site
        )

    def confirm(self) -> bool:
        """Check that the controller has the active configuration; return True to push it again."""
        if self._controller is None or self._active is None:
            return False
        if self._controller.network_version() != self._active.version:
            self._must_push = True
        return self._must_push

    def has_unread_changes(self) -> bool:
        """Return True if the state has a change that this planner has not read yet.

        Another service process on the same state may have made it.
        """
        with self._database.reading() as connection:
            return last_change(connection) > self._seen_change

    def delete_expired(self) -> None:
        """Delete expired topics, rates and hosts. This does not affect any plan."""
        if not find_expired_state(self._reader.read(), time.time()):
            return
        self._check_lock()
        with self._database.writing() as connection:
            # Check again inside the transaction: a new registration may need it.
            found = find_expired_state(self._reader.read_in(connection), time.time())
            for column, names in (
                (tables.topic.c.name, found.topics),
                (tables.offered_rate.c.topic, found.measured),
                (tables.host.c.address, [str(address) for address in found.hosts]),
            ):
                if names:
                    connection.execute(
                        delete(column.table).where(column == bindparam("expired")),
                        [{"expired": name} for name in names],
                    )

    def step(self) -> bool:
        """Plan and push if necessary; return True if a new configuration became active.

        If planning or pushing fails, the failure is stored, the error is raised, and the previous
        configuration stays active.
        """
        self._check_lock()
        state = self._reader.read()
        self._seen_change = state.through_change
        before = self._active
        through = before.through_change if before else 0
        snapshot = rate_snapshot(self._settings.site, state, time.time())
        reason = self._changes(through, state.through_change)
        if reason:
            return self._plan(state, snapshot, reason)
        if self._must_push:
            return self._plan(state, snapshot, "the controller had lost the configuration")
        if before is None:
            return False
        return self._follow_rates(state, snapshot)

    def _changes(self, after: int, through: int) -> str:
        """Return a summary of the changes that need a plan; empty if there are none."""
        if through <= after:
            return ""
        with self._database.reading() as connection:
            return summarise_changes(connection, after, through)

    def _follow_rates(self, state: SiteState, snapshot: RateSnapshot) -> bool:
        """Plan again if measured rates have drifted and the new plan differs materially."""
        site = self._settings.site
        has_drifted = drifted_topics(site, state, self._last_snapshot, time.time())
        if not has_drifted:
            return False
        self._last_snapshot = snapshot
        planned = self._planned(state, snapshot)
        if not materially_different(self._flows, planned.flows):
            return False
        shown = ", ".join(has_drifted[:3]) + (", …" if len(has_drifted) > 3 else "")
        return self._push_and_activate(
            state, snapshot, planned, f"measured rates drifted: {shown}", 0.0
        )

    def _planned(self, state: SiteState, snapshot: RateSnapshot) -> PlannedSite:
        scenario = planning_scenario(self._settings.site, state, snapshot)
        addresses = {name: r.address for name, r in state.subscribers.items()}
        return plan_site(scenario, addresses, self._settings.gateway, self._flows)

    def _plan(self, state: SiteState, snapshot: RateSnapshot, reason: str) -> bool:
        began = time.perf_counter()
        try:
            planned = self._planned(state, snapshot)
        except (PlanningError, ServiceError, WireError, ValueError) as error:
            version = self.store.begin(
                through_change=state.through_change,
                reason=reason,
                planned_seconds=time.perf_counter() - began,
            )
            self.store.fail(version, str(error))
            raise
        return self._push_and_activate(
            state, snapshot, planned, reason, time.perf_counter() - began
        )

    def _push_and_activate(
        self,
        state: SiteState,
        snapshot: RateSnapshot,
        planned: PlannedSite,
        reason: str,
        planned_seconds: float,
    ) -> bool:
        """Push the plan to the controller and then activate it."""
        version = self.store.begin(
            through_change=state.through_change, reason=reason, planned_seconds=planned_seconds
        )
        began = time.perf_counter()
        if self._controller is not None:
            self._check_lock()  # planning may have taken longer than the lock was held
            try:
                self._controller.push(desired_network(planned, version, self._settings.control))
            except PushFailed as error:
                self.store.fail(version, error.detail)
                # The controller may have received it although the response was lost.
                self._must_push = True
                raise
            except (WireError, ValueError) as error:
                self.store.fail(version, str(error))
                raise
        pushed = time.perf_counter() - began
        document = planned.document(version, datetime.now(UTC), reason)
        since = self.store.activate(version, document, snapshot, pushed)
        self._active = ActiveConfiguration(
            version=version,
            through_change=state.through_change,
            since_seconds=since,
            document=document,
            rate_snapshot=snapshot,
        )
        self._flows, self._last_snapshot, self._must_push = planned.flows, snapshot, False
        self._notify(Notice(kind="active", version=version))
        return True


def summarise_changes(connection: Connection, after: int, through: int) -> str:
    """Return a short text about the changes after ``after`` up to ``through``.

    It is empty if none of them needs a new plan.
    """
    column = tables.change.c
    within = (
        (column.number > after)
        & (column.number <= through)
        & column.action.not_in(ACTIONS_WITHOUT_PLAN)
    )
    first = connection.execute(select(column.action, column.subject).where(within).limit(2)).all()
    if not first:
        return ""
    if len(first) == 1:
        return f"{first[0].action} {first[0].subject}"
    rows = connection.execute(
        select(column.action, func.count().label("times"))
        .where(within)
        .group_by(column.action)
        .order_by(column.action)
    ).all()
    words = ", ".join(f"{row.action} × {row.times}" for row in rows)
    return f"{sum(row.times for row in rows)} changes: {words}"
