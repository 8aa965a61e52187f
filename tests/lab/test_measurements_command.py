"""``firedex measurements`` with generated recordings: its output, files and errors."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firedex.cli import firedex
from firedex.scenario import read_scenario

ROWS = """\
sub0, topic0, 10001, 2.5, 1, 0.0, 100, 100, 2.0
sub0, topic1, 10002, 1.5, 2, 0.1, 100, 90, 4.0
sub1, topic1, 10002, 1.5, 2, 0.1, 100, 30, 8.0
"""


def write_recording(folder: Path, rows: str = ROWS, settings: str = "Bandwidth: 80 KB\n") -> Path:
    (folder / "prototype_experiment_0.csv").write_text(rows, encoding="utf-8")
    (folder / "prototype_experiment_0.txt").write_text(settings, encoding="utf-8")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(firedex, ["measurements", *map(str, arguments)])


def reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def test_measured_delays_are_weighted_by_received_events(tmp_path: Path) -> None:
    result = run(write_recording(tmp_path), "--json")
    assert result.exit_code == 0
    (comparison,) = json.loads(result.stdout)
    assert comparison["experiment"] == "experiment_0"
    assert comparison["measured"] == pytest.approx({"1": 0.002, "2": 0.005})
    assert set(comparison["predicted"]) == {"fan-out", "fan-out, HTB", "independent"}


def test_recordings_are_written_as_scenarios(tmp_path: Path) -> None:
    assert run(write_recording(tmp_path), "--scenarios", tmp_path / "new" / "folder").exit_code == 0
    scenario = read_scenario(str(tmp_path / "new" / "folder" / "experiment_0.yaml"))
    assert [subscriber.id for subscriber in scenario.subscribers] == ["sub0", "sub1"]
    assert scenario.network.switches[1].bandwidth_bits_per_second == 80 * 1024 * 8
    assert [(e.flow, e.priority, e.drop_rate) for e in scenario.assignment or ()] == [
        (1, 1, 0.0),
        (2, 2, 0.1),
        (2, 2, 0.1),
    ]


def test_default_output_is_a_table(tmp_path: Path) -> None:
    result = run(write_recording(tmp_path))
    assert result.exit_code == 0
    assert "experiment_0" in result.output
    assert "2.0 ms" in result.output


def test_json_output_of_overloaded_recording_is_valid(tmp_path: Path) -> None:
    rows = "".join(f"sub{n}, topic0, 10001, 1.0, 2, 0.0, 100, 50, 900.0\n" for n in range(20))
    result = run(write_recording(tmp_path, rows, "Bandwidth: 1 KB\n"), "--json")
    assert result.exit_code == 0
    (comparison,) = json.loads(result.stdout, parse_constant=reject_constant)
    assert comparison["predicted"]["fan-out"]["2"] is None


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (ROWS + "sub2, topic0\n", "Bandwidth: 80 KB\n", "experiment_0.csv line 4"),
        (ROWS.replace("2.0\n", "soon\n"), "Bandwidth: 80 KB\n", "experiment_0.csv line 1"),
        (ROWS, "Bandwidth: plenty\n", "experiment_0.txt: no line 'Bandwidth"),
        (ROWS + ROWS, "Bandwidth: 80 KB\n", "experiment_0"),
        (ROWS.replace("100, 100,", "100, 0,"), "Bandwidth: 80 KB\n", "experiment_0"),
    ],
    ids=["too few columns", "not a number", "no bandwidth", "twice", "nothing received"],
)
def test_invalid_recording_is_rejected_with_its_name(
    tmp_path: Path, rows: str, settings: str, message: str
) -> None:
    result = run(write_recording(tmp_path, rows, settings))
    assert result.exit_code == 2, result.exception
    assert message in result.stderr


def test_folder_without_recordings_is_rejected(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "no prototype_experiment_*.csv" in result.stderr


def test_recording_without_settings_file_is_rejected(tmp_path: Path) -> None:
    (write_recording(tmp_path) / "prototype_experiment_0.txt").unlink()
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "prototype_experiment_0.txt" in result.stderr
