"""From a change to the network: read the state, plan, keep, push, and only then activate.

One planner for one database. What it does is the same in a thread and in a process of its own: it
is told that something changed, and tells what came into force.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import bindparam, delete

from firedex.planning import PlanningError
from firedex.service import tables
from firedex.service.change_ledger import ChangeLedger, last_change
from firedex.service.change_summary import summarise
from firedex.service.configuration_store import ConfigurationStore, InForce
from firedex.service.controller_client import ControllerClient
from firedex.service.database import Database
from firedex.service.desired_network import desired_network
from firedex.service.errors import PushFailed, ServiceError
from firedex.service.planning_scenario import Basis, planning_scenario, rate_basis
from firedex.service.rate_drift import drifted_topics, materially_different
from firedex.service.site_plan import Gateway, PlannedSite, plan_site
from firedex.service.site_state import SiteState
from firedex.service.state_reader import StateReader
from firedex.service.surroundings import take_over
from firedex.service.unneeded_state import unneeded
from firedex.wire import ControlEndpoint, Flow, Scenario, WireError
from firedex.wire.incident import Budgets

__all__ = ["Notice", "Planner", "SiteSettings"]

log = logging.getLogger("firedex.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """What the service was started with, and plans follow from."""

    site: Scenario
    gateway: Gateway
    control: tuple[ControlEndpoint, ...] = ()
    default_budgets: Budgets = field(default_factory=Budgets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What the planner tells: what came into force, why nothing did, or that all is well again."""

    kind: Literal["in-force", "trouble", "ready", "well"]
    version: int = 0
    error: str = ""
    attempts: int = 0
    retry_seconds: float = 0.0


class Planner:
    """Owns what is in force, while it holds the planner's lock; ``check_lock`` raises if not."""

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
        self._in_force: InForce | None = None
        self._flows: tuple[Flow, ...] = ()
        self._tried = Basis({})
        self._again = False
        self._seen_change = 0

    def restore(self) -> None:
        """After a start: find out what is in force, also if the last service was killed.

        If it was killed between the network's answer and activation, the network is ahead: what is
        in force is then planned and pushed anew, with whatever else was registered.
        """
        self.store.fail_unfinished()
        self._in_force = self.store.in_force()
        known = self._in_force.version if self._in_force else 0
        self._flows = self._in_force.document.value().flows if self._in_force else ()
        self._tried = self._in_force.basis if self._in_force else Basis({})
        if self._controller is not None:
            try:
                self._again = self._controller.network_version() != known
            except PushFailed as error:
                self._again = self._in_force is not None
                log.warning("the controller is away: %s", error)
        self._notify(Notice(kind="ready", version=known))

    def look_around(self) -> bool:
        """Ask the controller who is where and what switches can do; say whether plans differ."""
        if self._controller is None:
            return False
        self._check_lock()
        return take_over(
            self._controller, self._database, self._ledger, self._reader, self._settings.site
        )

    def confirm(self) -> bool:
        """Ask whether the network still has what is in force; if not, it is told anew."""
        if self._controller is None or self._in_force is None:
            return False
        if self._controller.network_version() != self._in_force.version:
            self._again = True
        return self._again

    def has_news(self) -> bool:
        """Whether there is a change that was not looked at: of another service on the state."""
        with self._database.reading() as connection:
            return last_change(connection) > self._seen_change

    def tidy(self) -> None:
        """Forget what nobody needs any more; no plan is different for it."""
        if not unneeded(self._reader.read(), time.time()):
            return
        self._check_lock()
        with self._database.writing() as connection:
            # Once more, since somebody may have come to need it.
            found = unneeded(self._reader.read_in(connection), time.time())
            for column, names in (
                (tables.topic.c.name, found.topics),
                (tables.measured.c.topic, found.measured),
                (tables.host.c.address, [str(address) for address in found.hosts]),
            ):
                if names:
                    connection.execute(
                        delete(column.table).where(column == bindparam("unneeded")),
                        [{"unneeded": name} for name in names],
                    )

    def step(self) -> bool:
        """Plan and push if there is reason to; True if something came into force.

        Raises PushFailed, or PlanningError, after having kept why; the previous stands.
        """
        self._check_lock()
        state = self._reader.read()
        self._seen_change = state.through_change
        before = self._in_force
        through = before.through_change if before else 0
        basis = rate_basis(self._settings.site, state, time.time())
        reason = self._changes(through, state.through_change)
        if reason:
            return self._plan(state, basis, reason)
        if self._again:
            return self._plan(state, basis, "the network had lost it")
        if before is None:
            return False
        return self._follow_rates(state, basis)

    def _changes(self, after: int, through: int) -> str:
        """What happened that a plan follows from; nothing if nothing did."""
        if through <= after:
            return ""
        with self._database.reading() as connection:
            return summarise(connection, after, through)

    def _follow_rates(self, state: SiteState, basis: Basis) -> bool:
        """Plan again if measured rates have left the plan's, and that makes a difference."""
        site = self._settings.site
        drifted = drifted_topics(site, state, self._tried, time.time())
        if not drifted:
            return False
        self._tried = basis
        planned = self._planned(state, basis)
        if not materially_different(self._flows, planned.flows):
            return False
        shown = ", ".join(drifted[:3]) + (", …" if len(drifted) > 3 else "")
        return self._bring(state, basis, planned, f"measured rates drifted: {shown}", 0.0)

    def _planned(self, state: SiteState, basis: Basis) -> PlannedSite:
        scenario = planning_scenario(self._settings.site, state, basis)
        addresses = {name: r.address for name, r in state.subscribers.items()}
        return plan_site(scenario, addresses, self._settings.gateway, self._flows)

    def _plan(self, state: SiteState, basis: Basis, reason: str) -> bool:
        began = time.perf_counter()
        try:
            planned = self._planned(state, basis)
        except (PlanningError, ServiceError, WireError, ValueError) as error:
            version = self.store.begin(
                through_change=state.through_change,
                reason=reason,
                planned_seconds=time.perf_counter() - began,
            )
            self.store.fail(version, str(error))
            raise
        return self._bring(state, basis, planned, reason, time.perf_counter() - began)

    def _bring(
        self, state: SiteState, basis: Basis, planned: PlannedSite, reason: str, took: float
    ) -> bool:
        """Push, and when the network follows, activate."""
        version = self.store.begin(
            through_change=state.through_change, reason=reason, planned_seconds=took
        )
        began = time.perf_counter()
        if self._controller is not None:
            self._check_lock()  # planning may have taken long
            try:
                self._controller.push(desired_network(planned, version, self._settings.control))
            except PushFailed as error:
                self.store.fail(version, error.detail)
                # It may have arrived all the same, and only the answer was lost.
                self._again = True
                raise
            except (WireError, ValueError) as error:
                self.store.fail(version, str(error))
                raise
        pushed = time.perf_counter() - began
        document = planned.document(version, datetime.now(UTC), reason)
        since = self.store.activate(version, document, basis, pushed)
        self._in_force = InForce(
            version=version,
            through_change=state.through_change,
            since_seconds=since,
            document=document,
            basis=basis,
        )
        self._flows, self._tried, self._again = planned.flows, basis, False
        self._notify(Notice(kind="in-force", version=version))
        return True
