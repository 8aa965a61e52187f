"""What a stream remembers of its files, without Spark: what is away or half there is not lost."""

import errno
import os
from pathlib import Path

import pytest
from test_delivery_cells import record

from firedex_clients.delivery_log import write_records
from firedex_spark import record_files
from firedex_spark.errors import MixedLayout, OutOfReach, UnreadableFile, unreadable
from firedex_spark.stream_files import StreamFiles


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    for name in ("a", "b"):
        write_records(folder / f"{name}.parquet", [record(1)])
    return folder


@pytest.fixture
def files(tmp_path: Path, records: Path) -> StreamFiles:
    return StreamFiles(tmp_path / "files", records, 1024.0)


def names(paths: set[str] | dict[str, object] | None) -> set[str] | None:
    return None if paths is None else {Path(path).name for path in paths}


def all_of(records: Path) -> list[str]:
    return [str(path) for path in records.rglob("*.parquet")]


def test_what_the_system_says_may_pass_and_a_wrong_format_does_not(tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert isinstance(unreadable(file, FileNotFoundError(errno.ENOENT, "none")), OutOfReach)
    assert isinstance(unreadable(file, OSError(errno.EIO, "disk")), OutOfReach)
    for error in (PermissionError(errno.EACCES, "no"), OSError("thrift"), ValueError("magic")):
        assert type(unreadable(file, error)) is UnreadableFile


def test_a_batch_is_fresh_until_it_is_summed(records: Path, files: StreamFiles) -> None:
    assert not files.whole
    files.note_batch(0, all_of(records))
    assert (names(files.fresh()), files.whole) == ({"a.parquet", "b.parquet"}, False)
    files.summed()
    assert (files.fresh(), files.whole) == (set(), True)


def test_a_file_that_was_being_copied_comes_back_whole(records: Path, files: StreamFiles) -> None:
    content = (records / "b.parquet").read_bytes()
    (records / "b.parquet").write_bytes(content[:100])
    files.note_batch(0, all_of(records))
    assert names(files.known().good) == {"a.parquet"}
    files.summed()
    (records / "b.parquet").write_bytes(content[:200])  # still
    assert not files.note_those_back()
    (records / "b.parquet").write_bytes(content)
    assert files.note_those_back()
    assert (names(files.fresh()), names(files.known().left_out)) == ({"b.parquet"}, set())
    files.summed()
    assert (files.whole, files.note_those_back()) == (True, False)


def test_one_that_broke_in_the_midst_comes_back_with_a_later_batch(
    records: Path, files: StreamFiles
) -> None:
    files.note_batch(0, all_of(records))
    files.leave_out([UnreadableFile(records / "b.parquet", "pages")])
    assert names(files.known().left_out) == {"b.parquet"}
    assert files.fresh() is None  # everything anew
    files.summed()
    write_records(records / "c.parquet", [record(2)])
    files.note_batch(1, [str(records / "c.parquet")])
    assert names(files.fresh()) == {"c.parquet"}  # as it was, it is not looked at
    files.summed()
    write_records(records / "b.parquet", [record(1), record(3)])
    files.note_batch(2, [])
    assert names(files.known().good) == {"a.parquet", "b.parquet", "c.parquet"}
    assert names(files.fresh()) == {"b.parquet"}


def test_one_that_was_taken_in_and_is_away_stays_known(records: Path, files: StreamFiles) -> None:
    files.note_batch(0, all_of(records))
    (records / "b.parquet").rename(records / "elsewhere")
    write_records(records / "c.parquet", [record(2)])
    gone = str(records / "d.parquet")  # by the time that it was looked at
    files.note_batch(0, [*all_of(records), gone])
    assert names(files.known().good) == {"a.parquet", "b.parquet", "c.parquet"}
    (bad,) = files.known().left_out.values()
    assert isinstance(bad, OutOfReach)
    write_records(Path(gone), [record(4)])
    assert files.note_those_back()
    assert names(files.known().good) == {"a.parquet", "b.parquet", "c.parquet", "d.parquet"}


def test_what_spark_has_passed_over_is_found(records: Path, files: StreamFiles) -> None:
    files.note_batch(0, [str(records / "a.parquet")])
    files.summed()
    assert not files.note_those_back()  # Spark may be about to tell of it
    assert files.note_those_back()
    assert names(files.fresh()) == {"b.parquet"}
    files.summed()
    write_records(records / "c.parquet", [record(2)])
    assert files.note_those_back(at_the_end=True)
    assert names(files.known().good) == {"a.parquet", "b.parquet", "c.parquet"}


def test_a_file_of_a_disk_that_fails_is_asked_for_again(
    records: Path, files: StreamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(record_files.pq, "ParquetFile", fails)
        files.note_batch(0, all_of(records))
    assert names(files.known().left_out) == {"a.parquet", "b.parquet"}
    assert files.note_those_back()
    assert names(files.known().good) == {"a.parquet", "b.parquet"}


def test_a_flat_file_beside_others_by_site_is_left_out_whenever_it_came(
    records: Path, files: StreamFiles
) -> None:
    files.note_batch(0, all_of(records))
    assert len(files.known().good) == 2
    (records / "site=x").mkdir()
    write_records(records / "site=x" / "c.parquet", [record(2)])
    files.note_batch(1, [str(records / "site=x" / "c.parquet")])
    known = files.known()
    assert names(known.good) == {"c.parquet"}
    assert {type(bad) for bad in known.left_out.values()} == {MixedLayout}
    assert len(known.left_out) == 2
