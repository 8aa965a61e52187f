"""The overview of a site: all figures of the first page, from reports of all components. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from firedex.dashboard.alerts import Deliveries, PendingChanges, alerts
from firedex.dashboard.delivery_gaps import (
    LastDeliveries,
    SilentDelivery,
    SilentTopic,
    SubscriptionKey,
    lossy_flows,
    silent_deliveries,
    undelivered_rates,
)
from firedex.dashboard.flow_measurements import (
    FlowKey,
    FlowMeasurement,
    class_rows,
    flow_measurements,
)
from firedex.dashboard.health import controller_health, heartbeat_health, switch_health
from firedex.dashboard.links import (
    MissingLink,
    Port,
    add_reasons,
    link_rows,
    link_trouble,
    lowest_percentiles,
)
from firedex.dashboard.security_alerts import security_alerts
from firedex.dashboard.site_view import SiteView
from firedex.wire import Network, NetworkStatistics, NetworkTopology, Statistics
from firedex.wire.overview import Overview, PartHealth, SilentSubscription
from firedex.wire.service_api import HeartbeatRecord, ServiceStatus

__all__ = ["ControllerView", "ServiceReports", "overview", "silent_rates"]

MAX_LATE_SUBSCRIPTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """The last responses of the controller. ``configured``: the service has the address of one."""

    configured: bool = False
    error: str | None = None
    topology: NetworkTopology | None = None
    statistics: NetworkStatistics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReports:
    """Recent data that the service received; ``reports`` are those within ``window_seconds``.

    ``network``: the latest network, even if no active configuration uses it yet. ``registered``:
    subscribers with subscriptions. ``silent_topics``: declared topics that are hardly published.
    """

    network: Network
    window_seconds: float = 30.0
    registered: Sequence[str] = ()
    reports: Sequence[Statistics] = ()
    last_deliveries: LastDeliveries = field(default_factory=LastDeliveries)
    silent_topics: Sequence[SilentTopic] = ()
    heartbeats: Iterable[HeartbeatRecord] = ()
    controller: ControllerView = field(default_factory=ControllerView)
    missing_links: Sequence[MissingLink] = ()
    reduced_since: Mapping[Port, datetime] = field(default_factory=dict)


def overview(
    status: ServiceStatus,
    view: SiteView | None,
    built: Network,
    received: ServiceReports,
    now_seconds: float,
) -> Overview:
    """Return the overview at ``now_seconds``; ``built``: the network of the scenario file."""
    controller = received.controller
    heartbeats = tuple(received.heartbeats)
    security = security_alerts(heartbeats)
    parts = [
        *heartbeat_health(heartbeats, [s.id for s in view.scenario.subscribers] if view else ()),
        controller_health(controller.configured, controller.error, controller.topology is not None),
        *switch_health(controller.topology),
    ]
    common = {
        "name": status.name,
        "now_seconds": now_seconds,
        "measured_within_seconds": received.window_seconds,
        "version": status.active_version,
        "active_since": status.active_since,
        "pending_changes": status.pending_changes,
        "incident": status.incident,
        "trouble": status.trouble,
        "parts": tuple(parts),
    }
    if view is None:
        without_view = alerts(
            trouble=status.trouble,
            late=(),
            links=(),
            classes=(),
            parts=parts,
            deliveries=None,
            pending=_pending_changes(status, (), now_seconds),
            security=security,
        )
        return Overview(**common, alerts=without_view)  # type: ignore[arg-type]
    offline = _offline_clients(parts, received.reports)
    measured = _measured(view, received, offline)
    deliveries = _deliveries(view, measured, received, offline, now_seconds)
    undelivered = undelivered_rates(deliveries.silent, measured)
    classes = class_rows(view.prediction.classes, view.forecasts, measured, undelivered)
    links = link_rows(
        received.network,
        built,
        view.shares,
        reduced_since=received.reduced_since,
        topology=controller.topology,
        statistics=controller.statistics,
    )
    troubles = {
        (link.switch, link.towards): trouble
        for link in links
        if (trouble := link_trouble(link)) is not None
    }
    unpublished = view.unpublished_shares(received.silent_topics, offline)
    silent = unpublished | {(one.subscriber, one.filter): one.part for one in deliveries.silent}
    slowness = lowest_percentiles(troubles, view.paths, view.forecasts, measured)
    late = add_reasons(view.late_subscriptions(measured, silent), view.paths, troubles, slowness)
    return Overview(
        **common,  # type: ignore[arg-type]
        utility=view.utility(measured, silent),
        classes=classes,
        late=tuple(late[:MAX_LATE_SUBSCRIPTIONS]),
        late_in_all=len(late),
        deadlines=view.deadlines(measured, silent),
        predicted_late=view.prediction.deadlines_missed,
        links=links,
        silent=_silent(deliveries.silent, unpublished),
        alerts=alerts(
            trouble=status.trouble,
            late=late,
            links=links,
            classes=classes,
            parts=parts,
            deliveries=deliveries,
            commanders=view.commanders,
            unseen=received.missing_links,
            security=security,
            pending=_pending_changes(
                status, _missing_subscribers(status, view, received), now_seconds
            ),
        ),
    )


def _silent(
    found: Iterable[SilentDelivery], unpublished: Mapping[SubscriptionKey, float]
) -> tuple[SilentSubscription, ...]:
    known = {
        (one.subscriber, one.filter): SilentSubscription(
            subscriber=one.subscriber, filter=one.filter, topics=one.topics
        )
        for one in found
    }
    for key, part in unpublished.items():
        if part >= 1:
            known[key] = SilentSubscription(subscriber=key[0], filter=key[1])
    return tuple(known.values())


def silent_rates(
    view: SiteView, received: ServiceReports, now_seconds: float
) -> Mapping[int, float]:
    """Return the offered rate of each class without any delivery."""
    clients = heartbeat_health(received.heartbeats, [s.id for s in view.scenario.subscribers])
    offline = _offline_clients(clients, received.reports)
    measured = _measured(view, received, offline)
    return undelivered_rates(
        _silent_deliveries(view, measured, received, offline, now_seconds), measured
    )


def _missing_subscribers(
    status: ServiceStatus, view: SiteView, received: ServiceReports
) -> Sequence[str]:
    if status.active_version != view.configuration.version:
        return ()  # the view belongs to an older configuration
    return view.missing_subscribers(received.registered)


def _pending_changes(
    status: ServiceStatus, subscribers: Sequence[str], now_seconds: float
) -> PendingChanges:
    since = status.pending_since
    return PendingChanges(
        changes=status.pending_changes,
        since=since,
        waiting_seconds=now_seconds - since.timestamp() if since else 0.0,
        subscribers=subscribers,
    )


def _offline_clients(parts: Iterable[PartHealth], reports: Iterable[Statistics]) -> Set[str]:
    """Return clients without a recent heartbeat or report; their deliveries are unknown."""
    reporters = {report.reporter for report in reports}
    return {
        part.part
        for part in parts
        if part.kind == "client"
        and (part.state == "stale" or (part.state == "unknown" and part.part not in reporters))
    }


def _measured(
    view: SiteView, received: ServiceReports, offline: Set[str]
) -> Mapping[FlowKey, FlowMeasurement]:
    found = flow_measurements(received.reports, view.configuration.version)
    return {key: flow for key, flow in found.items() if key[0] not in offline}


def _silent_deliveries(
    view: SiteView,
    measured: Mapping[FlowKey, FlowMeasurement],
    received: ServiceReports,
    offline: Set[str],
    now_seconds: float,
) -> Sequence[SilentDelivery]:
    def silent_seconds(subscriber: str, name: str, topic: str) -> float:
        return received.last_deliveries.silent_seconds(subscriber, name, topic, now_seconds)

    return silent_deliveries(
        view.prediction.subscriptions,
        measured,
        view.topics_of,
        silent_seconds,
        least_seconds=received.window_seconds,
        offline=offline,
    )


def _deliveries(
    view: SiteView,
    measured: Mapping[FlowKey, FlowMeasurement],
    received: ServiceReports,
    offline: Set[str],
    now_seconds: float,
) -> Deliveries:
    predicted = view.forecasts
    silent = _silent_deliveries(view, measured, received, offline, now_seconds)
    return Deliveries(
        measured=bool(measured),
        predicted_per_second=sum(each.delivered_per_second for each in predicted.values()),
        window_seconds=received.window_seconds,
        silent=silent,
        lossy_flows=lossy_flows(predicted, measured),
        unpublished=view.unpublished_topics(received.silent_topics),
        all_silent=bool(silent)
        and not offline
        and not any(flow.delivered for flow in measured.values()),
    )
