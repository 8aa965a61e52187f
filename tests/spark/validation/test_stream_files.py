"""The notes that a stream keeps about its files."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from firedex_clients.delivery_log import write_records
from firedex_spark.errors import MixedLayout, UnreachableFile, UnreadableFile, unreadable_file
from firedex_spark.validation.stream_files import StreamFiles
from tests.spark.simulated_deliveries import record


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


def names(paths: Iterable[str] | None) -> set[str] | None:
    return None if paths is None else {Path(path).name for path in paths}


def all_paths(records: Path) -> list[str]:
    return [str(path) for path in records.rglob("*.parquet")]


def test_system_errors_are_temporary_and_format_errors_are_not(tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert isinstance(
        unreadable_file(file, FileNotFoundError(errno.ENOENT, "none")), UnreachableFile
    )
    assert isinstance(unreadable_file(file, OSError(errno.EIO, "disk")), UnreachableFile)
    for error in (PermissionError(errno.EACCES, "no"), OSError("thrift"), ValueError("magic")):
        assert type(unreadable_file(file, error)) is UnreadableFile


def test_batch_counts_as_not_summed_until_it_is_marked(records: Path, files: StreamFiles) -> None:
    assert not files.is_complete
    files.note_batch(0, all_paths(records))
    assert (names(files.unsummed_files()), files.is_complete) == ({"a.parquet", "b.parquet"}, False)
    files.mark_summed()
    assert (files.unsummed_files(), files.is_complete) == (set(), True)


def test_file_that_was_incomplete_is_noted_again(records: Path, files: StreamFiles) -> None:
    content = (records / "b.parquet").read_bytes()
    (records / "b.parquet").write_bytes(content[:100])
    files.note_batch(0, all_paths(records))
    assert names(files.known_files().good) == {"a.parquet"}
    files.mark_summed()
    (records / "b.parquet").write_bytes(content[:200])  # still incomplete
    assert not files.note_readable_again()
    (records / "b.parquet").write_bytes(content)
    assert files.note_readable_again()
    assert (names(files.unsummed_files()), names(files.known_files().skipped)) == (
        {"b.parquet"},
        set(),
    )
    files.mark_summed()
    assert (files.is_complete, files.note_readable_again()) == (True, False)


def test_broken_file_is_noted_again_with_a_later_batch(records: Path, files: StreamFiles) -> None:
    files.note_batch(0, all_paths(records))
    files.skip_files([UnreadableFile(records / "b.parquet", "pages")])
    assert names(files.known_files().skipped) == {"b.parquet"}
    assert files.unsummed_files() is None  # all sums must be computed again
    files.mark_summed()
    write_records(records / "c.parquet", [record(2)])
    files.note_batch(1, [str(records / "c.parquet")])
    assert names(files.unsummed_files()) == {
        "c.parquet"
    }  # an unchanged broken file is not checked again
    files.mark_summed()
    write_records(records / "b.parquet", [record(1), record(3)])
    files.note_batch(2, [])
    assert names(files.known_files().good) == {"a.parquet", "b.parquet", "c.parquet"}
    assert names(files.unsummed_files()) == {"b.parquet"}


def test_unreachable_file_stays_known(records: Path, files: StreamFiles) -> None:
    files.note_batch(0, all_paths(records))
    (records / "b.parquet").rename(records / "elsewhere")
    write_records(records / "c.parquet", [record(2)])
    missing = str(records / "d.parquet")  # it is gone when it is checked
    files.note_batch(0, [*all_paths(records), missing])
    assert names(files.known_files().good) == {"a.parquet", "b.parquet", "c.parquet"}
    (bad,) = files.known_files().skipped.values()
    assert isinstance(bad, UnreachableFile)
    write_records(Path(missing), [record(4)])
    assert files.note_readable_again()
    assert names(files.known_files().good) == {"a.parquet", "b.parquet", "c.parquet", "d.parquet"}


def test_file_that_spark_did_not_report_is_found(records: Path, files: StreamFiles) -> None:
    files.note_batch(0, [str(records / "a.parquet")])
    files.mark_summed()
    assert not files.note_readable_again()  # Spark may still report it
    assert files.note_readable_again()
    assert names(files.unsummed_files()) == {"b.parquet"}
    files.mark_summed()
    write_records(records / "c.parquet", [record(2)])
    assert files.note_readable_again(at_the_end=True)
    assert names(files.known_files().good) == {"a.parquet", "b.parquet", "c.parquet"}


def test_file_on_a_failing_disk_is_read_again(
    records: Path, files: StreamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("firedex_spark.records.files.pq.ParquetFile", fails)
        files.note_batch(0, all_paths(records))
    assert names(files.known_files().skipped) == {"a.parquet", "b.parquet"}
    assert files.note_readable_again()
    assert names(files.known_files().good) == {"a.parquet", "b.parquet"}


def test_flat_file_beside_site_folders_is_skipped_in_any_order(
    records: Path, files: StreamFiles
) -> None:
    files.note_batch(0, all_paths(records))
    assert len(files.known_files().good) == 2
    (records / "site=x").mkdir()
    write_records(records / "site=x" / "c.parquet", [record(2)])
    files.note_batch(1, [str(records / "site=x" / "c.parquet")])
    known = files.known_files()
    assert names(known.good) == {"c.parquet"}
    assert {type(bad) for bad in known.skipped.values()} == {MixedLayout}
    assert len(known.skipped) == 2
