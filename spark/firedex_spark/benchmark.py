"""``validate-delays`` over many records, beside the same aggregation in DuckDB.

Both remove copies, and count by subscription, slice of time and bucket of delay. The job also reads
footers, measures, tests and judges, and pays for starting its workers; DuckDB is given the same
cores. Memory is the most that the job's processes held together.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firedex.benchmarks import BenchmarkResult, Comparison, Report
from firedex_spark.delay_sketch import WIDTH
from firedex_spark.delivery_cells import MOST_SLICES
from firedex_spark.generated_records import RecordTruth, write_generated_records
from firedex_spark.prediction_files import read_predictions
from firedex_spark.session import spark_session
from firedex_spark.validate_delays import validate_delays

__all__ = ["validate_at_scale"]

ROWS = int(os.environ.get("FIREDEX_BENCH_SPARK_ROWS", 50_000_000))
DRIVER_MEMORY = "4g"
GIGABYTE = 1e9
BYTES_OF_A_ROW = 40
"""What a generated record takes on disk, at the most."""
TRUTH = RecordTruth(sites=4, subscribers=10, topics=20, publications_per_second=500.0)
QUERY = """
with notification as (
    select site, run, subscriber, filter, publication_id,
        min(configuration_version * 64 + priority) as class,
        min(floor(published_at_seconds / {width})) as slice,
        min(case when outcome = 'delivered'
            then round((received_at_seconds - published_at_seconds) * 1e9)::bigint end) as delay
    from read_parquet('{records}/*/*/*.parquet', hive_partitioning = true)
    group by all
), cell as (
    select site, run, subscriber, filter, class, slice,
        floor(ln(greatest(delay, 1)) / ln(1 + {bucket})) as bucket,
        count(*) as count, sum(delay) as total
    from notification group by all
)
select sum(count), count(total) from cell
"""


def validate_at_scale(report: Report) -> BenchmarkResult:
    """The job against DuckDB, and its memory against 4 GB of driver and as much of workers."""
    import duckdb  # a tool of developers: only who runs this needs it

    with tempfile.TemporaryDirectory(prefix="firedex-bench-") as name:
        folder = Path(name)
        free = shutil.disk_usage(folder).free
        if free < 2 * ROWS * BYTES_OF_A_ROW:
            raise OSError(f"{folder} has {free / GIGABYTE:.0f} GB free, too little for {ROWS} rows")
        report(f"spark: drawing {ROWS} records (not counted)")
        rows = write_generated_records(TRUTH, folder, ROWS)
        predictions = read_predictions(folder / "predictions.parquet")
        report("spark: validate-delays")
        with spark_session("bench", memory=DRIVER_MEMORY) as session, _watched() as memory:
            session.range(10).count()  # it has started
            start = time.perf_counter()
            found = validate_delays(session, folder / "records", predictions)
            ours = time.perf_counter() - start
        report("spark: the same aggregation in DuckDB")
        seconds = ROWS / TRUTH.sites / TRUTH.subscribers / TRUTH.publications_per_second
        query = QUERY.format(records=folder / "records", width=seconds / MOST_SLICES, bucket=WIDTH)
        with duckdb.connect() as connection:
            connection.execute(f"set threads = {len(os.sched_getaffinity(0))}")
            connection.execute("set enable_progress_bar = false")
            connection.execute(f"set temp_directory = '{folder / 'duckdb'}'")
            start = time.perf_counter()
            counted = connection.execute(query).fetchall()[0][0]
            theirs = time.perf_counter() - start
    offered = sum(row.offered for row in found.rows if row.subscriber is None)
    if offered != counted:
        raise RuntimeError(f"{offered} notifications by the job, {counted} by DuckDB")
    return BenchmarkResult(
        name="spark",
        comparisons=(
            Comparison(
                what=f"{rows} records, copies removed: {rows / ours:,.0f} rows/s by the job, "
                f"{rows / theirs:,.0f} by DuckDB",
                left="validate-delays",
                left_value=ours,
                right="DuckDB",
                right_value=theirs,
                unit="s",
                at_most=4.0,
            ),
            Comparison(
                what="the most memory that driver, Java and workers held together",
                left="validate-delays",
                left_value=max(memory) / GIGABYTE,
                right="a 4 GB driver, and 4 GB for workers",
                right_value=8.0,
                unit="GB",
                at_most=1.0,
            ),
        ),
    )


@contextmanager
def _watched() -> Iterator[list[float]]:
    """The memory of this process and all below it, looked at twice a second."""
    seen, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            seen.append(sum(_resident(pid) for pid in _family(os.getpid())))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _family(root: int) -> list[int]:
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                left += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def _resident(pid: int) -> float:
    """Its own share of memory in bytes: what it shares with its parent counts once."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    return 0.0
