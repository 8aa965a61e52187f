"""Windows of time: every row is in one window, however odd its time."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firedex_spark.records import windows as record_windows
from firedex_spark.records.columns import TIME
from firedex_spark.records.delivery_cells import REFUSED, SUMS, sum_up_records
from firedex_spark.records.files import check_files
from firedex_spark.records.windows import (
    make_fixed_windows,
    make_windows,
    read_window,
    with_window_numbers,
)
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA
from tests.spark.simulated_deliveries import (
    record,
    sorted_slices,
    sum_in_parts,
    times_at,
    write_scattered_files,
)

pytestmark = pytest.mark.slow


def test_rows_with_invalid_times_are_refused(tmp_path: Path) -> None:
    rows = [dataclasses.asdict(record(n)) for n in range(2_000)]
    rows[7]["published_at_seconds"] = float("nan")
    rows[8]["published_at_seconds"] = float("inf")
    for row, at in zip(rows[100:103], (1e25, -5.0, 1e300), strict=True):
        row |= times_at(at)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "log.parquet")
    file = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME).good[0]
    assert (file.groups[0].earliest, file.groups[0].latest) == (1000.0, 2999.0)
    for windows in (
        make_windows([file]),
        make_fixed_windows([with_window_numbers(file, 1024.0)], 1024.0),
    ):
        tables = [read_window(window, SCHEMA.names, SCHEMA)[0] for window in windows]
        assert sum(table.num_rows for table in tables) == 2_000
        refused = [row for t in tables for row in sum_up_records(t, None).to_pylist()]
        assert sum(row["count"] for row in refused if row["kind"] == REFUSED) == 4
        assert sum(row["count"] for row in refused if row["kind"] == SUMS) == 1_996
        assert len(windows) <= 3


def test_files_without_statistics_are_read(tmp_path: Path) -> None:
    rows = [dataclasses.asdict(record(n)) for n in (1, 2, 5_000)]
    rows.append({**dataclasses.asdict(record(9)), "published_at_seconds": None})
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, tmp_path / "bare.parquet", write_statistics=False)
    file = check_files(tmp_path, [tmp_path / "bare.parquet"], SCHEMA, TIME).good[0]
    assert (file.groups[0].earliest, file.groups[0].latest) == (1001.0, 6000.0)
    for windows in (make_windows([file]), make_fixed_windows([file], 1024.0)):
        read = [read_window(window, SCHEMA.names, SCHEMA)[0].num_rows for window in windows]
        assert sum(read) == 4
    assert [
        window.start for window in make_fixed_windows([file], 1024.0) if not window.untimed
    ] == [
        0.0,
        1024.0,
        2048.0,
        3072.0,
        4096.0,
        5120.0,
    ]


def test_one_row_of_1970_does_not_change_the_number_of_windows_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.8e9
    times = [1.0, *(now + 10.0 * n for n in range(2_000))]
    rows = [
        dataclasses.asdict(record(n, published_at_seconds=at, received_at_seconds=now + 30_000))
        for n, at in enumerate(times)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "log.parquet")
    file = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME).good[0]
    assert len(make_fixed_windows([with_window_numbers(file, 1024.0)], 1024.0)) <= 1 + 21
    monkeypatch.setattr(record_windows, "ROWS_PER_WINDOW", 500)
    read = [
        read_window(window, SCHEMA.names, SCHEMA)[0].num_rows for window in make_windows([file])
    ]
    assert sum(read) == 2_001
    assert max(read) < 1_000


@pytest.mark.parametrize("fixed", [False, True])
def test_burst_in_long_row_groups_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    random = np.random.default_rng(1)
    times = 1.8e9 + 43_200 + random.uniform(0, 300, 4_000)
    times[::20] = 1.8e9 + np.linspace(0, 80_000, 200)  # or the groups would not span long
    rows = [dataclasses.asdict(record(n)) | times_at(at) for n, at in enumerate(times.tolist())]
    files = write_scattered_files(tmp_path, rows, files=3)
    most, whole = sum_in_parts(files, fixed)
    assert most > 3_000
    monkeypatch.setattr(record_windows, "ROWS_PER_WINDOW", 500)
    most, parts = sum_in_parts(files, fixed)
    assert most < 1_000
    assert sorted_slices(parts) == sorted_slices(whole)
    assert pc.sum(parts["count"]).as_py() == 4_000  # of the duplicates one each
