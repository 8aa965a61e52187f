"""``validate-delays --follow``: the same over a folder that grows, safe to kill and start again.

Spark's stream says which files are new, exactly once, and its checkpoint remembers. Every window of
time that a new file has rows of is summed up anew, from all its files: late rows and copies that
come in later files count as if they had been there from the beginning. What is kept is replaced
whole, so that a batch that was cut short is simply done again, and the result is that of one run
over everything.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from firedex_spark import errors
from firedex_spark.delay_sketch import WIDTH
from firedex_spark.delay_verdicts import judge
from firedex_spark.delivery_cells import CELL_SCHEMA, MOST_SLICES, SUMS
from firedex_spark.errors import (
    BadFile,
    NothingReadable,
    SparkJobError,
    StreamBroken,
    UnreadableFile,
)
from firedex_spark.measured_row import Bounds
from firedex_spark.output_folder import replaced
from firedex_spark.prediction_files import PredictedSubscription
from firedex_spark.record_columns import TIME
from firedex_spark.record_files import RecordFile, RowGroup, check_files, not_a_pattern
from firedex_spark.record_windows import Window, fixed_windows, numbered_for
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
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
PACE = "5 seconds"
WINDOW_SECONDS = 1024.0
"""A power of two, for no better reason than that slices are too."""
FORM = 2
"""Of what is kept; another one is not read."""
SUMMED = ".summed"
ATTEMPTS = 5
ANY_AGE = "36500d"
"""Files are new when they were not taken in yet, however old they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """All files that were taken in so far."""

    good: dict[str, RecordFile]
    left_out: dict[str, BadFile]


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
) -> None:
    """Follow ``records``; ``told`` is called with the whole result after every batch of files.

    First with what stands from before, if anything. ``predictions`` are read anew each time.
    ``once``: end when everything there is was taken in.
    """
    records, out = records.absolute(), out.absolute()  # workers are in other folders
    _check_origin(out, records)
    state = _State(spark, out / "state", predictions, bounds or Bounds(), runs)
    stream = (
        spark.readStream.format("binaryFile")
        .schema(BINARY_FILES)
        .option("pathGlobFilter", "*.parquet")
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", ANY_AGE)
        .load(not_a_pattern(records))
        .select("path")
    )
    standing = state.standing()
    if standing is not None:
        told(standing)
    failed: list[SparkJobError] = []

    def take(batch: DataFrame, number: int) -> None:
        paths = sorted(_local(row["path"]) for row in batch.collect())
        if not paths:
            return
        try:
            told(state.take(number, paths))
        except SparkJobError as error:
            failed.append(error)
            raise

    writer = stream.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=PACE)
    query = writer.start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if failed:
            raise failed[0] from error
        raise StreamBroken(str(error).splitlines()[0], out) from error
    finally:
        query.stop()


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
        predictions: Callable[[], Sequence[PredictedSubscription]],
        bounds: Bounds,
        runs: Collection[str],
    ) -> None:
        self._spark, self._predictions, self._bounds = spark, predictions, bounds
        self._runs = runs
        self._files, self._sums = folder / "files", folder / "sums"
        self._everything = folder / "everything-anew"
        self._files.mkdir(parents=True, exist_ok=True)
        self._sums.mkdir(parents=True, exist_ok=True)

    def standing(self) -> Validation | None:
        """What follows from all that was taken in; None if that is nothing, or was cut short."""
        batches = list(self._files.glob("batch-*.json"))
        whole = all(batch.with_suffix(SUMMED).exists() for batch in batches)
        if not batches or not whole or self._everything.exists():
            return None
        known = self._known()
        return self._validation(known, fixed_windows(list(known.good.values()), WINDOW_SECONDS))

    def take(self, number: int, paths: list[str]) -> Validation:
        """Take in a batch of files, again if it was taken in before."""
        batch = self._files / f"batch-{number:08}.json"
        self._note(batch, [Path(path) for path in paths])
        fresh = set(paths)
        for attempt in range(ATTEMPTS):
            known = self._known()
            windows = fixed_windows(list(known.good.values()), WINDOW_SECONDS)
            anew = self._everything.exists()
            stale = [w for w in windows if anew or fresh & {piece.path for piece in w.pieces}]
            broken = self._sum_up(stale)
            if not broken:
                self._everything.unlink(missing_ok=True)
                batch.with_suffix(SUMMED).touch()
                return self._validation(known, windows)
            if attempt:  # whoever is unreadable twice is broken, and not only out of reach
                self._leave_out(broken)
        raise StreamBroken(f"{broken[0]}", self._files.parent.parent)

    def _note(self, batch: Path, paths: list[Path]) -> None:
        batch.with_suffix(SUMMED).unlink(missing_ok=True)
        good: list[RecordFile] = []
        try:
            checked = check_files(paths[0].parent, paths, DELIVERY_SCHEMA, TIME)
            found, left_out = checked.good, list(checked.left_out)
        except NothingReadable as error:
            found, left_out = (), list(error.left_out)
        for file in found:
            try:
                good.append(numbered_for(file, WINDOW_SECONDS))
            except (OSError, pa.ArrowException) as error:
                left_out.append(UnreadableFile(file.path, str(error).splitlines()[0]))
        self._write_files(batch, good, left_out)

    def _leave_out(self, broken: Sequence[BadFile]) -> None:
        """Rows of theirs may be in any sum: all are made anew, also if we are killed meanwhile."""
        self._everything.touch()
        for bad in broken:
            name = sha256(str(bad.file).encode()).hexdigest()[:16]
            self._write_files(self._files / f"broken-{name}.json", (), (bad,))

    def _write_files(
        self, into: Path, good: Sequence[RecordFile], left_out: Sequence[BadFile]
    ) -> None:
        plain = {
            "good": [{**asdict(file), "path": str(file.path)} for file in good],
            "left_out": [[type(bad).__name__, str(bad.file), bad.reason] for bad in left_out],
        }
        replaced(into, lambda path: path.write_text(json.dumps(plain), "utf-8"))

    def _known(self) -> _Known:
        good: dict[str, RecordFile] = {}
        left_out: dict[str, BadFile] = {}
        for file in sorted(self._files.glob("*.json")):
            plain = json.loads(file.read_text("utf-8"))
            for one in plain["good"]:
                groups = tuple(RowGroup(**group) for group in one["groups"])
                good[one["path"]] = RecordFile(
                    path=Path(one["path"]), site=one["site"], groups=groups
                )
            for kind, path, reason in plain["left_out"]:
                left_out[path] = _bad_file(kind, Path(path), reason)
        for path in left_out:
            good.pop(path, None)
        return _Known(good=good, left_out=left_out)

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
                    wrong = pc.not_equal(sums["kind"], SUMS)
                    yield from sums.filter(wrong).to_batches()

        frame = self._spark.createDataFrame(tasks, "window string, place string")
        frame = frame.repartition(len(tasks)).mapInArrow(work, from_arrow_schema(CELL_SCHEMA))
        return what_was_wrong(frame)[1]

    def _validation(self, known: _Known, windows: list[Window]) -> Validation:
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


def _bad_file(kind: str, file: Path, reason: str) -> BadFile:
    """Of the kind that it was, as far as a kind can be made of its reason alone."""
    of: type[BadFile] = getattr(errors, kind, BadFile)
    made = BadFile.__new__(of)
    BadFile.__init__(made, file, reason)
    return made


def _replace_table(path: Path, table: pa.Table) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)
