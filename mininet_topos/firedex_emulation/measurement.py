"""What was sent, what arrived and when, beside what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from firedex.wire import Configuration, Scenario
from firedex.wire.mqtt_names import matches
from firedex_clients.delivery_log import read_records
from firedex_emulation.emulated_propagation import (
    propagation_from_publishers,
    propagation_to_subscribers,
)

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
    host_seconds: float
    filters: tuple[FilterMeasurement, ...]
    stalled_seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> "WayMeasurement":
        """From what ``as_plain`` gave."""
        filters = tuple(FilterMeasurement(**row) for row in data["filters"])
        return cls(**{**data, "filters": filters, "notes": tuple(data.get("notes", ()))})


def measure_way(
    scenario: Scenario,
    way: str,
    configuration: Configuration,
    sent: Sequence[tuple[str, float]],
    folder: Path,
) -> WayMeasurement:
    """Put ``sent`` (topic and time of each event) beside the delivery records in ``folder``.

    What was published before the first of ``sent`` were probes on the idle network: their median
    delay, but for that of the links, is the time that hosts and switch take by themselves.
    """
    down = propagation_to_subscribers(scenario)
    up = _propagation_of_topics(scenario)
    started = min((at for _, at in sent), default=float("inf"))
    arrived: dict[str, list[float]] = {}
    delivered: dict[str, int] = {}
    probes: list[float] = []
    for subscriber in scenario.subscribers:
        table = read_records(folder / f"{way}-{subscriber.id}.parquet").to_pydict()
        for name, topic, published, received in zip(
            table["filter"],
            table["topic"],
            table["published_at_seconds"],
            table["received_at_seconds"],
            strict=True,
        ):
            if received is None:
                continue
            delivered[name] = delivered.get(name, 0) + (published is None or published >= started)
            if published is None:
                continue
            if published >= started:
                arrived.setdefault(name, []).append(received - published)
            else:
                by_links = down[subscriber.id] + up.get(topic, 0.0)
                probes.append(received - published - by_links)
    host_seconds = float(np.median(probes)) if probes else 0.0
    topics = [topic for topic, _ in sent]
    filters = dict.fromkeys(s.filter for who in scenario.subscribers for s in who.subscriptions)
    return WayMeasurement(
        way=way,
        host_seconds=host_seconds,
        filters=tuple(
            _measure(
                name,
                scenario,
                configuration,
                topics,
                delivered.get(name, 0),
                arrived.get(name, []),
                host_seconds,
            )
            for name in filters
        ),
    )


def _propagation_of_topics(scenario: Scenario) -> dict[str, float]:
    """From who publishes a topic to the broker; the mean, where several do."""
    of_publisher = propagation_from_publishers(scenario)
    found: dict[str, list[float]] = {}
    for publisher in scenario.publishers:
        for publication in publisher.publications:
            found.setdefault(publication.topic, []).append(of_publisher[publisher.id])
    return {topic: sum(seconds) / len(seconds) for topic, seconds in found.items()}


def _measure(
    name: str,
    scenario: Scenario,
    configuration: Configuration,
    topics: Sequence[str],
    delivered: int,
    delays: Sequence[float],
    host_seconds: float,
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
        delivered=delivered,
        success_measured=delivered / sent if sent else 0.0,
        success_predicted=float(np.mean([row.success_rate for row in rows])),
        delay_mean_seconds=float(found.mean()) if delays else None,
        delay_p50_seconds=float(np.quantile(found, 0.5)) if delays else None,
        delay_p95_seconds=float(np.quantile(found, 0.95)) if delays else None,
        delay_predicted_seconds=(
            float(np.mean(known)) + host_seconds if known and len(known) == len(predicted) else None
        ),
    )
