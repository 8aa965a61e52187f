"""The site as people look at it: one answer for all who look within a quarter of a second."""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from sqlalchemy import select

from firedex.dashboard.last_heard import LastHeard
from firedex.dashboard.link_shares import Port
from firedex.dashboard.overview import Observed, Told, overview, silent_offers
from firedex.dashboard.quiet_topics import CountedRate, QuietTopic, QuietTopics
from firedex.dashboard.site_view import SiteView
from firedex.dashboard.unseen_links import UnseenLinks
from firedex.service import tables
from firedex.service.change_ledger import last_change
from firedex.service.class_history import STEP_SECONDS, count_missing
from firedex.service.configuration_store import InForce
from firedex.service.database import Database
from firedex.service.network_watch import NetworkWatch
from firedex.service.planning_scenario import (
    expected_rates,
    planning_scenario,
    present_network,
    rate_basis,
)
from firedex.service.report_store import ReportStore
from firedex.service.state_reader import StateReader, setting
from firedex.wire import (
    Network,
    Scenario,
    Statistics,
    SubscriberRegistration,
    SubscriptionPrediction,
)
from firedex.wire.overview import Overview, SubscriptionView
from firedex.wire.service_api import NetworkView, ServiceStatus, SubscriberPlace

__all__ = ["LIVE_SECONDS", "SiteOverview", "subscription_views"]

FRESH_SECONDS = 0.25
LIVE_SECONDS = 30.0
"""What was reported longer ago is not what is measured now."""
MOST_NETWORK_CHANGES = 200
QUIET_TOPICS_EVERY_SECONDS = 5.0
"""There may be many topics, and their rates change slowly."""


class LookedAt(Protocol):
    """What is looked at: the service, as far as it matters here."""

    database: Database
    network_watch: NetworkWatch
    in_force: InForce | None

    @property
    def site(self) -> Scenario:
        """What it was started with."""

    def status(self) -> ServiceStatus:
        """At a glance."""


class SiteOverview:
    """Looks at one service, and reads its state with ``reader``."""

    def __init__(self, service: LookedAt, reader: StateReader) -> None:
        self._service, self._reader = service, reader
        self._lock = threading.Lock()
        self._view: tuple[int, SiteView | None] = (0, None)
        self._last_heard, self._listened_at, self._listened_to = LastHeard(), 0.0, 0
        self._quiet_topics, self._quiet = QuietTopics(), (0.0, tuple[QuietTopic, ...]())
        self._unseen_links = UnseenLinks()
        self._silence_noted_at = 0.0
        self._last: tuple[float, Overview] | None = None

    def now(self) -> Overview:
        """The site at this moment, or a quarter of a second ago."""
        observed = self._service.network_watch.now().observed  # may wait; nobody behind it does
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH_SECONDS:
                made = self._make(observed)
                self._last = (time.monotonic(), made)
            return self._last[1]

    def _make(self, observed: Observed) -> Overview:
        service, now = self._service, time.time()
        registered = self._registered()  # before the plan is looked at: it must have them all
        view = self._present_view()
        told = self._told(view, now)
        told = replace(
            told,
            registered=registered,
            unseen_links=self._unseen_links.now(told.network, observed.topology, now),
            quiet=self._quiet_now(now),
            observed=observed,
            reduced_since=self._reduced_since(),
        )
        return overview(service.status(), view, service.site.network, told, now)

    def _told(self, view: SiteView | None, now: float) -> Told:
        service = self._service
        reports = ReportStore(service.database)
        latest = reports.latest_of_clients(now - LIVE_SECONDS)
        self._listen(reports, latest, view, now)
        with service.database.reading() as connection:
            network = setting(connection, "network", Network) or service.site.network
        return Told(
            network=network,
            window_seconds=LIVE_SECONDS,
            reports=[each for _, each in latest],
            last_heard=self._last_heard,
            heartbeats=reports.heartbeats(),
        )

    def note_silence(self) -> None:
        """Once for each step of history, what does not come and nobody reports goes into it."""
        if time.time() - self._silence_noted_at < STEP_SECONDS:
            return
        with self._lock:
            now = time.time()
            seconds, view = now - self._silence_noted_at, self._present_view()
            if seconds < STEP_SECONDS:
                return
            self._silence_noted_at = now
            silent = silent_offers(view, self._told(view, now), now) if view else {}
        if view is None or not silent or seconds > LIVE_SECONDS:
            return  # nobody was there to say that nothing came
        missing = {priority: rate * seconds for priority, rate in silent.items()}
        with self._service.database.writing() as connection:
            count_missing(connection, missing, view.configuration.version, now)

    def _registered(self) -> list[str]:
        column = tables.registration.c
        wanting = select(column.id).where(column.kind == "subscriber", column.wants > 0)
        with self._service.database.reading() as connection:
            return list(connection.execute(wanting.order_by(column.first_change)).scalars())

    def _listen(
        self,
        reports: ReportStore,
        latest: Sequence[tuple[float, Statistics]],
        view: SiteView | None,
        now: float,
    ) -> None:
        """Remember who was heard; what came while nobody looked is read once."""
        in_force = self._service.in_force
        if view is not None and in_force is not None and self._listened_to != in_force.version:
            self._listened_to = in_force.version
            rows = view.prediction.subscriptions
            self._last_heard.plan(rows, view.published, in_force.since_seconds)
        if now - self._listened_at > LIVE_SECONDS:
            self._last_heard.report(reports.latest_of_clients(self._listened_at))
        self._last_heard.report(latest)
        self._listened_at = now

    def _quiet_now(self, now: float) -> tuple[QuietTopic, ...]:
        """What is declared and, as far as counts are believed, hardly published."""
        if now - self._quiet[0] >= QUIET_TOPICS_EVERY_SECONDS:
            site, state = self._service.site, self._reader.read_topics()
            counted = {
                topic: CountedRate(
                    per_second=basis.rate_per_second, seconds=state.measured[topic].seconds
                )
                for topic, basis in rate_basis(site, state, now).rates.items()
            }
            declared = expected_rates(site, state)
            self._quiet = (now, self._quiet_topics.now(declared, counted, now))
        return self._quiet[1]

    def _present_view(self) -> SiteView | None:
        now = self._service.in_force
        if now is None:
            return None
        if self._view[0] != now.version:
            self._view = (now.version, self._make_view(now))
        return self._view[1]

    def _make_view(self, now: InForce) -> SiteView | None:
        configuration = now.document.value()
        if configuration.prediction is None:
            return None
        return SiteView(
            configuration=configuration,
            prediction=configuration.prediction,
            scenario=planning_scenario(self._service.site, self._reader.read(), now.basis),
        )

    def _reduced_since(self) -> dict[Port, datetime]:
        """Since when, without a break, each port has been said to have less bandwidth."""
        column = tables.change.c
        chosen = (
            select(column.at_seconds, column.detail)
            .where(column.action == "network")
            .order_by(column.number.desc())
            .limit(MOST_NETWORK_CHANGES)
        )
        with self._service.database.reading() as connection:
            rows = connection.execute(chosen).all()
        since: dict[Port, datetime] = {}
        still: set[Port] | None = None
        for row in rows:
            reduced = _ports(json.loads(row.detail)["reduced"]) if row.detail else set()
            still = reduced if still is None else still & reduced
            if not still:
                break
            since |= dict.fromkeys(still, datetime.fromtimestamp(row.at_seconds, UTC))
        return since

    def network(self) -> NetworkView:
        """The network that is planned with, given or the site's, and who is behind which switch."""
        with self._lock:
            state = self._reader.read()
        return NetworkView(
            network=present_network(self._service.site, state),
            given=state.network is not None,
            places=tuple(
                SubscriberPlace(
                    subscriber=name,
                    address=registration.address,
                    switch=state.hosts.get(registration.address, registration.subscriber.switch),
                    seen=registration.address in state.hosts,
                )
                for name, registration in state.subscribers.items()
            ),
        )

    def subscriptions(
        self, seen: frozenset[str]
    ) -> tuple[str, tuple[SubscriptionView, ...] | None]:
        """Every subscription, with a tag that differs when any does; none if ``seen`` has it."""
        with self._lock:
            view = self._present_view()
            with self._service.database.reading() as connection:
                version = view.configuration.version if view else 0
                tag = f'"{version}-{last_change(connection)}"'
                if tag in seen:
                    return tag, None
                state = self._reader.read_in(connection)
        rows = view.prediction.subscriptions if view else ()
        return tag, subscription_views(state.subscribers.values(), rows)


def _ports(reduced: Iterable[str | tuple[str, str | None]]) -> set[Port]:
    """As noted; of switches alone, as it once was, the ports to their hosts."""
    return {(each, None) if isinstance(each, str) else (each[0], each[1]) for each in reduced}


def subscription_views(
    registrations: Iterable[SubscriberRegistration], rows: Iterable[SubscriptionPrediction]
) -> tuple[SubscriptionView, ...]:
    """What is registered beside what is predicted for it."""
    predicted = {(row.subscriber, row.filter): row for row in rows}
    views = []
    for registration in registrations:
        subscriber = registration.subscriber
        for wanted in subscriber.subscriptions:
            row = predicted.get((subscriber.id, wanted.filter))
            views.append(
                SubscriptionView(
                    subscriber=subscriber.id,
                    role=subscriber.role,
                    switch=subscriber.switch,
                    filter=wanted.filter,
                    utility=wanted.utility,
                    qos=wanted.qos,
                    deadline_seconds=wanted.deadline_seconds,
                    deadline_percentile=wanted.deadline_percentile,
                    flow=row.flow if row else None,
                    priority=row.priority if row else None,
                    drop_rate=row.drop_rate if row else None,
                    predicted_delay_mean_seconds=row.delay_mean_seconds if row else None,
                    predicted_delay_p95_seconds=row.delay_p95_seconds if row else None,
                    predicted_success_rate=row.success_rate if row else None,
                    deadline_met=row.deadline_met if row else None,
                )
            )
    return tuple(views)
