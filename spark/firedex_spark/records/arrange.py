"""``arrange-records``: sort records into folders by site and day, ordered by time.

All rows are kept, also duplicates, except rows without a site. Other jobs then read each row once.
"""

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from firedex_spark.errors import BadFile, NoUsableRows, UnreadableFile
from firedex_spark.records.columns import MAX_TIME_SECONDS
from firedex_spark.records.files import (
    CheckedFiles,
    RecordFile,
    check_files,
    find_files,
    read_frame,
    without_files,
)
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession, run_tasks

__all__ = ["arrange_records", "reason_unreadable"]

ReportProgress = Callable[[str], None]
ROWS_PER_FILE = 2_000_000
NO_SITE = "site is missing"
REASON_SCHEMA = pa.schema([("path", pa.string()), ("reason", pa.string())])


def arrange_records(
    spark: SparkSession,
    records: Path,
    out: Path,
    report_progress: ReportProgress = lambda _text: None,
) -> tuple[int, dict[str, int], tuple[BadFile, ...]]:
    """Write ``out/records/site=…/day=…``; return rows written, refused rows and skipped files.

    Every file is read completely before anything is written, so that an unreadable file is skipped
    completely.
    """
    target = out.absolute() / "records"
    checked = check_files(records, find_files(records, "delivery records"), DELIVERY_SCHEMA)
    report_progress(f"checking {len(checked.good)} files")
    checked = without_files(records, checked, _find_unreadable(spark, checked.good))
    for bad in checked.skipped:
        report_progress(f"skipped: {bad}")
    report_progress(f"{checked.rows} records in {len(checked.good)} files")
    rows_without_site = _write_arranged(spark, checked, target)
    refused = {NO_SITE: rows_without_site} if rows_without_site else {}
    if rows_without_site == checked.rows:
        raise NoUsableRows(records, refused)
    return checked.rows - rows_without_site, refused, checked.skipped


def _write_arranged(spark: SparkSession, checked: CheckedFiles, target: Path) -> int:
    """Write the rows; return the number of rows without a site."""
    rows = read_frame(spark, checked.good, DELIVERY_SCHEMA)
    rows_without_site = rows.where(~_has_site()).count()
    order = ("site", "day", "published_at_seconds")
    parts = max(checked.rows // ROWS_PER_FILE, 1)
    partitioned = _with_day(rows.where(_has_site())).repartitionByRange(parts, *order)
    arranged = partitioned.sortWithinPartitions(*order)
    arranged.write.partitionBy("site", "day").parquet(str(target))
    return rows_without_site


def _has_site() -> Column:
    """Return whether a row has a site; Spark would invent a folder name for missing ones."""
    return f.coalesce(f.col("site") != "", f.lit(False))


def _with_day(rows: DataFrame) -> DataFrame:
    """Add the UTC day of publication, else of delivery, else 1970-01-01."""
    times = (f.col("published_at_seconds"), f.col("received_at_seconds"))
    real = [f.when(time.between(0.0, MAX_TIME_SECONDS), time) for time in times]
    when = f.coalesce(*real, f.lit(0.0))
    day = f.to_date(f.timestamp_seconds(when))
    return rows.withColumn("day", f.coalesce(day, f.lit(date(1970, 1, 1))))


def _find_unreadable(spark: SparkSession, files: Sequence[RecordFile]) -> list[BadFile]:
    """Return the files that cannot be read completely."""
    paths = [str(file.path) for file in files]
    found = run_tasks(spark, paths, _check_complete_file, REASON_SCHEMA).collect()
    reasons = {row["path"]: row["reason"] for row in found if row["reason"] is not None}
    return [UnreadableFile(Path(path), reasons[path]) for path in sorted(reasons)]


def _check_complete_file(path: str) -> pa.Table:
    row = {"path": path, "reason": reason_unreadable(Path(path))}
    return pa.Table.from_pylist([row], schema=REASON_SCHEMA)


def reason_unreadable(path: Path) -> str | None:
    """Return why the rows of a file cannot be read; None if they can."""
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                names = [name for name in DELIVERY_SCHEMA.names if name in file.schema_arrow.names]
                rows = file.read_row_group(group, names, use_threads=False)
                rows.validate(full=True)  # texts are valid UTF-8
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        return str(error).splitlines()[0]
    return None
