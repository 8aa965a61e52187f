"""What one way of running a scenario came to, beside what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from firedex.wire import Scenario, SubscriptionPrediction, Transport
from firedex_clients.delivery_log import read_records
from firedex_emulation.delivery_ledger import Deliveries, Ledger, ledgers, predictions_by_version
from firedex_emulation.host_time import host_seconds
from firedex_emulation.independent_prediction import independent_predictions
from firedex_emulation.measured_statistics import mean_over_time, quantile
from firedex_emulation.measured_utility import MeasuredUtility, measured_utility
from firedex_emulation.observation import Observation
from firedex_emulation.reconfigurations import Outage, Reconfiguration, outages, reconfigurations
from firedex_emulation.second_by_second import SecondOfClass, second_by_second
from firedex_emulation.verdict import verdict

__all__ = ["Group", "WayMeasurement", "measure_way", "read_deliveries"]

NO_HOST_TIME = "host time was not measured: no probe arrived, or there was nothing to probe with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Events taken together: a class, or a subscription. Delays are of delivered events.

    Predictions are those of the plans in force, each weighed by the events under it, host time
    included; None where a plan has none. ``*_half_width``: of the 95 % interval.
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
class WayMeasurement:
    """One way of running a scenario."""

    way: str
    transport: Transport
    seconds: float
    host_seconds: float | None
    utility: MeasuredUtility
    classes: tuple[Group, ...]
    subscriptions: tuple[Group, ...]
    by_second: tuple[SecondOfClass, ...] = ()
    reconfigurations: tuple[Reconfiguration, ...] = ()
    outages: tuple[Outage, ...] = ()
    configurations: int = 1
    stalled_seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def read_deliveries(scenario: Scenario, way: str, folder: Path) -> tuple[Deliveries, list[Any]]:
    """The records of a way: first arrivals by event, and the rows of probes' candidates."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    rows: list[Any] = []
    for subscriber in scenario.subscribers:
        table = read_records(folder / f"{way}-{subscriber.id}.parquet")
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


def measure_way(
    scenario: Scenario, way: str, observation: Observation, folder: Path
) -> WayMeasurement:
    """Put what was sent beside the delivery records in ``folder``, and both beside the plans."""
    deliveries, rows = read_deliveries(scenario, way, folder)
    owed = ledgers(scenario, observation, deliveries)
    took = host_seconds(scenario, rows, observation.began_at)
    predicted = predictions_by_version(observation.configurations)
    independent = independent_predictions(scenario, observation.configurations)
    summary = _Summary(observation, predicted, independent, took or 0.0)
    unmeasured = () if took is not None else (NO_HOST_TIME,)
    classes = sorted({int(each) for ledger in owed for each in np.unique(ledger.priority)} - {-1})
    return WayMeasurement(
        way=way,
        transport=scenario.transport,
        seconds=observation.ended_at - observation.began_at,
        host_seconds=took,
        utility=measured_utility(scenario, observation, owed),
        classes=tuple(summary.of(owed, priority) for priority in classes),
        subscriptions=tuple(summary.of([ledger]) for ledger in owed),
        by_second=second_by_second(owed, observation),
        reconfigurations=reconfigurations(scenario, observation, owed),
        outages=outages(observation, owed),
        configurations=len(observation.configurations),
        stalled_seconds=observation.stalled_seconds,
        notes=(*observation.notes, *unmeasured),
    )


class _Summary:
    """Puts ledgers together into a group."""

    def __init__(
        self,
        observation: Observation,
        predicted: Sequence[Mapping[tuple[str, str], SubscriptionPrediction]],
        independent: Sequence[Mapping[tuple[str, str], float | None]],
        host: float,
    ) -> None:
        self._began, self._ended = observation.began_at, observation.ended_at
        self._predicted, self._independent, self._host = predicted, independent, host

    def of(self, owed: Sequence[Ledger], priority: int | None = None) -> Group:
        """Of one class over all of ``owed``; without a class, of the one subscription in it."""
        taken = [
            ledger.priority == priority if priority is not None else ledger.priority >= 0
            for ledger in owed
        ]
        parts = list(zip(owed, taken, strict=True))
        published = np.concatenate([ledger.published[which] for ledger, which in parts])
        delay = np.concatenate([ledger.delay[which] for ledger, which in parts])
        timely = np.concatenate([ledger.timely[which] for ledger, which in parts])
        came = ~np.isnan(delay)
        success = mean_over_time(came.astype(float), published, self._began, self._ended)
        mean = mean_over_time(delay[came], published[came], self._began, self._ended)
        rows = [
            (self._predicted[plan][key], self._independent[plan].get(key), int(count))
            for ledger, which in parts
            for key in [(ledger.subscriber.id, ledger.subscription.filter)]
            for plan, count in zip(*np.unique(ledger.plan[which], return_counts=True), strict=True)
            if plan >= 0 and key in self._predicted[plan]
        ]
        sent, delivered = len(came), int(came.sum())
        only = owed[0] if priority is None else None
        predicted_success = _weighted([(r.success_rate, n) for r, _, n in rows])
        predicted_delay = self._delay(rows, "delay_mean_seconds")
        return Group(
            priority=priority if priority is not None else _latest(owed[0]),
            subscriber=only.subscriber.id if only else None,
            filter=only.subscription.filter if only else None,
            drop_rate=_weighted([(r.drop_rate, n) for r, _, n in rows]) or 0.0,
            sent=sent,
            delivered=delivered,
            success_measured=delivered / sent if sent else 0.0,
            success_half_width=success.half_width if success else None,
            success_predicted=predicted_success,
            timely_measured=float(timely.mean()) if sent else 0.0,
            delay_mean_seconds=mean.mean if mean else None,
            delay_half_width_seconds=mean.half_width if mean else None,
            delay_p50_seconds=quantile(delay[came], 0.5),
            delay_p95_seconds=quantile(delay[came], 0.95),
            delay_p99_seconds=quantile(delay[came], 0.99),
            delay_mean_predicted_seconds=predicted_delay,
            delay_p50_predicted_seconds=self._delay(rows, "delay_p50_seconds"),
            delay_p95_predicted_seconds=self._delay(rows, "delay_p95_seconds"),
            delay_p99_predicted_seconds=self._delay(rows, "delay_p99_seconds"),
            delay_mean_independent_seconds=self._independent_delay(rows),
            method=", ".join(sorted({r.method for r, _, _ in rows})) or "none",
            verdict=verdict(success, predicted_success, mean, predicted_delay),
        )

    def _delay(
        self, rows: Sequence[tuple[SubscriptionPrediction, float | None, int]], name: str
    ) -> float | None:
        """Weighed by what is predicted to arrive; what delivers nothing has no delay."""
        pairs = [(getattr(r, name), n * r.success_rate) for r, _, n in rows if r.success_rate > 0]
        found = _weighted(pairs)
        return None if found is None else found + self._host

    def _independent_delay(
        self, rows: Sequence[tuple[SubscriptionPrediction, float | None, int]]
    ) -> float | None:
        pairs = [(delay, n * r.success_rate) for r, delay, n in rows if r.success_rate > 0]
        found = _weighted(pairs)
        return None if found is None else found + self._host


def _weighted(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    if not total or any(value is None for value, _ in pairs):
        return None
    return sum(value * weight for value, weight in pairs if value is not None) / total


def _latest(ledger: Ledger) -> int:
    known = ledger.priority[ledger.priority >= 0]
    return int(known[-1]) if len(known) else -1
