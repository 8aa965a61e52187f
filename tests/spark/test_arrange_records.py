"""arrange-records: what is there is there again, by site and day; what cannot be is told."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from simulated_deliveries import four_classes, write_simulated

from firedex_spark import arrange_records as job
from firedex_spark.arrange_records import arrange_records, broken_file
from firedex_spark.errors import NothingCounts, NothingReadable
from firedex_spark.record_columns import TIME
from firedex_spark.record_files import check_files, files_under, not_a_pattern
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SPARK_ERRORS, SparkSession

OTHER_TYPES = {
    "priority": pa.int32(),
    "wire_bytes": pa.int16(),
    "flow": pa.int8(),
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "run": pa.large_string(),
}
"""What is read as if it were of the schema."""
ODD = "odd [1] {a,b} * ? \\ %41"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("simulated")
    write_simulated(folder, four_classes(), publications=1_000)
    return pq.read_table(folder, schema=DELIVERY_SCHEMA)


def put(table: pa.Table, name: str, values: Any, kind: pa.DataType | None = None) -> pa.Table:
    column = DELIVERY_SCHEMA.get_field_index(name)
    return table.set_column(
        column, name, pa.array(values, kind or DELIVERY_SCHEMA.field(name).type)
    )


def put_no_text(table: pa.Table, name: str) -> pa.Table:
    """One of its rows has bytes that are no text."""
    raw = [b"\xff\xfe", *(text.encode() for text in table[name].to_pylist()[1:])]
    column = DELIVERY_SCHEMA.get_field_index(name)
    return table.set_column(column, name, pa.array(raw, pa.binary()).view(pa.string()))


def break_pages(file: Path, column: str) -> None:
    """A file whose footer is right, and of which a column cannot be read."""
    group = pq.read_metadata(file).row_group(0)
    chunk = group.column(DELIVERY_SCHEMA.get_field_index(column))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    raw = bytearray(file.read_bytes())
    raw[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    file.write_bytes(raw)


def arranged(folder: Path) -> Counter[tuple[Any, ...]]:
    """All rows there, the site as the path says."""
    found: Counter[tuple[Any, ...]] = Counter()
    files = check_files(folder, files_under(folder, "delivery records"), DELIVERY_SCHEMA)
    assert not files.left_out
    for file in files.good:
        assert file.site is not None
        table = pq.ParquetFile(file.path).read()
        found.update(as_rows(table.append_column("site", pa.array([file.site] * file.rows))))
    return found


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(
        zip(*(table.column(name).to_pylist() for name in DELIVERY_SCHEMA.names), strict=True)
    )


def test_names_of_folders_are_no_patterns() -> None:
    assert not_a_pattern(Path("/plain/site=a b/x.parquet")) == "/plain/site=a b/x.parquet"
    assert not_a_pattern(Path("/a[1]/{b,c}*?")) == r"/a\[1\]/\{b,c\}\*\?"
    assert not_a_pattern(Path("/a\\b")) == r"/a\\b"


def test_a_broken_file_is_told_from_a_good_one(simulated: pa.Table, tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    pq.write_table(simulated, file)
    assert broken_file(file) is None
    break_pages(file, "wire_bytes")
    assert broken_file(file)
    pq.write_table(put_no_text(simulated, "topic"), file)
    assert "Invalid UTF8" in (broken_file(file) or "")
    assert "No such file" in (broken_file(tmp_path / "none.parquet") or "")


@pytest.mark.long
@pytest.mark.xdist_group("spark")
class TestOnSpark:
    def test_everything_is_there_again_but_what_cannot_be(
        self, spark: SparkSession, simulated: pa.Table, tmp_path: Path
    ) -> None:
        """Integers of all widths, a site in a path, folders with odd names, broken pages."""
        records, count = tmp_path / ODD, 100
        (records / "site=west").mkdir(parents=True)
        one, two, three = (simulated.slice(count * n, count) for n in range(3))
        pq.write_table(one, records / "b.parquet")
        narrow = two
        for name, kind in OTHER_TYPES.items():
            narrow = put(narrow, name, two[name].to_pylist(), kind)
        narrow = put(narrow, "publisher", [None] * count, pa.null())
        two = put(two, "publisher", [None] * count)
        pq.write_table(narrow, records / "a.PARQUET")
        pq.write_table(three.drop_columns("site"), records / "site=west" / "c.parquet")
        nowhere = put(one, "site", [None] * 30 + [""] * 20 + ["south/east"] * 50)
        pq.write_table(nowhere, records / "d.parquet")
        untimed = put(put(one, TIME, [None] * count), "received_at_seconds", [float("inf")] * count)
        pq.write_table(untimed, records / "e.parquet")
        pq.write_table(simulated, records / "broken.parquet")
        break_pages(records / "broken.parquet", "wire_bytes")
        (records / "short.parquet").write_bytes(b"PAR1")
        pq.write_table(put_no_text(simulated, "publication_id"), records / "untext.parquet")
        told: list[str] = []
        rows, refused, left_out = arrange_records(spark, records, tmp_path / "out", told.append)
        assert [bad.file.name for bad in left_out] == [
            "short.parquet",
            "broken.parquet",
            "untext.parquet",
        ]
        assert any("left out" in line and "broken.parquet" in line for line in told)
        assert refused == {"site is missing": 50}
        west = put(three, "site", ["west"] * count)
        wanted = Counter(
            row for t in (one, two, west, nowhere.slice(50), untimed) for row in as_rows(t)
        )
        assert arranged(tmp_path / "out" / "records") == wanted
        assert rows == wanted.total() == 450
        folders = (tmp_path / "out" / "records").glob("*/*")
        assert {f"{path.parent.name}/{path.name}" for path in folders} == {
            f"site={site}/day=1970-01-01" for site in ("site", "south%2Feast", "west")
        }

    def test_a_job_of_which_nothing_is_left_says_why(
        self, spark: SparkSession, simulated: pa.Table, tmp_path: Path
    ) -> None:
        records = tmp_path / "records"
        records.mkdir()
        pq.write_table(put(simulated, "site", [None] * simulated.num_rows), records / "a.parquet")
        with pytest.raises(NothingCounts, match=r"site is missing \("):
            arrange_records(spark, records, tmp_path / "none")
        pq.write_table(simulated, records / "a.parquet")
        break_pages(records / "a.parquet", "site")
        with pytest.raises(NothingReadable, match=r"a\.parquet"):
            arrange_records(spark, records, tmp_path / "broken")

    def test_what_files_are_not_to_blame_for_ends_the_job(
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
