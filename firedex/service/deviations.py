"""Predictions beside what clients report. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from firedex.service.configuration_document import ConfigurationDocument
from firedex.wire import Statistics, SubscriptionPrediction
from firedex.wire.reports import numbered_events
from firedex.wire.service_api import Deviation

__all__ = ["deviations", "ratios"]


def deviations(
    document: ConfigurationDocument | None,
    version: int,
    reports: Iterable[tuple[float, Statistics]],
) -> Sequence[Deviation]:
    """Each report beside what was predicted for its flow; comparable if made under ``version``."""
    rows: dict[str, tuple[SubscriptionPrediction, ...]] = {}
    found = []
    for at_seconds, report in reports:
        if document is not None and report.subscriber not in rows:
            prediction = document.value_of(report.subscriber).prediction
            rows[report.subscriber] = prediction.subscriptions if prediction else ()
        mine = [row for row in rows.get(report.subscriber, ()) if row.flow == report.flow]
        found.append(
            Deviation(
                subscriber=report.subscriber,
                flow=report.flow,
                configuration_version=report.configuration_version,
                reported_at=datetime.fromtimestamp(at_seconds, UTC),
                delay_mean_seconds=report.delay_mean_seconds,
                predicted_delay_mean_seconds=_delivered_mean(mine),
                delay_p95_seconds=report.delay_p95_seconds,
                predicted_delay_p95_seconds=max(
                    (r.delay_p95_seconds for r in mine if r.delay_p95_seconds is not None),
                    default=None,
                ),
                success_rate=_success(report),
                predicted_success_rate=_offered_mean_success(mine),
                comparable=report.configuration_version == version and bool(mine),
            )
        )
    return found


def ratios(found: Iterable[Deviation]) -> list[float]:
    """Measured over predicted mean delay, of those that can be compared."""
    return sorted(
        d.delay_mean_seconds / d.predicted_delay_mean_seconds
        for d in found
        if d.comparable and d.delay_mean_seconds is not None and d.predicted_delay_mean_seconds
    )


def _delivered_mean(rows: Sequence[SubscriptionPrediction]) -> float | None:
    weights = [
        (row.offered_events_per_second * row.success_rate, row.delay_mean_seconds)
        for row in rows
        if row.delay_mean_seconds is not None
    ]
    total = sum(weight for weight, _ in weights)
    if total <= 0:
        return None
    return sum(weight * (delay or 0.0) for weight, delay in weights) / total


def _offered_mean_success(rows: Sequence[SubscriptionPrediction]) -> float | None:
    total = sum(row.offered_events_per_second for row in rows)
    if total <= 0:
        return None
    passed = sum(row.offered_events_per_second * row.success_rate for row in rows)
    return min(passed / total, 1.0)


def _success(report: Statistics) -> float | None:
    delivered, missing = numbered_events(report.topics)
    return delivered / (delivered + missing) if delivered + missing else None
