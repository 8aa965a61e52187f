"""Of records whose truth is what was predicted, few reports have an alarm."""

from pathlib import Path

import pytest
from scipy.stats import binom
from simulated_deliveries import (
    four_classes,
    judged_in_one_process,
    judged_without_spark,
    write_simulated,
)

from firedex_spark.generated_records import RecordTruth, write_generated_records
from firedex_spark.measured_row import Bounds
from firedex_spark.prediction_files import read_predictions
from firedex_spark.validate_delays import configurations


def alarmed(folder: Path, rows: int, reports: int, **given: float) -> int:
    """In how many reports there is any alarm."""
    found = 0
    for seed in range(reports):
        of = folder / str(seed)
        write_generated_records(RecordTruth(seed=seed, **given), of, rows)
        said = configurations(read_predictions(of / "predictions.parquet"))
        found += any(row.alarming for row in judged_in_one_process(of / "records", said))
    return found


def allowed(reports: int) -> int:
    """As many as a test at the stated level has but once in a thousand times."""
    return int(binom.ppf(0.999, reports, Bounds().level))


@pytest.mark.parametrize(
    ("rows", "reports", "given"),
    [
        (20_000, 40, {}),
        (200_000, 20, {}),
        (40_000, 20, {"publications_per_second": 10.0, "wandering_seconds": 100.0}),
    ],
    ids=["in a minute", "in ten minutes", "slowly"],
)
def test_reports_of_wandering_delays(
    tmp_path: Path, rows: int, reports: int, given: dict[str, float]
) -> None:
    assert alarmed(tmp_path, rows, reports, **given) <= allowed(reports)


@pytest.mark.long
def test_reports_of_a_million_records(tmp_path: Path) -> None:
    assert alarmed(tmp_path, 1_000_000, 20) <= allowed(20)


@pytest.mark.long
def test_reports_of_a_site_near_saturation(tmp_path: Path) -> None:
    scenario, found = four_classes(load=0.93), 0
    for seed in range(20):
        write_simulated(tmp_path / str(seed), scenario, publications=30_000, seed=seed)
        found += any(row.alarming for row in judged_without_spark(tmp_path / str(seed), scenario))
    assert found <= allowed(20)
