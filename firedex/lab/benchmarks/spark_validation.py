"""Speed of ``validate-delays`` on many records, compared with the same aggregation in DuckDB.

Both remove duplicates, and count by subscription, time slice and delay bucket. The job also reads
file footers, computes statistics and verdicts, and starts worker processes. DuckDB uses the same
cores. The memory is the maximum that all processes of the job use together.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firedex.lab.benchmarks import BenchmarkResult, Comparison, Report
from firedex_spark.records.delivery_cells import MAX_SLICES, WIDTH
from firedex_spark.records.generated import RecordParameters, write_generated_records
from firedex_spark.records.predictions import read_predictions
from firedex_spark.session import spark_session
from firedex_spark.validation.job import validate_delays

__all__ = ["validate_at_scale"]

ROWS = int(os.environ.get("FIREDEX_BENCH_SPARK_ROWS", 50_000_000))
DRIVER_MEMORY = "4g"
GIGABYTE = 1e9
BYTES_PER_ROW = 40
"""Maximum size of a generated record on disk."""
TRUTH = RecordParameters(sites=4, subscribers=10, topics=20, publications_per_second=500.0)
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
    """Compare the time of the job with DuckDB, and its memory with a limit of 8 GB."""
    import duckdb  # a development dependency, needed by this benchmark only

    with tempfile.TemporaryDirectory(prefix="firedex-bench-") as name:
        folder = Path(name)
        free = shutil.disk_usage(folder).free
        if free < 2 * ROWS * BYTES_PER_ROW:
            raise OSError(
                f"{folder} has {free / GIGABYTE:.0f} GB free, which is not enough for {ROWS} rows"
            )
        report(f"spark: generating {ROWS} records (not timed)")
        rows = write_generated_records(TRUTH, folder, ROWS)
        predictions = read_predictions(folder / "predictions.parquet")
        report("spark: validate-delays")
        with spark_session("bench", memory=DRIVER_MEMORY) as session, _sample_memory() as memory:
            session.range(10).count()  # wait until Spark has started
            start = time.perf_counter()
            validation = validate_delays(session, folder / "records", predictions)
            job_seconds = time.perf_counter() - start
        report("spark: the same aggregation in DuckDB")
        seconds = ROWS / TRUTH.sites / TRUTH.subscribers / TRUTH.publications_per_second
        query = QUERY.format(records=folder / "records", width=seconds / MAX_SLICES, bucket=WIDTH)
        with duckdb.connect() as connection:
            connection.execute(f"set threads = {len(os.sched_getaffinity(0))}")
            connection.execute("set enable_progress_bar = false")
            connection.execute(f"set temp_directory = '{folder / 'duckdb'}'")
            start = time.perf_counter()
            duckdb_count = connection.execute(query).fetchall()[0][0]
            duckdb_seconds = time.perf_counter() - start
    offered = sum(row.offered for row in validation.rows if row.subscriber is None)
    if offered != duckdb_count:
        raise RuntimeError(f"the job counted {offered} notifications, DuckDB {duckdb_count}")
    return BenchmarkResult(
        name="spark",
        comparisons=(
            Comparison(
                what=f"{rows} records, duplicates removed: "
                f"{rows / job_seconds:,.0f} rows/s by the job, "
                f"{rows / duckdb_seconds:,.0f} by DuckDB",
                left="validate-delays",
                left_value=job_seconds,
                right="DuckDB",
                right_value=duckdb_seconds,
                unit="s",
                at_most=4.0,
            ),
            Comparison(
                what="maximum memory of driver, Java and workers together",
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
def _sample_memory() -> Iterator[list[float]]:
    """Sample the memory of this process and all its descendants twice per second."""
    samples, stop = [0.0], threading.Event()

    def sample() -> None:
        while not stop.wait(0.5):
            samples.append(sum(_proportional_memory(pid) for pid in _descendants(os.getpid())))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield samples
    finally:
        stop.set()
        sampler.join()


def _descendants(root: int) -> list[int]:
    pids, pending = [], [root]
    while pending:
        pid = pending.pop()
        pids.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                pending += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return pids


def _proportional_memory(pid: int) -> float:
    """Return the proportional set size in bytes, in which shared memory counts once."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    return 0.0
