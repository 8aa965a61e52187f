"""arrange-records keeps every row, sorted by site and day."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firedex_spark.errors import NoReadableFiles, NoUsableRows
from firedex_spark.records import arrange as job
from firedex_spark.records.arrange import arrange_records, reason_unreadable
from firedex_spark.records.columns import TIME
from firedex_spark.records.files import check_files, escaped_path, find_files
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SPARK_ERRORS, SparkSession
from tests.spark.simulated_deliveries import four_classes, simulate_records

OTHER_TYPES = {
    "priority": pa.int32(),
    "wire_bytes": pa.int16(),
    "flow": pa.int8(),
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "run": pa.large_string(),
}

"""Other types that can be read as those of the schema."""


ODD = "odd [1] {a,b} * ? \\ %41"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("simulated")
    simulate_records(folder, four_classes(), publications=1_000)
    return pq.read_table(folder, schema=DELIVERY_SCHEMA)


def with_column(
    table: pa.Table, name: str, values: Any, kind: pa.DataType | None = None
) -> pa.Table:
    column = DELIVERY_SCHEMA.get_field_index(name)
    return table.set_column(
        column, name, pa.array(values, kind or DELIVERY_SCHEMA.field(name).type)
    )


def with_invalid_utf8(table: pa.Table, name: str) -> pa.Table:
    """Return the table with bytes that are not UTF-8 in one row."""
    raw = [b"\xff\xfe", *(text.encode() for text in table[name].to_pylist()[1:])]
    column = DELIVERY_SCHEMA.get_field_index(name)
    return table.set_column(column, name, pa.array(raw, pa.binary()).view(pa.string()))


def break_pages(file: Path, column: str) -> None:
    """Overwrite the pages of a column; the footer of the file stays valid."""
    group = pq.read_metadata(file).row_group(0)
    chunk = group.column(DELIVERY_SCHEMA.get_field_index(column))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    raw = bytearray(file.read_bytes())
    raw[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    file.write_bytes(raw)


def count_arranged_rows(folder: Path) -> Counter[tuple[Any, ...]]:
    """Return all rows of the folder with the site of their path."""
    found: Counter[tuple[Any, ...]] = Counter()
    files = check_files(folder, find_files(folder, "delivery records"), DELIVERY_SCHEMA)
    assert not files.skipped
    for file in files.good:
        assert file.site is not None
        table = pq.ParquetFile(file.path).read()
        found.update(as_rows(table.append_column("site", pa.array([file.site] * file.rows))))
    return found


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(
        zip(*(table.column(name).to_pylist() for name in DELIVERY_SCHEMA.names), strict=True)
    )


def test_pattern_characters_in_paths_are_escaped() -> None:
    assert escaped_path(Path("/plain/site=a b/x.parquet")) == "/plain/site=a b/x.parquet"
    assert escaped_path(Path("/a[1]/{b,c}*?")) == r"/a\[1\]/\{b,c\}\*\?"
    assert escaped_path(Path("/a\\b")) == r"/a\\b"


def test_unreadable_file_is_detected(simulated: pa.Table, tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    pq.write_table(simulated, file)
    assert reason_unreadable(file) is None
    break_pages(file, "wire_bytes")
    assert reason_unreadable(file)
    pq.write_table(with_invalid_utf8(simulated, "topic"), file)
    assert "Invalid UTF8" in (reason_unreadable(file) or "")
    assert "No such file" in (reason_unreadable(tmp_path / "none.parquet") or "")


@pytest.mark.long
class TestOnSpark:
    def test_every_readable_row_is_kept(
        self, spark: SparkSession, simulated: pa.Table, tmp_path: Path
    ) -> None:
        """Use integers of all widths, a site in a path, unusual folder names, and broken pages."""
        records, count = tmp_path / ODD, 100
        (records / "site=west").mkdir(parents=True)
        one, two, three = (simulated.slice(count * n, count) for n in range(3))
        pq.write_table(one, records / "b.parquet")
        narrow = two
        for name, kind in OTHER_TYPES.items():
            narrow = with_column(narrow, name, two[name].to_pylist(), kind)
        narrow = with_column(narrow, "publisher", [None] * count, pa.null())
        two = with_column(two, "publisher", [None] * count)
        pq.write_table(narrow, records / "a.PARQUET")
        pq.write_table(three.drop_columns("site"), records / "site=west" / "c.parquet")
        nowhere = with_column(one, "site", [None] * 30 + [""] * 20 + ["south/east"] * 50)
        pq.write_table(nowhere, records / "d.parquet")
        untimed = with_column(
            with_column(one, TIME, [None] * count), "received_at_seconds", [float("inf")] * count
        )
        pq.write_table(untimed, records / "e.parquet")
        pq.write_table(simulated, records / "broken.parquet")
        break_pages(records / "broken.parquet", "wire_bytes")
        (records / "short.parquet").write_bytes(b"PAR1")
        pq.write_table(with_invalid_utf8(simulated, "publication_id"), records / "untext.parquet")
        messages: list[str] = []
        rows, refused, skipped = arrange_records(spark, records, tmp_path / "out", messages.append)
        assert [bad.file.name for bad in skipped] == [
            "short.parquet",
            "broken.parquet",
            "untext.parquet",
        ]
        assert any("skipped" in line and "broken.parquet" in line for line in messages)
        assert refused == {"site is missing": 50}
        west = with_column(three, "site", ["west"] * count)
        expected = Counter(
            row for t in (one, two, west, nowhere.slice(50), untimed) for row in as_rows(t)
        )
        assert count_arranged_rows(tmp_path / "out" / "records") == expected
        assert rows == expected.total() == 450
        folders = (tmp_path / "out" / "records").glob("*/*")
        assert {f"{path.parent.name}/{path.name}" for path in folders} == {
            f"site={site}/day=1970-01-01" for site in ("site", "south%2Feast", "west")
        }

    def test_no_usable_input_is_an_error(
        self, spark: SparkSession, simulated: pa.Table, tmp_path: Path
    ) -> None:
        records = tmp_path / "records"
        records.mkdir()
        pq.write_table(
            with_column(simulated, "site", [None] * simulated.num_rows), records / "a.parquet"
        )
        with pytest.raises(NoUsableRows, match=r"site is missing \("):
            arrange_records(spark, records, tmp_path / "none")
        pq.write_table(simulated, records / "a.parquet")
        break_pages(records / "a.parquet", "site")
        with pytest.raises(NoReadableFiles, match=r"a\.parquet"):
            arrange_records(spark, records, tmp_path / "broken")

    def test_spark_error_is_not_attributed_to_a_file(
        self,
        spark: SparkSession,
        simulated: pa.Table,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pq.write_table(simulated, tmp_path / "a.parquet")
        monkeypatch.setattr(job, "_with_day", lambda rows: rows.selectExpr("no_such_column"))
        with pytest.raises(SPARK_ERRORS, match="no_such_column"):
            arrange_records(spark, tmp_path, tmp_path / "out")
