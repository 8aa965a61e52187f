"""Output folders: results are published completely or not at all.

A job writes into a new folder ``OUT/.unfinished-…``; each run has its own, since workers of a
killed job may write for a moment longer. When all results are complete they replace those of the
earlier run one by one. The last result is removed first and published last: if it exists, all
results belong to one run. A killed job leaves the results of the earlier run, or none; the next run
removes its unfinished folder.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firedex.system.files import write_atomically
from firedex_spark.errors import OutputInUse, UnwritableOutput

__all__ = ["atomic_results", "locked_folder", "write_table"]

UNFINISHED = ".unfinished"


@contextmanager
def locked_folder(out: Path, names: Sequence[str], sources: Sequence[Path]) -> Iterator[None]:
    """Create and lock the output folder, so that no other job writes there.

    ``names`` are the results, ``sources`` the input of the job; they must not overlap.
    """
    for source in sources:
        _check_no_overlap(out, names, source)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise UnwritableOutput(out, error) from error
    try:
        _lock(lock, out)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, out: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputInUse(out, "is in use by another job") from None


@contextmanager
def atomic_results(out: Path, results: Sequence[str], sources: Sequence[Path]) -> Iterator[Path]:
    """Yield a folder for the results; those that were written are published at the end."""
    with locked_folder(out, results, sources):
        unfinished = _make_unfinished_folder(out)
        try:
            yield unfinished
            _publish(unfinished, out, results)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _make_unfinished_folder(out: Path) -> Path:
    unfinished = out / f"{UNFINISHED}-{secrets.token_hex(4)}"
    try:
        for leftover in out.glob(f"{UNFINISHED}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished.mkdir()
    except OSError as error:
        raise UnwritableOutput(out, error) from error
    return unfinished


def _check_no_overlap(out: Path, results: Sequence[str], source: Path) -> None:
    source_path, output_path = source.resolve(), out.resolve()
    if output_path == source_path or source_path in output_path.parents:
        raise OutputInUse(out, f"is inside the input {source}")
    for name in results:
        if output_path / name == source_path or output_path / name in source_path.parents:
            raise OutputInUse(out, f"contains the input {source} where {name} would be written")


def _publish(unfinished: Path, out: Path, results: Sequence[str]) -> None:
    _remove(out / results[-1])
    for name in results:
        _remove(out / name)
        if (unfinished / name).exists():
            (unfinished / name).replace(out / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet; the file appears whole or not at all."""
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    write_atomically(path, content.getvalue().to_pybytes())
