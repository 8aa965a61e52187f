"""Flows that get much less than was predicted, or nothing at all. Pure."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from math import sqrt

from firedex.dashboard.flow_measurements import FlowKey, FlowMeasurement
from firedex.wire import SubscriptionPrediction

__all__ = ["FlowForecast", "ShortFlow", "SilentFlow", "forecasts", "short_flows", "silent_flows"]

FEWEST_EXPECTED = 10.0
"""None of so many expected events is no chance (1 in 20 000, if they come at random)."""
FAR_BELOW = 0.1
DEVIATIONS = 4.0
"""A success rate of few events says little: so many standard deviations are still chance."""


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
class SilentFlow:
    """Nothing came, though ``expected_per_second`` was predicted."""

    subscriber: str
    flow: int
    priority: int
    expected_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortFlow:
    """Much less came through than was predicted."""

    subscriber: str
    priority: int
    success_rate: float
    predicted_success_rate: float


def forecasts(rows: Iterable[SubscriptionPrediction]) -> dict[FlowKey, FlowForecast]:
    """The forecast of each flow."""
    found: dict[FlowKey, FlowForecast] = {}
    for row in rows:
        key = (row.subscriber, row.flow)
        before = found.get(key)
        offered = row.offered_events_per_second
        found[key] = FlowForecast(
            priority=row.priority,
            offered_per_second=offered + (before.offered_per_second if before else 0.0),
            delivered_per_second=offered * row.success_rate
            + (before.delivered_per_second if before else 0.0),
        )
    return found


def silent_flows(
    predicted: Mapping[FlowKey, FlowForecast],
    measured: Mapping[FlowKey, FlowMeasurement],
    expected_events: Callable[[FlowKey], float],
    off: Set[str] = frozenset(),
) -> list[SilentFlow]:
    """Flows of which nothing came, where chance cannot be why.

    Clients report nothing of a flow while it brings nothing: ``expected_events`` says how much
    should have come since anything did. Of clients that are ``off`` nobody can tell.
    """
    silent = []
    for (subscriber, flow), forecast in predicted.items():
        seen = measured.get((subscriber, flow))
        if subscriber in off or (seen is not None and seen.delivered):
            continue
        told = forecast.delivered_per_second * seen.window_seconds if seen else 0.0
        if max(told, expected_events((subscriber, flow))) >= FEWEST_EXPECTED:
            silent.append(
                SilentFlow(
                    subscriber=subscriber,
                    flow=flow,
                    priority=forecast.priority,
                    expected_per_second=forecast.delivered_per_second,
                )
            )
    return silent


def short_flows(
    predicted: Mapping[FlowKey, FlowForecast], measured: Mapping[FlowKey, FlowMeasurement]
) -> list[ShortFlow]:
    """Flows whose success rate is far below the predicted, the worst first."""
    short = []
    for key, seen in measured.items():
        forecast, success = predicted.get(key), seen.success_rate
        if forecast is None or success is None or not seen.delivered:
            continue
        expected = forecast.success_rate
        events = seen.delivered + seen.missing
        chance = DEVIATIONS * sqrt(max(expected * (1 - expected), 0.25 / events) / events)
        if success < expected - max(FAR_BELOW, chance):
            short.append(
                ShortFlow(
                    subscriber=key[0],
                    priority=forecast.priority,
                    success_rate=success,
                    predicted_success_rate=expected,
                )
            )
    return sorted(short, key=lambda one: one.success_rate - one.predicted_success_rate)
