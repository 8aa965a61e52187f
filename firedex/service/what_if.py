"""A hypothetical change, planned as a real one would be. Pure."""

import math
import time
from dataclasses import replace
from datetime import UTC, datetime

from firedex.planning import PlanningError
from firedex.service.configuration_difference import difference
from firedex.service.errors import Conflict
from firedex.service.planner import SiteSettings
from firedex.service.planning_scenario import planning_scenario, rate_basis
from firedex.service.settings_store import check_network
from firedex.service.site_plan import PlannedSite, plan_site
from firedex.service.site_state import DeclaredTopic, SiteState
from firedex.wire import Configuration, Flow, Prediction, WireError
from firedex.wire.incident import Incident
from firedex.wire.service_api import WhatIf, WhatIfAnswer

__all__ = ["answer_what_if", "hypothetical"]

LEAST_MOVE = 0.01
"""Of what is predicted: what moves by less is the same to everybody who reads it."""


def hypothetical(state: SiteState, change: WhatIf) -> SiteState:
    """The state as it would be."""
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
    settings: SiteSettings, state: SiteState, now: Configuration | None, change: WhatIf
) -> WhatIfAnswer:
    """Plan for it, and say what would differ from the present, planned with the same rates."""
    if change.network is not None:
        check_network(change.network, settings.site)
    flows, moment = now.flows if now else (), time.time()
    planned = _planned(settings, hypothetical(state, change), flows, moment)
    present = _present(settings, state, flows, moment)
    before = present.plan.table.to_prediction() if present else None
    was = present.flows if present else flows
    return WhatIfAnswer(
        flows=planned.flows,
        prediction=planned.plan.table.to_prediction(),
        report=planned.plan.report,
        difference=difference(now.version if now else 0, was, 0, planned.flows),
        present=before,
        present_is_in_force=bool(now and before and _alike(now, was, before)),
    )


def _present(
    settings: SiteSettings, state: SiteState, flows: tuple[Flow, ...], now_seconds: float
) -> PlannedSite | None:
    """None if it cannot be planned: the change may be what puts that right."""
    try:
        return _planned(settings, state, flows, now_seconds)
    except Conflict:
        return None


def _planned(
    settings: SiteSettings, state: SiteState, flows: tuple[Flow, ...], now_seconds: float
) -> PlannedSite:
    try:
        basis = rate_basis(settings.site, state, now_seconds)
        scenario = planning_scenario(settings.site, state, basis)
        addresses = {name: r.address for name, r in state.subscribers.items()}
        return plan_site(scenario, addresses, settings.gateway, flows)
    except (WireError, PlanningError, ValueError) as error:
        raise Conflict(f"cannot be planned: {error}") from error


def _alike(now: Configuration, flows: tuple[Flow, ...], prediction: Prediction) -> bool:
    """Whether the present plan is, to whoever reads it, the one in force."""
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
    return math.isclose(one, other, rel_tol=LEAST_MOVE, abs_tol=1e-9)
