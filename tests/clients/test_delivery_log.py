"""Delivery records as Parquet files."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firedex.transport.delivery_schema import SCHEMA
from firedex.wire import DeliveryRecord
from firedex_clients.delivery_log import read_records, write_records


def make_record(**changes: Any) -> DeliveryRecord:
    return DeliveryRecord(
        **{
            "run": "run-1",
            "broker": "edge",
            "publication_id": "00-1",
            "topic": "smoke/1",
            "publisher": None,
            "subscriber": "crew",
            "filter": "smoke/#",
            "flow": 1,
            "priority": 2,
            "configuration_version": 3,
            "wire_bytes": 200,
            "published_at_seconds": 1_700_000_000.123456,
            "received_at_seconds": 1_700_000_000.25,
            "outcome": "delivered",
            **changes,
        }
    )


RECORDS = [
    make_record(),
    make_record(publisher="p0", published_at_seconds=None),
    make_record(outcome="dropped-at-gateway", received_at_seconds=None),
]


def test_written_records_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    write_records(file, RECORDS)
    table = read_records(file)
    assert [DeliveryRecord(**row) for row in table.to_pylist()] == RECORDS
    assert table.schema.equals(SCHEMA)


def test_file_without_records_has_all_columns(tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    write_records(file, [])
    assert read_records(file).num_rows == 0
    assert read_records(file).column_names == [field.name for field in fields(DeliveryRecord)]


def test_columns_have_the_types_that_spark_reads() -> None:
    assert SCHEMA.field("flow").type == pa.int64()
    assert SCHEMA.field("received_at_seconds").type == pa.float64()
    assert SCHEMA.field("topic").type == pa.string()
    assert set(asdict(make_record())) == set(SCHEMA.names)


def test_no_temporary_file_remains(tmp_path: Path) -> None:
    write_records(tmp_path / "records.parquet", RECORDS)
    assert [file.name for file in tmp_path.iterdir()] == ["records.parquet"]


def test_second_write_replaces_the_file(tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    write_records(file, RECORDS)
    write_records(file, RECORDS[:1])
    assert read_records(file).num_rows == 1


def test_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    write_records(file, RECORDS)
    (tmp_path / "records.parquet.unfinished").mkdir()  # cannot be written to
    with pytest.raises(OSError, match="unfinished"):
        write_records(file, [])
    assert read_records(file).num_rows == len(RECORDS)


def test_write_to_a_missing_folder_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        write_records(tmp_path / "absent" / "records.parquet", RECORDS)
    assert list(tmp_path.iterdir()) == []
