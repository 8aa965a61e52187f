"""What is predicted of flows, what clients reported lately, and what it makes of classes. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firedex.wire import ClassPrediction, Statistics
from firedex.wire.overview import ClassNow
from firedex.wire.reports import numbered_events

__all__ = [
    "FlowForecast",
    "FlowKey",
    "FlowMeasurement",
    "class_rows",
    "credible_part",
    "flow_measurements",
]

FlowKey = tuple[str, int]
TIMES_PREDICTED = 3.0
SPARE_EVENTS = 10.0
LONGEST_WINDOW_SECONDS = 60.0
SHORTEST_WINDOW_SECONDS = 1.0
"""Within which a few events make no rate."""


NOTHING: Mapping[int, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowForecast:
    """What is predicted for all subscriptions of a flow together."""

    priority: int
    offered_per_second: float
    delivered_per_second: float

    @property
    def success_rate(self) -> float:
        """Of what is offered."""
        if self.offered_per_second <= 0:
            return 1.0
        return min(self.delivered_per_second / self.offered_per_second, 1.0)


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


def credible_part(events: int, offered_per_second: float, window_seconds: float) -> float:
    """How much of what a client claims counts for its class.

    All of it up to three times what is predicted to be offered, and ten events more: beyond that
    a class would be whatever the one that claims most says.
    """
    seconds = min(window_seconds, LONGEST_WINDOW_SECONDS)
    most = TIMES_PREDICTED * offered_per_second * seconds + SPARE_EVENTS
    return min(1.0, most / events) if events else 1.0


def class_rows(
    predicted: Iterable[ClassPrediction],
    flows: Mapping[FlowKey, FlowForecast],
    measured: Mapping[FlowKey, FlowMeasurement],
    silent: Mapping[int, float] = NOTHING,
) -> tuple[ClassNow, ...]:
    """Each class with what its flows measured: delays by delivered events, the worst percentile.

    ``flows``: their forecasts. ``silent``: events a second of each class that are offered, and of
    which nothing comes.
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
    """A measurement as events a second, as far as it counts; windows differ between clients."""

    delivered: float
    numbered: float
    missing: float
    of: FlowMeasurement


def _rates(flow: FlowMeasurement, forecast: FlowForecast) -> _Rates:
    events = flow.delivered + flow.missing
    part = credible_part(events, forecast.offered_per_second, flow.window_seconds)
    part /= max(flow.window_seconds, SHORTEST_WINDOW_SECONDS)
    return _Rates(
        delivered=flow.delivered * part,
        numbered=flow.numbered * part,
        missing=flow.missing * part,
        of=flow,
    )


def _class_row(predicted: ClassPrediction, flows: list[_Rates], silent: float) -> ClassNow:
    numbered = sum(flow.numbered for flow in flows)
    total = numbered + sum(flow.missing for flow in flows) + silent
    timed = [
        (flow.delivered, flow.of.delay_mean_seconds)
        for flow in flows
        if flow.of.delay_mean_seconds is not None
    ]
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
            (p95 for flow in flows if (p95 := flow.of.delay_p95_seconds) is not None),
            default=None,
        ),
        success_rate=numbered / total if total else None,
    )
