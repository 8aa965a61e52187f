"""Find record files, check their footers, and read them; bad files are skipped and listed.

Files are in one folder, as clients and the simulator write them, or in a folder for each site and
day (``site=NAME/day=DATE/…``), where the path gives the site.
"""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit
from pyspark.sql.pandas.types import from_arrow_schema

from firedex_spark.errors import (
    BadFile,
    MissingColumns,
    MixedLayout,
    NoInput,
    NoReadableFiles,
    WrongColumnType,
    unreadable_file,
)
from firedex_spark.records.columns import TIME, is_valid_time
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession

__all__ = [
    "CheckedFiles",
    "RecordFile",
    "RowGroup",
    "check_delivery_files",
    "check_files",
    "escaped_path",
    "find_files",
    "misplaced_flat_files",
    "read_frame",
    "site_from_path",
    "without_files",
]

READERS = 8
SITE = "site="
SUFFIX = ".parquet"
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group of a Parquet file and the range of its times.

    ``untimed``: some rows have no time. If none has a time, ``earliest`` is after ``latest``.
    ``windows``: the numbers of the windows that have rows in this group, if they were computed.
    """

    number: int
    rows: int
    earliest: float
    latest: float
    untimed: bool
    windows: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A readable file. ``site``: from its path, if it is there.

    ``empty``: columns that hold nothing and have no type.
    """

    path: Path
    site: str | None
    groups: tuple[RowGroup, ...]
    empty: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFiles:
    """The files that can be read, and the skipped ones."""

    good: tuple[RecordFile, ...]
    skipped: tuple[BadFile, ...]

    @property
    def rows(self) -> int:
        """Return the number of rows of all readable files."""
        return sum(file.rows for file in self.good)


def find_files(source: Path, kind: str) -> list[Path]:
    """Return all Parquet files under ``source`` by absolute path, sorted.

    Names that begin with ``_`` or ``.`` are unfinished files. Paths are absolute because workers
    run in other folders.
    """
    source = source.absolute()
    if source.is_file():
        return [source]
    named = [file for file in sorted(source.rglob("*")) if file.suffix.lower() == SUFFIX]
    found = [file for file in named if _is_finished(source, file)]
    if not found:
        raise NoInput(source, kind)
    return found


def _is_finished(source: Path, file: Path) -> bool:
    parts = file.relative_to(source).parts
    return file.is_file() and not any(part.startswith(("_", ".")) for part in parts)


def check_files(
    source: Path, files: Sequence[Path], schema: pa.Schema, time: str | None = None
) -> CheckedFiles:
    """Check every file against ``schema``; ``time`` is the column whose range is needed."""
    with ThreadPoolExecutor(READERS) as pool:
        checked = list(pool.map(lambda file: _check_file(file, schema, time), files))
    good = tuple(file for file in checked if isinstance(file, RecordFile))
    skipped = tuple(bad for bad in checked if isinstance(bad, BadFile))
    if not good:
        raise NoReadableFiles(source, skipped)
    return CheckedFiles(good=good, skipped=skipped)


def _check_file(path: Path, schema: pa.Schema, time: str | None) -> RecordFile | BadFile:
    try:
        with pq.ParquetFile(path) as file:
            wrong = _wrong_columns(path, file.schema_arrow, schema)
            if wrong is not None:
                return wrong
            return RecordFile(
                path=path,
                site=site_from_path(path),
                groups=tuple(_groups(file, time)),
                empty=tuple(f.name for f in file.schema_arrow if pa.types.is_null(f.type)),
            )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        return unreadable_file(path, error)


def _wrong_columns(path: Path, found: pa.Schema, schema: pa.Schema) -> BadFile | None:
    required = [f for f in schema if not (f.name == "site" and site_from_path(path) is not None)]
    missing = [field.name for field in required if field.name not in found.names]
    if missing:
        return MissingColumns(path, missing)
    for field in required:
        kind = found.field(field.name).type
        if not _is_compatible(kind, field.type):
            return WrongColumnType(path, field.name, str(kind), str(field.type))
    return None


def _is_compatible(found: pa.DataType, required: pa.DataType) -> bool:
    """Return whether a column can be read as ``required`` without loss."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):  # an empty column as pandas writes it
        return True
    if pa.types.is_string(required):
        return any(is_text(found) for is_text in TEXTS)
    if pa.types.is_integer(required):
        return bool(pa.types.is_signed_integer(found))
    return bool(found == required)


def site_from_path(path: Path) -> str | None:
    """Return the site that the path names, or None."""
    named = [part.removeprefix(SITE) for part in path.parts if part.startswith(SITE)]
    return unquote(named[-1]) if named else None


def _groups(file: pq.ParquetFile, time: str | None) -> Iterable[RowGroup]:
    metadata = file.metadata
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    column = names.index(time) if time is not None else None
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics: Any = group.column(column).statistics if column is not None else None
        earliest, latest, untimed = inf, -inf, False
        if time is not None and (statistics is None or not _is_usable(statistics, group.num_rows)):
            earliest, latest, untimed = _read_time_range(file, number, time)
        elif statistics is not None:
            untimed = statistics.null_count > 0
            if statistics.has_min_max:
                earliest, latest = float(statistics.min), float(statistics.max)
        yield RowGroup(
            number=number, rows=group.num_rows, earliest=earliest, latest=latest, untimed=untimed
        )


def _is_usable(statistics: Any, rows: int) -> bool:
    """Return whether the statistics of a column can be used; some writers omit them."""
    if not statistics.has_null_count:
        return False
    if not statistics.has_min_max:
        return bool(statistics.null_count == rows)
    return bool(is_valid_time(np.array([statistics.min, statistics.max], dtype=np.float64)).all())


def _read_time_range(file: pq.ParquetFile, group: int, time: str) -> tuple[float, float, bool]:
    column = file.read_row_group(group, [time]).column(time)
    times = np.asarray(column.drop_null().to_numpy())
    times = times[is_valid_time(times)]
    if not len(times):
        return inf, -inf, len(column) > 0
    return float(times.min()), float(times.max()), column.null_count > 0


def read_frame(spark: SparkSession, files: Sequence[RecordFile], schema: pa.Schema) -> DataFrame:
    """Return the rows of all files with the columns of ``schema``; a path gives the site."""
    frame: DataFrame | None = None
    files_by_columns: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for file in files:
        files_by_columns.setdefault((file.site, file.empty), []).append(escaped_path(file.path))
    for (site, empty), paths in files_by_columns.items():
        given: dict[str, Any] = dict.fromkeys(empty) | ({} if site is None else {"site": site})
        required = [field for field in schema if field.name not in given]
        # otherwise integers would have the width in the first file
        rows = spark.read.schema(from_arrow_schema(pa.schema(required))).parquet(*paths)
        for field in from_arrow_schema(schema):
            if field.name in given:
                rows = rows.withColumn(field.name, lit(given[field.name]).cast(field.dataType))
        rows = rows.select(*schema.names)
        frame = rows if frame is None else frame.unionByName(rows)
    if frame is None:
        raise ValueError("no files")
    return frame


def escaped_path(path: Path) -> str:
    """Return a path with the characters escaped that Spark treats as a pattern."""
    return re.sub(r"([][{}*?\\])", r"\\\1", str(path.absolute()))


def without_files(source: Path, checked: CheckedFiles, broken: Sequence[BadFile]) -> CheckedFiles:
    """Return the checked files without the broken ones: a file counts completely or not at all."""
    names = {bad.file for bad in broken}
    good = tuple(file for file in checked.good if file.path not in names)
    skipped = (*checked.skipped, *broken)
    if not good:
        raise NoReadableFiles(source, skipped)
    return CheckedFiles(good=good, skipped=skipped)


def check_delivery_files(records: Path) -> CheckedFiles:
    """Check all delivery records of a folder; flat files beside site folders are skipped."""
    files = find_files(records, "delivery records")
    misplaced = misplaced_flat_files(files)
    names = {bad.file for bad in misplaced}
    others = [file for file in files if file not in names]
    checked = check_files(records, others, DELIVERY_SCHEMA, TIME)
    return replace(checked, skipped=(*checked.skipped, *misplaced))


def misplaced_flat_files(files: Iterable[Path]) -> list[MixedLayout]:
    """Return the flat files if any other file is in a site folder, else nothing."""
    by_name = sorted(files)
    named = next((file for file in by_name if site_from_path(file) is not None), None)
    if named is None:
        return []
    return [MixedLayout(file, named) for file in by_name if site_from_path(file) is None]
