"""Grids of parameters: what they may be, and what is wrong with one; without Spark."""

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_deliveries import four_classes

from firedex.wire import to_plain
from firedex_models.simulation import SimulationSettings, report_of, simulate
from firedex_spark import simulate_sweep
from firedex_spark.errors import BadGrid
from firedex_spark.simulate_sweep import SweepPoint, grid_points, read_grid
from firedex_spark.sweep_report import best_of, lines_over, write_sweep

SPEED = "network.switches.core.bandwidth_bits_per_second"


def written(folder: Path, text: str) -> Path:
    file = folder / "grid.yaml"
    file.write_text(text)
    return file


def test_numbers_in_powers_of_ten_are_numbers(tmp_path: Path) -> None:
    grid = read_grid(written(tmp_path, f"{SPEED}: [4e6, 5E+6, 4.5e6, .5e-3, 100]\nname: ['4e6']\n"))
    assert grid == {SPEED: [4e6, 5e6, 4.5e6, 0.0005, 100], "name": ["4e6"]}


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_a_grid_that_cannot_be_used_names_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadGrid, match=said):
        read_grid(written(tmp_path, text))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadGrid, match="not UTF-8"):
        read_grid(tmp_path / "grid.yaml")


def test_points_are_counted_before_they_are_made() -> None:
    assert grid_points({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    with pytest.raises(BadGrid, match="1000000000000 points"):
        grid_points({name: list(range(1000)) for name in "abcd"})
    with pytest.raises(BadGrid, match="the grid is empty"):
        grid_points({})
    with pytest.raises(BadGrid, match="a list of values is wanted"):
        grid_points({"network.broker.id": "x"})


def test_a_point_that_no_scenario_may_have_is_told_and_the_others_stay() -> None:
    points = grid_points({SPEED: [150_000.0, -1.0, "fast"]})
    scenarios, errors = simulate_sweep._scenarios(four_classes(), points)
    assert list(scenarios) == [0]
    assert list(errors) == [1, 2]
    assert "bandwidth_bits_per_second" in errors[1]
    with pytest.raises(BadGrid, match=r"no point can be simulated.*there is no 'cellar'"):
        simulate_sweep._scenarios(four_classes(), [{"network.switches.cellar.error_rate": 0.1}])


def test_what_a_simulation_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(simulate_sweep, "_replication", fails)
    row = simulate_sweep._simulated(four_classes(), 3, 1, 10, 0)
    wanted = {"point": 3, "number": 1, "tally": None, "error": "ZeroDivisionError: by nothing"}
    assert row == wanted
    later = row | {"number": 2, "error": "another"}
    told = {"point": 3, "report": None, "error": "ZeroDivisionError: by nothing"}
    assert simulate_sweep._reported(four_classes(), [later, row]) == told


def test_a_point_is_what_simulate_says_of_it_in_whatever_order_replications_end() -> None:
    scenario = four_classes()
    rows = [simulate_sweep._simulated(scenario, 5, number, 500, 3) for number in (2, 0, 1)]
    found = simulate_sweep._reported(scenario, rows)
    assert (found["point"], found["error"]) == (5, None)
    settings = SimulationSettings(replications=3, publications=500, seed=3)
    alone = report_of(simulate(scenario, settings))
    assert to_plain(simulate_sweep._unpacked(found["report"])) == to_plain(alone)


def test_what_cannot_be_reported_is_told() -> None:
    row = {"point": 3, "number": 0, "tally": b"nonsense", "error": None}
    found = simulate_sweep._reported(four_classes(), [row])
    assert found["report"] is None
    assert found["error"].startswith("error: ")


def swept() -> list[SweepPoint]:
    report = report_of(simulate(four_classes(), SimulationSettings(publications=200)))
    sooner = replace(report.classes[0], delay_mean_seconds=1e-6)
    quick = replace(report, classes=(sooner, *report.classes[1:]))
    worse = replace(report, achieved_utility_rate=report.achieved_utility_rate / 2)
    return [
        SweepPoint(values={"a.speed": 20.0, "b.rate": 1}, report=report),
        SweepPoint(values={"a.speed": 10.0, "b.rate": 1}, report=quick),
        SweepPoint(values={"a.speed": 20.0, "b.rate": 2}, report=worse),
        SweepPoint(values={"a.speed": 10.0, "b.rate": 2}, report=None, error="it cannot be"),
    ]


def test_of_points_alike_in_utility_the_sooner_is_best_and_it_is_said_how_many_there_are() -> None:
    best = best_of(swept())
    assert best["best_values"] == {"a.speed": 10.0, "b.rate": 1}
    assert best["points_as_good"] == 2
    assert best_of([swept()[-1]])["best_values"] is None


def test_a_line_joins_points_that_differ_in_its_value_alone(tmp_path: Path) -> None:
    found = {label: [value for value, _ in line] for label, line in lines_over(swept(), "a.speed")}
    assert found == {"rate 1": [10.0, 20.0], "rate 2": [20.0]}
    write_sweep(swept(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img") == 2
    assert "it cannot be" in page
