"""``firedex measurements`` on recordings made up here: what it shows, writes and refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firedex.cli.commands import firedex
from firedex.scenario_file import read_scenario

ROWS = """\
sub0, topic0, 10001, 2.5, 1, 0.0, 100, 100, 2.0
sub0, topic1, 10002, 1.5, 2, 0.1, 100, 90, 4.0
sub1, topic1, 10002, 1.5, 2, 0.1, 100, 30, 8.0
"""


def record(folder: Path, rows: str = ROWS, settings: str = "Bandwidth: 80 KB\n") -> Path:
    (folder / "prototype_experiment_0.csv").write_text(rows, encoding="utf-8")
    (folder / "prototype_experiment_0.txt").write_text(settings, encoding="utf-8")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(firedex, ["measurements", *map(str, arguments)])


def refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def test_measured_delays_are_weighted_by_what_was_received(tmp_path: Path) -> None:
    result = run(record(tmp_path), "--json")
    assert result.exit_code == 0
    (comparison,) = json.loads(result.stdout)
    assert comparison["experiment"] == "experiment_0"
    assert comparison["measured"] == pytest.approx({"1": 0.002, "2": 0.005})
    assert set(comparison["predicted"]) == {"fan-out", "fan-out, HTB", "independent"}


def test_recordings_become_scenarios(tmp_path: Path) -> None:
    assert run(record(tmp_path), "--scenarios", tmp_path / "made" / "here").exit_code == 0
    made = read_scenario(str(tmp_path / "made" / "here" / "experiment_0.yaml"))
    assert [subscriber.id for subscriber in made.subscribers] == ["sub0", "sub1"]
    assert made.network.switches[1].bandwidth_bits_per_second == 80 * 1024 * 8
    assert [(e.flow, e.priority, e.drop_rate) for e in made.assignment or ()] == [
        (1, 1, 0.0),
        (2, 2, 0.1),
        (2, 2, 0.1),
    ]


def test_people_see_a_table(tmp_path: Path) -> None:
    result = run(record(tmp_path))
    assert result.exit_code == 0
    assert "experiment_0" in result.output
    assert "2.0 ms" in result.output


def test_an_overloaded_recording_is_still_json(tmp_path: Path) -> None:
    rows = "".join(f"sub{n}, topic0, 10001, 1.0, 2, 0.0, 100, 50, 900.0\n" for n in range(20))
    result = run(record(tmp_path, rows, "Bandwidth: 1 KB\n"), "--json")
    assert result.exit_code == 0
    (comparison,) = json.loads(result.stdout, parse_constant=refuse_constant)
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
def test_recordings_that_cannot_be_used_are_refused_by_name(
    tmp_path: Path, rows: str, settings: str, message: str
) -> None:
    result = run(record(tmp_path, rows, settings))
    assert result.exit_code == 2, result.exception
    assert message in result.stderr


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "no prototype_experiment_*.csv" in result.stderr


def test_a_recording_without_its_settings_is_refused(tmp_path: Path) -> None:
    (record(tmp_path) / "prototype_experiment_0.txt").unlink()
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "prototype_experiment_0.txt" in result.stderr
