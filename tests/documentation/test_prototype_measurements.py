"""Predictions agree with the recorded delays of the prototype of the paper's authors."""

import csv
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from firedex.cli import firedex
from firedex.lab.recordings import Comparison, compare, read_experiments

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(os.environ.get("FIREDEX_RECORDINGS", ROOT.parent / "shared" / "reference"))
COMPARED = range(2, 8)

pytestmark = pytest.mark.skipif(
    not RECORDINGS.is_dir(),
    reason="the recordings of the prototype were not found; set FIREDEX_RECORDINGS to their folder",
)


@pytest.fixture(scope="module")
def comparisons() -> dict[str, Comparison]:
    return {found.experiment: found for found in map(compare, read_experiments(RECORDINGS))}


def measured_by_class(experiment: int) -> dict[int, float]:
    """Return mean delays in seconds, read without the code of the product."""
    rows: dict[int, list[tuple[int, float]]] = {}
    with (RECORDINGS / f"prototype_experiment_{experiment}.csv").open() as lines:
        for cells in csv.reader(lines, skipinitialspace=True):
            rows.setdefault(int(cells[4]), []).append((int(cells[7]), float(cells[8]) / 1000))
    return {k: sum(n * d for n, d in r) / sum(n for n, _ in r) for k, r in rows.items()}


def predicted_by_command(scenario: Path, *options: str) -> dict[int, float]:
    """Return the mean delay of each class that ``firedex predict`` prints."""
    result = CliRunner().invoke(firedex, ["predict", str(scenario), "--json", *options])
    assert result.exit_code == 0, result.output
    return {
        row["priority"]: row["delay_mean_seconds"] for row in json.loads(result.output)["classes"]
    }


@pytest.fixture(scope="module")
def experiment_3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenarios")
    result = CliRunner().invoke(
        firedex, ["measurements", str(RECORDINGS), "--scenarios", str(folder)]
    )
    assert result.exit_code == 0, result.output
    return folder / "experiment_3.yaml"


def test_fan_out_model_predicts_experiment_3(experiment_3: Path) -> None:
    measured, predicted = measured_by_class(3), predicted_by_command(experiment_3)
    errors = sorted(abs(predicted[k] / measured[k] - 1) for k in COMPARED)
    assert max(errors) <= 0.20
    assert (errors[2] + errors[3]) / 2 <= 0.08


def test_independent_model_predicts_too_short_delays_for_experiment_3(
    experiment_3: Path,
) -> None:
    measured = measured_by_class(3)
    predicted = predicted_by_command(experiment_3, "--model", "independent")
    ratios = [measured[k] / predicted[k] for k in COMPARED]
    assert min(ratios) > 6.5
    assert 20 < max(ratios) < 24


@pytest.mark.parametrize("experiment", ["experiment_0", "experiment_1", "experiment_3"])
def test_same_htb_parameters_fit_every_experiment(
    comparisons: dict[str, Comparison], experiment: str
) -> None:
    assert comparisons[experiment].median_error("fan-out, HTB") <= 0.15
    assert max(map(abs, comparisons[experiment].errors("fan-out, HTB").values())) <= 0.20


@pytest.mark.parametrize("experiment", ["experiment_0", "experiment_1"])
def test_modelling_the_shaper_reduces_errors_on_slow_links(
    comparisons: dict[str, Comparison], experiment: str
) -> None:
    found = comparisons[experiment]
    assert found.median_error("fan-out, HTB") < found.median_error("fan-out")
