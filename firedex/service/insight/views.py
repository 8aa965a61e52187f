"""Topics and deviations as the API shows them. Pure, except for the clock."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from firedex.service.planner.planned_rates import expected_rates, rate_snapshot
from firedex.service.planner.planning_scenario import payload_bytes
from firedex.service.state.configuration_document import ConfigurationDocument
from firedex.service.state.offered_rates import OfferedRate, confidence
from firedex.service.state.site_state import SiteState
from firedex.wire import Scenario, Statistics, SubscriptionPrediction, Topic
from firedex.wire.service_api import Deviation, MeasuredRate, TopicState, count_numbered_events

__all__ = ["delay_ratios", "deviations", "topic_states"]


def topic_states(site: Scenario, state: SiteState) -> tuple[TopicState, ...]:
    """Return all topics that are declared or measured."""
    declared = expected_rates(site, state)
    topics: dict[str, tuple[Topic, str | None]] = {t.name: (t, None) for t in site.topics}
    for name, estimate in state.topics.items():
        topics.setdefault(name, (estimate.topic, estimate.declared_by))
    for name, rate in state.measured.items():
        topics.setdefault(
            name, (Topic(name=name, event_bytes=payload_bytes(rate.event_bytes)), None)
        )
    snapshot = rate_snapshot(site, state, time.time())
    return tuple(
        TopicState(
            name=name,
            event_bytes=topic.event_bytes,
            size_distribution=topic.size_distribution,
            declared_by=publisher,
            declared_rate_per_second=declared.get(name, 0.0),
            measured=_measured(state.measured.get(name)),
            planned_rate_per_second=snapshot.rates[name].rate_per_second
            if name in snapshot.rates
            else declared.get(name, 0.0),
        )
        for name, (topic, publisher) in topics.items()
    )


def _measured(estimate: OfferedRate | None) -> MeasuredRate | None:
    if estimate is None:
        return None
    return MeasuredRate(
        rate_per_second=estimate.rate_per_second,
        event_bytes=estimate.event_bytes,
        confidence=confidence(estimate),
        measured_at=datetime.fromtimestamp(estimate.at_seconds, UTC),
    )


def deviations(
    document: ConfigurationDocument | None,
    version: int,
    reports: Iterable[tuple[float, Statistics]],
) -> Sequence[Deviation]:
    """Compare each report with the prediction of its flow.

    A report is comparable if it was made under configuration ``version``.
    """
    rows: dict[str, tuple[SubscriptionPrediction, ...]] = {}
    found = []
    for at_seconds, report in reports:
        if document is not None and report.subscriber not in rows:
            rows[report.subscriber] = document.predictions_of(report.subscriber)
        predictions = [row for row in rows.get(report.subscriber, ()) if row.flow == report.flow]
        found.append(
            Deviation(
                subscriber=report.subscriber,
                flow=report.flow,
                configuration_version=report.configuration_version,
                reported_at=datetime.fromtimestamp(at_seconds, UTC),
                delay_mean_seconds=report.delay_mean_seconds,
                predicted_delay_mean_seconds=_mean_predicted_delay(predictions),
                delay_p95_seconds=report.delay_p95_seconds,
                predicted_delay_p95_seconds=max(
                    (r.delay_p95_seconds for r in predictions if r.delay_p95_seconds is not None),
                    default=None,
                ),
                success_rate=_success(report),
                predicted_success_rate=_mean_predicted_success(predictions),
                comparable=report.configuration_version == version and bool(predictions),
            )
        )
    return found


def delay_ratios(found: Iterable[Deviation]) -> list[float]:
    """Return the ratios of measured to predicted mean delay of comparable reports, sorted."""
    return sorted(
        d.delay_mean_seconds / d.predicted_delay_mean_seconds
        for d in found
        if d.comparable and d.delay_mean_seconds is not None and d.predicted_delay_mean_seconds
    )


def _mean_predicted_delay(rows: Sequence[SubscriptionPrediction]) -> float | None:
    weights = [
        (row.offered_events_per_second * row.success_rate, row.delay_mean_seconds)
        for row in rows
        if row.delay_mean_seconds is not None
    ]
    total = sum(weight for weight, _ in weights)
    if total <= 0:
        return None
    return sum(weight * (delay or 0.0) for weight, delay in weights) / total


def _mean_predicted_success(rows: Sequence[SubscriptionPrediction]) -> float | None:
    total = sum(row.offered_events_per_second for row in rows)
    if total <= 0:
        return None
    passed = sum(row.offered_events_per_second * row.success_rate for row in rows)
    return min(passed / total, 1.0)


def _success(report: Statistics) -> float | None:
    delivered, missing = count_numbered_events(report.topics)
    return delivered / (delivered + missing) if delivered + missing else None
