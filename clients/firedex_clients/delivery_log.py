"""Delivery records as Parquet: the columns of ``firedex.wire.DeliveryRecord``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.transport.delivery_schema import SCHEMA
from firedex.wire import DeliveryRecord
from firedex.wire.packet_sizes import wire_bytes
from firedex_clients.events import Event

__all__ = ["delivery_record", "read_records", "write_records"]


def write_records(path: Path, records: Sequence[DeliveryRecord]) -> None:
    """Write all records; the file appears only when it is complete."""
    table = pa.Table.from_pylist([asdict(record) for record in records], schema=SCHEMA)
    unfinished = path.with_suffix(path.suffix + ".unfinished")
    pq.write_table(table, unfinished)
    unfinished.rename(path)


def delivery_record(
    event: Event,
    subscriber: str,
    *,
    run: str = "live",
    site: str = "site",
    broker: str = "broker",
    transport: str = "tcp",
) -> DeliveryRecord:
    """Return the delivery record of one event."""
    return DeliveryRecord(
        run=run,
        site=site,
        broker=broker,
        publication_id=event.event_id or "",
        topic=event.topic,
        publisher=None,
        subscriber=subscriber,
        filter=event.filter,
        flow=event.flow,
        priority=event.priority,
        configuration_version=event.configuration_version,
        wire_bytes=wire_bytes(
            payload_bytes=len(event.payload),
            transport="udp" if transport == "udp" else "tcp",
            topic=event.topic,
            qos=event.qos,
            stamped=event.event_id is not None,
        ),
        published_at_seconds=None if event.retained else event.published_at_seconds,
        received_at_seconds=event.received_at_seconds,
        outcome="delivered",
    )


def read_records(path: Path) -> pa.Table:
    """Return the records of a file as a table."""
    return pq.read_table(path, schema=SCHEMA)
