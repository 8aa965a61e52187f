"""Delivery records of a simulation as Parquet files, one for each replication.

The columns are those that clients write (``firedex.wire.DeliveryRecord``). Records are written in
slices, so memory does not grow with the length of a replication.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firedex.transport.delivery_schema import SCHEMA
from firedex.wire import Outcome
from firedex_models.simulation import Batch, Workload
from firedex_models.simulation.batch import DELIVERED

__all__ = ["RecordFiles"]

OUTCOMES = get_args(Outcome)[:5]
"""In the order of the outcome numbers of ``firedex_models.simulation``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """Factory of record files: opens one file in ``folder`` for each replication."""

    folder: Path
    run: str

    @contextmanager
    def __call__(self, replication: int, workload: Workload) -> Iterator[Callable[[Batch], None]]:
        """Yield a function that writes notifications; the file appears only when it is complete."""
        path = self.folder / f"replication-{replication:04}.parquet"
        unfinished = path.with_suffix(".unfinished")
        try:
            with pq.ParquetWriter(unfinished, SCHEMA) as writer:
                records = _RecordTables(workload, f"{self.run}-{replication}")
                yield lambda done: writer.write_table(records.table(done))
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def prepare(self) -> str | None:
        """Create the folder; return the problem if it cannot be used."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "replication.unfinished").touch()
            (self.folder / "replication.unfinished").unlink()
        except OSError as error:
            return f"{error.strerror}: {self.folder}"
        if any(self.folder.glob("replication-*.parquet")):
            return f"{self.folder} already contains records; choose another folder"
        return None


class _RecordTables:
    def __init__(self, workload: Workload, run: str) -> None:
        self._workload, self._run = workload, run
        site = workload.site
        self._publishers = [publisher.id for publisher in site.scenario.publishers]
        self._topics = [topic.name for topic in site.scenario.topics]
        self._subscribers = [subscriber.id for subscriber in site.scenario.subscribers]
        self._filters = [subscription.filter for subscription in site.subscriptions]

    def table(self, done: Batch) -> pa.Table:
        """Return one row for each notification and each subscription that it belongs to."""
        site = self._workload.site
        scenario, flows = site.scenario, site.flows
        first, subscriptions = self._workload.subscriptions_by_stream
        count = np.diff(first)[done.key]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        subscription = subscriptions[np.repeat(first[done.key], count) + within]
        row = done.take(np.repeat(np.arange(len(done)), count))
        flow = site.streams.flow[row.key]
        size = np.rint(site.streams.wire_bytes[row.key] * row.factor).astype(np.int64)
        columns = {
            "run": _repeated_text(self._run, len(row)),
            "site": _repeated_text(scenario.network.broker.site, len(row)),
            "broker": _repeated_text(scenario.network.broker.id, len(row)),
            "publication_id": pa.array(row.publication).cast(pa.string()),
            "topic": _names_at(self._topics, site.streams.topic[row.key]),
            "publisher": _names_at(self._publishers, self._workload.sources.publisher[row.source]),
            "subscriber": _names_at(self._subscribers, flows.subscriber[flow]),
            "filter": _names_at(self._filters, subscription),
            "flow": pa.array(flows.number[flow]),
            "priority": pa.array(flows.priority[flow]),
            "configuration_version": pa.array(np.zeros(len(row), dtype=np.int64)),
            "wire_bytes": pa.array(size),
            "published_at_seconds": pa.array(row.published),
            "received_at_seconds": pa.array(row.time, mask=row.outcome != DELIVERED),
            "outcome": _names_at(OUTCOMES, row.outcome),
        }
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _repeated_text(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _names_at(names: Sequence[str], position: NDArray[Any]) -> pa.Array:
    """Return the names at the given positions; a negative position gives null."""
    known = pa.array(position.astype(np.int32), mask=position < 0)
    dictionary = pa.array(list(names), type=pa.string())
    return pa.DictionaryArray.from_arrays(known, dictionary).cast(pa.string())
