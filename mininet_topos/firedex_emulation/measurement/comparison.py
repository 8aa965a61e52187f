"""The measurements of one mode, compared with the predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from firedex.service.planner.utility_policy import apply_profile
from firedex.wire import Assignment, Scenario, Subscription, SubscriptionPrediction, Transport
from firedex.wire.incident import UtilityProfile
from firedex.wire.scenario import BandwidthChange, Surge
from firedex_clients.delivery_log import read_records
from firedex_emulation.measurement.changes import Outage, Reconfiguration, outages, reconfigurations
from firedex_emulation.measurement.host_time import host_seconds
from firedex_emulation.measurement.ledger import (
    ClassSecond,
    Deliveries,
    Ledger,
    build_ledgers,
    class_seconds,
    predictions_by_version,
)
from firedex_emulation.measurement.observation import ActiveConfiguration, Observation
from firedex_emulation.measurement.statistics import mean_over_time, quantile, verdict
from firedex_models import ModelError, predict, utility_of

__all__ = [
    "DeliveryStatistics",
    "MeasuredUtility",
    "ModeMeasurement",
    "independent_predictions",
    "measure_mode",
    "measured_utility",
    "read_deliveries",
]

NO_HOST_TIME = "host time was not measured: no probe arrived, or no topic is suitable for probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUtility:
    """Shares of the maximum utility: of all delivered events, and of those within their deadlines.

    Predictions are those of the last configuration; None without one.
    """

    achieved: float
    timely: float
    achieved_predicted: float | None
    timely_predicted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatistics:
    """Statistics of the events of a class or a subscription. Delays are of delivered events.

    Predictions are those of the active configurations, weighted by the events under each, and
    include the host time; None without a prediction. ``*_half_width``: half of the 95 % interval.
    """

    priority: int
    subscriber: str | None = None
    filter: str | None = None
    drop_rate: float
    sent: int
    delivered: int
    success_measured: float
    success_half_width: float | None
    success_predicted: float | None
    timely_measured: float
    delay_mean_seconds: float | None
    delay_half_width_seconds: float | None
    delay_p50_seconds: float | None
    delay_p95_seconds: float | None
    delay_p99_seconds: float | None
    delay_mean_predicted_seconds: float | None
    delay_p50_predicted_seconds: float | None
    delay_p95_predicted_seconds: float | None
    delay_p99_predicted_seconds: float | None
    delay_mean_independent_seconds: float | None
    method: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeMeasurement:
    """The measurements of one mode."""

    mode: str
    transport: Transport
    seconds: float
    host_seconds: float | None
    utility: MeasuredUtility
    classes: tuple[DeliveryStatistics, ...]
    subscriptions: tuple[DeliveryStatistics, ...]
    by_second: tuple[ClassSecond, ...] = ()
    reconfigurations: tuple[Reconfiguration, ...] = ()
    outages: tuple[Outage, ...] = ()
    configurations: int = 1
    stalled_seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def read_deliveries(scenario: Scenario, mode: str, folder: Path) -> tuple[Deliveries, list[Any]]:
    """Read the delivery records of a mode: first receptions by event, and all rows."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    rows: list[Any] = []
    for subscriber in scenario.subscribers:
        table = read_records(folder / f"{mode}-{subscriber.id}.parquet")
        columns = [
            table.column(name).to_pylist()
            for name in (
                "filter",
                "publication_id",
                "received_at_seconds",
                "published_at_seconds",
                "topic",
            )
        ]
        for name, event, received, published, topic in zip(*columns, strict=True):
            if received is not None:
                found.setdefault((subscriber.id, name), {}).setdefault(event, received)
                rows.append((subscriber.id, topic, published, received))
    return found, rows


def measure_mode(
    scenario: Scenario, mode: str, observation: Observation, folder: Path
) -> ModeMeasurement:
    """Compare sent events, the delivery records in ``folder`` and the predictions."""
    deliveries, rows = read_deliveries(scenario, mode, folder)
    ledgers = build_ledgers(scenario, observation, deliveries)
    host_time = host_seconds(scenario, rows, observation.began_at)
    predicted = predictions_by_version(observation.configurations)
    independent = independent_predictions(scenario, observation.configurations)
    builder = _StatisticsBuilder(observation, predicted, independent, host_time or 0.0)
    unmeasured = () if host_time is not None else (NO_HOST_TIME,)
    classes = sorted(
        {int(each) for ledger in ledgers for each in np.unique(ledger.priority)} - {-1}
    )
    return ModeMeasurement(
        mode=mode,
        transport=scenario.transport,
        seconds=observation.ended_at - observation.began_at,
        host_seconds=host_time,
        utility=measured_utility(scenario, observation, ledgers),
        classes=tuple(builder.statistics(ledgers, priority) for priority in classes),
        subscriptions=tuple(builder.statistics([ledger]) for ledger in ledgers),
        by_second=class_seconds(ledgers, observation),
        reconfigurations=reconfigurations(scenario, observation, ledgers),
        outages=outages(observation, ledgers),
        configurations=len(observation.configurations),
        stalled_seconds=observation.stalled_seconds,
        notes=(*observation.notes, *unmeasured),
    )


class _StatisticsBuilder:
    """Computes the statistics of a class or a subscription from ledgers."""

    def __init__(
        self,
        observation: Observation,
        predicted: Sequence[Mapping[tuple[str, str], SubscriptionPrediction]],
        independent: Sequence[Mapping[tuple[str, str], float | None]],
        host: float,
    ) -> None:
        self._began, self._ended = observation.began_at, observation.ended_at
        self._predicted, self._independent, self._host = predicted, independent, host

    def statistics(
        self, ledgers: Sequence[Ledger], priority: int | None = None
    ) -> DeliveryStatistics:
        """Return the statistics of one class, or of all events of ``ledgers`` without a class."""
        selections = [
            ledger.priority == priority if priority is not None else ledger.priority >= 0
            for ledger in ledgers
        ]
        parts = list(zip(ledgers, selections, strict=True))
        published = np.concatenate([ledger.published[which] for ledger, which in parts])
        delay = np.concatenate([ledger.delay[which] for ledger, which in parts])
        timely = np.concatenate([ledger.timely[which] for ledger, which in parts])
        arrived = ~np.isnan(delay)
        success = mean_over_time(arrived.astype(float), published, self._began, self._ended)
        mean = mean_over_time(delay[arrived], published[arrived], self._began, self._ended)
        rows = [
            (self._predicted[plan][key], self._independent[plan].get(key), int(count))
            for ledger, which in parts
            for key in [(ledger.subscriber.id, ledger.subscription.filter)]
            for plan, count in zip(*np.unique(ledger.plan[which], return_counts=True), strict=True)
            if plan >= 0 and key in self._predicted[plan]
        ]
        sent, delivered = len(arrived), int(arrived.sum())
        only = ledgers[0] if priority is None else None
        predicted_success = _weighted_mean([(r.success_rate, n) for r, _, n in rows])
        predicted_delay = self._predicted_delay(rows, "delay_mean_seconds")
        return DeliveryStatistics(
            priority=priority if priority is not None else _latest_class(ledgers[0]),
            subscriber=only.subscriber.id if only else None,
            filter=only.subscription.filter if only else None,
            drop_rate=_weighted_mean([(r.drop_rate, n) for r, _, n in rows]) or 0.0,
            sent=sent,
            delivered=delivered,
            success_measured=delivered / sent if sent else 0.0,
            success_half_width=success.half_width if success else None,
            success_predicted=predicted_success,
            timely_measured=float(timely.mean()) if sent else 0.0,
            delay_mean_seconds=mean.mean if mean else None,
            delay_half_width_seconds=mean.half_width if mean else None,
            delay_p50_seconds=quantile(delay[arrived], 0.5),
            delay_p95_seconds=quantile(delay[arrived], 0.95),
            delay_p99_seconds=quantile(delay[arrived], 0.99),
            delay_mean_predicted_seconds=predicted_delay,
            delay_p50_predicted_seconds=self._predicted_delay(rows, "delay_p50_seconds"),
            delay_p95_predicted_seconds=self._predicted_delay(rows, "delay_p95_seconds"),
            delay_p99_predicted_seconds=self._predicted_delay(rows, "delay_p99_seconds"),
            delay_mean_independent_seconds=self._independent_delay(rows),
            method=", ".join(sorted({r.method for r, _, _ in rows})) or "none",
            verdict=verdict(success, predicted_success, mean, predicted_delay),
        )

    def _predicted_delay(
        self, rows: Sequence[tuple[SubscriptionPrediction, float | None, int]], name: str
    ) -> float | None:
        """Return the mean weighted by predicted deliveries; None without deliveries."""
        pairs = [(getattr(r, name), n * r.success_rate) for r, _, n in rows if r.success_rate > 0]
        found = _weighted_mean(pairs)
        return None if found is None else found + self._host

    def _independent_delay(
        self, rows: Sequence[tuple[SubscriptionPrediction, float | None, int]]
    ) -> float | None:
        pairs = [(delay, n * r.success_rate) for r, delay, n in rows if r.success_rate > 0]
        found = _weighted_mean(pairs)
        return None if found is None else found + self._host


def _weighted_mean(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    if not total or any(value is None for value, _ in pairs):
        return None
    return sum(value * weight for value, weight in pairs if value is not None) / total


def _latest_class(ledger: Ledger) -> int:
    known = ledger.priority[ledger.priority >= 0]
    return int(known[-1]) if len(known) else -1


def independent_predictions(
    scenario: Scenario, configurations: Sequence[ActiveConfiguration]
) -> list[Mapping[tuple[str, str], float | None]]:
    """Return the mean delays that the model of independent arrivals predicts, for comparison.

    The result has one mapping by subscriber and filter for each configuration. It is empty if
    bandwidths or rates change during the run, because this model uses the declared ones.
    """
    changed = any(isinstance(event, BandwidthChange | Surge) for event in scenario.timeline)
    return [{} if changed else _independent_prediction(scenario, each) for each in configurations]


def _independent_prediction(
    scenario: Scenario, active: ActiveConfiguration
) -> Mapping[tuple[str, str], float | None]:
    planned = {
        (flow.subscriber, name): flow
        for flow in active.configuration.flows
        for name in flow.filters
    }
    present = tuple(
        subscriber
        for subscriber in scenario.subscribers
        if all((subscriber.id, each.filter) in planned for each in subscriber.subscriptions)
    )
    assignment = tuple(
        Assignment(
            subscriber=subscriber.id,
            filter=each.filter,
            flow=flow.flow,
            priority=flow.priority,
            drop_rate=flow.drop_rate,
        )
        for subscriber in present
        for each in subscriber.subscriptions
        for flow in [planned[subscriber.id, each.filter]]
    )
    if not assignment:
        return {}
    evaluated = replace(
        scenario, subscribers=present, assignment=assignment, timeline=(), phases=()
    )
    try:
        rows = predict(evaluated, model="independent").rows()
    except ModelError:
        return {}
    return {(row.subscriber, row.filter): row.delay_mean_seconds for row in rows}


def measured_utility(
    scenario: Scenario, observation: Observation, ledgers: Sequence[Ledger]
) -> MeasuredUtility:
    """Return the utility of the deliveries.

    The profile of the phase in which an event was published applies; phases are weighted by their
    length.
    """
    achieved = timely = maximum = 0.0
    for began, ended, profile in _phases(scenario, observation):
        for ledger in ledgers:
            inside = (ledger.published >= began) & (ledger.published < ended)
            if not inside.any():
                continue
            utility = _subscription_in_phase(ledger, profile).utility
            weight = ended - began
            achieved += weight * utility_of(utility, float(ledger.delivered[inside].mean()))
            timely += weight * utility_of(utility, float(np.mean(ledger.timely[inside])))
            maximum += weight * utility_of(utility, 1.0)
    last = observation.configurations[-1].configuration if observation.configurations else None
    predicted = last.prediction if last else None
    return MeasuredUtility(
        achieved=achieved / maximum if maximum else 0.0,
        timely=timely / maximum if maximum else 0.0,
        achieved_predicted=predicted.achieved_utility_rate if predicted else None,
        timely_predicted=(
            predicted.timely_utility / predicted.maximum_utility
            if predicted and predicted.maximum_utility
            else None
        ),
    )


def _phases(
    scenario: Scenario, observation: Observation
) -> list[tuple[float, float, UtilityProfile]]:
    """Return start, end and utility profile of each phase."""
    rules = {phase.phase: UtilityProfile(rules=phase.rules) for phase in scenario.phases}
    first = next(iter(rules.values()), UtilityProfile())
    marks = [(observation.began_at, first)]
    marks += [
        (action.asked_at, rules[action.phase])
        for action in observation.actions
        if action.phase is not None and action.error_message is None
    ]
    ends = [at for at, _ in marks[1:]] + [observation.ended_at + 1.0]
    return [(at, end, profile) for (at, profile), end in zip(marks, ends, strict=True)]


def _subscription_in_phase(ledger: Ledger, profile: UtilityProfile) -> Subscription:
    subscriber = apply_profile(ledger.subscriber, profile)
    return next(s for s in subscriber.subscriptions if s.filter == ledger.subscription.filter)
