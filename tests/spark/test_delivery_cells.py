"""Records summed up by windows: order, cuts, copies and bad rows change nothing they should not."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from simulated_deliveries import (
    four_classes,
    judged_without_spark,
    known_runs,
    plant_drift,
    series_of,
    write_simulated,
)

from firedex.wire import DeliveryRecord
from firedex_clients.delivery_log import write_records
from firedex_spark import record_windows
from firedex_spark.delivery_cells import REFUSED, SUMS, Cells, added_up, cells_of
from firedex_spark.delivery_files import checked_deliveries
from firedex_spark.errors import (
    MissingColumns,
    MixedLayout,
    NothingReadable,
    UnreadableFile,
    WrongColumnType,
)
from firedex_spark.record_columns import TIME
from firedex_spark.record_files import RecordFile, check_files, files_under
from firedex_spark.record_windows import (
    fixed_windows,
    numbered_for,
    read_parts,
    read_window,
    windows_of,
)
from firedex_spark.run_spans import at_width_of_runs
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA


def record(number: int, **given: Any) -> DeliveryRecord:
    usual: dict[str, Any] = {
        "run": "r",
        "broker": "edge",
        "publication_id": f"a-{number}",
        "topic": "smoke/1",
        "publisher": None,
        "subscriber": "crew",
        "filter": "smoke/#",
        "flow": 0,
        "priority": 1,
        "configuration_version": 7,
        "wire_bytes": 100,
        "published_at_seconds": 1000.0 + number,
        "received_at_seconds": 1000.25 + number,
        "outcome": "delivered",
    }
    return DeliveryRecord(**{**usual, **given})


def sums(records: list[DeliveryRecord]) -> list[dict[str, Any]]:
    rows = [dataclasses.asdict(one) for one in records]
    return cells_of(pa.Table.from_pylist(rows, schema=SCHEMA), None).to_pylist()


def total(rows: list[dict[str, Any]]) -> list[int]:
    cells = [Cells.unpacked(r["slices"], r["buckets"]).slices for r in rows if r["kind"] == SUMS]
    return np.concatenate(cells)[:, 1:].sum(axis=0).tolist()


def test_copies_count_once_and_the_first_delivery_counts() -> None:
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


def test_a_copy_from_before_a_move_counts_once() -> None:
    rows = sums([record(1), record(1, configuration_version=8, priority=0, flow=1)])
    assert total(rows)[0] == 1


def test_what_has_no_name_has_no_copies_and_what_has_no_stamp_no_delay() -> None:
    rows = sums([record(1, publication_id="", published_at_seconds=None)] * 3)
    assert total(rows) == [3, 3, 0, 0]


def far(at: float) -> dict[str, float]:
    return {"published_at_seconds": at, "received_at_seconds": at}


def test_rows_that_contradict_themselves_are_refused_by_reason() -> None:
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
            {**dataclasses.asdict(record(11)), **far(1e25)},
            {**dataclasses.asdict(record(12)), **far(-1e308), "received_at_seconds": 1e308},
            {**dataclasses.asdict(record(13)), **far(1e300), "published_at_seconds": None},
            {
                **dataclasses.asdict(record(9)),
                "published_at_seconds": None,
                "received_at_seconds": None,
                "outcome": "in-flight",
            },
        ],
        schema=SCHEMA,
    )
    rows = cells_of(table, None).to_pylist()
    assert total(rows)[0] == 1
    assert {row["filter"]: row["count"] for row in rows if row["kind"] == REFUSED} == {
        "outcome is unknown": 1,
        "received, but not delivered; or the other way": 1,
        "received before it was published": 1,
        "subscriber is missing": 1,
        "priority is out of range": 1,
        "a time is not finite": 1,
        "a time is before 1970 or after the year 5138": 4,
        "took more than a day": 1,
        "neither published nor received at any time": 1,
    }


def test_what_clients_write_is_what_is_read(tmp_path: Path) -> None:
    write_records(tmp_path / "log.parquet", [record(1), record(2, published_at_seconds=None)])
    checked = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME)
    windows = windows_of(checked.good)
    read = [read_window(window, SCHEMA.names, SCHEMA)[0] for window in windows]
    assert [table.num_rows for table in read] == [1, 1]
    assert [window.untimed for window in windows] == [False, True]


def test_files_are_told_to_workers_by_their_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path / "log.parquet", [record(1)])
    monkeypatch.chdir(tmp_path)
    for source in (Path(), Path("log.parquet")):
        assert files_under(source, "records") == [tmp_path / "log.parquet"]


def test_bad_files_are_named_with_what_is_wrong(tmp_path: Path) -> None:
    good = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    files = [tmp_path / name for name in ("good", "short", "lacks", "type", "text")]
    pq.write_table(good, files[0])
    files[1].write_bytes(files[0].read_bytes()[:-100])
    pq.write_table(good.drop_columns(["topic", "flow"]), files[2])
    as_text = good["priority"].cast(pa.string())
    pq.write_table(good.set_column(SCHEMA.names.index("priority"), "priority", as_text), files[3])
    files[4].write_text("not Parquet")
    checked = check_files(tmp_path, files, SCHEMA, TIME)
    assert [file.path for file in checked.good] == [files[0]]
    kinds = [type(bad) for bad in checked.left_out]
    assert kinds == [UnreadableFile, MissingColumns, WrongColumnType, UnreadableFile]
    assert str(checked.left_out[1]) == f"{files[2]}: lacks topic, flow"
    assert "priority is string, not int64" in str(checked.left_out[2])
    with pytest.raises(NothingReadable, match="none of 1 files"):
        check_files(tmp_path, files[1:2], SCHEMA, TIME)


def test_columns_as_others_write_them_are_read(tmp_path: Path) -> None:
    """Texts as views, in dictionaries or large; columns that hold nothing, of no type at all."""
    rows = [dataclasses.asdict(record(n)) for n in range(50)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    untimed = pa.Table.from_pylist([row | {TIME: None} for row in rows], schema=SCHEMA)
    kinds = (pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))
    wanted = sums([record(n) for n in range(50)])
    for number, kind in enumerate(kinds):
        texts = [name for name in SCHEMA.names if SCHEMA.field(name).type == "string"]
        other = with_type(table, kind, texts)
        file = tmp_path / f"{number}.PARQUET"
        pq.write_table(with_type(other, pa.null(), ["publisher"]), file)
        (window,) = windows_of(checked_deliveries(file).good)
        found, bad = read_window(window, SCHEMA.names, SCHEMA)
        assert (cells_of(found, None).to_pylist(), bad) == (wanted, [])
        some, bad = read_window(dataclasses.replace(window, end=1010.0), SCHEMA.names, SCHEMA)
        assert (some.num_rows, bad) == (10, [])
    assert len(files_under(tmp_path, "records")) == 3
    pq.write_table(with_type(untimed, pa.null(), [TIME, "publisher"]), tmp_path / "none.parquet")
    (window,) = windows_of(checked_deliveries(tmp_path / "none.parquet").good)
    found, bad = read_window(window, SCHEMA.names, SCHEMA)
    assert (window.untimed, total(cells_of(found, None).to_pylist()), bad) == (
        True,
        [50, 50, 0, 0],
        [],
    )
    nobody = with_type(table, pa.null(), ["subscriber"])
    pq.write_table(nobody, tmp_path / "nobody.parquet")
    (window,) = windows_of(checked_deliveries(tmp_path / "nobody.parquet").good)
    (row,) = cells_of(read_window(window, SCHEMA.names, SCHEMA)[0], None).to_pylist()
    assert (row["filter"], row["count"]) == ("subscriber is missing", 50)


def with_type(table: pa.Table, kind: pa.DataType, names: list[str]) -> pa.Table:
    for name in names:
        values = [None] * table.num_rows if kind == pa.null() else table[name].to_pylist()
        table = table.set_column(SCHEMA.get_field_index(name), name, pa.array(values, kind))
    return table


def test_slices_fit_each_run_whatever_else_there_is() -> None:
    hour = [record(n, run="short", published_at_seconds=5.0 * n) for n in range(720)]
    hour = [dataclasses.replace(r, received_at_seconds=r.published_at_seconds + 1) for r in hour]
    month = dataclasses.replace(
        hour[1], run="long", published_at_seconds=2.6e6, received_at_seconds=2.6e6 + 1
    )
    table = pa.Table.from_pylist(
        [dataclasses.asdict(r) for r in (*hour, dataclasses.replace(hour[0], run="long"), month)],
        schema=SCHEMA,
    )
    sums = cells_of(table, None)
    found = at_width_of_runs(sums, known_runs(sums))
    width = {row["run"]: row["slice_seconds"] for row in found.to_pylist()}
    assert (width["short"], width["long"]) == (8.0, 8192.0)


def test_a_row_of_1970_leaves_the_rest_as_it_is() -> None:
    times = 1.8e9 + 5.0 * np.arange(2_000)
    records = [
        record(n, published_at_seconds=at, received_at_seconds=at + 0.1)
        for n, at in enumerate(times.tolist())
    ]
    wrong = record(9_999, published_at_seconds=50.0, received_at_seconds=50.1)
    rows = [dataclasses.asdict(one) for one in (*records, wrong)]
    both = [cells_of(pa.Table.from_pylist(some, schema=SCHEMA), None) for some in (rows[:-1], rows)]
    assert known_runs(both[1]).far == 1
    first, second = (series_of(sums)[0].cells for sums in both)
    assert len(series_of(both[1])) == len(series_of(both[0]))
    assert first.slices.tolist() == second.slices.tolist()


def test_times_that_are_none_are_refused_and_not_lost(tmp_path: Path) -> None:
    rows = [dataclasses.asdict(record(n)) for n in range(2_000)]
    rows[7]["published_at_seconds"] = float("nan")
    rows[8]["published_at_seconds"] = float("inf")
    for row, at in zip(rows[100:103], (1e25, -5.0, 1e300), strict=True):
        row |= far(at)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "log.parquet")
    file = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME).good[0]
    assert (file.groups[0].earliest, file.groups[0].latest) == (1000.0, 2999.0)
    for windows in (windows_of([file]), fixed_windows([numbered_for(file, 1024.0)], 1024.0)):
        tables = [read_window(window, SCHEMA.names, SCHEMA)[0] for window in windows]
        assert sum(table.num_rows for table in tables) == 2_000
        refused = [row for t in tables for row in cells_of(t, None).to_pylist()]
        assert sum(row["count"] for row in refused if row["kind"] == REFUSED) == 4
        assert sum(row["count"] for row in refused if row["kind"] == SUMS) == 1_996
        assert len(windows) <= 3


def test_bytes_that_are_no_text_make_a_file_unreadable(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    wrong = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    place = SCHEMA.get_field_index("publication_id")
    pq.write_table(table.set_column(place, SCHEMA.field(place), wrong), tmp_path / "log.parquet")
    checked = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME)
    table, bad = read_window(windows_of(checked.good)[0], SCHEMA.names, SCHEMA)
    assert (table.num_rows, [one.file.name for one in bad]) == (0, ["log.parquet"])


def test_flat_files_beside_those_by_site_are_left_out_by_name(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    files = [tmp_path / "site=a" / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.parquet"]
    files[0].parent.mkdir()
    for file in files[:2]:
        pq.write_table(table, file)
    files[2].write_text("not Parquet")
    checked = checked_deliveries(tmp_path)
    assert [file.path for file in checked.good] == files[:1]
    assert [(type(bad), bad.file) for bad in checked.left_out] == [
        (MixedLayout, files[1]),
        (MixedLayout, files[2]),
    ]
    assert "is of no site by its path" in str(checked.left_out[0])


def test_sums_of_windows_join_into_the_sums_of_all() -> None:
    random = np.random.default_rng(8)
    times = np.sort(random.uniform(1000.0, 5000.0, 3_000))
    records = [
        record(n, published_at_seconds=at, received_at_seconds=at + random.exponential())
        for n, at in enumerate(times.tolist())
    ]
    rows = [dataclasses.asdict(one) for one in records]
    parts = [rows[:100], rows[100:2_000], rows[2_000:]]
    tables = [cells_of(pa.Table.from_pylist(part, schema=SCHEMA), None) for part in (rows, *parts)]
    whole = series_of(tables[0])[0].cells
    joined = [one.cells for one in series_of(pa.concat_tables(tables[1:]))]
    for name, keys in (("slices", 1), ("buckets", 2)):
        together = added_up(np.concatenate([getattr(cells, name) for cells in joined]), keys)
        assert together.tolist() == getattr(whole, name).tolist()


def test_files_without_statistics_are_read_all_the_same(tmp_path: Path) -> None:
    rows = [dataclasses.asdict(record(n)) for n in (1, 2, 5_000)]
    rows.append({**dataclasses.asdict(record(9)), "published_at_seconds": None})
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, tmp_path / "bare.parquet", write_statistics=False)
    file = check_files(tmp_path, [tmp_path / "bare.parquet"], SCHEMA, TIME).good[0]
    assert (file.groups[0].earliest, file.groups[0].latest) == (1001.0, 6000.0)
    for windows in (windows_of([file]), fixed_windows([file], 1024.0)):
        read = [read_window(window, SCHEMA.names, SCHEMA)[0].num_rows for window in windows]
        assert sum(read) == 4
    assert [window.start for window in fixed_windows([file], 1024.0) if not window.untimed] == [
        0.0,
        1024.0,
        2048.0,
        3072.0,
        4096.0,
        5120.0,
    ]


def test_one_clock_of_1970_makes_neither_millions_of_windows_nor_one_of_everything(
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
    assert len(fixed_windows([numbered_for(file, 1024.0)], 1024.0)) <= 1 + 21
    monkeypatch.setattr(record_windows, "ROWS_OF_A_WINDOW", 500)
    read = [read_window(window, SCHEMA.names, SCHEMA)[0].num_rows for window in windows_of([file])]
    assert sum(read) == 2_001
    assert max(read) < 1_000


def scattered(tmp_path: Path, rows: list[dict[str, Any]], files: int) -> list[RecordFile]:
    """Some of the rows in each file, a copy of every tenth in the next one."""
    for number in range(files):
        some = rows[number::files] + rows[(number + 1) % files :: files][::10]
        table = pa.Table.from_pylist(some, schema=SCHEMA)
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=300)
    return list(checked_deliveries(tmp_path).good)


def sums_in_parts(files: list[RecordFile], fixed: bool) -> tuple[int, pa.Table]:
    """The most rows that were read at a time, and the sums of all."""
    tables = [
        table
        for window in (fixed_windows(files, 1024.0) if fixed else windows_of(files))
        for table, _ in read_parts(window, SCHEMA.names, SCHEMA)
    ]
    sums = pa.concat_tables([cells_of(table, None) for table in tables])
    return max(table.num_rows for table in tables), sums


def slices_of(sums: pa.Table) -> list[list[int]]:
    """Of one subscription, whatever the windows were."""
    cells = np.concatenate([series.cells.slices for series in series_of(sums)])
    return added_up(cells, keys=1).tolist()


@pytest.mark.parametrize("fixed", [False, True])
def test_a_burst_within_long_row_groups_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    random = np.random.default_rng(1)
    times = 1.8e9 + 43_200 + random.uniform(0, 300, 4_000)
    times[::20] = 1.8e9 + np.linspace(0, 80_000, 200)  # or the groups would not span long
    rows = [dataclasses.asdict(record(n)) | far(at) for n, at in enumerate(times.tolist())]
    files = scattered(tmp_path, rows, files=3)
    most, whole = sums_in_parts(files, fixed)
    assert most > 3_000
    monkeypatch.setattr(record_windows, "ROWS_OF_A_WINDOW", 500)
    most, parts = sums_in_parts(files, fixed)
    assert most < 1_000
    assert slices_of(parts) == slices_of(whole)
    assert pc.sum(parts["count"]).as_py() == 4_000  # of the copies one each


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_without_a_stamp_are_read_in_parts_and_their_copies_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    rows = [dataclasses.asdict(record(n)) | {TIME: None} for n in range(3_000)]
    for row in rows[::2]:
        row["publication_id"] = ""
    files = scattered(tmp_path, rows, files=3)  # 100 copies with a name, 200 without
    most, whole = sums_in_parts(files, fixed)
    assert (most, pc.sum(whole["count"]).as_py()) == (3_300, 1_500 + 1_700)
    monkeypatch.setattr(record_windows, "ROWS_OF_A_WINDOW", 500)
    most, parts = sums_in_parts(files, fixed)
    assert most < 1_000
    assert pc.sum(parts["count"]).as_py() == 1_500 + 1_700
    assert slices_of(parts) == slices_of(whole)


def test_the_site_of_a_path_is_as_it_was_named(tmp_path: Path) -> None:
    folder = tmp_path / "site=tower%3A7" / "day=2026-01-31"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    pq.write_table(table.drop_columns(["site"]), folder / "a.parquet")
    assert check_files(tmp_path, [folder / "a.parquet"], SCHEMA).good[0].site == "tower:7"


def test_windows_order_and_copies_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = four_classes()
    write_simulated(tmp_path / "one", scenario, publications=4_000)
    whole = judged_without_spark(tmp_path / "one", scenario)
    table = pq.read_table(tmp_path / "one", schema=SCHEMA)
    random = np.random.default_rng(5)
    row = np.concatenate([np.arange(table.num_rows), random.integers(table.num_rows, size=500)])
    random.shuffle(row)
    (tmp_path / "other").mkdir()
    for number, part in enumerate(np.array_split(row, 3)):
        into = tmp_path / "other" / f"part{number}.parquet"
        pq.write_table(table.take(pa.array(part)), into, row_group_size=7_000)
    monkeypatch.setattr(record_windows, "ROWS_OF_A_WINDOW", 5_000)
    assert judged_without_spark(tmp_path / "other", scenario) == whole


def test_a_planted_drift_is_found_in_its_class_alone(tmp_path: Path) -> None:
    scenario = four_classes(load=0.5)
    write_simulated(tmp_path, scenario, publications=150_000)
    assert not [row for row in judged_without_spark(tmp_path, scenario) if row.alarming]
    plant_drift(tmp_path, priority=2, growth=0.15)
    found = [row for row in judged_without_spark(tmp_path, scenario) if row.alarming]
    assert {row.priority for row in found} == {2}
    assert {row.verdict for row in found} == {"drifts"}
    assert None in {row.subscriber for row in found}


def test_false_alarms_over_a_hundred_clean_runs_are_within_the_level(tmp_path: Path) -> None:
    scenario = four_classes()
    alarms = 0
    for seed in range(100):
        folder = tmp_path / str(seed)
        write_simulated(folder, scenario, publications=30_000, seed=seed)
        alarms += any(row.alarming for row in judged_without_spark(folder, scenario))
    assert alarms <= 5


@pytest.mark.long
def test_planted_drifts_are_found_whatever_the_seed(tmp_path: Path) -> None:
    scenario = four_classes(load=0.5)
    for seed in range(10):
        folder = tmp_path / str(seed)
        write_simulated(folder, scenario, publications=300_000, seed=seed)
        plant_drift(folder, priority=2, growth=0.15)
        found = [row for row in judged_without_spark(folder, scenario) if row.alarming]
        assert {row.priority for row in found} == {2}, seed
