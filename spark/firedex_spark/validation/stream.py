"""``validate-delays --follow``: validate a growing folder; can be killed and restarted.

A Spark stream reports each new file exactly once, and its checkpoint remembers it. Every window
that has rows in a new file is summed up again from all its files, so late rows and duplicates in
later files count as if they had been there from the beginning. Stored sums are replaced in one
step, so that an interrupted batch is simply repeated, and the result equals one run over all files.
The stream waits for a file that it has read before and that is unreachable; if it stays unreachable
the stream ends, and continues from there when it is started again.
"""

import json
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from time import monotonic, sleep

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from firedex.system.files import write_atomically
from firedex_spark.errors import BadFile, FileMissing, SparkJobError, StreamFailed, UnreachableFile
from firedex_spark.output_folder import write_table
from firedex_spark.records.delivery_cells import CELL_SCHEMA, EARLY, MAX_SLICES, SUMS, WIDTH
from firedex_spark.records.files import escaped_path
from firedex_spark.records.predictions import PredictedSubscription
from firedex_spark.records.windows import Window, make_fixed_windows
from firedex_spark.session import SparkSession, run_tasks
from firedex_spark.validation.job import (
    Validation,
    find_problems,
    measured_rows,
    predictions_by_configuration,
    sum_up_window,
    without_records,
)
from firedex_spark.validation.stream_files import KnownFiles, StreamFiles
from firedex_spark.validation.verdicts import Bounds, judge

__all__ = ["follow_delays"]

BINARY_FILES = "path string, modificationTime timestamp, length long, content binary"
TRIGGER_SECONDS = 5
CHECK_SKIPPED_SECONDS = 15.0
STOP_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 1
WINDOW_SECONDS = 1024.0
"""Length of a window; a power of two, as slices are."""
STATE_VERSION = 3
"""Version of the stored state; other versions are rejected."""
RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Pauses between attempts to read a file that has become unreachable."""
ANY_AGE = "36500d"
"""Maximum age of files; every file that was not processed is new."""


def follow_delays(
    spark: SparkSession,
    records: Path,
    predictions: Callable[[], Sequence[PredictedSubscription]],
    out: Path,
    *,
    bounds: Bounds | None = None,
    runs: Collection[str] = (),
    once: bool = False,
    on_result: Callable[[Validation], None] = lambda _validation: None,
    report_progress: Callable[[str], None] = lambda _text: None,
    stop: Event | None = None,
) -> None:
    """Follow ``records``; call ``on_result`` with the complete result after every batch of files.

    The first call has the result of an earlier run, if there is one. ``predictions`` are read again
    each time. ``once``: end when all files are processed; otherwise end when ``stop`` is set.
    """
    records, out = records.absolute(), out.absolute()  # workers run in other folders
    _check_origin(out, records)
    state = _State(
        spark, out / "state", records, predictions, bounds or Bounds(), runs, report_progress
    )
    stream = (
        spark.readStream.format("binaryFile")
        .schema(BINARY_FILES)
        .option("pathGlobFilter", "*.[pP][aA][rR][qQ][uU][eE][tT]")
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", ANY_AGE)
        .load(escaped_path(records))
        .select("path")
    )
    stored_result = state.stored_result()
    if stored_result is not None:
        on_result(stored_result)
    failed: list[SparkJobError] = []

    batch_lock = Lock()  # batches are processed in another thread

    def publish_result(found: Validation | None) -> None:
        if found is not None:
            on_result(found)

    def process_batch(batch: DataFrame, number: int) -> None:
        """Process a batch of files, again if it was interrupted; None if there are no files."""
        paths = sorted(_local(row["path"]) for row in batch.collect())
        try:
            with batch_lock:
                publish_result(state.process_batch(number, paths))
        except SparkJobError as error:
            failed.append(error)
            raise

    def check_skipped(at_the_end: bool) -> None:
        if batch_lock.acquire(blocking=False):
            try:
                publish_result(state.check_skipped_files(at_the_end=at_the_end))
            finally:
                batch_lock.release()

    writer = stream.writeStream.foreachBatch(process_batch)
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    pace = f"{TRIGGER_SECONDS} seconds"
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=pace)
    query = writer.start()
    try:
        _wait_for_end(query, check_skipped, stop or Event())
    except StreamingQueryException as error:
        if failed:
            raise failed[0] from error
        raise StreamFailed(str(error).splitlines()[0], out) from error
    finally:
        batch_lock.acquire(timeout=STOP_TIMEOUT_SECONDS)  # wait for the current batch
        query.stop()


def _wait_for_end(
    query: StreamingQuery, check_skipped: Callable[[bool], None], stop: Event
) -> None:
    """Wait for the end; between batches check the skipped files again."""
    checked_at = monotonic()
    while not stop.is_set():
        if query.awaitTermination(POLL_SECONDS):
            check_skipped(True)
            return
        if monotonic() - checked_at > CHECK_SKIPPED_SECONDS:
            check_skipped(False)
            checked_at = monotonic()


def _local(path: str) -> str:
    """Return a path without the scheme that Hadoop writes before it."""
    return path.removeprefix("file://").removeprefix("file:")


def _check_origin(out: Path, records: Path) -> None:
    """Check that the state in ``out`` belongs to these records and this format."""
    origin = {
        "form": STATE_VERSION,
        "records": str(records.resolve()),
        "window_seconds": WINDOW_SECONDS,
        "most_slices": MAX_SLICES,
        "bucket_width": WIDTH,
    }
    file = out / "state" / "origin.json"
    if file.exists():
        if json.loads(file.read_text("utf-8")) != origin:
            raise StreamFailed(f"{out} belongs to other records or another version", out)
    elif (out / "checkpoint").exists() or (out / "state" / "files").exists():
        raise StreamFailed(f"{out} has an incomplete state", out)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(origin))


class _State:
    """The state between batches: the files of each batch and the sums of each window."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        records: Path,
        predictions: Callable[[], Sequence[PredictedSubscription]],
        bounds: Bounds,
        runs: Collection[str],
        report_progress: Callable[[str], None],
    ) -> None:
        self._spark, self._predictions, self._bounds = spark, predictions, bounds
        self._runs, self._report_progress = runs, report_progress
        self._files = StreamFiles(folder / "files", records, WINDOW_SECONDS)
        self._sums = folder / "sums"
        self._sums.mkdir(parents=True, exist_ok=True)

    def stored_result(self) -> Validation | None:
        """Return the result of all files so far; None if there is none or it is incomplete."""
        if not self._files.is_complete:
            return None
        known = self._files.known_files()
        return self._validation(
            known, make_fixed_windows(list(known.good.values()), WINDOW_SECONDS)
        )

    def process_batch(self, number: int, paths: list[str]) -> Validation | None:
        """Process a batch of files, again if it was interrupted; None if there are no files."""
        if not paths and self._files.unsummed_files() == set():
            return None
        self._files.note_batch(number, paths)
        return self._process_noted_files()

    def check_skipped_files(self, *, at_the_end: bool) -> Validation | None:
        """Process skipped files that can be read now; None if there are none."""
        found = self._files.note_readable_again(at_the_end=at_the_end)
        return self._process_noted_files() if found else None

    def _process_noted_files(self) -> Validation:
        """Sum up the noted files; wait for unreachable ones, skip broken ones."""
        waits = iter(RETRY_SECONDS)
        suspected: set[Path] = set()
        while True:
            known, unsummed_files = self._files.known_files(), self._files.unsummed_files()
            windows = make_fixed_windows(list(known.good.values()), WINDOW_SECONDS)
            stale = [
                w
                for w in windows
                if unsummed_files is None or unsummed_files & {p.path for p in w.pieces}
            ]
            wrong = self._sum_up(stale)
            if not wrong:
                self._files.mark_summed()
                return self._validation(known, windows)
            # a file that is unreadable twice is broken
            broken = [bad for bad in wrong if bad.file in suspected]
            broken = [bad for bad in broken if not isinstance(bad, UnreachableFile)]
            if broken:
                self._files.skip_files(broken)
                continue
            suspected |= {bad.file for bad in wrong}
            seconds = next(waits, None)
            if seconds is None:
                raise FileMissing(wrong[0])
            self._report_progress(f"waiting for {wrong[0]}")
            sleep(seconds)

    def _sums_path(self, window: Window) -> Path:
        kind = "untimed" if window.untimed else repr(window.start)
        name = sha256(f"{window.site!r} {kind}".encode()).hexdigest()[:24]
        return self._sums / f"{name}.parquet"

    def _sum_up(self, windows: list[Window]) -> list[BadFile]:
        if not windows:
            return []
        tasks = [(window, self._sums_path(window)) for window in windows]
        return find_problems(run_tasks(self._spark, tasks, _sum_up_window, CELL_SCHEMA))[1]

    def _validation(self, known: KnownFiles, windows: list[Window]) -> Validation:
        paths = [self._sums_path(window) for window in windows]
        sums = run_tasks(self._spark, paths, _read_sums, CELL_SCHEMA).cache()
        try:
            refused, _ = find_problems(sums)
            predicted = predictions_by_configuration(self._predictions())
            found, far = measured_rows(sums, predicted, self._bounds, self._runs)
        finally:
            sums.unpersist()
        return Validation(
            rows=tuple(judge(found, self._bounds)),
            bounds=self._bounds,
            records=sum(file.rows for file in known.good.values()),
            refused=refused | far,
            skipped=tuple(known.skipped[path] for path in sorted(known.skipped)),
            without_records=without_records(predicted, found),
        )


def _sum_up_window(task: tuple[Window, Path]) -> pa.Table:
    """Replace the stored sums of a window; return only its problems."""
    window, path = task
    sums = sum_up_window(window)
    write_table(path, sums)
    return sums.filter(pc.invert(pc.is_in(sums["kind"], pa.array([SUMS, EARLY]))))


def _read_sums(path: Path) -> pa.Table:
    return pq.read_table(path, schema=CELL_SCHEMA)
