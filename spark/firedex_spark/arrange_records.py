"""``arrange-records``: flat files sorted into folders by site and day, in the order of time.

Nothing is removed, copies included, but rows that say no site: they belong in no folder. Later jobs
then read every row once.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from firedex_spark.errors import BadFile, NothingCounts, UnreadableFile
from firedex_spark.files_left_out import without
from firedex_spark.record_columns import LATEST_SECONDS
from firedex_spark.record_files import CheckedFiles, RecordFile, check_files, files_under, frame_of
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession

__all__ = ["arrange_records", "broken_file"]

Say = Callable[[str], None]
ROWS_OF_A_FILE = 2_000_000
NO_SITE = "site is missing"


def arrange_records(
    spark: SparkSession, records: Path, out: Path, say: Say = lambda _text: None
) -> tuple[int, dict[str, int], tuple[BadFile, ...]]:
    """Write ``out/records/site=…/day=…``; how many rows, how many not, and what was left out.

    Every file is read to its end before anything is written: one of which a part cannot be read,
    or whose texts are none, is left out whole and named, and spoils none of the folders.
    """
    target = out.absolute() / "records"
    checked = check_files(records, files_under(records, "delivery records"), DELIVERY_SCHEMA)
    say(f"looking at {len(checked.good)} files")
    checked = without(records, checked, _broken(spark, checked.good))
    for bad in checked.left_out:
        say(f"left out: {bad}")
    say(f"{checked.rows} records in {len(checked.good)} files")
    nowhere = _arranged(spark, checked, target)
    refused = {NO_SITE: nowhere} if nowhere else {}
    if nowhere == checked.rows:
        raise NothingCounts(records, refused)
    return checked.rows - nowhere, refused, checked.left_out


def _arranged(spark: SparkSession, checked: CheckedFiles, target: Path) -> int:
    """Write them; how many belong in no folder."""
    rows = frame_of(spark, checked.good, DELIVERY_SCHEMA)
    nowhere = rows.where(~_has_site()).count()
    order = ("site", "day", "published_at_seconds")
    parts = max(checked.rows // ROWS_OF_A_FILE, 1)
    placed = _with_day(rows.where(_has_site())).repartitionByRange(parts, *order)
    arranged = placed.sortWithinPartitions(*order)
    arranged.write.partitionBy("site", "day").parquet(str(target))
    return nowhere


def _has_site() -> Column:
    """Spark would put rows without one into a folder of a made-up name, as if of such a site."""
    return f.coalesce(f.col("site") != "", f.lit(False))


def _with_day(rows: DataFrame) -> DataFrame:
    """The day of publication, else of delivery, in UTC; rows without either are of 1970."""
    times = (f.col("published_at_seconds"), f.col("received_at_seconds"))
    real = [f.when(time.between(0.0, LATEST_SECONDS), time) for time in times]
    when = f.coalesce(*real, f.lit(0.0))
    day = f.to_date(f.timestamp_seconds(when))
    return rows.withColumn("day", f.coalesce(day, f.lit(date(1970, 1, 1))))


def _broken(spark: SparkSession, files: Sequence[RecordFile]) -> list[BadFile]:
    """Files that cannot be read to their end."""
    tasks = spark.createDataFrame([(str(file.path),) for file in files], "path string")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reasons = [broken_file(Path(path)) for path in batch.column("path").to_pylist()]
            yield pa.RecordBatch.from_arrays(
                [batch.column("path"), pa.array(reasons, pa.string())], ["path", "reason"]
            )

    found = tasks.repartition(len(files)).mapInArrow(work, "path string, reason string").collect()
    why = {row["path"]: row["reason"] for row in found if row["reason"] is not None}
    return [UnreadableFile(Path(path), why[path]) for path in sorted(why)]


def broken_file(path: Path) -> str | None:
    """Why a file's rows cannot be read; None if they can."""
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                names = [name for name in DELIVERY_SCHEMA.names if name in file.schema_arrow.names]
                rows = file.read_row_group(group, names, use_threads=False)
                rows.validate(full=True)  # texts are text
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        return str(error).splitlines()[0]
    return None
