"""``calibrate``: a scenario's parameters from what was delivered; better predictions, shown."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.delivery_schema import SCHEMA
from firedex.wire import Scenario
from firedex_models import PredictionTable, predict
from firedex_spark.calibration_estimates import ParameterEstimate, estimate_parameters, overlay_of
from firedex_spark.errors import BadFile
from firedex_spark.measured_row import MeasuredRow
from firedex_spark.record_columns import TIME
from firedex_spark.record_files import check_files, files_under
from firedex_spark.record_windows import read_window, windows_of
from firedex_spark.scenario_paths import changed
from firedex_spark.session import SparkSession
from firedex_spark.traffic_sums import CALIBRATION_COLUMNS, TRAFFIC_SCHEMA, traffic_sums
from firedex_spark.validate_delays import validate_delays, window_as_plain, window_from_plain

__all__ = ["Calibration", "PredictionError", "calibrate"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """How far predictions are from what was measured, over subscriptions."""

    delay_median: float
    delay_worst: float
    success_worst: float
    subscriptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was estimated, the scenario with it, and what that does for predictions."""

    estimates: tuple[ParameterEstimate, ...]
    overlay: dict[str, Any]
    scenario: Scenario
    before: PredictionError
    after: PredictionError
    left_out: tuple[BadFile, ...]

    @property
    def better(self) -> bool:
        """Whether predictions of delays became better."""
        return self.after.delay_median <= self.before.delay_median


def calibrate(
    spark: SparkSession, records: Path, scenario: Scenario, say: Say = lambda _text: None
) -> Calibration:
    """Estimate from the records of a scenario with an assignment."""
    checked = check_files(records, files_under(records, "delivery records"), SCHEMA, TIME)
    say(f"{checked.rows} records in {len(checked.good)} files")
    switch_of = {subscriber.id: subscriber.switch for subscriber in scenario.subscribers}
    windows = [w for w in windows_of(checked.good) if not w.untimed]
    tasks = spark.createDataFrame(
        [(json.dumps(window_as_plain(window)),) for window in windows], "window string"
    ).repartition(len(windows))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column("window").to_pylist():
                window = window_from_plain(json.loads(text))
                table, _ = read_window(window, CALIBRATION_COLUMNS, SCHEMA)
                yield from traffic_sums(table, switch_of).to_batches()

    sums = tasks.mapInArrow(work, from_arrow_schema(TRAFFIC_SCHEMA)).toArrow().to_pandas()
    order = ["kind", "run", "name", "of", "low", "high", "count"]
    estimates = estimate_parameters(sums.sort_values(order), scenario)
    overlay = overlay_of(estimates)
    better = changed(scenario, overlay)
    said = [predict(scenario), predict(better)]
    say("measuring, for predictions before and after")
    measured = validate_delays(spark, records, [])
    rows = [row for row in measured.rows if row.subscriber is not None]
    return Calibration(
        estimates=tuple(estimates),
        overlay=overlay,
        scenario=better,
        before=_error(said[0], rows),
        after=_error(said[1], rows),
        left_out=measured.left_out,
    )


def _error(table: PredictionTable, rows: list[MeasuredRow]) -> PredictionError:
    said = {(row.subscriber, row.filter): row for row in table.to_prediction().subscriptions}
    delays, successes = [], []
    for row in rows:
        one = said.get((row.subscriber or "", row.filter or ""))
        if one is None:
            continue
        if row.success_rate is not None:
            successes.append(abs(row.success_rate - one.success_rate))
        if row.delay_mean_seconds:
            # a delay that the model calls endless is wrong by all of it
            predicted = one.delay_mean_seconds
            off = 1.0 if predicted is None else abs(predicted / row.delay_mean_seconds - 1)
            delays.append(off)
    return PredictionError(
        delay_median=float(np.median(delays)) if delays else 0.0,
        delay_worst=float(np.max(delays)) if delays else 0.0,
        success_worst=float(np.max(successes)) if successes else 0.0,
        subscriptions=len(successes),
    )
