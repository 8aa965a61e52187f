"""The Parquet columns of delivery records, for all programs that write or read them."""

from dataclasses import fields

import pyarrow as pa

from firedex.wire import DeliveryRecord

__all__ = ["SCHEMA"]

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
