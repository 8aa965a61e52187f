"""simulate-sweep: grids, errors of single points, and equality with simulate."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.classic.dataframe import DataFrame

from firedex.wire import to_plain
from firedex_models.simulation import SimulationSettings, simulate, simulation_report
from firedex_models.simulation.summary import BINS
from firedex_spark.errors import InvalidGrid
from firedex_spark.session import SparkSession
from firedex_spark.sweep import job
from firedex_spark.sweep.job import SweepPoint, grid_points, read_grid, simulate_sweep
from firedex_spark.sweep.scenario_paths import with_values
from tests.spark.simulated_deliveries import four_classes

SPEED = "network.switches.core.bandwidth_bits_per_second"


def write_grid(folder: Path, text: str) -> Path:
    file = folder / "grid.yaml"
    file.write_text(text)
    return file


def test_value_with_an_exponent_is_a_number(tmp_path: Path) -> None:
    grid = read_grid(
        write_grid(tmp_path, f"{SPEED}: [4e6, 5E+6, 4.5e6, .5e-3, 100]\nname: ['4e6']\n")
    )
    assert grid == {SPEED: [4e6, 5e6, 4.5e6, 0.0005, 100], "name": ["4e6"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a mapping of paths to lists"),
        ("{}", "is empty"),
        ("[1, 2]", "a mapping of paths to lists"),
        ("a.b: 3", r"line 1: a\.b"),
        ("x: [1]\na.b: []", r"line 2: a\.b"),
        ("a.b: {c: 1}", r"line 1: a\.b"),
        ("a.b: [1]\na.b: [2]", "is given twice"),
        ("a: [", "not valid YAML"),
    ],
)
def test_invalid_grid_is_rejected_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidGrid, match=message):
        read_grid(write_grid(tmp_path, text))


def test_file_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidGrid, match="not UTF-8"):
        read_grid(tmp_path / "grid.yaml")


def test_too_many_points_are_rejected() -> None:
    assert grid_points({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    with pytest.raises(InvalidGrid, match="1000000000000 points"):
        grid_points({name: list(range(1000)) for name in "abcd"})
    with pytest.raises(InvalidGrid, match="the grid is empty"):
        grid_points({})
    with pytest.raises(InvalidGrid, match="expected a list of values"):
        grid_points({"network.broker.id": "x"})


def test_invalid_point_has_an_error() -> None:
    points = grid_points({SPEED: [150_000.0, -1.0, "fast"]})
    scenarios, errors = job._scenarios(four_classes(), points)
    assert list(scenarios) == [0]
    assert list(errors) == [1, 2]
    assert "bandwidth_bits_per_second" in errors[1]
    with pytest.raises(InvalidGrid, match=r"no point can be simulated.*unknown name 'cellar'"):
        job._scenarios(four_classes(), [{"network.switches.cellar.error_rate": 0.1}])


def test_error_of_a_simulation_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(job, "_replication", fails)
    row = job._run_replication(four_classes(), 3, 1, 10, 0)
    expected_row = {
        "point": 3,
        "number": 1,
        "tally": None,
        "error": "ZeroDivisionError: by nothing",
    }
    assert row == expected_row
    later = row | {"number": 2, "error": "another"}
    expected = {"point": 3, "report": None, "error": "ZeroDivisionError: by nothing"}
    assert job._report_point(four_classes(), [later, row]) == expected


def test_point_equals_simulate_for_any_order_of_replications() -> None:
    scenario = four_classes()
    rows = [job._run_replication(scenario, 5, number, 500, 3) for number in (2, 0, 1)]
    found = job._report_point(scenario, rows)
    assert (found["point"], found["error"]) == (5, None)
    settings = SimulationSettings(replications=3, publications=500, seed=3)
    alone = simulation_report(simulate(scenario, settings))
    assert to_plain(job._unpack(found["report"])) == to_plain(alone)


def test_error_of_a_report_is_reported() -> None:
    row = {"point": 3, "number": 0, "tally": b"nonsense", "error": None}
    found = job._report_point(four_classes(), [row])
    assert found["report"] is None
    assert found["error"].startswith("error: ")


def lowest_class_delay(point: SweepPoint) -> float:
    assert point.report is not None
    delay = point.report.classes[-1].delay_mean_seconds
    assert delay is not None
    return delay


def test_sweep_equals_simulate_for_each_point(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check also that workers return only reports."""
    collected: list[Row] = []
    collect = DataFrame.collect

    def collect_and_record(frame: DataFrame) -> list[Row]:
        rows = collect(frame)
        collected.extend(rows)
        return rows

    monkeypatch.setattr(DataFrame, "collect", collect_and_record)
    scenario = four_classes()
    path = "network.switches.core.bandwidth_bits_per_second"
    points = simulate_sweep(
        spark,
        scenario,
        {path: [-1.0, 150_000.0, 200_000.0]},
        replications=2,
        publications=500,
        seed=3,
    )
    assert sorted(row["point"] for row in collected) == [1, 2]
    assert sum(len(pickle.dumps(row.asDict())) for row in collected) < BINS * 4
    wrong = points.pop(0)
    assert wrong.report is None
    assert "bandwidth_bits_per_second" in (wrong.error or "")
    for point in points:
        settings = SimulationSettings(replications=2, publications=500, seed=3)
        alone = simulation_report(simulate(with_values(scenario, dict(point.values)), settings))
        assert to_plain(point.report) == to_plain(alone)
    assert lowest_class_delay(points[0]) > lowest_class_delay(points[1])
