"""Sums of delivery records: duplicates, refused rows, and sums of windows."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firedex_spark.records import windows as record_windows
from firedex_spark.records.columns import TIME
from firedex_spark.records.delivery_cells import REFUSED, sum_by_key, sum_up_records
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA
from tests.spark.simulated_deliveries import (
    record,
    series_of,
    sorted_slices,
    sum_in_parts,
    sums,
    times_at,
    total,
    write_scattered_files,
)


def test_duplicates_count_once_by_their_first_delivery() -> None:
    dropped = {"received_at_seconds": None, "outcome": "dropped-at-gateway"}
    rows = sums(
        [
            record(1, received_at_seconds=1001.5),
            record(1),
            record(1, **dropped),
            record(2),
            record(3, **dropped),
            record(1, subscriber="command"),
        ]
    )
    offered, delivered, timed, nanoseconds = total(rows)
    assert (offered, delivered, timed) == (4, 3, 3)
    assert nanoseconds == 750_000_000


def test_duplicate_from_another_class_counts_once() -> None:
    rows = sums([record(1), record(1, configuration_version=8, priority=0, flow=1)])
    assert total(rows)[0] == 1


def test_rows_without_id_are_no_duplicates_and_rows_without_time_have_no_delay() -> None:
    rows = sums([record(1, publication_id="", published_at_seconds=None)] * 3)
    assert total(rows) == [3, 3, 0, 0]


def test_invalid_rows_are_refused_by_reason() -> None:
    table = pa.Table.from_pylist(
        [
            dataclasses.asdict(record(1)),
            {**dataclasses.asdict(record(2)), "outcome": "eaten"},
            {**dataclasses.asdict(record(3)), "received_at_seconds": None},
            {**dataclasses.asdict(record(4)), "received_at_seconds": 1.0},
            {**dataclasses.asdict(record(5)), "subscriber": None},
            {**dataclasses.asdict(record(6)), "priority": 64},
            {**dataclasses.asdict(record(7)), "published_at_seconds": float("inf")},
            {**dataclasses.asdict(record(8)), "received_at_seconds": 100_000.0},
            {**dataclasses.asdict(record(10)), "published_at_seconds": -1.0},
            {**dataclasses.asdict(record(11)), **times_at(1e25)},
            {**dataclasses.asdict(record(12)), **times_at(-1e308), "received_at_seconds": 1e308},
            {**dataclasses.asdict(record(13)), **times_at(1e300), "published_at_seconds": None},
            {
                **dataclasses.asdict(record(9)),
                "published_at_seconds": None,
                "received_at_seconds": None,
                "outcome": "in-flight",
            },
        ],
        schema=SCHEMA,
    )
    rows = sum_up_records(table, None).to_pylist()
    assert total(rows)[0] == 1
    assert {row["filter"]: row["count"] for row in rows if row["kind"] == REFUSED} == {
        "outcome is unknown": 1,
        "outcome and received_at_seconds contradict each other": 1,
        "received before it was published": 1,
        "subscriber is missing": 1,
        "priority is out of range": 1,
        "a time is not finite": 1,
        "a time is before 1970 or after the year 5138": 4,
        "delay is more than a day": 1,
        "published_at_seconds and received_at_seconds are missing": 1,
    }


def test_sums_of_windows_add_up() -> None:
    random = np.random.default_rng(8)
    times = np.sort(random.uniform(1000.0, 5000.0, 3_000))
    records = [
        record(n, published_at_seconds=at, received_at_seconds=at + random.exponential())
        for n, at in enumerate(times.tolist())
    ]
    rows = [dataclasses.asdict(one) for one in records]
    parts = [rows[:100], rows[100:2_000], rows[2_000:]]
    tables = [
        sum_up_records(pa.Table.from_pylist(part, schema=SCHEMA), None) for part in (rows, *parts)
    ]
    whole = series_of(tables[0])[0].cells
    joined = [one.cells for one in series_of(pa.concat_tables(tables[1:]))]
    for name, keys in (("slices", 1), ("buckets", 2)):
        together = sum_by_key(np.concatenate([getattr(cells, name) for cells in joined]), keys)
        assert together.tolist() == getattr(whole, name).tolist()


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_without_time_are_read_in_parts_and_duplicates_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    rows = [dataclasses.asdict(record(n)) | {TIME: None} for n in range(3_000)]
    for row in rows[::2]:
        row["publication_id"] = ""
    files = write_scattered_files(
        tmp_path, rows, files=3
    )  # 100 duplicates with a name, 200 without
    most, whole = sum_in_parts(files, fixed)
    assert (most, pc.sum(whole["count"]).as_py()) == (3_300, 1_500 + 1_700)
    monkeypatch.setattr(record_windows, "ROWS_PER_WINDOW", 500)
    most, parts = sum_in_parts(files, fixed)
    assert most < 1_000
    assert pc.sum(parts["count"]).as_py() == 1_500 + 1_700
    assert sorted_slices(parts) == sorted_slices(whole)
