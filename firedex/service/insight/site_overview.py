"""The overview of the site; callers within a quarter of a second share one result."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from firedex.dashboard.delivery_gaps import CountedRate, LastDeliveries, SilentTopic, SilentTopics
from firedex.dashboard.links import MissingLinks, Port
from firedex.dashboard.overview import ControllerView, ServiceReports, overview, silent_rates
from firedex.dashboard.site_view import SiteView
from firedex.service.insight.network_watch import NetworkWatch
from firedex.service.planner.planned_rates import expected_rates, rate_snapshot
from firedex.service.planner.planning_scenario import planning_scenario, present_network
from firedex.service.state.change_ledger import last_change
from firedex.service.state.class_history import STEP_SECONDS, add_missing
from firedex.service.state.configuration_store import ActiveConfiguration
from firedex.service.state.database import Database
from firedex.service.state.queries import bandwidth_reductions, subscribers_with_subscriptions
from firedex.service.state.report_store import ReportStore
from firedex.service.state.state_reader import StateReader, setting
from firedex.wire import (
    Network,
    Scenario,
    Statistics,
    SubscriberRegistration,
    SubscriptionPrediction,
)
from firedex.wire.overview import Overview, SubscriptionView
from firedex.wire.service_api import NetworkView, ServiceStatus, SubscriberLocation

__all__ = ["LIVE_SECONDS", "SiteOverview", "subscription_views"]

FRESH_SECONDS = 0.25
LIVE_SECONDS = 30.0
"""Older reports are not part of the overview."""
MAX_NETWORK_CHANGES = 200
SILENT_TOPICS_INTERVAL_SECONDS = 5.0
"""Silent topics are computed this often: there may be many topics, and rates change slowly."""


class ServiceView(Protocol):
    """The part of the service that the overview reads."""

    database: Database
    network_watch: NetworkWatch
    active: ActiveConfiguration | None

    @property
    def site(self) -> Scenario:
        """The site that the service was started with."""

    def status(self) -> ServiceStatus:
        """Return the status of the service."""


class SiteOverview:
    """The overview of one service; ``reader`` reads its state."""

    def __init__(self, service: ServiceView, reader: StateReader) -> None:
        self._service, self._reader = service, reader
        self._lock = threading.Lock()
        self._view: tuple[int, SiteView | None] = (0, None)
        self._last_deliveries, self._recorded_at, self._recorded_version = LastDeliveries(), 0.0, 0
        self._silent_topics = SilentTopics()
        self._last_silent_topics = (0.0, tuple[SilentTopic, ...]())
        self._missing_links = MissingLinks()
        self._silence_noted_at = 0.0
        self._last: tuple[float, Overview] | None = None

    def now(self) -> Overview:
        """Return the overview; it is at most a quarter of a second old."""
        # This may wait for the controller, so the lock is not held.
        controller = self._service.network_watch.now().observed
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH_SECONDS:
                self._last = (time.monotonic(), self._make(controller))
            return self._last[1]

    def _make(self, controller: ControllerView) -> Overview:
        service, now = self._service, time.time()
        # Read before the view, so that the view includes all of them.
        registered = subscribers_with_subscriptions(service.database)
        view = self._active_view()
        reports = self._service_reports(view, now)
        reports = replace(
            reports,
            registered=registered,
            missing_links=self._missing_links.update(reports.network, controller.topology, now),
            silent_topics=self._find_silent_topics(now),
            controller=controller,
            reduced_since=self._reduced_since(),
        )
        return overview(service.status(), view, service.site.network, reports, now)

    def _service_reports(self, view: SiteView | None, now: float) -> ServiceReports:
        service = self._service
        reports = ReportStore(service.database)
        latest = reports.latest_of_clients(now - LIVE_SECONDS)
        self._record_deliveries(reports, latest, view, now)
        with service.database.reading() as connection:
            network = setting(connection, "network", Network) or service.site.network
        return ServiceReports(
            network=network,
            window_seconds=LIVE_SECONDS,
            reports=[each for _, each in latest],
            last_deliveries=self._last_deliveries,
            heartbeats=reports.heartbeats(),
        )

    def note_silence(self) -> None:
        """Add expected events without any report to the history, once for each of its steps."""
        if time.time() - self._silence_noted_at < STEP_SECONDS:
            return
        with self._lock:
            now = time.time()
            seconds, view = now - self._silence_noted_at, self._active_view()
            if seconds < STEP_SECONDS:
                return
            self._silence_noted_at = now
            silent = silent_rates(view, self._service_reports(view, now), now) if view else {}
        if view is None or not silent or seconds > LIVE_SECONDS:
            return  # the service was stopped meanwhile, so the silence is not known
        missing = {priority: rate * seconds for priority, rate in silent.items()}
        with self._service.database.writing() as connection:
            add_missing(connection, missing, view.configuration.version, now)

    def _record_deliveries(
        self,
        reports: ReportStore,
        latest: Sequence[tuple[float, Statistics]],
        view: SiteView | None,
        now: float,
    ) -> None:
        """Record deliveries; reports since the last call are read once."""
        active = self._service.active
        if view is not None and active is not None and self._recorded_version != active.version:
            self._recorded_version = active.version
            rows = view.prediction.subscriptions
            self._last_deliveries.plan(rows, view.topic_rates, active.since_seconds)
        if now - self._recorded_at > LIVE_SECONDS:
            self._last_deliveries.report(reports.latest_of_clients(self._recorded_at))
        self._last_deliveries.report(latest)
        self._recorded_at = now

    def _find_silent_topics(self, now: float) -> tuple[SilentTopic, ...]:
        """Return topics that are declared but, by credible counts, hardly published."""
        if now - self._last_silent_topics[0] >= SILENT_TOPICS_INTERVAL_SECONDS:
            site, state = self._service.site, self._reader.read_topics()
            counted = {
                topic: CountedRate(
                    per_second=basis.rate_per_second, seconds=state.measured[topic].seconds
                )
                for topic, basis in rate_snapshot(site, state, now).rates.items()
            }
            declared = expected_rates(site, state)
            self._last_silent_topics = (now, self._silent_topics.update(declared, counted, now))
        return self._last_silent_topics[1]

    def _active_view(self) -> SiteView | None:
        now = self._service.active
        if now is None:
            return None
        if self._view[0] != now.version:
            self._view = (now.version, self._make_view(now))
        return self._view[1]

    def _make_view(self, now: ActiveConfiguration) -> SiteView | None:
        configuration = now.document.value()
        if configuration.prediction is None:
            return None
        return SiteView(
            configuration=configuration,
            prediction=configuration.prediction,
            scenario=planning_scenario(self._service.site, self._reader.read(), now.rate_snapshot),
        )

    def _reduced_since(self) -> dict[Port, datetime]:
        """Return since when each port has had a reduced bandwidth without interruption."""
        since: dict[Port, datetime] = {}
        still: frozenset[Port] | None = None
        for change in bandwidth_reductions(self._service.database, MAX_NETWORK_CHANGES):
            still = change.ports if still is None else still & change.ports
            if not still:
                break
            since |= dict.fromkeys(still, change.at)
        return since

    def network(self) -> NetworkView:
        """Return the network that plans use, and the switch of each subscriber."""
        with self._lock:
            state = self._reader.read()
        return NetworkView(
            network=present_network(self._service.site, state),
            given=state.network is not None,
            places=tuple(
                SubscriberLocation(
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
        """Return the ETag, and all subscriptions or, if ``seen`` contains the ETag, None."""
        with self._lock:
            view = self._active_view()
            with self._service.database.reading() as connection:
                version = view.configuration.version if view else 0
                tag = f'"{version}-{last_change(connection)}"'
                if tag in seen:
                    return tag, None
                state = self._reader.read_in(connection)
        rows = view.prediction.subscriptions if view else ()
        return tag, subscription_views(state.subscribers.values(), rows)


def subscription_views(
    registrations: Iterable[SubscriberRegistration], rows: Iterable[SubscriptionPrediction]
) -> tuple[SubscriptionView, ...]:
    """Return each registered subscription with its prediction."""
    predicted = {(row.subscriber, row.filter): row for row in rows}
    views = []
    for registration in registrations:
        subscriber = registration.subscriber
        for subscription in subscriber.subscriptions:
            row = predicted.get((subscriber.id, subscription.filter))
            views.append(
                SubscriptionView(
                    subscriber=subscriber.id,
                    role=subscriber.role,
                    switch=subscriber.switch,
                    filter=subscription.filter,
                    utility=subscription.utility,
                    qos=subscription.qos,
                    deadline_seconds=subscription.deadline_seconds,
                    deadline_percentile=subscription.deadline_percentile,
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
