"""Where a job's results go: whole or not at all, beside whatever else is in the folder.

A job writes into ``OUT/.unfinished-…``, each into another: workers of one that was killed may go on
for a moment. When everything is there, the results of an earlier run are
replaced one by one, the last of them last: where that one is, all are of one run. A job that is
killed leaves an earlier run's results, or none; the next one clears up after it.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from firedex_spark.errors import OutputInUse, UnwritableOutput

__all__ = ["own_folder", "replaced", "whole_results", "write_whole"]

UNFINISHED = ".unfinished"


@contextmanager
def own_folder(out: Path, names: Sequence[str], sources: Sequence[Path]) -> Iterator[None]:
    """Nobody else writes there meanwhile.

    ``names``: what is written; ``sources``: what the job reads. They never mix.
    """
    for source in sources:
        _apart(out, names, source)
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
        raise OutputInUse(out, "is being written by another job") from None


@contextmanager
def whole_results(out: Path, results: Sequence[str], sources: Sequence[Path]) -> Iterator[Path]:
    """A folder to write ``results`` into; those that were written take their places at the end."""
    with own_folder(out, results, sources):
        unfinished = _emptied(out)
        try:
            yield unfinished
            _put_in_place(unfinished, out, results)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _emptied(out: Path) -> Path:
    unfinished = out / f"{UNFINISHED}-{secrets.token_hex(4)}"
    try:
        for left in out.glob(f"{UNFINISHED}-*"):
            shutil.rmtree(left, ignore_errors=True)
        unfinished.mkdir()
    except OSError as error:
        raise UnwritableOutput(out, error) from error
    return unfinished


def _apart(out: Path, results: Sequence[str], source: Path) -> None:
    read, written = source.resolve(), out.resolve()
    if written == read or read in written.parents:
        raise OutputInUse(out, f"is inside {source}, which is read")
    for name in results:
        if written / name == read or written / name in read.parents:
            raise OutputInUse(out, f"holds {source}, which is read, where {name} is written")


def _put_in_place(unfinished: Path, out: Path, results: Sequence[str]) -> None:
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


def replaced(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file; it appears whole or not at all."""
    unfinished = path.with_name(f"{path.name}{UNFINISHED}")
    write(unfinished)
    unfinished.replace(path)


def write_whole(path: Path, text: str) -> None:
    """Write a text; the file appears whole or not at all."""
    replaced(path, lambda unfinished: unfinished.write_text(text, "utf-8"))
