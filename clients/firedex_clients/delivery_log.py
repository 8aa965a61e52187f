"""Delivery records as Parquet: the columns of ``firedex.wire.DeliveryRecord``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.delivery_schema import SCHEMA
from firedex.wire import DeliveryRecord

__all__ = ["read_records", "write_records"]


def write_records(path: Path, records: Sequence[DeliveryRecord]) -> None:
    """Write all records; the file appears whole or not at all."""
    table = pa.Table.from_pylist([asdict(record) for record in records], schema=SCHEMA)
    unfinished = path.with_suffix(path.suffix + ".unfinished")
    pq.write_table(table, unfinished)
    unfinished.rename(path)


def read_records(path: Path) -> pa.Table:
    """The table, columns as they were written."""
    return pq.read_table(path, schema=SCHEMA)
