"""``calibrate``: estimate the parameters of a scenario from delivery records.

The improvement is measured on records that were not used for the estimates: parameters from the
earlier half of every run predict its later half. The overlay is then estimated from both halves.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from firedex.wire import Scenario
from firedex_models import PredictionTable, predict
from firedex_spark.calibration.estimates import estimate_parameters, losses_are_recorded
from firedex_spark.calibration.parameter_estimate import ParameterEstimate, make_overlay
from firedex_spark.calibration.traffic_sums import (
    CALIBRATION_COLUMNS,
    EARLIER,
    LATER,
    SUMS_ORDER,
    TRAFFIC_SCHEMA,
    WHOLE,
    traffic_sums,
)
from firedex_spark.errors import BadFile, NoMatchingRecords, SeveralSites, UnreadableFile
from firedex_spark.records.files import CheckedFiles, check_delivery_files, without_files
from firedex_spark.records.windows import Window, make_windows, read_in_parts
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession, run_tasks
from firedex_spark.sweep.scenario_paths import with_values

__all__ = [
    "Calibration",
    "PredictionError",
    "calibrate",
    "make_calibration",
    "prediction_error",
    "sum_up_window",
]

Z = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """Errors of predictions over subscriptions.

    ``delay_noise``: median relative half-width of the 95 % intervals of measured means; None if
    there is too little data. ``success_worst`` is None if losses are not recorded.
    ``subscriptions``: number of compared subscriptions.
    """

    delay_median: float
    delay_worst: float
    delay_noise: float | None
    success_worst: float | None
    subscriptions: int


def prediction_error(
    table: PredictionTable, delays: pd.DataFrame, runs_with_losses: Collection[str]
) -> PredictionError:
    """Compare predictions with rows of kind ``delays`` (``traffic_sums``)."""
    predictions = {(row.subscriber, row.filter): row for row in table.to_prediction().subscriptions}
    errors, noises, successes, compared, other_class = [], [], [], 0, 0
    for (subscriber, filter_, priority), blocks in delays.groupby(["of", "name", "high"]):
        one = predictions.get((str(subscriber), str(filter_)))
        if one is None:
            continue
        if one.priority != priority:  # recorded with another assignment
            other_class += 1
            continue
        mean, noise = _mean_delay(blocks)
        if mean:
            # a delay that the model predicts as infinite counts as an error of 100 %
            predicted = one.delay_mean_seconds
            errors.append(1.0 if predicted is None else abs(predicted / mean - 1))
            noises += [] if noise is None else [noise / mean]
        with_losses = blocks[blocks["run"].isin(list(runs_with_losses))]
        if len(with_losses):
            successes.append(
                abs(float(with_losses["low"].sum() / with_losses["count"].sum()) - one.success_rate)
            )
        compared += bool(mean) or len(with_losses) > 0
    if not errors:
        raise NoMatchingRecords(_reason_without_comparison(other_class))
    return PredictionError(
        delay_median=float(np.median(errors)),
        delay_worst=float(np.max(errors)),
        delay_noise=float(np.median(noises)) if noises else None,
        success_worst=float(np.max(successes)) if successes else None,
        subscriptions=compared,
    )


def _mean_delay(blocks: pd.DataFrame) -> tuple[float | None, float | None]:
    """Return the mean delay and half of its interval, from the variance of blocks."""
    count, total = blocks["low"].to_numpy(), blocks["total"].to_numpy()
    if not count.sum():
        return None, None
    mean = float(total.sum() / count.sum())
    number = int((count > 0).sum())
    if number < 2:
        return mean, None
    squares = float(((total - mean * count) ** 2).sum()) * number / (number - 1)
    return mean, Z * float(np.sqrt(squares)) / float(count.sum())


def _reason_without_comparison(other_class: int) -> str:
    if other_class:
        return (
            f"no delay can be compared with a prediction: {other_class} subscriptions were "
            "recorded in another class than the scenario assigns; use the scenario with the "
            "assignment that was active"
        )
    return (
        "no delay can be compared with a prediction: the later half of the records has no delay "
        "of a subscription of the scenario"
    )


ReportProgress = Callable[[str], None]
UNREADABLE = "unreadable"
ACCEPTABLE_ERROR = 0.05
"""A median error of delays below this value is accepted even if it grows."""
NEGLIGIBLE_DIFFERENCE = 0.01
"""Smaller differences of median errors are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The estimates, the scenario with them, and the errors of predictions.

    ``before`` and ``after`` are errors in the later half of the records, with the declared values
    and with estimates from the earlier half.
    """

    site: str
    estimates: tuple[ParameterEstimate, ...]
    overlay: dict[str, Any]
    scenario: Scenario
    before: PredictionError
    after: PredictionError
    refused: Mapping[str, int]
    skipped: tuple[BadFile, ...]

    @property
    def is_better(self) -> bool:
        """Return whether predictions of delays improved by more than their uncertainty."""
        return self.after.delay_median < self.before.delay_median - self._uncertainty

    @property
    def is_worse(self) -> bool:
        """Return whether errors grew by more than the uncertainty and exceed 5 %."""
        return self.after.delay_median > max(
            self.before.delay_median + self._uncertainty, ACCEPTABLE_ERROR
        )

    @property
    def _uncertainty(self) -> float:
        return max(NEGLIGIBLE_DIFFERENCE, self.before.delay_noise or 0.0)


def calibrate(
    spark: SparkSession,
    records: Path,
    scenario: Scenario,
    report_progress: ReportProgress = lambda _text: None,
    *,
    site: str | None = None,
) -> Calibration:
    """Estimate from the records of a scenario with an assignment, made at one ``site``."""
    switch_of = {subscriber.id: subscriber.switch for subscriber in scenario.subscribers}
    checked = check_delivery_files(records)
    while True:
        for bad in checked.skipped:
            report_progress(f"skipped: {bad}")
        report_progress(f"{checked.rows} records in {len(checked.good)} files")
        sums = _sums(spark, checked, switch_of, site)
        broken = _unreadable_files(sums)
        if not broken:
            break
        checked = without_files(records, checked, broken)
    site_name = _find_site(records, sums, site)
    return make_calibration(
        records,
        sums,
        scenario,
        site=site_name,
        refused=_refused_counts(sums),
        skipped=checked.skipped,
    )


def _refused_counts(sums: pd.DataFrame) -> dict[str, int]:
    counts = sums[sums.kind == "refused"].groupby("name")["count"].sum()
    return {str(reason): int(count) for reason, count in counts.items()}


def make_calibration(
    records: Path,
    sums: pd.DataFrame,
    scenario: Scenario,
    *,
    site: str,
    refused: Mapping[str, int],
    skipped: Sequence[BadFile],
) -> Calibration:
    """Return the calibration from the sums of all windows, in any order."""
    sums = sums.sort_values(list(SUMS_ORDER), kind="stable", ignore_index=True)
    whole, earlier, later = (sums[sums.part == part] for part in (WHOLE, EARLIER, LATER))
    _check_some_match(records, whole, scenario)
    losses_recorded = losses_are_recorded(whole)
    estimates = estimate_parameters(whole, scenario, losses_recorded)
    overlay = make_overlay(estimates)
    # without an overlay the errors before and after are equal
    half = make_overlay(estimate_parameters(earlier, scenario, losses_recorded)) if overlay else {}
    outcomes = whole[whole.kind == "outcomes"]
    runs_with_losses = set(outcomes[outcomes.name != "delivered"]["run"])
    try:
        before = prediction_error(predict(scenario), later, runs_with_losses)
        after = prediction_error(predict(with_values(scenario, half)), later, runs_with_losses)
    except NoMatchingRecords as error:
        raise NoMatchingRecords(f"{records}: {error}") from error
    return Calibration(
        site=site,
        estimates=tuple(estimates),
        overlay=overlay,
        scenario=with_values(scenario, overlay),
        before=before,
        after=after,
        refused=refused,
        skipped=tuple(skipped),
    )


def _sums(
    spark: SparkSession, checked: CheckedFiles, switch_of: Mapping[str, str], site: str | None
) -> pd.DataFrame:
    sums = partial(sum_up_window, switch_of=switch_of, site=site)
    found: pd.DataFrame = run_tasks(
        spark, make_windows(checked.good), sums, TRAFFIC_SCHEMA
    ).toPandas()
    return found


def sum_up_window(window: Window, switch_of: Mapping[str, str], site: str | None) -> pa.Table:
    """Return the sums of one window, and a row for each file that could not be read."""
    sums: list[pa.Table] = []
    broken: list[dict[str, str]] = []
    for table, bad in read_in_parts(window, CALIBRATION_COLUMNS, DELIVERY_SCHEMA):
        if window.site is not None:
            named = pa.array([window.site] * table.num_rows, pa.string())
            table = table.append_column("site", named)
        broken += [{"kind": UNREADABLE, "name": str(one.file), "of": one.reason} for one in bad]
        of = traffic_sums(table, switch_of, site)
        if window.untimed:  # such rows can only be counted as refused
            of = of.filter(pc.equal(of["kind"], "refused"))
        sums.append(of)
    return pa.concat_tables([*sums, pa.Table.from_pylist(broken, schema=TRAFFIC_SCHEMA)])


def _unreadable_files(sums: pd.DataFrame) -> list[BadFile]:
    rows = sums[sums.kind == UNREADABLE]
    reasons = dict(sorted(zip(rows["name"], rows["of"], strict=True)))
    return [UnreadableFile(Path(name), reason) for name, reason in reasons.items()]


def _find_site(records: Path, sums: pd.DataFrame, site: str | None) -> str:
    found = sorted(set(sums[sums.kind == "site"]["name"]))
    if not found:
        raise NoMatchingRecords(f"{records}: no record has a publication time")
    if site is None and len(found) > 1:
        raise SeveralSites(records, found)
    if site is not None and site not in found:
        raise NoMatchingRecords(
            f"{records}: no record of site {site}; the records are of {', '.join(found[:8])}"
        )
    return site or found[0]


def _check_some_match(records: Path, sums: pd.DataFrame, scenario: Scenario) -> None:
    known = {(s.id, one.filter) for s in scenario.subscribers for one in s.subscriptions}
    rows = sums[sums.kind == "subscription"]
    found = sorted(set(zip(rows["of"], rows["name"], strict=True)))
    if not known & {*found}:
        few = ", ".join(f"{subscriber} {filter_}" for subscriber, filter_ in found[:5])
        raise NoMatchingRecords(
            f"{records}: no record belongs to a subscription of {scenario.name!r}; "
            f"the records are of {few}"
        )
