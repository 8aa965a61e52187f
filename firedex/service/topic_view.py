"""Topics as the API shows them: declared, measured, planned with. Pure."""

import time
from datetime import UTC, datetime

from firedex.service.offered_rates import OfferedRate, confidence
from firedex.service.planning_scenario import expected_rates, payload_bytes, rate_basis
from firedex.service.site_state import SiteState
from firedex.wire import Scenario, Topic
from firedex.wire.service_api import MeasuredRate, TopicState

__all__ = ["topic_states"]


def topic_states(site: Scenario, state: SiteState) -> tuple[TopicState, ...]:
    """All topics that are declared or seen."""
    declared = expected_rates(site, state)
    topics: dict[str, tuple[Topic, str | None]] = {t.name: (t, None) for t in site.topics}
    for name, known in state.topics.items():
        topics.setdefault(name, (known.topic, known.declared_by))
    for name, rate in state.measured.items():
        topics.setdefault(
            name, (Topic(name=name, event_bytes=payload_bytes(rate.event_bytes)), None)
        )
    basis = rate_basis(site, state, time.time())
    return tuple(
        TopicState(
            name=name,
            event_bytes=topic.event_bytes,
            size_distribution=topic.size_distribution,
            declared_by=by,
            declared_rate_per_second=declared.get(name, 0.0),
            measured=_measured(state.measured.get(name)),
            planned_rate_per_second=basis.rates[name].rate_per_second
            if name in basis.rates
            else declared.get(name, 0.0),
        )
        for name, (topic, by) in topics.items()
    )


def _measured(known: OfferedRate | None) -> MeasuredRate | None:
    if known is None:
        return None
    return MeasuredRate(
        rate_per_second=known.rate_per_second,
        event_bytes=known.event_bytes,
        confidence=confidence(known),
        measured_at=datetime.fromtimestamp(known.at_seconds, UTC),
    )
