"""Generated delivery records with known means, losses, drift and duplicates.

Delays are lognormal around the mean of their class, which varies slowly like that of a queue:
neighbouring delays are correlated, and intervals that assume independence are too narrow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import erf, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firedex.wire import SubscriptionPrediction
from firedex_spark.records.predictions import PredictedSubscription, write_predictions
from firedex_spark.schemas import DELIVERY_SCHEMA

__all__ = ["RecordParameters", "write_generated_records"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
ROWS_PER_FILE = 2_000_000
DAY_SECONDS = 86_400.0
NOT_DELIVERED = "dropped-at-gateway"
PARTITIONED = pa.schema([field for field in DELIVERY_SCHEMA if field.name != "site"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordParameters:
    """The parameters that the records are drawn from.

    ``drift``: relative growth of the delays of a class from beginning to end. ``wandering``:
    standard deviation of the logarithm of a class mean, with correlation time
    ``wandering_seconds``.
    """

    sites: int = 2
    subscribers: int = 4
    topics: int = 8
    classes: int = 4
    publications_per_second: float = 50.0
    starts_at_seconds: float = 1_767_225_600.0
    configuration_version: int = 1
    fastest_mean_seconds: float = 0.01
    spread: float = 0.5
    wandering: float = 0.1
    wandering_seconds: float = 20.0
    success_of_lowest: float = 0.8
    deadline_seconds: float = 0.1
    duplicate_fraction: float = 0.01
    drift: dict[int, float] = field(default_factory=dict)
    seed: int = 0

    def class_of(self, subscriber: Integers, topic: Integers) -> Integers:
        """Return the class of each subscription."""
        return (subscriber + topic) % self.classes

    def mean_seconds(self, priority: Integers) -> Floats:
        """Return the mean delay of each class without drift."""
        return np.asarray(self.fastest_mean_seconds * 2.0**priority, dtype=np.float64)

    def success(self, priority: Integers) -> Floats:
        """Return the success rate of each class."""
        lowest = max(self.classes - 1, 1)
        return 1.0 - (1.0 - self.success_of_lowest) * priority / lowest

    def predictions(self) -> Iterator[PredictedSubscription]:
        """Yield the predictions of a model that knows the parameters."""
        for site in range(self.sites):
            for subscriber in range(self.subscribers):
                for topic in range(self.topics):
                    yield PredictedSubscription(
                        site=site_name(site),
                        configuration_version=self.configuration_version,
                        prediction=self._prediction(subscriber, topic),
                    )

    def _prediction(self, subscriber: int, topic: int) -> SubscriptionPrediction:
        priority = int(self.class_of(np.array(subscriber), np.array(topic)))
        mean = float(self.mean_seconds(np.array(priority)))
        return SubscriptionPrediction(
            subscriber=subscriber_name(subscriber),
            filter=topic_name(topic),
            flow=priority,
            priority=priority,
            drop_rate=1.0 - float(self.success(np.array(priority))),
            offered_events_per_second=self.publications_per_second / self.topics,
            success_rate=float(self.success(np.array(priority))),
            delay_mean_seconds=mean,
            delay_p50_seconds=None,
            delay_p95_seconds=None,
            delay_p99_seconds=None,
            utility=0.0,
            maximum_utility=0.0,
            timely_fraction=self._timely_fraction(priority),
            deadline_seconds=self.deadline_seconds,
            deadline_met=None,
            method="queueing",
        )

    def _timely_fraction(self, priority: int) -> float:
        """Return the fraction of a class that arrives by the deadline, without drift."""
        spread = sqrt(self.spread**2 + self.wandering**2)
        mean = float(self.mean_seconds(np.array(priority)))
        by_then = (log(self.deadline_seconds / mean) + spread**2 / 2) / spread
        in_time = (1.0 + erf(by_then / sqrt(2.0))) / 2.0
        return float(self.success(np.array(priority))) * in_time


def site_name(number: int) -> str:
    """Return the name of a generated site."""
    return f"site{number}"


def topic_name(number: int) -> str:
    """Return the name of a generated topic."""
    return f"sensor{number % 5}/floor{number}"


def subscriber_name(number: int) -> str:
    """Return the name of a generated subscriber."""
    return f"crew{number}"


def write_generated_records(
    truth: RecordParameters,
    folder: Path,
    rows: int,
    progress: Callable[[int], None] = lambda _rows: None,
) -> int:
    """Write about ``rows`` records by site and day, and ``predictions.parquet`` beside them.

    Returns the number of rows, duplicates included.
    """
    written = 0
    of_a_site = max(rows // truth.sites, 1)
    for site in range(truth.sites):
        site_records = _SiteRecords(truth, site, of_a_site)
        for number, table in enumerate(site_records.tables()):
            written += table.num_rows
            _write_by_day(folder / "records", site_name(site), number, table)
            progress(written)
    write_predictions(folder / "predictions.parquet", truth.predictions())
    return written


def _write_by_day(folder: Path, site: str, number: int, table: pa.Table) -> None:
    day = np.floor(table.column("published_at_seconds").to_numpy() / DAY_SECONDS)
    for value in np.unique(day):
        name = datetime.fromtimestamp(value * DAY_SECONDS, UTC).date().isoformat()
        target = folder / f"site={site}" / f"day={name}"
        target.mkdir(parents=True, exist_ok=True)
        part = table if (day == value).all() else table.filter(pa.array(day == value))
        pq.write_table(part, target / f"part-{number:05}.parquet", compression="zstd")


class _SiteRecords:
    """The records of one site, drawn file by file."""

    def __init__(self, truth: RecordParameters, site: int, rows: int) -> None:
        self._truth, self._site = truth, site
        self._random = np.random.default_rng([truth.seed, site])
        self._publications = max(rows // truth.subscribers, 1)
        self._seconds = self._publications / truth.publications_per_second
        self._slow_times, self._slow = self._slow_factors()
        self._origins = [self._random.bytes(8).hex() for _ in range(truth.topics)]
        self._published = np.zeros(truth.topics, dtype=np.int64)

    def tables(self) -> Iterator[pa.Table]:
        step = max(ROWS_PER_FILE // self._truth.subscribers, 1)
        for first in range(0, self._publications, step):
            yield self._table(first, min(step, self._publications - first))

    def _slow_factors(self) -> tuple[Floats, Floats]:
        """Return the logarithm of the factor of each class mean, on a grid of times."""
        truth = self._truth
        pace = truth.wandering_seconds
        times = np.arange(0.0, self._seconds + 2 * pace, pace / 4)
        keep = np.exp(-0.25)
        noise = self._random.normal(size=(len(times), truth.classes))
        walk = np.empty_like(noise)
        walk[0] = noise[0]
        for step in range(1, len(times)):
            walk[step] = keep * walk[step - 1] + np.sqrt(1 - keep**2) * noise[step]
        return times, truth.wandering * walk - truth.wandering**2 / 2

    def _table(self, first: int, count: int) -> pa.Table:
        truth, random = self._truth, self._random
        fan_out = truth.subscribers
        rate = truth.publications_per_second
        since_start = np.sort(random.uniform(first / rate, (first + count) / rate, count))
        topic = random.integers(truth.topics, size=count)
        row = np.repeat(np.arange(count), fan_out)
        subscriber = np.tile(np.arange(fan_out), count)
        priority = truth.class_of(subscriber, topic[row])
        delay = self._delays(since_start[row], priority)
        delivered = random.random(len(row)) < truth.success(priority)
        published = truth.starts_at_seconds + since_start[row]
        columns: dict[str, Any] = {
            "run": _constant("generated", len(row)),
            "broker": _constant("edge", len(row)),
            "publication_id": self._event_ids(topic).take(pa.array(row)),
            "topic": _names_at([topic_name(t) for t in range(truth.topics)], topic[row]),
            "publisher": _constant("sensors", len(row)),
            "subscriber": _names_at([subscriber_name(s) for s in range(fan_out)], subscriber),
            "filter": _names_at([topic_name(t) for t in range(truth.topics)], topic[row]),
            "flow": pa.array(priority),
            "priority": pa.array(priority),
            "configuration_version": pa.array(np.full(len(row), truth.configuration_version)),
            "wire_bytes": pa.array(100 + 10 * topic[row]),
            "published_at_seconds": pa.array(published),
            "received_at_seconds": pa.array(published + delay, mask=~delivered),
            "outcome": _names_at(["delivered", NOT_DELIVERED], (~delivered).astype(np.int64)),
        }
        table = pa.table([columns[name] for name in PARTITIONED.names], schema=PARTITIONED)
        duplicated = np.flatnonzero(random.random(len(row)) < truth.duplicate_fraction)
        return (
            pa.concat_tables([table, table.take(pa.array(duplicated))])
            if len(duplicated)
            else table
        )

    def _delays(self, since_start: Floats, priority: Integers) -> Floats:
        truth = self._truth
        growth = np.array([truth.drift.get(k, 0.0) for k in range(truth.classes)])
        slow = np.empty(len(since_start))
        for k in range(truth.classes):
            of_class = priority == k
            slow[of_class] = np.interp(since_start[of_class], self._slow_times, self._slow[:, k])
        quick = truth.spread * self._random.standard_normal(len(since_start)) - truth.spread**2 / 2
        drifted = 1.0 + growth[priority] * since_start / self._seconds
        return truth.mean_seconds(priority) * drifted * np.exp(slow + quick)

    def _event_ids(self, topic: Integers) -> Any:
        """Return event stamps: the stream id of the topic and the sequence number."""
        order = np.argsort(topic, kind="stable")
        count = np.bincount(topic, minlength=len(self._published))
        first = np.cumsum(count) - count
        sequence = np.empty(len(topic), dtype=np.int64)
        sequence[order] = np.arange(len(topic)) - first[topic[order]] + 1
        sequence += self._published[topic]
        self._published += count
        origin = _names_at(self._origins, topic)
        return pc.binary_join_element_wise(origin, pa.array(sequence).cast(pa.string()), "-")


def _constant(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _names_at(names: list[str], position: Integers) -> pa.Array:
    indices = pa.array(position.astype(np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array(names)).cast(pa.string())
