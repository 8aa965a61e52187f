"""A hypothetical change, planned as a real one would be. Pure."""

import time
from dataclasses import replace
from datetime import UTC, datetime

from firedex.planning import PlanningError
from firedex.service.configuration_difference import difference
from firedex.service.errors import Conflict
from firedex.service.planner import SiteSettings
from firedex.service.planning_scenario import planning_scenario, rate_basis
from firedex.service.settings_store import check_network
from firedex.service.site_plan import plan_site
from firedex.service.site_state import DeclaredTopic, SiteState
from firedex.wire import Configuration, WireError
from firedex.wire.incident import Incident
from firedex.wire.service_api import WhatIf, WhatIfAnswer

__all__ = ["answer_what_if", "hypothetical"]


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
    """Plan for it, and say what would differ from what is in force."""
    if change.network is not None:
        check_network(change.network, settings.site)
    assumed = hypothetical(state, change)
    flows = now.flows if now else ()
    try:
        scenario = planning_scenario(
            settings.site, assumed, rate_basis(settings.site, assumed, time.time())
        )
        addresses = {name: r.address for name, r in assumed.subscribers.items()}
        planned = plan_site(scenario, addresses, settings.gateway, flows)
    except (WireError, PlanningError, ValueError) as error:
        raise Conflict(f"cannot be planned: {error}") from error
    return WhatIfAnswer(
        flows=planned.flows,
        prediction=planned.plan.table.to_prediction(),
        report=planned.plan.report,
        difference=difference(now.version if now else 0, flows, 0, planned.flows),
    )
