"""``validate-delays``: predictions beside deliveries, by configuration version.

Each window of time is summed up where it is read; the sums of a configuration then meet in one
place, where they are measured. Nothing is shuffled but sums.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.wire import SubscriptionPrediction
from firedex_spark.delay_measures import Series, measure
from firedex_spark.delay_verdicts import judge
from firedex_spark.delivery_cells import (
    CELL_SCHEMA,
    EARLY,
    ERA_SECONDS,
    REFUSED,
    SUMS,
    Cells,
    cells_of,
)
from firedex_spark.delivery_files import checked_deliveries
from firedex_spark.errors import BadFile, NothingJudged, OutOfReach, UnreadableFile
from firedex_spark.files_left_out import without
from firedex_spark.measured_row import Bounds, MeasuredRow
from firedex_spark.prediction_files import PredictedSubscription
from firedex_spark.record_columns import COLUMNS
from firedex_spark.record_windows import Piece, Window, read_parts, windows_of
from firedex_spark.run_spans import RunPart, Runs, at_width_of_runs, joined, runs_of
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
from firedex_spark.wrong_clocks import Arrived, WrongClock, wrong_clocks

__all__ = [
    "MEASURED_COLUMNS",
    "Validation",
    "configurations",
    "measured_rows",
    "summed",
    "sums_of",
    "unrecorded",
    "validate_delays",
    "what_was_wrong",
    "window_as_plain",
    "window_from_plain",
]

UNREADABLE, OUT_OF_REACH = "unreadable", "out of reach"
FAR = "far in time from the rest of its run"
PredictedBy = Mapping[tuple[str, int], Mapping[tuple[str, str], SubscriptionPrediction]]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What came of a validation.

    ``refused``: rows that were not counted, by reason. ``unrecorded``: configurations that were
    predicted and have no record at all.
    """

    rows: tuple[MeasuredRow, ...]
    bounds: Bounds
    records: int
    refused: Mapping[str, int]
    left_out: tuple[BadFile, ...]
    unrecorded: tuple[tuple[str, int], ...]

    @property
    def alarming(self) -> list[MeasuredRow]:
        """Where the model does not hold."""
        return [row for row in self.rows if row.alarming]

    def check(self) -> None:
        """Raise what stood in the way if it says nothing of any prediction."""
        if any(row.judged for row in self.rows):
            return
        if not self.rows:
            raise NothingJudged("there is no record that can be used")
        if all(row.method is None for row in self.rows):
            recorded = {(row.site, row.configuration_version) for row in self.rows}
            raise NothingJudged(
                f"no record is of a predicted configuration; records are of {_listed(recorded)}, "
                f"predictions of {_listed(self.unrecorded)}"
            )
        raise NothingJudged(
            f"too little data to judge any of {len(self.rows)} rows (8 batches of 20 deliveries "
            "each are needed)"
        )


def _listed(found: Collection[tuple[str, int]]) -> str:
    names = [f"{site} version {version}" for site, version in sorted(found)[:5]]
    more = ["…"] if len(found) > len(names) else []
    return ", ".join(names + more) or "nothing"


def validate_delays(
    spark: SparkSession,
    records: Path,
    predictions: Sequence[PredictedSubscription],
    bounds: Bounds | None = None,
    say: Say = lambda _text: None,
    *,
    runs: Collection[str] = (),
) -> Validation:
    """Compare; a file that cannot be read, however late that shows, is left out whole and named.

    ``runs``: of these alone, if any are named.
    """
    bounds = bounds or Bounds()
    checked = checked_deliveries(records)
    while True:
        for bad in checked.left_out:
            say(f"left out: {bad}")
        say(f"{checked.rows} records in {len(checked.good)} files")
        sums = sums_of(spark, windows_of(checked.good)).cache()
        try:
            refused, broken = what_was_wrong(sums)
            if not broken:
                measured, far = measured_rows(sums, configurations(predictions), bounds, runs)
                rows = judge(measured, bounds)
                break
        finally:
            sums.unpersist()
        checked = without(records, checked, broken)
    return Validation(
        rows=tuple(rows),
        bounds=bounds,
        records=checked.rows,
        refused=refused | far,
        left_out=checked.left_out,
        unrecorded=unrecorded(configurations(predictions), rows),
    )


def configurations(predictions: Iterable[PredictedSubscription]) -> PredictedBy:
    """Predictions by site and version, then by subscriber and filter."""
    found: dict[tuple[str, int], dict[tuple[str, str], SubscriptionPrediction]] = {}
    for one in predictions:
        of = found.setdefault((one.site, one.configuration_version), {})
        of[one.prediction.subscriber, one.prediction.filter] = one.prediction
    return found


def unrecorded(predicted: PredictedBy, rows: Iterable[MeasuredRow]) -> tuple[tuple[str, int], ...]:
    """Configurations of which there is no row."""
    return tuple(sorted({*predicted} - {(row.site, row.configuration_version) for row in rows}))


def sums_of(spark: SparkSession, windows: Sequence[Window]) -> DataFrame:
    """The sums of every window, each worked on where a worker is free."""
    told = [(json.dumps(window_as_plain(window)),) for window in windows]
    tasks = spark.createDataFrame(told, "window string").repartition(max(len(told), 1))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column("window").to_pylist():
                yield from summed(window_from_plain(json.loads(text))).to_batches()

    return tasks.mapInArrow(work, from_arrow_schema(CELL_SCHEMA))


def summed(window: Window) -> pa.Table:
    """The sums of one window, and what of it could not be read."""
    sums: list[pa.Table] = []
    bad: dict[Path, BadFile] = {}
    for table, unreadable in read_parts(window, COLUMNS, DELIVERY_SCHEMA):
        sums.append(cells_of(table, window.site))
        bad |= {one.file: one for one in unreadable}
    broken = [
        {"kind": _kind_of(one), "subscriber": str(one.file), "filter": one.reason}
        for one in bad.values()
    ]
    return pa.concat_tables([*sums, pa.Table.from_pylist(broken, schema=CELL_SCHEMA)])


def _kind_of(bad: BadFile) -> str:
    return OUT_OF_REACH if isinstance(bad, OutOfReach) else UNREADABLE


def window_as_plain(window: Window) -> dict[str, Any]:
    """For telling a worker."""
    return {
        "site": window.site,
        "start": window.start,
        "end": window.end,
        "untimed": window.untimed,
        "pieces": [[piece.path, list(piece.groups), piece.rows] for piece in window.pieces],
    }


def window_from_plain(plain: dict[str, Any]) -> Window:
    """As it was told."""
    pieces = tuple(Piece(path, tuple(groups), rows) for path, groups, rows in plain.pop("pieces"))
    return Window(pieces=pieces, **plain)


def what_was_wrong(sums: DataFrame) -> tuple[dict[str, int], list[BadFile]]:
    """Rows that were refused, by reason; and files that turned out to be unreadable."""
    wrong = (
        sums.where(~sums.kind.isin(SUMS, EARLY))
        .select("kind", "subscriber", "filter", "count")
        .collect()
    )
    refused: dict[str, int] = {}
    broken: dict[str, BadFile] = {}
    for row in wrong:
        if row["kind"] == REFUSED:
            refused[row["filter"]] = refused.get(row["filter"], 0) + row["count"]
        else:
            kind = OutOfReach if row["kind"] == OUT_OF_REACH else UnreadableFile
            broken[row["subscriber"]] = kind(Path(row["subscriber"]), row["filter"])
    return dict(sorted(refused.items())), [broken[name] for name in sorted(broken)]


MEASURED_COLUMNS = tuple(field.name for field in fields(MeasuredRow))
MEASURED = "site string, configuration_version long, measured string"


def measured_rows(
    sums: DataFrame, predicted: PredictedBy, bounds: Bounds, runs: Collection[str] = ()
) -> tuple[list[MeasuredRow], dict[str, int]]:
    """The rows of all configurations, not judged yet, in a fixed order; and what is refused yet."""
    wanted = sums.where(sums.kind.isin(SUMS, EARLY))
    if runs:
        wanted = wanted.where(wanted.run.isin(*runs))
    some, wrong = wanted.where(wanted.kind == SUMS), _wrong_clocks(wanted)
    context = sums.sparkSession.sparkContext
    shared, known = context.broadcast(predicted), context.broadcast(_runs(some))

    def measured(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
        site, version = str(key[0]), int(key[1])
        said = shared.value.get((site, version), {})
        telling = {run for of, run in known.value.telling if of == site}
        clocks = {who for *of, who in wrong if of == [site, version]}
        found = measure(site, version, _series(rows), said, telling, bounds, clocks)
        texts = [json.dumps(_row_as_plain(row)) for row in found]
        return pd.DataFrame({"site": site, "configuration_version": version, "measured": texts})

    found = (
        _at_width(some, known)
        .groupBy("site", "configuration_version")
        .applyInPandas(measured, MEASURED)
        .collect()
    )
    rows = [_row_from_plain(json.loads(row["measured"])) for row in found]
    for site, version in {of[:2] for of in wrong} - {
        (r.site, r.configuration_version) for r in rows
    }:
        said = predicted.get((site, version), {})  # nothing else was left of it
        clocks = {who for *of, who in wrong if of == [site, version]}
        rows += measure(site, version, (), said, (), bounds, clocks)
    far = {FAR: known.value.far} if known.value.far else {}
    return sorted(rows, key=_place), far


def _series(rows: pd.DataFrame) -> list[Series]:
    return [
        Series(
            subscriber=row.subscriber,
            filter=row.filter,
            priority=int(row.priority),
            run=row.run,
            earliest=float(row.earliest),
            latest=float(row.latest),
            cells=Cells.unpacked(row.slices, row.buckets),
        )
        for row in rows.itertuples()
    ]


def _wrong_clocks(sums: DataFrame) -> frozenset[WrongClock]:
    if sums.where(sums.kind == EARLY).isEmpty():
        return frozenset()
    found = (
        sums.groupBy("kind", "site", "configuration_version", "run", "subscriber")
        .agg(f.sum(sums["count"] - sums["lost"]).alias("number"))
        .collect()
    )
    return wrong_clocks(
        Arrived(
            site=row["site"],
            configuration_version=row["configuration_version"],
            run=row["run"],
            subscriber=row["subscriber"],
            counted=row["number"] if row["kind"] == SUMS else 0,
            early=row["number"] if row["kind"] == EARLY else 0,
        )
        for row in found
    )


def _runs(sums: DataFrame) -> Runs:
    by = ("site", "configuration_version", "run")
    era = f.floor(sums.earliest / ERA_SECONDS).alias("era")
    found = (
        sums.groupBy(*by, era)
        .agg(f.min("earliest"), f.max("latest"), f.sum("count"), f.sum("lost"))
        .collect()
    )
    return runs_of(
        RunPart(
            run=(row["site"], row["configuration_version"], row["run"]),
            earliest=row["min(earliest)"],
            latest=row["max(latest)"],
            count=row["sum(count)"],
            lost=row["sum(lost)"],
        )
        for row in found
    )


def _at_width(sums: DataFrame, runs: Broadcast[Runs]) -> DataFrame:
    """Sums by slices that fit their run, one row for each subscription of it."""

    def fitted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from at_width_of_runs(pa.Table.from_batches([batch]), runs.value).to_batches()

    schema = from_arrow_schema(CELL_SCHEMA)
    of = ("site", "configuration_version", "priority", "subscriber", "filter", "run")
    return sums.mapInArrow(fitted, schema).groupBy(*of).applyInArrow(joined, schema)


def _place(row: MeasuredRow) -> tuple[Any, ...]:
    return (
        row.site,
        row.configuration_version,
        row.subscriber is not None,
        row.priority,
        row.subscriber or "",
        row.filter or "",
    )


def _row_as_plain(row: MeasuredRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in MEASURED_COLUMNS}


def _row_from_plain(plain: dict[str, Any]) -> MeasuredRow:
    return MeasuredRow(**{**plain, "means": tuple(plain["means"])})
