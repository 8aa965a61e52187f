"""What was sent, what arrived and when, beside what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from firedex.wire import Configuration, Scenario, from_plain
from firedex.wire.mqtt_names import matches
from firedex_clients.delivery_log import read_records

__all__ = ["FilterMeasurement", "WayMeasurement", "measure_way"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterMeasurement:
    """One filter over all of its subscribers. Delays are of delivered events; None without any."""

    filter: str
    priority: int
    drop_rate: float
    sent: int
    delivered: int
    success_measured: float
    success_predicted: float
    delay_mean_seconds: float | None
    delay_p50_seconds: float | None
    delay_p95_seconds: float | None
    delay_predicted_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WayMeasurement:
    """One way of running a scenario."""

    way: str
    filters: tuple[FilterMeasurement, ...]

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_way(scenario: Scenario, printed: Mapping[str, Any], folder: Path) -> WayMeasurement:
    """Put together what a run printed and the delivery records it left in ``folder``."""
    way = str(printed["way"])
    configuration = from_plain(Configuration, printed["configuration"], tolerant=True)
    arrived: dict[str, list[float]] = {}
    for subscriber in scenario.subscribers:
        table = read_records(folder / f"{way}-{subscriber.id}.parquet").to_pydict()
        for name, published, received in zip(
            table["filter"],
            table["published_at_seconds"],
            table["received_at_seconds"],
            strict=True,
        ):
            arrived.setdefault(name, []).append(received - published)
    topics = [topic for _, topic, _ in printed["sent"]]
    filters = dict.fromkeys(s.filter for who in scenario.subscribers for s in who.subscriptions)
    return WayMeasurement(
        way=way,
        filters=tuple(
            _measure(name, scenario, configuration, topics, arrived.get(name, []))
            for name in filters
        ),
    )


def _measure(
    name: str,
    scenario: Scenario,
    configuration: Configuration,
    topics: Sequence[str],
    delays: Sequence[float],
) -> FilterMeasurement:
    listeners = sum(
        1 for who in scenario.subscribers for s in who.subscriptions if s.filter == name
    )
    sent = listeners * sum(matches(name, topic) for topic in topics)
    rows = [
        row
        for row in (configuration.prediction.subscriptions if configuration.prediction else ())
        if row.filter == name
    ]
    predicted = [row.delay_mean_seconds for row in rows]
    known = [delay for delay in predicted if delay is not None]
    found = np.array(delays)
    return FilterMeasurement(
        filter=name,
        priority=max(row.priority for row in rows),
        drop_rate=max(row.drop_rate for row in rows),
        sent=sent,
        delivered=len(delays),
        success_measured=len(delays) / sent if sent else 0.0,
        success_predicted=float(np.mean([row.success_rate for row in rows])),
        delay_mean_seconds=float(found.mean()) if delays else None,
        delay_p50_seconds=float(np.quantile(found, 0.5)) if delays else None,
        delay_p95_seconds=float(np.quantile(found, 0.95)) if delays else None,
        delay_predicted_seconds=(
            float(np.mean(known)) if known and len(known) == len(predicted) else None
        ),
    )
