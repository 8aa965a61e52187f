"""The service itself, behind any interface: state, what is in force, and who wants to know.

Owns the one view of what is in force that requests are answered from. It is replaced when the
planner says so, never changed.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from sqlalchemy import func, select

from firedex.service import tables
from firedex.service.change_ledger import (
    ChangeLedger,
    Done,
    Origin,
    Write,
    last_change,
    to_be_planned,
)
from firedex.service.configuration_store import ConfigurationStore, InForce
from firedex.service.database import Database
from firedex.service.doorkeeper import Doorkeeper
from firedex.service.network_watch import NetworkWatch
from firedex.service.planner import Notice, SiteSettings
from firedex.service.planner_loop import CHANGED, STATISTICS
from firedex.service.registrations import Limits, Registrations
from firedex.service.request_limits import RequestLimits, RequestRate
from firedex.service.site_overview import SiteOverview
from firedex.service.state_reader import StateReader, setting
from firedex.service.tokens import ANYONE, Identity, Tokens
from firedex.service.topic_view import topic_states
from firedex.wire import Scenario
from firedex.wire.incident import Incident
from firedex.wire.service_api import PushTrouble, ServiceStatus, TopicState

__all__ = ["ConfigurationService", "Event", "PlannerHandle", "ServiceOptions"]

log = logging.getLogger("firedex.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that event streams are told: its kind, its data, and for whom it is."""

    kind: str
    data: Mapping[str, object]
    version: int
    changed: frozenset[str] | None = None
    """The subscribers whose flows differ, of a configuration."""


class PlannerHandle(Protocol):
    """The planner, wherever it runs."""

    @property
    def alive(self) -> bool:
        """Whether it is at work."""

    def tell(self, what: str) -> None:
        """Say that something happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """``open_to_all``: no tokens are asked for, and everybody may do everything;
    ``request_rate``: of each token, ``wrong_token_rate``: of each address;
    ``validation_report``: a page that the dashboard links to.
    """

    settings: SiteSettings
    open_to_all: bool = False
    limits: Limits = field(default_factory=Limits)
    request_rate: RequestRate | None = field(default_factory=RequestRate)
    wrong_token_rate: RequestRate | None = field(
        default_factory=lambda: RequestRate(per_second=20.0, burst=100.0)
    )
    validation_report: Path | None = None


class ConfigurationService:
    """One site's service on one database."""

    def __init__(self, options: ServiceOptions, database: Database) -> None:
        self.options, self.database = options, database
        self.ledger = ChangeLedger(database, self._changed)
        self.registrations = Registrations(options.settings.site, options.limits)
        self.configurations = ConfigurationStore(database)
        self.tokens = Tokens(database)
        self.request_limits = RequestLimits(None if options.open_to_all else options.request_rate)
        self._doorkeeper = Doorkeeper(self.tokens, RequestLimits(options.wrong_token_rate))
        self._topic_reader, self._reading_topics = self.reader(), threading.Lock()
        self.planner: PlannerHandle | None = None
        self.network_watch = NetworkWatch(None)
        self.planning = threading.Lock()
        self.event_streams = 0
        self._listeners: list[Callable[[Event], None]] = []
        self._trouble: PushTrouble | None = None
        self._ready = False
        self.in_force: InForce | None = self.configurations.in_force()
        self.overview = SiteOverview(self, self.reader())

    @property
    def site(self) -> Scenario:
        """What the service was started with."""
        return self.options.settings.site

    # -- what changes -----------------------------------------------------------------------------

    def change(self, origin: Origin, write: Write) -> Done:
        """Make a change; it is on disk when this returns, and a plan will follow."""
        return self.ledger.make(origin, write)

    def _changed(self, _number: int) -> None:
        if self.planner is not None:
            self.planner.tell(CHANGED)

    def counted(self) -> None:
        """New statistics are there."""
        if self.planner is not None:
            self.planner.tell(STATISTICS)

    # -- what is told -----------------------------------------------------------------------------

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Have ``listener`` called with every event, from any thread."""
        self._listeners.append(listener)

    def tell(self, event: Event) -> None:
        """Tell everybody who listens."""
        for listener in self._listeners:
            listener(event)

    def notice(self, notice: Notice) -> None:
        """The planner has something to say."""
        if notice.kind == "trouble":
            since = self._trouble.since if self._trouble else datetime.now(UTC)
            self._trouble = PushTrouble(
                error=notice.error,
                since=since,
                attempts=max(notice.attempts, 1),
                next_attempt_seconds=time.time() + notice.retry_seconds,
            )
            return
        if notice.kind == "well":
            self._trouble = None
            return
        before = self.in_force
        now = self.configurations.in_force()
        self.in_force = now
        if notice.kind == "ready":
            self._ready = True
        else:
            self._trouble = None
        if now is None or (before is not None and before.version == now.version):
            return
        self.tell(
            Event(
                kind="configuration",
                data={"version": now.version},
                version=now.version,
                changed=_changed_subscribers(before, now),
            )
        )

    def tell_incident(self) -> None:
        """The incident has changed."""
        with self.database.reading() as connection:
            incident = setting(connection, "incident", Incident)
        if incident is not None:
            data = {"phase": incident.phase, "open": incident.closed_at is None}
            self.tell(Event(kind="incident", data=data, version=self.version))

    # -- what is asked ----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Of the configuration in force; 0 before the first."""
        return self.in_force.version if self.in_force else 0

    def includes(self, change: int) -> bool:
        """Whether a change is in force."""
        return self.in_force is not None and self.in_force.through_change >= change

    def identify(self, authorization: str | None, address: str) -> Identity:
        """Who asks; whoever it is, if no tokens are asked for."""
        if self.options.open_to_all:
            return ANYONE
        return self._doorkeeper.identify(authorization, address)

    def reader(self) -> StateReader:
        """For reading the state once."""
        return StateReader(self.database, self.options.settings.default_budgets)

    def topics(self) -> tuple[TopicState, ...]:
        """All topics; what has not changed since they were asked for last is not read again."""
        with self._reading_topics:
            state = self._topic_reader.read_topics()
        return topic_states(self.site, state)

    def not_ready(self) -> tuple[str, ...]:
        """Why the service cannot do its work; nothing if it can."""
        reasons = []
        if self.planner is None or not self.planner.alive:
            reasons.append("the planner is not running")
        elif not self._ready:
            reasons.append("the planner is starting")
        if self._trouble is not None:
            reasons.append(self._trouble.error)
        return tuple(reasons)

    def status(self) -> ServiceStatus:
        """The service at a glance."""
        where = tables.registration.c
        with self.database.reading() as connection:
            last = last_change(connection)
            now = self.in_force
            pending = to_be_planned(connection, now.through_change if now else 0)
            counts = {
                row.kind: (row.parties, int(row.wants or 0))
                for row in connection.execute(
                    select(
                        where.kind,
                        func.count().label("parties"),
                        func.sum(where.wants).label("wants"),
                    ).group_by(where.kind)
                ).all()
            }
            incident = setting(connection, "incident", Incident)
        through = now.through_change if now else 0
        rate, missed = _prediction_figures(now)
        return ServiceStatus(
            name=self.site.name,
            publishers=counts.get("publisher", (0, 0))[0],
            subscribers=counts.get("subscriber", (0, 0))[0],
            subscriptions=counts.get("subscriber", (0, 0))[1],
            last_change=last,
            in_force_version=now.version if now else 0,
            in_force_change=through,
            pending_changes=pending.changes,
            pending_since=None
            if pending.since_seconds is None
            else datetime.fromtimestamp(pending.since_seconds, UTC),
            in_force_since=datetime.fromtimestamp(now.since_seconds, UTC) if now else None,
            achieved_utility_rate=rate,
            deadlines_missed=missed,
            trouble=self._current_trouble(),
            incident=incident,
            event_streams=self.event_streams,
        )

    def _current_trouble(self) -> PushTrouble | None:
        trouble = self._trouble
        if trouble is None:
            return None
        return PushTrouble(
            error=trouble.error,
            since=trouble.since,
            attempts=trouble.attempts,
            next_attempt_seconds=max(trouble.next_attempt_seconds - time.time(), 0.0),
        )


def _changed_subscribers(before: InForce | None, now: InForce) -> frozenset[str]:
    was = before.document.pieces if before else {}
    pieces = now.document.pieces
    changed = {
        who for who, piece in pieces.items() if who not in was or was[who].flows != piece.flows
    }
    return frozenset(changed | (was.keys() - pieces.keys()))


def _prediction_figures(now: InForce | None) -> tuple[float | None, int]:
    prediction = now.document.head_value().prediction if now else None
    if prediction is None:
        return None, 0
    return prediction.achieved_utility_rate, prediction.deadlines_missed
