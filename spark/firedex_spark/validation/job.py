"""``validate-delays``: compare predictions with deliveries, by configuration version.

Each window is summed up where it is read; the sums of a configuration are then measured in one
place. Only sums are shuffled.
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
from firedex_spark.errors import BadFile, NothingToJudge, UnreachableFile, UnreadableFile
from firedex_spark.records.columns import COLUMNS
from firedex_spark.records.delivery_cells import (
    CELL_SCHEMA,
    EARLY,
    ERA_SECONDS,
    REFUSED,
    SUMS,
    Cells,
    sum_up_records,
)
from firedex_spark.records.files import check_delivery_files, without_files
from firedex_spark.records.predictions import PredictedSubscription
from firedex_spark.records.windows import Window, make_windows, read_in_parts
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession, run_tasks
from firedex_spark.validation.measures import Series, measure
from firedex_spark.validation.runs import (
    DeliveryCounts,
    RunPart,
    Runs,
    WrongClock,
    find_run_spans,
    join_sums,
    widen_slices,
    wrong_clocks,
)
from firedex_spark.validation.verdicts import Bounds, MeasuredRow, judge

__all__ = [
    "MEASURED_COLUMNS",
    "Validation",
    "find_problems",
    "measured_rows",
    "predictions_by_configuration",
    "sum_up_window",
    "sum_up_windows",
    "validate_delays",
    "without_records",
]

UNREADABLE, UNREACHABLE = "unreadable", "out of reach"
FAR_TIME = "time is far from the rest of the run"
PredictedBy = Mapping[tuple[str, int], Mapping[tuple[str, str], SubscriptionPrediction]]
ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The result of a validation.

    ``refused``: number of rows that were not counted, by reason. ``without_records``: predicted
    configurations (site, version) without any record.
    """

    rows: tuple[MeasuredRow, ...]
    bounds: Bounds
    records: int
    refused: Mapping[str, int]
    skipped: tuple[BadFile, ...]
    without_records: tuple[tuple[str, int], ...]

    @property
    def alarming(self) -> list[MeasuredRow]:
        """Return the rows whose prediction does not hold."""
        return [row for row in self.rows if row.alarming]

    def check(self) -> None:
        """Raise ``NothingToJudge`` if no prediction could be tested."""
        if any(row.judged for row in self.rows):
            return
        if not self.rows:
            raise NothingToJudge("there are no usable records")
        if all(row.method is None for row in self.rows):
            recorded = {(row.site, row.configuration_version) for row in self.rows}
            raise NothingToJudge(
                "no record belongs to a predicted configuration; "
                f"records: {_list_configurations(recorded)}; "
                f"predictions: {_list_configurations(self.without_records)}"
            )
        raise NothingToJudge(
            f"too little data to judge any of {len(self.rows)} rows (8 batches of 20 deliveries "
            "each are required)"
        )


def _list_configurations(found: Collection[tuple[str, int]]) -> str:
    names = [f"{site} version {version}" for site, version in sorted(found)[:5]]
    more = ["…"] if len(found) > len(names) else []
    return ", ".join(names + more) or "nothing"


def validate_delays(
    spark: SparkSession,
    records: Path,
    predictions: Sequence[PredictedSubscription],
    bounds: Bounds | None = None,
    report_progress: ReportProgress = lambda _text: None,
    *,
    runs: Collection[str] = (),
) -> Validation:
    """Compare records with predictions; an unreadable file is skipped completely.

    ``runs``: use only these runs, if any are given.
    """
    bounds = bounds or Bounds()
    checked = check_delivery_files(records)
    while True:
        for bad in checked.skipped:
            report_progress(f"skipped: {bad}")
        report_progress(f"{checked.rows} records in {len(checked.good)} files")
        sums = sum_up_windows(spark, make_windows(checked.good)).cache()
        try:
            refused, broken = find_problems(sums)
            if not broken:
                measured, far = measured_rows(
                    sums, predictions_by_configuration(predictions), bounds, runs
                )
                rows = judge(measured, bounds)
                break
        finally:
            sums.unpersist()
        checked = without_files(records, checked, broken)
    return Validation(
        rows=tuple(rows),
        bounds=bounds,
        records=checked.rows,
        refused=refused | far,
        skipped=checked.skipped,
        without_records=without_records(predictions_by_configuration(predictions), rows),
    )


def predictions_by_configuration(predictions: Iterable[PredictedSubscription]) -> PredictedBy:
    """Return predictions by site and version, then by subscriber and filter."""
    found: dict[tuple[str, int], dict[tuple[str, str], SubscriptionPrediction]] = {}
    for one in predictions:
        of = found.setdefault((one.site, one.configuration_version), {})
        of[one.prediction.subscriber, one.prediction.filter] = one.prediction
    return found


def without_records(
    predicted: PredictedBy, rows: Iterable[MeasuredRow]
) -> tuple[tuple[str, int], ...]:
    """Return the predicted configurations that have no row."""
    return tuple(sorted({*predicted} - {(row.site, row.configuration_version) for row in rows}))


def sum_up_windows(spark: SparkSession, windows: Sequence[Window]) -> DataFrame:
    """Return the sums of every window, computed in parallel."""
    return run_tasks(spark, windows, sum_up_window, CELL_SCHEMA)


def sum_up_window(window: Window) -> pa.Table:
    """Return the sums of one window, and a row for each file that could not be read."""
    sums: list[pa.Table] = []
    bad: dict[Path, BadFile] = {}
    for table, unreadable in read_in_parts(window, COLUMNS, DELIVERY_SCHEMA):
        sums.append(sum_up_records(table, window.site))
        bad |= {one.file: one for one in unreadable}
    broken = [
        {"kind": _problem_kind(one), "subscriber": str(one.file), "filter": one.reason}
        for one in bad.values()
    ]
    return pa.concat_tables([*sums, pa.Table.from_pylist(broken, schema=CELL_SCHEMA)])


def _problem_kind(bad: BadFile) -> str:
    return UNREACHABLE if isinstance(bad, UnreachableFile) else UNREADABLE


def find_problems(sums: DataFrame) -> tuple[dict[str, int], list[BadFile]]:
    """Return the number of refused rows by reason, and the unreadable files."""
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
            kind = UnreachableFile if row["kind"] == UNREACHABLE else UnreadableFile
            broken[row["subscriber"]] = kind(Path(row["subscriber"]), row["filter"])
    return dict(sorted(refused.items())), [broken[name] for name in sorted(broken)]


MEASURED_COLUMNS = tuple(field.name for field in fields(MeasuredRow))
MEASURED = "site string, configuration_version long, measured string"


def measured_rows(
    sums: DataFrame, predicted: PredictedBy, bounds: Bounds, runs: Collection[str] = ()
) -> tuple[list[MeasuredRow], dict[str, int]]:
    """Return the rows of all configurations before judging, sorted, and refused rows."""
    wanted = sums.where(sums.kind.isin(SUMS, EARLY))
    if runs:
        wanted = wanted.where(wanted.run.isin(*runs))
    some, wrong = wanted.where(wanted.kind == SUMS), _find_wrong_clocks(wanted)
    context = sums.sparkSession.sparkContext
    shared, known = context.broadcast(predicted), context.broadcast(_find_runs(some))

    def measured(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
        site, version = str(key[0]), int(key[1])
        predictions_here = shared.value.get((site, version), {})
        runs_with_losses = {run for of, run in known.value.runs_with_losses if of == site}
        clocks = {subscriber for *of, subscriber in wrong if of == [site, version]}
        found = measure(
            site, version, _series(rows), predictions_here, runs_with_losses, bounds, clocks
        )
        texts = [json.dumps(_row_as_plain(row)) for row in found]
        return pd.DataFrame({"site": site, "configuration_version": version, "measured": texts})

    found = (
        _with_run_slices(some, known)
        .groupBy("site", "configuration_version")
        .applyInPandas(measured, MEASURED)
        .collect()
    )
    rows = [_row_from_plain(json.loads(row["measured"])) for row in found]
    for site, version in {of[:2] for of in wrong} - {
        (r.site, r.configuration_version) for r in rows
    }:
        predictions_here = predicted.get((site, version), {})  # nothing else was left of it
        clocks = {subscriber for *of, subscriber in wrong if of == [site, version]}
        rows += measure(site, version, (), predictions_here, (), bounds, clocks)
    far = {FAR_TIME: known.value.far} if known.value.far else {}
    return sorted(rows, key=_sort_key), far


def _series(rows: pd.DataFrame) -> list[Series]:
    return [
        Series(
            subscriber=row.subscriber,
            filter=row.filter,
            priority=int(row.priority),
            run=row.run,
            earliest=float(row.earliest),
            latest=float(row.latest),
            cells=Cells.unpack(row.slices, row.buckets),
        )
        for row in rows.itertuples()
    ]


def _find_wrong_clocks(sums: DataFrame) -> frozenset[WrongClock]:
    if sums.where(sums.kind == EARLY).isEmpty():
        return frozenset()
    found = (
        sums.groupBy("kind", "site", "configuration_version", "run", "subscriber")
        .agg(f.sum(sums["count"] - sums["lost"]).alias("number"))
        .collect()
    )
    return wrong_clocks(
        DeliveryCounts(
            site=row["site"],
            configuration_version=row["configuration_version"],
            run=row["run"],
            subscriber=row["subscriber"],
            counted=row["number"] if row["kind"] == SUMS else 0,
            early=row["number"] if row["kind"] == EARLY else 0,
        )
        for row in found
    )


def _find_runs(sums: DataFrame) -> Runs:
    by = ("site", "configuration_version", "run")
    era = f.floor(sums.earliest / ERA_SECONDS).alias("era")
    found = (
        sums.groupBy(*by, era)
        .agg(f.min("earliest"), f.max("latest"), f.sum("count"), f.sum("lost"))
        .collect()
    )
    return find_run_spans(
        RunPart(
            run=(row["site"], row["configuration_version"], row["run"]),
            earliest=row["min(earliest)"],
            latest=row["max(latest)"],
            count=row["sum(count)"],
            lost=row["sum(lost)"],
        )
        for row in found
    )


def _with_run_slices(sums: DataFrame, runs: Broadcast[Runs]) -> DataFrame:
    """Return the sums with slices that fit their run, one row for each subscription."""

    def widen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from widen_slices(pa.Table.from_batches([batch]), runs.value).to_batches()

    schema = from_arrow_schema(CELL_SCHEMA)
    of = ("site", "configuration_version", "priority", "subscriber", "filter", "run")
    return sums.mapInArrow(widen, schema).groupBy(*of).applyInArrow(join_sums, schema)


def _sort_key(row: MeasuredRow) -> tuple[Any, ...]:
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
