"""``calibrate``: a scenario's parameters from what was delivered; better predictions, shown."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.wire import Scenario
from firedex_models import PredictionTable, predict
from firedex_spark.calibration_estimates import (
    ParameterEstimate,
    estimate_parameters,
    losses_are_told,
    overlay_of,
)
from firedex_spark.delivery_files import checked_deliveries
from firedex_spark.errors import BadFile, NothingMatches, SeveralSites, UnreadableFile
from firedex_spark.files_left_out import without
from firedex_spark.measured_row import MeasuredRow
from firedex_spark.record_files import CheckedFiles
from firedex_spark.record_windows import Window, read_parts, windows_of
from firedex_spark.scenario_paths import changed
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
from firedex_spark.traffic_sums import (
    CALIBRATION_COLUMNS,
    SUMS_ORDER,
    TRAFFIC_SCHEMA,
    traffic_sums,
)
from firedex_spark.validate_delays import validate_delays, window_as_plain, window_from_plain

__all__ = ["Calibration", "PredictionError", "calibrate", "calibration_of", "window_sums"]

Say = Callable[[str], None]
UNREADABLE = "unreadable"
GOOD_ANYWAY = 0.05
"""Median error of delays below which it does not matter if it grows."""
NOISE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """How far predictions are from what was measured, over subscriptions.

    ``success_worst`` is None if records do not tell of losses. ``subscriptions``: how many were
    compared (again for each configuration that there are records of).
    """

    delay_median: float
    delay_worst: float
    success_worst: float | None
    subscriptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was estimated, the scenario with it, and what that does for predictions."""

    site: str
    estimates: tuple[ParameterEstimate, ...]
    overlay: dict[str, Any]
    scenario: Scenario
    before: PredictionError
    after: PredictionError
    refused: Mapping[str, int]
    left_out: tuple[BadFile, ...]

    @property
    def better(self) -> bool:
        """Whether predictions of delays became better."""
        return self.after.delay_median < self.before.delay_median

    @property
    def worse(self) -> bool:
        """Whether they became worse, and are not good anyway."""
        return self.after.delay_median > max(self.before.delay_median + NOISE, GOOD_ANYWAY)


def calibrate(
    spark: SparkSession,
    records: Path,
    scenario: Scenario,
    say: Say = lambda _text: None,
    *,
    site: str | None = None,
) -> Calibration:
    """Estimate from the records of a scenario with an assignment, made at one ``site``."""
    switch_of = {subscriber.id: subscriber.switch for subscriber in scenario.subscribers}
    checked = checked_deliveries(records)
    while True:
        for bad in checked.left_out:
            say(f"left out: {bad}")
        say(f"{checked.rows} records in {len(checked.good)} files")
        sums = _sums(spark, checked, switch_of, site)
        broken = _broken(sums)
        if not broken:
            break
        checked = without(records, checked, broken)
    where = _one_site(records, sums, site)
    say("measuring, for predictions before and after")
    measured = validate_delays(spark, records, [])
    rows = [row for row in measured.rows if row.subscriber is not None and row.site == where]
    return calibration_of(
        records,
        sums,
        scenario,
        rows,
        site=where,
        refused=_with_refused(measured.refused, sums),
        left_out=measured.left_out,
    )


def _with_refused(refused: Mapping[str, int], sums: pd.DataFrame) -> dict[str, int]:
    """Rows that measuring refuses, and those that say nothing of parameters beside."""
    more = sums[sums.kind == "refused"].groupby("name")["count"].sum()
    return {**refused, **{str(reason): int(count) for reason, count in more.items()}}


def calibration_of(
    records: Path,
    sums: pd.DataFrame,
    scenario: Scenario,
    measured: Sequence[MeasuredRow],
    *,
    site: str,
    refused: Mapping[str, int],
    left_out: Sequence[BadFile],
) -> Calibration:
    """From the sums of all windows, in any order, and what was measured of the subscriptions."""
    sums = sums.sort_values(list(SUMS_ORDER), kind="stable", ignore_index=True)
    _some_match(records, sums, scenario)
    estimates = estimate_parameters(sums, scenario)
    overlay = overlay_of(estimates)
    calibrated = changed(scenario, overlay)
    told = losses_are_told(sums)
    return Calibration(
        site=site,
        estimates=tuple(estimates),
        overlay=overlay,
        scenario=calibrated,
        before=_error(records, predict(scenario), measured, told),
        after=_error(records, predict(calibrated), measured, told),
        refused=refused,
        left_out=tuple(left_out),
    )


def _sums(
    spark: SparkSession, checked: CheckedFiles, switch_of: Mapping[str, str], site: str | None
) -> pd.DataFrame:
    windows = [w for w in windows_of(checked.good) if not w.untimed]
    tasks = spark.createDataFrame(
        [(json.dumps(window_as_plain(window)),) for window in windows], "window string"
    ).repartition(max(len(windows), 1))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column("window").to_pylist():
                window = window_from_plain(json.loads(text))
                yield from window_sums(window, switch_of, site).to_batches()

    found: pd.DataFrame = tasks.mapInArrow(work, from_arrow_schema(TRAFFIC_SCHEMA)).toPandas()
    return found


def window_sums(window: Window, switch_of: Mapping[str, str], site: str | None) -> pa.Table:
    """The sums of one window, and which files of it could not be read."""
    sums: list[pa.Table] = []
    broken: list[dict[str, str]] = []
    for table, bad in read_parts(window, CALIBRATION_COLUMNS, DELIVERY_SCHEMA):
        if window.site is not None:
            named = pa.array([window.site] * table.num_rows, pa.string())
            table = table.append_column("site", named)
        broken += [{"kind": UNREADABLE, "name": str(one.file), "of": one.reason} for one in bad]
        sums.append(traffic_sums(table, switch_of, site))
    return pa.concat_tables([*sums, pa.Table.from_pylist(broken, schema=TRAFFIC_SCHEMA)])


def _broken(sums: pd.DataFrame) -> list[BadFile]:
    rows = sums[sums.kind == UNREADABLE]
    reasons = dict(sorted(zip(rows["name"], rows["of"], strict=True)))
    return [UnreadableFile(Path(name), reason) for name, reason in reasons.items()]


def _one_site(records: Path, sums: pd.DataFrame, site: str | None) -> str:
    found = sorted(set(sums[sums.kind == "site"]["name"]))
    if not found:
        raise NothingMatches(f"{records}: no record has a time of publication")
    if site is None and len(found) > 1:
        raise SeveralSites(records, found)
    if site is not None and site not in found:
        raise NothingMatches(f"{records}: no record of {site}, but of {', '.join(found[:8])}")
    return site or found[0]


def _some_match(records: Path, sums: pd.DataFrame, scenario: Scenario) -> None:
    known = {(s.id, one.filter) for s in scenario.subscribers for one in s.subscriptions}
    rows = sums[sums.kind == "subscription"]
    found = sorted(set(zip(rows["of"], rows["name"], strict=True)))
    if not known & {*found}:
        few = ", ".join(f"{subscriber} {filter_}" for subscriber, filter_ in found[:5])
        raise NothingMatches(
            f"{records}: no record is of a subscription of {scenario.name!r}; they are of {few}"
        )


def _error(
    records: Path, table: PredictionTable, rows: Sequence[MeasuredRow], told: bool
) -> PredictionError:
    said = {(row.subscriber, row.filter): row for row in table.to_prediction().subscriptions}
    delays, successes, compared, other_class = [], [], 0, 0
    for row in rows:
        one = said.get((row.subscriber or "", row.filter or ""))
        if one is None:
            continue
        if one.priority != row.priority:  # made under another assignment
            other_class += 1
            continue
        if row.success_rate is not None:
            successes.append(abs(row.success_rate - one.success_rate))
        if row.delay_mean_seconds:
            # a delay that the model calls endless is wrong by all of it
            predicted = one.delay_mean_seconds
            off = 1.0 if predicted is None else abs(predicted / row.delay_mean_seconds - 1)
            delays.append(off)
        compared += bool(row.delay_mean_seconds) or row.success_rate is not None
    if not delays:
        raise NothingMatches(f"{records}: {_why_none(other_class)}")
    return PredictionError(
        delay_median=float(np.median(delays)),
        delay_worst=float(np.max(delays)),
        success_worst=float(np.max(successes)) if successes and told else None,
        subscriptions=compared,
    )


def _why_none(other_class: int) -> str:
    if other_class:
        return (
            f"no delay can be compared with a prediction: {other_class} subscriptions came in "
            "another class than the scenario assigns them; give the scenario with the assignment "
            "that the records were made under"
        )
    return "no delay can be compared with a prediction: none of the scenario's was measured"
