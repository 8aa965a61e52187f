"""Delivery records as Parquet: the columns of ``firedex.wire.DeliveryRecord``."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.wire import DeliveryRecord

__all__ = ["SCHEMA", "read_records", "write_records"]

INTEGERS = {"flow", "priority", "configuration_version", "wire_bytes"}
TIMES = {"published_at_seconds", "received_at_seconds"}

SCHEMA = pa.schema(
    [
        (
            f.name,
            pa.int64() if f.name in INTEGERS else pa.float64() if f.name in TIMES else pa.string(),
        )
        for f in fields(DeliveryRecord)
    ]
)


def write_records(path: Path, records: Sequence[DeliveryRecord]) -> None:
    """Write all records; the file appears whole or not at all."""
    table = pa.Table.from_pylist([asdict(record) for record in records], schema=SCHEMA)
    unfinished = path.with_suffix(path.suffix + ".unfinished")
    pq.write_table(table, unfinished)
    unfinished.rename(path)


def read_records(path: Path) -> pa.Table:
    """The table, columns as they were written."""
    return pq.read_table(path, schema=SCHEMA)
