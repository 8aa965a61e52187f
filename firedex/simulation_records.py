"""Simulated notifications as delivery records in Parquet, a file for each replication.

The columns are those that clients write (``firedex.wire.DeliveryRecord``). Written slice by slice,
so that a long replication takes no more memory than a short one.
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

from firedex.delivery_schema import SCHEMA
from firedex.wire import Outcome
from firedex_models.simulation import Batch, Workload
from firedex_models.simulation.batch import DELIVERED

__all__ = ["RecordFiles"]

OUTCOMES = get_args(Outcome)[:5]
"""In the order of ``firedex_models.simulation``'s fates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """Opens a file in ``folder`` for each replication."""

    folder: Path
    run: str

    @contextmanager
    def __call__(self, replication: int, workload: Workload) -> Iterator[Callable[[Batch], None]]:
        """Take notifications; the file appears whole or not at all."""
        path = self.folder / f"replication-{replication:04}.parquet"
        unfinished = path.with_suffix(".unfinished")
        try:
            with pq.ParquetWriter(unfinished, SCHEMA) as writer:
                records = _Records(workload, f"{self.run}-{replication}")
                yield lambda done: writer.write_table(records.table(done))
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def prepare(self) -> str | None:
        """Make the folder; what is wrong with it, if anything."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "replication.unfinished").touch()
            (self.folder / "replication.unfinished").unlink()
        except OSError as error:
            return f"{error.strerror}: {self.folder}"
        if any(self.folder.glob("replication-*.parquet")):
            return f"{self.folder} holds records already; name another folder"
        return None


class _Records:
    def __init__(self, workload: Workload, run: str) -> None:
        self._workload, self._run = workload, run
        site = workload.site
        self._publishers = [publisher.id for publisher in site.scenario.publishers]
        self._topics = [topic.name for topic in site.scenario.topics]
        self._subscribers = [subscriber.id for subscriber in site.scenario.subscribers]
        self._filters = [subscription.filter for subscription in site.subscriptions]

    def table(self, done: Batch) -> pa.Table:
        """One row for each notification and each subscription that it is for."""
        site = self._workload.site
        scenario, flows = site.scenario, site.flows
        first, subscriptions = self._workload.subscriptions_by_stream
        count = np.diff(first)[done.key]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        whose = subscriptions[np.repeat(first[done.key], count) + within]
        row = done.take(np.repeat(np.arange(len(done)), count))
        flow = site.streams.flow[row.key]
        size = np.rint(site.streams.wire_bytes[row.key] * row.factor).astype(np.int64)
        columns = {
            "run": _repeated(self._run, len(row)),
            "site": _repeated(scenario.network.broker.site, len(row)),
            "broker": _repeated(scenario.network.broker.id, len(row)),
            "publication_id": pa.array(row.publication).cast(pa.string()),
            "topic": _named(self._topics, site.streams.topic[row.key]),
            "publisher": _named(self._publishers, self._workload.sources.publisher[row.source]),
            "subscriber": _named(self._subscribers, flows.subscriber[flow]),
            "filter": _named(self._filters, whose),
            "flow": pa.array(flows.number[flow]),
            "priority": pa.array(flows.priority[flow]),
            "configuration_version": pa.array(np.zeros(len(row), dtype=np.int64)),
            "wire_bytes": pa.array(size),
            "published_at_seconds": pa.array(row.published),
            "received_at_seconds": pa.array(row.time, mask=row.fate != DELIVERED),
            "outcome": _named(OUTCOMES, row.fate),
        }
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _named(names: Sequence[str], position: NDArray[Any]) -> pa.Array:
    """Names by their position; −1 is nobody."""
    known = pa.array(position.astype(np.int32), mask=position < 0)
    dictionary = pa.array(list(names), type=pa.string())
    return pa.DictionaryArray.from_arrays(known, dictionary).cast(pa.string())
