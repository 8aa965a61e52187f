"""The configuration service without its web interface: state, active configuration, events.

Requests are answered from one immutable view of the active configuration. The view is replaced when
the planner reports a new one.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from firedex.service.insight.network_watch import NetworkWatch
from firedex.service.insight.site_overview import SiteOverview
from firedex.service.insight.views import topic_states
from firedex.service.planner.loop import CHANGED, STATISTICS
from firedex.service.planner.planner import Notice, SiteSettings
from firedex.service.state.change_ledger import (
    ChangeLedger,
    ChangeResult,
    Origin,
    Write,
    last_change,
    pending_changes,
)
from firedex.service.state.configuration_store import ActiveConfiguration, ConfigurationStore
from firedex.service.state.database import Database
from firedex.service.state.queries import (
    RegistrationCount,
    current_incident,
    registration_counts,
)
from firedex.service.state.registrations import Limits, Registrations
from firedex.service.state.state_reader import StateReader
from firedex.service.state.tokens import ANYONE, Identity, Tokens
from firedex.service.web.authentication import Authenticator, RequestLimits, RequestRate
from firedex.wire import Scenario
from firedex.wire.service_api import PushFailure, ServiceStatus, TopicState

__all__ = ["ConfigurationService", "Event", "PlannerHandle", "ServiceOptions"]

log = logging.getLogger("firedex.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event for event streams."""

    kind: str
    data: Mapping[str, object]
    version: int
    changed: frozenset[str] | None = None
    """Subscribers whose flows differ in a new configuration; None for other events."""


class PlannerHandle(Protocol):
    """The planner, in a process or a thread of its own."""

    @property
    def alive(self) -> bool:
        """Whether the planner is running."""

    def send(self, message: str) -> None:
        """Send a message to the planner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of the service.

    ``open_to_all``: no tokens are required, and every caller may do everything. ``request_rate`` is
    the limit of each token, ``wrong_token_rate`` that of failed attempts of each address.
    ``validation_report`` is a page that the dashboard links to.
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
    """The service of one site, on one database."""

    def __init__(self, options: ServiceOptions, database: Database) -> None:
        self.options, self.database = options, database
        self.ledger = ChangeLedger(database, self._on_change)
        self.registrations = Registrations(options.settings.site, options.limits)
        self.configurations = ConfigurationStore(database)
        self.tokens = Tokens(database)
        self.request_limits = RequestLimits(None if options.open_to_all else options.request_rate)
        self._authenticator = Authenticator(self.tokens, RequestLimits(options.wrong_token_rate))
        self._topic_reader, self._topics_lock = self.reader(), threading.Lock()
        self.planner: PlannerHandle | None = None
        self.network_watch = NetworkWatch(None)
        self.planning = threading.Lock()
        self.event_streams = 0
        self._listeners: list[Callable[[Event], None]] = []
        self._trouble: PushFailure | None = None
        self._ready = False
        self.active: ActiveConfiguration | None = self.configurations.active()
        self.overview = SiteOverview(self, self.reader())

    @property
    def site(self) -> Scenario:
        """The site that the service was started with."""
        return self.options.settings.site

    # -- changes ----------------------------------------------------------------------------------

    def change(self, origin: Origin, write: Write) -> ChangeResult:
        """Store a change and wake the planner; the change is on disk when this returns."""
        return self.ledger.make(origin, write)

    def _on_change(self, _number: int) -> None:
        if self.planner is not None:
            self.planner.send(CHANGED)

    def statistics_stored(self) -> None:
        """Tell the planner that there are new statistics."""
        if self.planner is not None:
            self.planner.send(STATISTICS)

    # -- events -----------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[Event], None]) -> None:
        """Call ``listener`` with every event, from any thread."""
        self._listeners.append(listener)

    def publish(self, event: Event) -> None:
        """Pass an event to all listeners."""
        for listener in self._listeners:
            listener(event)

    def handle_notice(self, notice: Notice) -> None:
        """Handle a notice of the planner."""
        if notice.kind == "trouble":
            since = self._trouble.since if self._trouble else datetime.now(UTC)
            self._trouble = PushFailure(
                error=notice.error,
                since=since,
                attempts=max(notice.attempts, 1),
                next_attempt_seconds=time.time() + notice.retry_seconds,
            )
            return
        if notice.kind == "recovered":
            self._trouble = None
            return
        before = self.active
        now = self.configurations.active()
        self.active = now
        if notice.kind == "ready":
            self._ready = True
        else:
            self._trouble = None
        if now is None or (before is not None and before.version == now.version):
            return
        self.publish(
            Event(
                kind="configuration",
                data={"version": now.version},
                version=now.version,
                changed=now.document.changed_subscribers(before.document if before else None),
            )
        )

    def publish_incident(self) -> None:
        """Publish the event that the incident has changed."""
        incident = current_incident(self.database)
        if incident is not None:
            data = {"phase": incident.phase, "open": incident.closed_at is None}
            self.publish(Event(kind="incident", data=data, version=self.version))

    # -- queries ----------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version of the active configuration; 0 before the first."""
        return self.active.version if self.active else 0

    def includes(self, change: int) -> bool:
        """Return whether the active configuration includes a change."""
        return self.active is not None and self.active.through_change >= change

    def identify(self, authorization: str | None, address: str) -> Identity:
        """Return the identity of a caller; raise `Unauthorized` or `RateLimited`."""
        if self.options.open_to_all:
            return ANYONE
        return self._authenticator.identify(authorization, address)

    def reader(self) -> StateReader:
        """Return a new reader of the state."""
        return StateReader(self.database, self.options.settings.default_budgets)

    def topics(self) -> tuple[TopicState, ...]:
        """Return all topics; those that have not changed since the last call are not read again."""
        with self._topics_lock:
            state = self._topic_reader.read_topics()
        return topic_states(self.site, state)

    def reasons_not_ready(self) -> tuple[str, ...]:
        """Return the reasons why the service is not ready; none if it is."""
        reasons = []
        if self.planner is None or not self.planner.alive:
            reasons.append("the planner is not running")
        elif not self._ready:
            reasons.append("the planner is starting")
        if self._trouble is not None:
            reasons.append(self._trouble.error)
        return tuple(reasons)

    def status(self) -> ServiceStatus:
        """Return the status of the service."""
        now = self.active
        with self.database.reading() as connection:
            last = last_change(connection)
            pending = pending_changes(connection, now.through_change if now else 0)
        counts = registration_counts(self.database)
        publishers = counts.get("publisher", RegistrationCount())
        subscribers = counts.get("subscriber", RegistrationCount())
        through = now.through_change if now else 0
        rate, missed = _prediction_figures(now)
        return ServiceStatus(
            name=self.site.name,
            publishers=publishers.registered,
            subscribers=subscribers.registered,
            subscriptions=subscribers.subscriptions,
            last_change=last,
            active_version=now.version if now else 0,
            active_change=through,
            pending_changes=pending.changes,
            pending_since=None
            if pending.since_seconds is None
            else datetime.fromtimestamp(pending.since_seconds, UTC),
            active_since=datetime.fromtimestamp(now.since_seconds, UTC) if now else None,
            achieved_utility_rate=rate,
            deadlines_missed=missed,
            trouble=self._current_trouble(),
            incident=current_incident(self.database),
            event_streams=self.event_streams,
        )

    def _current_trouble(self) -> PushFailure | None:
        trouble = self._trouble
        if trouble is None:
            return None
        return PushFailure(
            error=trouble.error,
            since=trouble.since,
            attempts=trouble.attempts,
            next_attempt_seconds=max(trouble.next_attempt_seconds - time.time(), 0.0),
        )


def _prediction_figures(now: ActiveConfiguration | None) -> tuple[float | None, int]:
    prediction = now.document.head_value().prediction if now else None
    if prediction is None:
        return None, 0
    return prediction.achieved_utility_rate, prediction.deadlines_missed
