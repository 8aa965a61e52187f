"""Plan a hypothetical change in the same way as a real one."""

import math
import time
from dataclasses import replace
from datetime import UTC, datetime

from firedex.planning import PlanningError
from firedex.service.errors import Conflict
from firedex.service.planner.configuration_difference import difference
from firedex.service.planner.planned_rates import rate_snapshot
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.planner.site_plan import PlannedSite, plan_site
from firedex.service.state.settings_store import check_network
from firedex.service.state.site_state import DeclaredTopic, SiteState
from firedex.wire import Configuration, Flow, Prediction, WireError
from firedex.wire.incident import Incident
from firedex.wire.service_api import WhatIfRequest, WhatIfResult

__all__ = ["answer_what_if", "hypothetical_state"]

RELATIVE_TOLERANCE = 0.01
"""Predictions that differ by less are treated as equal."""


def hypothetical_state(state: SiteState, change: WhatIfRequest) -> SiteState:
    """Return the state after the hypothetical change."""
    subscribers = {
        name: r for name, r in state.subscribers.items() if name not in change.without_subscribers
    }
    subscribers |= {r.subscriber.id: r for r in change.subscribers}
    publishers = {
        name: r for name, r in state.publishers.items() if name not in change.without_publishers
    }
    publishers |= {r.publisher.id: r for r in change.publishers}
    topics = dict(state.topics)
    for registration in change.publishers:
        for topic in registration.topics:
            declared = DeclaredTopic(topic=topic, declared_by=registration.publisher.id)
            topics.setdefault(topic.name, declared)
    incident = state.incident
    if change.phase is not None:
        now = datetime.now(UTC)
        incident = Incident(title="what if", phase=change.phase, opened_at=now, phase_since=now)
    return replace(
        state,
        subscribers=subscribers,
        publishers=publishers,
        topics=topics,
        incident=incident,
        network=change.network or state.network,
    )


def answer_what_if(
    settings: SiteSettings, state: SiteState, now: Configuration | None, change: WhatIfRequest
) -> WhatIfResult:
    """Plan the change and compare it with the present state, planned with the same rates."""
    if change.network is not None:
        check_network(change.network, settings.site)
    flows, moment = now.flows if now else (), time.time()
    planned = _planned(settings, hypothetical_state(state, change), flows, moment)
    present = _present(settings, state, flows, moment)
    before = present.plan.table.to_prediction() if present else None
    was = present.flows if present else flows
    return WhatIfResult(
        flows=planned.flows,
        prediction=planned.plan.table.to_prediction(),
        report=planned.plan.report,
        difference=difference(now.version if now else 0, was, 0, planned.flows),
        present=before,
        present_is_active=bool(now and before and _same_service(now, was, before)),
    )


def _present(
    settings: SiteSettings, state: SiteState, flows: tuple[Flow, ...], now_seconds: float
) -> PlannedSite | None:
    """Return the plan of the present state; None if there is none, which the change may fix."""
    try:
        return _planned(settings, state, flows, now_seconds)
    except Conflict:
        return None


def _planned(
    settings: SiteSettings, state: SiteState, flows: tuple[Flow, ...], now_seconds: float
) -> PlannedSite:
    try:
        snapshot = rate_snapshot(settings.site, state, now_seconds)
        scenario = planning_scenario(settings.site, state, snapshot)
        addresses = {name: r.address for name, r in state.subscribers.items()}
        return plan_site(scenario, addresses, settings.gateway, flows)
    except (WireError, PlanningError, ValueError) as error:
        raise Conflict(f"the change cannot be planned: {error}") from error


def _same_service(now: Configuration, flows: tuple[Flow, ...], prediction: Prediction) -> bool:
    """Return True if users would see no difference between the present plan and the active one."""
    if now.prediction is None or difference(0, now.flows, 0, flows).subscriptions:
        return False
    was, would = (
        {(row.subscriber, row.filter): row for row in each.subscriptions}
        for each in (now.prediction, prediction)
    )
    return was.keys() == would.keys() and all(
        _close(row.delay_p95_seconds, would[key].delay_p95_seconds)
        and _close(row.success_rate, would[key].success_rate)
        for key, row in was.items()
    )


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-9)
