"""``arrange-records``: flat files sorted into folders by site and day, in the order of time.

Nothing is lost or removed, copies included; later jobs then read every row once.
"""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from firedex_spark.errors import BadFile
from firedex_spark.record_files import check_files, files_under, frame_of
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession

__all__ = ["arrange_records"]

Say = Callable[[str], None]
ROWS_OF_A_FILE = 2_000_000


def arrange_records(
    spark: SparkSession, records: Path, out: Path, say: Say = lambda _text: None
) -> tuple[int, tuple[BadFile, ...]]:
    """Write ``out/records/site=…/day=…``; how many rows, and what was left out."""
    target = out / "records"
    checked = check_files(records, files_under(records, "delivery records"), DELIVERY_SCHEMA)
    for bad in checked.left_out:
        say(f"left out: {bad}")
    say(f"{checked.rows} records in {len(checked.good)} files")
    rows = _with_day(frame_of(spark, checked.good, DELIVERY_SCHEMA))
    order = ("site", "day", "published_at_seconds")
    parts = max(checked.rows // ROWS_OF_A_FILE, 1)
    arranged = rows.repartitionByRange(parts, *order).sortWithinPartitions(*order)
    arranged.write.partitionBy("site", "day").parquet(str(target.absolute()))
    return checked.rows, checked.left_out


def _with_day(rows: DataFrame) -> DataFrame:
    """The day of publication, else of delivery, in UTC; rows without either are of 1970."""
    when = f.coalesce("published_at_seconds", "received_at_seconds", f.lit(0.0))
    return rows.withColumn("day", f.to_date(f.timestamp_seconds(when)))
