"""Everything that the first page shows, put together from what the parts say. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from firedex.dashboard.alerts import Deliveries, alerts, link_trouble, with_reasons
from firedex.dashboard.delivery_gaps import short_flows, silent_flows
from firedex.dashboard.flow_measurements import (
    FlowKey,
    FlowMeasurement,
    class_rows,
    flow_measurements,
)
from firedex.dashboard.health import controller_health, heartbeat_health, switch_health
from firedex.dashboard.link_shares import Port, link_rows
from firedex.dashboard.site_view import SiteView
from firedex.wire import Network, NetworkStatistics, NetworkTopology, Statistics
from firedex.wire.overview import Overview
from firedex.wire.service_api import KeptHeartbeat, ServiceStatus

__all__ = ["Observed", "Told", "overview"]

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
    """What the parts told the service lately: ``reports`` within ``window_seconds``."""

    window_seconds: float = 30.0
    reports: Iterable[Statistics] = ()
    heartbeats: Iterable[KeptHeartbeat] = ()
    observed: Observed = field(default_factory=Observed)
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
            trouble=status.trouble, late=(), links=(), classes=(), parts=parts, deliveries=None
        )
        return Overview(**common, alerts=said)  # type: ignore[arg-type]
    measured = flow_measurements(told.reports, view.configuration.version)
    classes = class_rows(view.prediction.classes, view.priorities, measured)
    links = link_rows(
        view.scenario.network,
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
    deliveries = _deliveries(
        view, measured, told.window_seconds, _age(status.in_force_since, now_seconds)
    )
    silent = {(flow.subscriber, flow.flow) for flow in deliveries.silent}
    late = with_reasons(view.late(measured, silent), view.ways, troubles)
    return Overview(
        **common,  # type: ignore[arg-type]
        utility=view.utility(measured, silent),
        classes=classes,
        late=tuple(late[:MOST_LATE]),
        late_in_all=len(late),
        predicted_late=view.prediction.deadlines_missed,
        links=links,
        alerts=alerts(
            trouble=status.trouble,
            late=late,
            links=links,
            classes=classes,
            parts=parts,
            deliveries=deliveries,
        ),
    )


def _age(since: datetime | None, now_seconds: float) -> float:
    return now_seconds - since.astimezone(UTC).timestamp() if since else 0.0


def _deliveries(
    view: SiteView,
    measured: Mapping[FlowKey, FlowMeasurement],
    window_seconds: float,
    in_force_seconds: float,
) -> Deliveries:
    predicted = view.forecasts
    silent = silent_flows(
        predicted, measured, window_seconds=window_seconds, in_force_seconds=in_force_seconds
    )
    return Deliveries(
        measured=bool(measured),
        predicted_per_second=sum(each.delivered_per_second for each in predicted.values()),
        window_seconds=window_seconds,
        silent=silent,
        short=short_flows(predicted, measured),
        all_silent=bool(silent) and not any(flow.delivered for flow in measured.values()),
    )
