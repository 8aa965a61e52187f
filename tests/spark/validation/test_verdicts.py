"""Verdicts on whole reports: false alarms are rare, planted drifts are found."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

from firedex_spark.records import windows as record_windows
from firedex_spark.records.generated import RecordParameters, write_generated_records
from firedex_spark.records.predictions import read_predictions
from firedex_spark.schemas import DELIVERY_SCHEMA as SCHEMA
from firedex_spark.validation.job import predictions_by_configuration
from firedex_spark.validation.verdicts import Bounds
from tests.spark.simulated_deliveries import (
    add_drift,
    four_classes,
    simulate_records,
    validate_in_one_process,
    validate_sites_in_one_process,
)

pytestmark = pytest.mark.slow


def test_windows_order_and_duplicates_do_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = four_classes()
    simulate_records(tmp_path / "one", scenario, publications=4_000)
    validation = validate_in_one_process(tmp_path / "one", scenario)
    table = pq.read_table(tmp_path / "one", schema=SCHEMA)
    random = np.random.default_rng(5)
    row = np.concatenate([np.arange(table.num_rows), random.integers(table.num_rows, size=500)])
    random.shuffle(row)
    (tmp_path / "other").mkdir()
    for number, part in enumerate(np.array_split(row, 3)):
        into = tmp_path / "other" / f"part{number}.parquet"
        pq.write_table(table.take(pa.array(part)), into, row_group_size=7_000)
    monkeypatch.setattr(record_windows, "ROWS_PER_WINDOW", 5_000)
    assert validate_in_one_process(tmp_path / "other", scenario) == validation


def test_drift_is_found_only_in_its_class(tmp_path: Path) -> None:
    scenario = four_classes(load=0.5)
    simulate_records(tmp_path, scenario, publications=150_000)
    assert not [row for row in validate_in_one_process(tmp_path, scenario) if row.alarming]
    add_drift(tmp_path, priority=2, growth=0.15)
    found = [row for row in validate_in_one_process(tmp_path, scenario) if row.alarming]
    assert {row.priority for row in found} == {2}
    assert {row.verdict for row in found} == {"drift"}
    assert None in {row.subscriber for row in found}


@pytest.mark.parametrize(
    "reports",
    [25, pytest.param(100, marks=pytest.mark.long)],  # 100 take 40 s
)
def test_false_alarms_of_simulated_runs_are_rare(tmp_path: Path, reports: int) -> None:
    scenario = four_classes()
    alarms = 0
    for seed in range(reports):
        folder = tmp_path / str(seed)
        simulate_records(folder, scenario, publications=30_000, seed=seed)
        alarms += any(row.alarming for row in validate_in_one_process(folder, scenario))
    assert alarms <= min(max_false_alarms(reports), 5)


@pytest.mark.long
def test_drifts_are_found_for_every_seed(tmp_path: Path) -> None:
    scenario = four_classes(load=0.5)
    for seed in range(10):
        folder = tmp_path / str(seed)
        simulate_records(folder, scenario, publications=300_000, seed=seed)
        add_drift(folder, priority=2, growth=0.15)
        found = [row for row in validate_in_one_process(folder, scenario) if row.alarming]
        assert {row.priority for row in found} == {2}, seed


def count_reports_with_alarms(folder: Path, rows: int, reports: int, **given: Any) -> int:
    """Return the number of reports with an alarm."""
    found = 0
    for seed in range(reports):
        report_folder = folder / str(seed)
        write_generated_records(RecordParameters(seed=seed, **given), report_folder, rows)
        predictions = predictions_by_configuration(
            read_predictions(report_folder / "predictions.parquet")
        )
        found += any(
            row.alarming
            for row in validate_sites_in_one_process(report_folder / "records", predictions)
        )
    return found


def max_false_alarms(reports: int) -> int:
    """Return the number of false alarms that is exceeded in one of a thousand tests."""
    return int(binom.ppf(0.999, reports, Bounds().level))


@pytest.mark.parametrize(
    ("rows", "reports", "given"),
    [
        pytest.param(20_000, 20, {}, id="one minute"),
        # 20 reports take half a minute, and are a variant of the first case
        pytest.param(200_000, 20, {}, id="ten minutes", marks=pytest.mark.long),
        pytest.param(
            40_000,
            20,
            {"publications_per_second": 10.0, "wandering_seconds": 100.0},
            id="slow wandering",
            marks=pytest.mark.long,
        ),
    ],
)
def test_false_alarms_of_slowly_varying_delays_are_rare(
    tmp_path: Path, rows: int, reports: int, given: dict[str, float]
) -> None:
    assert count_reports_with_alarms(tmp_path, rows, reports, **given) <= max_false_alarms(reports)


@pytest.mark.long
def test_false_alarms_of_a_million_records_are_rare(tmp_path: Path) -> None:
    assert count_reports_with_alarms(tmp_path, 1_000_000, 20) <= max_false_alarms(20)


@pytest.mark.long
def test_false_alarms_near_saturation_are_rare(tmp_path: Path) -> None:
    scenario, found = four_classes(load=0.93), 0
    for seed in range(20):
        simulate_records(tmp_path / str(seed), scenario, publications=30_000, seed=seed)
        found += any(
            row.alarming for row in validate_in_one_process(tmp_path / str(seed), scenario)
        )
    assert found <= max_false_alarms(20)
