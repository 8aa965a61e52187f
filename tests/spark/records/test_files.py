"""Record files: which can be read, and what is wrong with the others."""

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex_clients.delivery_log import write_records
from firedex_spark.errors import (
    MissingColumns,
    MixedLayout,
    NoReadableFiles,
    UnreadableFile,
    WrongColumnType,
)
from firedex_spark.records.columns import TIME
from firedex_spark.records.delivery_cells import sum_up_records
from firedex_spark.records.files import check_delivery_files, check_files, find_files
from firedex_spark.records.windows import (
    make_windows,
    read_window,
)
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA
from tests.spark.simulated_deliveries import (
    record,
    sums,
    total,
)


def test_records_of_clients_are_read(tmp_path: Path) -> None:
    write_records(tmp_path / "log.parquet", [record(1), record(2, published_at_seconds=None)])
    checked = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME)
    windows = make_windows(checked.good)
    read = [read_window(window, SCHEMA.names, SCHEMA)[0] for window in windows]
    assert [table.num_rows for table in read] == [1, 1]
    assert [window.untimed for window in windows] == [False, True]


def test_files_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path / "log.parquet", [record(1)])
    monkeypatch.chdir(tmp_path)
    for source in (Path(), Path("log.parquet")):
        assert find_files(source, "records") == [tmp_path / "log.parquet"]


def test_bad_files_are_skipped_with_a_reason(tmp_path: Path) -> None:
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
    kinds = [type(bad) for bad in checked.skipped]
    assert kinds == [UnreadableFile, MissingColumns, WrongColumnType, UnreadableFile]
    assert str(checked.skipped[1]) == f"{files[2]}: missing columns: topic, flow"
    assert "column priority has type string, expected int64" in str(checked.skipped[2])
    with pytest.raises(NoReadableFiles, match="none of 1 files"):
        check_files(tmp_path, files[1:2], SCHEMA, TIME)


def test_other_text_and_integer_types_are_read(tmp_path: Path) -> None:
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
        (window,) = make_windows(check_delivery_files(file).good)
        found, bad = read_window(window, SCHEMA.names, SCHEMA)
        assert (sum_up_records(found, None).to_pylist(), bad) == (wanted, [])
        some, bad = read_window(dataclasses.replace(window, end=1010.0), SCHEMA.names, SCHEMA)
        assert (some.num_rows, bad) == (10, [])
    assert len(find_files(tmp_path, "records")) == 3
    pq.write_table(with_type(untimed, pa.null(), [TIME, "publisher"]), tmp_path / "none.parquet")
    (window,) = make_windows(check_delivery_files(tmp_path / "none.parquet").good)
    found, bad = read_window(window, SCHEMA.names, SCHEMA)
    assert (window.untimed, total(sum_up_records(found, None).to_pylist()), bad) == (
        True,
        [50, 50, 0, 0],
        [],
    )
    nobody = with_type(table, pa.null(), ["subscriber"])
    pq.write_table(nobody, tmp_path / "nobody.parquet")
    (window,) = make_windows(check_delivery_files(tmp_path / "nobody.parquet").good)
    (row,) = sum_up_records(read_window(window, SCHEMA.names, SCHEMA)[0], None).to_pylist()
    assert (row["filter"], row["count"]) == ("subscriber is missing", 50)


def with_type(table: pa.Table, kind: pa.DataType, names: list[str]) -> pa.Table:
    for name in names:
        values = [None] * table.num_rows if kind == pa.null() else table[name].to_pylist()
        table = table.set_column(SCHEMA.get_field_index(name), name, pa.array(values, kind))
    return table


def test_invalid_utf8_makes_a_file_unreadable(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    wrong = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    place = SCHEMA.get_field_index("publication_id")
    pq.write_table(table.set_column(place, SCHEMA.field(place), wrong), tmp_path / "log.parquet")
    checked = check_files(tmp_path, [tmp_path / "log.parquet"], SCHEMA, TIME)
    table, bad = read_window(make_windows(checked.good)[0], SCHEMA.names, SCHEMA)
    assert (table.num_rows, [one.file.name for one in bad]) == (0, ["log.parquet"])


def test_flat_files_beside_site_folders_are_skipped(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    files = [tmp_path / "site=a" / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.parquet"]
    files[0].parent.mkdir()
    for file in files[:2]:
        pq.write_table(table, file)
    files[2].write_text("not Parquet")
    checked = check_delivery_files(tmp_path)
    assert [file.path for file in checked.good] == files[:1]
    assert [(type(bad), bad.file) for bad in checked.skipped] == [
        (MixedLayout, files[1]),
        (MixedLayout, files[2]),
    ]
    assert "is not in a site=NAME folder" in str(checked.skipped[0])


def test_site_of_a_path_is_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "site=tower%3A7" / "day=2026-01-31"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist([dataclasses.asdict(record(1))], schema=SCHEMA)
    pq.write_table(table.drop_columns(["site"]), folder / "a.parquet")
    assert check_files(tmp_path, [folder / "a.parquet"], SCHEMA).good[0].site == "tower:7"
