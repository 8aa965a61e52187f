"""What clients reported of their flows lately, and what it comes to for classes. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firedex.wire import ClassPrediction, Statistics
from firedex.wire.overview import ClassNow
from firedex.wire.reports import numbered_events

__all__ = ["FlowKey", "FlowMeasurement", "class_rows", "flow_measurements"]

FlowKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMeasurement:
    """One flow within one window; ``numbered``: those delivered whose losses would show."""

    delivered: int
    numbered: int
    missing: int
    window_seconds: float = 0.0
    delay_mean_seconds: float | None
    delay_p95_seconds: float | None

    @property
    def success_rate(self) -> float | None:
        """Delivered of all that there were, by their numbers."""
        total = self.numbered + self.missing
        return self.numbered / total if total else None


def flow_measurements(
    reports: Iterable[Statistics], version: int
) -> dict[FlowKey, FlowMeasurement]:
    """The last report of each flow by its own subscriber, if it was made under ``version``.

    Under another one, a flow of the same number may have had another class and other filters.
    """
    return {
        (report.subscriber, report.flow): _measurement(report)
        for report in reports
        if report.reporter == report.subscriber and report.configuration_version == version
    }


def _measurement(report: Statistics) -> FlowMeasurement:
    numbered, missing = numbered_events(report.topics)
    return FlowMeasurement(
        delivered=sum(count.delivered_events or 0 for count in report.topics),
        numbered=numbered,
        missing=missing,
        window_seconds=report.window_seconds,
        delay_mean_seconds=report.delay_mean_seconds,
        delay_p95_seconds=report.delay_p95_seconds,
    )


def class_rows(
    predicted: Iterable[ClassPrediction],
    priorities: Mapping[FlowKey, int],
    measured: Mapping[FlowKey, FlowMeasurement],
) -> tuple[ClassNow, ...]:
    """Each class with what its flows measured: delays by delivered events, the worst percentile."""
    flows: dict[int, list[FlowMeasurement]] = {}
    for key, measurement in measured.items():
        if key in priorities:
            flows.setdefault(priorities[key], []).append(measurement)
    return tuple(_class_row(each, flows.get(each.priority, [])) for each in predicted)


def _class_row(predicted: ClassPrediction, flows: list[FlowMeasurement]) -> ClassNow:
    numbered = sum(flow.numbered for flow in flows)
    total = numbered + sum(flow.missing for flow in flows)
    timed = [(f.delivered, f.delay_mean_seconds) for f in flows if f.delay_mean_seconds is not None]
    weight = sum(events for events, _ in timed)
    return ClassNow(
        priority=predicted.priority,
        subscriptions=predicted.subscriptions,
        offered_events_per_second=predicted.offered_events_per_second,
        predicted_delay_mean_seconds=predicted.delay_mean_seconds,
        predicted_delay_p95_seconds=predicted.delay_p95_seconds,
        predicted_success_rate=predicted.success_rate,
        delay_mean_seconds=sum(e * d for e, d in timed) / weight if weight else None,
        delay_p95_seconds=max(
            (f.delay_p95_seconds for f in flows if f.delay_p95_seconds is not None), default=None
        ),
        success_rate=numbered / total if total else None,
    )
