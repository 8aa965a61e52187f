"""``calibrate``: a scenario's parameters from what was delivered; better predictions, shown.

What predictions gain is shown on records that nothing was estimated from: parameters of the earlier
half of every run predict its later half. The overlay is then estimated from both.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from firedex.wire import Scenario
from firedex_models import predict
from firedex_spark.calibration_estimates import (
    ParameterEstimate,
    estimate_parameters,
    losses_are_told,
    overlay_of,
)
from firedex_spark.delivery_files import checked_deliveries
from firedex_spark.errors import BadFile, NothingMatches, SeveralSites, UnreadableFile
from firedex_spark.files_left_out import without
from firedex_spark.prediction_errors import PredictionError, prediction_error
from firedex_spark.record_files import CheckedFiles
from firedex_spark.record_windows import Window, read_parts, windows_of
from firedex_spark.scenario_paths import changed
from firedex_spark.schemas import DELIVERY_SCHEMA
from firedex_spark.session import SparkSession
from firedex_spark.traffic_sums import (
    CALIBRATION_COLUMNS,
    EARLIER,
    LATER,
    SUMS_ORDER,
    TRAFFIC_SCHEMA,
    WHOLE,
    traffic_sums,
)
from firedex_spark.validate_delays import window_as_plain, window_from_plain

__all__ = ["Calibration", "PredictionError", "calibrate", "calibration_of", "window_sums"]

Say = Callable[[str], None]
UNREADABLE = "unreadable"
GOOD_ANYWAY = 0.05
"""Median error of delays below which it does not matter if it grows."""
NOISE = 0.01
"""A difference of median errors that is none, however exactly delays were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was estimated, the scenario with it, and what that does for predictions.

    ``before`` and ``after`` are errors in the later half of the records: of what is declared, and
    with what was estimated from the earlier half alone.
    """

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
        """Whether predictions of delays became better, by more than the later half leaves open."""
        return self.after.delay_median < self.before.delay_median - self._unclear

    @property
    def worse(self) -> bool:
        """Whether they became worse by more than that, and are not good anyway."""
        return self.after.delay_median > max(self.before.delay_median + self._unclear, GOOD_ANYWAY)

    @property
    def _unclear(self) -> float:
        return max(NOISE, self.before.delay_noise or 0.0)


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
    return calibration_of(
        records, sums, scenario, site=where, refused=_refused(sums), left_out=checked.left_out
    )


def _refused(sums: pd.DataFrame) -> dict[str, int]:
    counts = sums[sums.kind == "refused"].groupby("name")["count"].sum()
    return {str(reason): int(count) for reason, count in counts.items()}


def calibration_of(
    records: Path,
    sums: pd.DataFrame,
    scenario: Scenario,
    *,
    site: str,
    refused: Mapping[str, int],
    left_out: Sequence[BadFile],
) -> Calibration:
    """From the sums of all windows, in any order."""
    sums = sums.sort_values(list(SUMS_ORDER), kind="stable", ignore_index=True)
    whole, earlier, later = (sums[sums.part == part] for part in (WHOLE, EARLIER, LATER))
    _some_match(records, whole, scenario)
    told = losses_are_told(whole)
    estimates = estimate_parameters(whole, scenario, told)
    overlay = overlay_of(estimates)
    # where nothing is changed, nothing can become worse by what a half alone would say
    half = overlay_of(estimate_parameters(earlier, scenario, told)) if overlay else {}
    outcomes = whole[whole.kind == "outcomes"]
    telling = set(outcomes[outcomes.name != "delivered"]["run"])
    try:
        before = prediction_error(predict(scenario), later, telling)
        after = prediction_error(predict(changed(scenario, half)), later, telling)
    except NothingMatches as error:
        raise NothingMatches(f"{records}: {error}") from error
    return Calibration(
        site=site,
        estimates=tuple(estimates),
        overlay=overlay,
        scenario=changed(scenario, overlay),
        before=before,
        after=after,
        refused=refused,
        left_out=tuple(left_out),
    )


def _sums(
    spark: SparkSession, checked: CheckedFiles, switch_of: Mapping[str, str], site: str | None
) -> pd.DataFrame:
    windows = windows_of(checked.good)
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
        of = traffic_sums(table, switch_of, site)
        if window.untimed:  # of these only what is wrong with them can be told
            of = of.filter(pc.equal(of["kind"], "refused"))
        sums.append(of)
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
