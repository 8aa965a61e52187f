"""Which files a job reads: checked at entry by their footers; a bad one is left out by name.

Files lie flat, as clients and the simulator write them, or by site and day
(``site=NAME/day=DATE/…``), where the site is in the path.
"""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
    NoInput,
    NothingReadable,
    WrongColumnType,
    unreadable,
)
from firedex_spark.record_columns import is_stamp
from firedex_spark.session import SparkSession

__all__ = [
    "CheckedFiles",
    "RecordFile",
    "RowGroup",
    "check_files",
    "files_under",
    "frame_of",
    "not_a_pattern",
    "site_of",
]

READERS = 8
SITE = "site="
SUFFIX = ".parquet"
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows that lie together in a file, and between which times; ``untimed``: some have none.

    Without any time at all ``earliest`` is after ``latest``. ``windows``: by number, if they are
    known one by one.
    """

    number: int
    rows: int
    earliest: float
    latest: float
    untimed: bool
    windows: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A file that can be read; ``site``: as its path says, if it does.

    ``empty``: columns that hold nothing, and are of no type.
    """

    path: Path
    site: str | None
    groups: tuple[RowGroup, ...]
    empty: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFiles:
    """What can be read, and what is left out."""

    good: tuple[RecordFile, ...]
    left_out: tuple[BadFile, ...]

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(file.rows for file in self.good)


def files_under(source: Path, kind: str) -> list[Path]:
    """All Parquet files there, in a fixed order; unfinished ones have other names.

    By their whole paths: workers are in other folders than whoever named this one.
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
    """Check every file against ``schema``; ``time``: the column whose range is wanted, if any."""
    with ThreadPoolExecutor(READERS) as pool:
        checked = list(pool.map(lambda file: _checked(file, schema, time), files))
    good = tuple(file for file in checked if isinstance(file, RecordFile))
    left_out = tuple(bad for bad in checked if isinstance(bad, BadFile))
    if not good:
        raise NothingReadable(source, left_out)
    return CheckedFiles(good=good, left_out=left_out)


def _checked(path: Path, schema: pa.Schema, time: str | None) -> RecordFile | BadFile:
    try:
        with pq.ParquetFile(path) as file:
            wrong = _wrong_columns(path, file.schema_arrow, schema)
            if wrong is not None:
                return wrong
            return RecordFile(
                path=path,
                site=site_of(path),
                groups=tuple(_groups(file, time)),
                empty=tuple(f.name for f in file.schema_arrow if pa.types.is_null(f.type)),
            )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        return unreadable(path, error)


def _wrong_columns(path: Path, found: pa.Schema, schema: pa.Schema) -> BadFile | None:
    wanted = [f for f in schema if not (f.name == "site" and site_of(path) is not None)]
    missing = [field.name for field in wanted if field.name not in found.names]
    if missing:
        return MissingColumns(path, missing)
    for field in wanted:
        kind = found.field(field.name).type
        if not _alike(kind, field.type):
            return WrongColumnType(path, field.name, str(kind), str(field.type))
    return None


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """The same, or what is read as the same without loss."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):  # nothing in it, as pandas writes such a column
        return True
    if pa.types.is_string(wanted):
        return any(is_text(found) for is_text in TEXTS)
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_signed_integer(found))
    return bool(found == wanted)


def site_of(path: Path) -> str | None:
    """As the path says, if it does."""
    named = [part.removeprefix(SITE) for part in path.parts if part.startswith(SITE)]
    return unquote(named[-1]) if named else None


def _groups(file: pq.ParquetFile, time: str | None) -> Iterable[RowGroup]:
    metadata = file.metadata
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    column = names.index(time) if time is not None else None
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        said: Any = group.column(column).statistics if column is not None else None
        earliest, latest, untimed = inf, -inf, False
        if time is not None and (said is None or not _is_telling(said, group.num_rows)):
            earliest, latest, untimed = _looked_up(file, number, time)
        elif said is not None:
            untimed = said.null_count > 0
            if said.has_min_max:
                earliest, latest = float(said.min), float(said.max)
        yield RowGroup(
            number=number, rows=group.num_rows, earliest=earliest, latest=latest, untimed=untimed
        )


def _is_telling(said: Any, rows: int) -> bool:
    """Whether statistics say what is wanted of them; some writers leave them out."""
    if not said.has_null_count:
        return False
    if not said.has_min_max:
        return bool(said.null_count == rows)
    return bool(is_stamp(np.array([said.min, said.max], dtype=np.float64)).all())


def _looked_up(file: pq.ParquetFile, group: int, time: str) -> tuple[float, float, bool]:
    column = file.read_row_group(group, [time]).column(time)
    times = np.asarray(column.drop_null().to_numpy())
    times = times[is_stamp(times)]
    if not len(times):
        return inf, -inf, len(column) > 0
    return float(times.min()), float(times.max()), column.null_count > 0


def frame_of(spark: SparkSession, files: Sequence[RecordFile], schema: pa.Schema) -> DataFrame:
    """The rows of all files, by the columns of ``schema``; a path's site is the column's value."""
    made: DataFrame | None = None
    alike: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for file in files:
        alike.setdefault((file.site, file.empty), []).append(not_a_pattern(file.path))
    for (site, empty), paths in alike.items():
        given: dict[str, Any] = dict.fromkeys(empty) | ({} if site is None else {"site": site})
        wanted = [field for field in schema if field.name not in given]
        # else integers would have the width of the first file's
        rows = spark.read.schema(from_arrow_schema(pa.schema(wanted))).parquet(*paths)
        for field in from_arrow_schema(schema):
            if field.name in given:
                rows = rows.withColumn(field.name, lit(given[field.name]).cast(field.dataType))
        rows = rows.select(*schema.names)
        made = rows if made is None else made.unionByName(rows)
    if made is None:
        raise ValueError("no files")
    return made


def not_a_pattern(path: Path) -> str:
    """Spark takes paths for patterns; what has a meaning in one is escaped."""
    return re.sub(r"([][{}*?\\])", r"\\\1", str(path.absolute()))
