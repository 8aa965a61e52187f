"""``validate-delays --follow``: the same over a folder that grows, safe to kill and start again.

Spark's stream says which files are new, exactly once, and its checkpoint remembers. Every window of
time that a new file has rows of is summed up anew, from all its files: late rows and copies that
come in later files count as if they had been there from the beginning. What is kept is replaced
whole, so that a batch that was cut short is simply done again, and the result is that of one run
over everything. A file that was taken in and cannot be reached is waited for; if it stays away the
stream ends, and goes on from there when it is started again.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from time import monotonic, sleep

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from firedex_spark.delay_sketch import WIDTH
from firedex_spark.delay_verdicts import judge
from firedex_spark.delivery_cells import CELL_SCHEMA, EARLY, MOST_SLICES, SUMS
from firedex_spark.errors import BadFile, FileAway, OutOfReach, SparkJobError, StreamBroken
from firedex_spark.measured_row import Bounds
from firedex_spark.output_folder import replaced
from firedex_spark.prediction_files import PredictedSubscription
from firedex_spark.record_files import not_a_pattern
from firedex_spark.record_windows import Window, fixed_windows
from firedex_spark.session import SparkSession
from firedex_spark.stream_files import KnownFiles, StreamFiles
from firedex_spark.validate_delays import (
    Validation,
    configurations,
    measured_rows,
    summed,
    unrecorded,
    what_was_wrong,
    window_as_plain,
    window_from_plain,
)

__all__ = ["follow_delays"]

BINARY_FILES = "path string, modificationTime timestamp, length long, content binary"
PACE_SECONDS = 5
LOOK_SECONDS = 15.0
PATIENCE_SECONDS = 20.0
POLL_SECONDS = 1
WINDOW_SECONDS = 1024.0
"""A power of two, for no better reason than that slices are too."""
FORM = 3
"""Of what is kept; another one is not read."""
WAITS_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Between attempts to read a file that was there, and is not."""
ANY_AGE = "36500d"
"""Files are new when they were not taken in yet, however old they are."""


def follow_delays(
    spark: SparkSession,
    records: Path,
    predictions: Callable[[], Sequence[PredictedSubscription]],
    out: Path,
    *,
    bounds: Bounds | None = None,
    runs: Collection[str] = (),
    once: bool = False,
    told: Callable[[Validation], None] = lambda _validation: None,
    say: Callable[[str], None] = lambda _text: None,
    stop: Event | None = None,
) -> None:
    """Follow ``records``; ``told`` is called with the whole result after every batch of files.

    First with what stands from before, if anything. ``predictions`` are read anew each time.
    ``once``: end when everything there is was taken in; else when ``stop`` is set.
    """
    records, out = records.absolute(), out.absolute()  # workers are in other folders
    _check_origin(out, records)
    state = _State(spark, out / "state", records, predictions, bounds or Bounds(), runs, say)
    stream = (
        spark.readStream.format("binaryFile")
        .schema(BINARY_FILES)
        .option("pathGlobFilter", "*.[pP][aA][rR][qQ][uU][eE][tT]")
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", ANY_AGE)
        .load(not_a_pattern(records))
        .select("path")
    )
    standing = state.standing()
    if standing is not None:
        told(standing)
    failed: list[SparkJobError] = []

    at_work = Lock()  # batches come in a thread of their own

    def tell(found: Validation | None) -> None:
        if found is not None:
            told(found)

    def take(batch: DataFrame, number: int) -> None:
        paths = sorted(_local(row["path"]) for row in batch.collect())
        try:
            with at_work:
                tell(state.take(number, paths))
        except SparkJobError as error:
            failed.append(error)
            raise

    def look(at_the_end: bool) -> None:
        if at_work.acquire(blocking=False):
            try:
                tell(state.look_again(at_the_end=at_the_end))
            finally:
                at_work.release()

    writer = stream.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    pace = f"{PACE_SECONDS} seconds"
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=pace)
    query = writer.start()
    try:
        _until_it_ends(query, look, stop or Event())
    except StreamingQueryException as error:
        if failed:
            raise failed[0] from error
        raise StreamBroken(str(error).splitlines()[0], out) from error
    finally:
        at_work.acquire(timeout=PATIENCE_SECONDS)  # a batch in the midst of it may end
        query.stop()


def _until_it_ends(query: StreamingQuery, look: Callable[[bool], None], stop: Event) -> None:
    """Wait; between batches, and at the end, have a look at what was left out."""
    looked = monotonic()
    while not stop.is_set():
        if query.awaitTermination(POLL_SECONDS):
            look(True)
            return
        if monotonic() - looked > LOOK_SECONDS:
            look(False)
            looked = monotonic()


def _local(path: str) -> str:
    """Hadoop writes the scheme before a path, and leaves the rest as it is."""
    return path.removeprefix("file://").removeprefix("file:")


def _check_origin(out: Path, records: Path) -> None:
    """What is kept in ``out`` must be of the same records, in the form that we write."""
    origin = {
        "form": FORM,
        "records": str(records.resolve()),
        "window_seconds": WINDOW_SECONDS,
        "most_slices": MOST_SLICES,
        "bucket_width": WIDTH,
    }
    file = out / "state" / "origin.json"
    if file.exists():
        if json.loads(file.read_text("utf-8")) != origin:
            raise StreamBroken(f"{out} was begun with other records, or by another version", out)
    elif (out / "checkpoint").exists() or (out / "state" / "files").exists():
        raise StreamBroken(f"{out} has lost a part of what was kept", out)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        replaced(file, lambda unfinished: unfinished.write_text(json.dumps(origin), "utf-8"))


class _State:
    """What is kept between batches: the files of each, and the sums of each window."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        records: Path,
        predictions: Callable[[], Sequence[PredictedSubscription]],
        bounds: Bounds,
        runs: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self._spark, self._predictions, self._bounds = spark, predictions, bounds
        self._runs, self._say = runs, say
        self._files = StreamFiles(folder / "files", records, WINDOW_SECONDS)
        self._sums = folder / "sums"
        self._sums.mkdir(parents=True, exist_ok=True)

    def standing(self) -> Validation | None:
        """What follows from all that was taken in; None if that is nothing, or was cut short."""
        if not self._files.whole:
            return None
        known = self._files.known()
        return self._validation(known, fixed_windows(list(known.good.values()), WINDOW_SECONDS))

    def take(self, number: int, paths: list[str]) -> Validation | None:
        """Take in a batch of files, again if it was taken in before; None if there are none."""
        if not paths and self._files.fresh() == set():
            return None
        self._files.note_batch(number, paths)
        return self._taken_in()

    def look_again(self, *, at_the_end: bool) -> Validation | None:
        """Take in what was left out and can be read by now; None if there is nothing new."""
        found = self._files.note_those_back(at_the_end=at_the_end)
        return self._taken_in() if found else None

    def _taken_in(self) -> Validation:
        """Sum up what was noted; what is away is waited for, what is broken is left out."""
        waits = iter(WAITS_SECONDS)
        suspected: set[Path] = set()
        while True:
            known, fresh = self._files.known(), self._files.fresh()
            windows = fixed_windows(list(known.good.values()), WINDOW_SECONDS)
            stale = [w for w in windows if fresh is None or fresh & {p.path for p in w.pieces}]
            wrong = self._sum_up(stale)
            if not wrong:
                self._files.summed()
                return self._validation(known, windows)
            # whoever is unreadable twice is broken
            broken = [bad for bad in wrong if bad.file in suspected]
            broken = [bad for bad in broken if not isinstance(bad, OutOfReach)]
            if broken:
                self._files.leave_out(broken)
                continue
            suspected |= {bad.file for bad in wrong}
            seconds = next(waits, None)
            if seconds is None:
                raise FileAway(wrong[0])
            self._say(f"waiting for {wrong[0]}")
            sleep(seconds)

    def _place(self, window: Window) -> Path:
        kind = "untimed" if window.untimed else repr(window.start)
        name = sha256(f"{window.site!r} {kind}".encode()).hexdigest()[:24]
        return self._sums / f"{name}.parquet"

    def _sum_up(self, windows: list[Window]) -> list[BadFile]:
        tasks = [(json.dumps(window_as_plain(w)), str(self._place(w))) for w in windows]
        if not tasks:
            return []

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for row in batch.to_pylist():
                    sums = summed(window_from_plain(json.loads(row["window"])))
                    _replace_table(Path(row["place"]), sums)
                    wrong = pc.invert(pc.is_in(sums["kind"], pa.array([SUMS, EARLY])))
                    yield from sums.filter(wrong).to_batches()

        frame = self._spark.createDataFrame(tasks, "window string, place string")
        frame = frame.repartition(len(tasks)).mapInArrow(work, from_arrow_schema(CELL_SCHEMA))
        return what_was_wrong(frame)[1]

    def _validation(self, known: KnownFiles, windows: list[Window]) -> Validation:
        places = [(str(self._place(window)),) for window in windows]

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch.column("place").to_pylist():
                    yield from pq.read_table(place, schema=CELL_SCHEMA).to_batches()

        frame = self._spark.createDataFrame(places, "place string").repartition(max(len(places), 1))
        sums = frame.mapInArrow(read, from_arrow_schema(CELL_SCHEMA)).cache()
        try:
            refused, _ = what_was_wrong(sums)
            predicted = configurations(self._predictions())
            found, far = measured_rows(sums, predicted, self._bounds, self._runs)
        finally:
            sums.unpersist()
        return Validation(
            rows=tuple(judge(found, self._bounds)),
            bounds=self._bounds,
            records=sum(file.rows for file in known.good.values()),
            refused=refused | far,
            left_out=tuple(known.left_out[path] for path in sorted(known.left_out)),
            unrecorded=unrecorded(predicted, found),
        )


def _replace_table(path: Path, table: pa.Table) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)
