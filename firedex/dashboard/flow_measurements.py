"""Forecasts and measurements of flows, and the measurements of classes. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firedex.wire import ClassPrediction, Statistics
from firedex.wire.overview import ClassStatus
from firedex.wire.service_api import count_numbered_events

__all__ = [
    "FlowForecast",
    "FlowKey",
    "FlowMeasurement",
    "class_rows",
    "credible_part",
    "flow_measurements",
]

FlowKey = tuple[str, int]
CREDIBLE_FACTOR = 3.0
CREDIBLE_EXTRA_EVENTS = 10.0
LONGEST_WINDOW_SECONDS = 60.0
SHORTEST_WINDOW_SECONDS = 1.0
"""The shortest window for which a rate is computed; shorter ones have too few events."""


NO_SILENCE: Mapping[int, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowForecast:
    """The prediction for all subscriptions of a flow together."""

    priority: int
    offered_per_second: float
    delivered_per_second: float

    @property
    def success_rate(self) -> float:
        """Predicted share of delivered events."""
        if self.offered_per_second <= 0:
            return 1.0
        return min(self.delivered_per_second / self.offered_per_second, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMeasurement:
    """Counts of one flow in one window; ``numbered``: deliveries with sequence numbers."""

    delivered: int
    numbered: int
    missing: int
    window_seconds: float = 0.0
    delay_mean_seconds: float | None
    delay_p95_seconds: float | None

    @property
    def success_rate(self) -> float | None:
        """Measured share of delivered events, by their sequence numbers."""
        total = self.numbered + self.missing
        return self.numbered / total if total else None


def flow_measurements(
    reports: Iterable[Statistics], version: int
) -> dict[FlowKey, FlowMeasurement]:
    """Return the last report of each flow by its own subscriber under ``version``.

    In another version, a flow with the same number may have another class and other filters.
    """
    return {
        (report.subscriber, report.flow): _measurement(report)
        for report in reports
        if report.reporter == report.subscriber and report.configuration_version == version
    }


def _measurement(report: Statistics) -> FlowMeasurement:
    numbered, missing = count_numbered_events(report.topics)
    return FlowMeasurement(
        delivered=sum(count.delivered_events or 0 for count in report.topics),
        numbered=numbered,
        missing=missing,
        window_seconds=report.window_seconds,
        delay_mean_seconds=report.delay_mean_seconds,
        delay_p95_seconds=report.delay_p95_seconds,
    )


def credible_part(events: int, offered_per_second: float, window_seconds: float) -> float:
    """Return the part of a client's report that counts for its class.

    Counts up to three times the predicted offered rate plus ten events count fully. Without this
    limit, one client with absurd numbers would determine the figures of its class.
    """
    seconds = min(window_seconds, LONGEST_WINDOW_SECONDS)
    most = CREDIBLE_FACTOR * offered_per_second * seconds + CREDIBLE_EXTRA_EVENTS
    return min(1.0, most / events) if events else 1.0


def class_rows(
    predicted: Iterable[ClassPrediction],
    flows: Mapping[FlowKey, FlowForecast],
    measured: Mapping[FlowKey, FlowMeasurement],
    silent: Mapping[int, float] = NO_SILENCE,
) -> tuple[ClassStatus, ...]:
    """Return each class with its measured mean delay, worst percentile and success rate.

    The mean is weighted by events. ``flows``: the forecast of each flow. ``silent``: offered rate
    of each class without any delivery.
    """
    rates: dict[int, list[_Rates]] = {}
    for key, measurement in measured.items():
        if key in flows:
            rates.setdefault(flows[key].priority, []).append(_rates(measurement, flows[key]))
    return tuple(
        _class_row(each, rates.get(each.priority, []), silent.get(each.priority, 0.0))
        for each in predicted
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """The credible part of a measurement, in events per second."""

    delivered: float
    numbered: float
    missing: float
    measurement: FlowMeasurement


def _rates(flow: FlowMeasurement, forecast: FlowForecast) -> _Rates:
    events = flow.delivered + flow.missing
    part = credible_part(events, forecast.offered_per_second, flow.window_seconds)
    part /= max(flow.window_seconds, SHORTEST_WINDOW_SECONDS)
    return _Rates(
        delivered=flow.delivered * part,
        numbered=flow.numbered * part,
        missing=flow.missing * part,
        measurement=flow,
    )


def _class_row(predicted: ClassPrediction, flows: list[_Rates], silent: float) -> ClassStatus:
    numbered = sum(flow.numbered for flow in flows)
    total = numbered + sum(flow.missing for flow in flows) + silent
    timed = [
        (flow.delivered, flow.measurement.delay_mean_seconds)
        for flow in flows
        if flow.measurement.delay_mean_seconds is not None
    ]
    weight = sum(events for events, _ in timed)
    return ClassStatus(
        priority=predicted.priority,
        subscriptions=predicted.subscriptions,
        offered_events_per_second=predicted.offered_events_per_second,
        predicted_delay_mean_seconds=predicted.delay_mean_seconds,
        predicted_delay_p95_seconds=predicted.delay_p95_seconds,
        predicted_success_rate=predicted.success_rate,
        delay_mean_seconds=sum(e * d for e, d in timed) / weight if weight else None,
        delay_p95_seconds=max(
            (p95 for flow in flows if (p95 := flow.measurement.delay_p95_seconds) is not None),
            default=None,
        ),
        success_rate=numbered / total if total else None,
    )
