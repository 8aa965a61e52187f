"""Everything that the first page shows, put together from what the parts say. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from firedex.dashboard.alerts import alerts
from firedex.dashboard.delivery_alerts import Deliveries
from firedex.dashboard.delivery_gaps import (
    Silence,
    SubscriptionKey,
    offered_in_vain,
    short_flows,
    silences,
)
from firedex.dashboard.flow_measurements import (
    FlowKey,
    FlowMeasurement,
    class_rows,
    flow_measurements,
)
from firedex.dashboard.health import controller_health, heartbeat_health, switch_health
from firedex.dashboard.last_heard import LastHeard
from firedex.dashboard.link_reasons import link_trouble, slowness_of_ports, with_reasons
from firedex.dashboard.link_shares import Port, link_rows
from firedex.dashboard.plan_alerts import Unplanned
from firedex.dashboard.quiet_topics import QuietTopic
from firedex.dashboard.site_view import SiteView
from firedex.dashboard.unseen_links import UnseenLink
from firedex.wire import Network, NetworkStatistics, NetworkTopology, Statistics
from firedex.wire.overview import Overview, PartHealth, SilentSubscription
from firedex.wire.service_api import KeptHeartbeat, ServiceStatus

__all__ = ["Observed", "Told", "overview", "silent_offers"]

MOST_LATE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the controller says. ``asked``: there is one; ``error``: why it said nothing."""

    asked: bool = False
    error: str | None = None
    topology: NetworkTopology | None = None
    statistics: NetworkStatistics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the parts told the service lately: ``reports`` within ``window_seconds``.

    ``network``: as it was said to be last, whether or not a plan with it is in force.
    ``registered``: the subscribers that want anything. ``quiet``: topics that are declared and
    hardly published.
    """

    network: Network
    window_seconds: float = 30.0
    registered: Sequence[str] = ()
    reports: Sequence[Statistics] = ()
    last_heard: LastHeard = field(default_factory=LastHeard)
    quiet: Sequence[QuietTopic] = ()
    heartbeats: Iterable[KeptHeartbeat] = ()
    observed: Observed = field(default_factory=Observed)
    unseen_links: Sequence[UnseenLink] = ()
    reduced_since: Mapping[Port, datetime] = field(default_factory=dict)


def overview(
    status: ServiceStatus,
    view: SiteView | None,
    built: Network,
    told: Told,
    now_seconds: float,
) -> Overview:
    """The site at ``now_seconds``; ``built``: its network as it was built."""
    observed = told.observed
    parts = [
        *heartbeat_health(
            told.heartbeats, [s.id for s in view.scenario.subscribers] if view else ()
        ),
        controller_health(observed.asked, observed.error, observed.topology is not None),
        *switch_health(observed.topology),
    ]
    common = {
        "name": status.name,
        "now_seconds": now_seconds,
        "measured_within_seconds": told.window_seconds,
        "version": status.in_force_version,
        "in_force_since": status.in_force_since,
        "pending_changes": status.pending_changes,
        "incident": status.incident,
        "trouble": status.trouble,
        "parts": tuple(parts),
    }
    if view is None:
        said = alerts(
            trouble=status.trouble,
            late=(),
            links=(),
            classes=(),
            parts=parts,
            deliveries=None,
            unplanned=_unplanned(status, (), now_seconds),
        )
        return Overview(**common, alerts=said)  # type: ignore[arg-type]
    off = _off(parts, told.reports)
    measured = _measured(view, told, off)
    deliveries = _deliveries(view, measured, told, off, now_seconds)
    in_vain = offered_in_vain(deliveries.silent, measured)
    classes = class_rows(view.prediction.classes, view.forecasts, measured, in_vain)
    links = link_rows(
        told.network,
        built,
        view.shares,
        reduced_since=told.reduced_since,
        topology=observed.topology,
        statistics=observed.statistics,
    )
    troubles = {
        (link.switch, link.towards): trouble
        for link in links
        if (trouble := link_trouble(link)) is not None
    }
    gone = view.without_publisher(told.quiet, off)
    silent = gone | {(one.subscriber, one.filter): one.part for one in deliveries.silent}
    slowness = slowness_of_ports(troubles, view.ways, view.forecasts, measured)
    late = with_reasons(view.late(measured, silent), view.ways, troubles, slowness)
    return Overview(
        **common,  # type: ignore[arg-type]
        utility=view.utility(measured, silent),
        classes=classes,
        late=tuple(late[:MOST_LATE]),
        late_in_all=len(late),
        deadlines=view.deadlines(measured, silent),
        predicted_late=view.prediction.deadlines_missed,
        links=links,
        silent=_silent(deliveries.silent, gone),
        alerts=alerts(
            trouble=status.trouble,
            late=late,
            links=links,
            classes=classes,
            parts=parts,
            deliveries=deliveries,
            commanders=view.commanders,
            unseen=told.unseen_links,
            unplanned=_unplanned(status, _not_planned_for(status, view, told), now_seconds),
        ),
    )


def _silent(
    found: Iterable[Silence], gone: Mapping[SubscriptionKey, float]
) -> tuple[SilentSubscription, ...]:
    known = {
        (one.subscriber, one.filter): SilentSubscription(
            subscriber=one.subscriber, filter=one.filter, topics=one.topics
        )
        for one in found
    }
    for key, part in gone.items():
        if part >= 1:
            known[key] = SilentSubscription(subscriber=key[0], filter=key[1])
    return tuple(known.values())


def silent_offers(view: SiteView, told: Told, now_seconds: float) -> Mapping[int, float]:
    """Events a second of each class that are offered to somebody, and of which nothing comes."""
    clients = heartbeat_health(told.heartbeats, [s.id for s in view.scenario.subscribers])
    off = _off(clients, told.reports)
    measured = _measured(view, told, off)
    return offered_in_vain(_silences(view, measured, told, off, now_seconds), measured)


def _not_planned_for(status: ServiceStatus, view: SiteView, told: Told) -> Sequence[str]:
    if status.in_force_version != view.configuration.version:
        return ()  # a new plan has come meanwhile
    return view.not_planned_for(told.registered)


def _unplanned(status: ServiceStatus, subscribers: Sequence[str], now_seconds: float) -> Unplanned:
    since = status.pending_since
    return Unplanned(
        changes=status.pending_changes,
        since=since,
        waiting_seconds=now_seconds - since.timestamp() if since else 0.0,
        subscribers=subscribers,
    )


def _off(parts: Iterable[PartHealth], reports: Iterable[Statistics]) -> Set[str]:
    """Clients that were not heard lately: what reaches them is not known."""
    reporters = {report.reporter for report in reports}
    return {
        part.part
        for part in parts
        if part.kind == "client"
        and (part.state == "stale" or (part.state == "unknown" and part.part not in reporters))
    }


def _measured(view: SiteView, told: Told, off: Set[str]) -> Mapping[FlowKey, FlowMeasurement]:
    found = flow_measurements(told.reports, view.configuration.version)
    return {key: flow for key, flow in found.items() if key[0] not in off}


def _silences(
    view: SiteView,
    measured: Mapping[FlowKey, FlowMeasurement],
    told: Told,
    off: Set[str],
    now_seconds: float,
) -> Sequence[Silence]:
    def silent_seconds(subscriber: str, name: str, topic: str) -> float:
        return told.last_heard.silent_seconds(subscriber, name, topic, now_seconds)

    return silences(
        view.prediction.subscriptions,
        measured,
        view.topics_of,
        silent_seconds,
        least_seconds=told.window_seconds,
        off=off,
    )


def _deliveries(
    view: SiteView,
    measured: Mapping[FlowKey, FlowMeasurement],
    told: Told,
    off: Set[str],
    now_seconds: float,
) -> Deliveries:
    predicted = view.forecasts
    silent = _silences(view, measured, told, off, now_seconds)
    return Deliveries(
        measured=bool(measured),
        predicted_per_second=sum(each.delivered_per_second for each in predicted.values()),
        window_seconds=told.window_seconds,
        silent=silent,
        short=short_flows(predicted, measured),
        unpublished=view.unpublished(told.quiet),
        all_silent=bool(silent)
        and not off
        and not any(flow.delivered for flow in measured.values()),
    )
