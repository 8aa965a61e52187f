"""The report of a sweep."""

from dataclasses import replace
from pathlib import Path

from firedex_models.simulation import SimulationSettings, simulate, simulation_report
from firedex_spark.sweep.job import SweepPoint
from firedex_spark.sweep.report import best_point, points_by_line, write_sweep
from tests.spark.simulated_deliveries import four_classes


def example_points() -> list[SweepPoint]:
    report = simulation_report(simulate(four_classes(), SimulationSettings(publications=200)))
    sooner = replace(report.classes[0], delay_mean_seconds=1e-6)
    quick = replace(report, classes=(sooner, *report.classes[1:]))
    worse = replace(report, achieved_utility_rate=report.achieved_utility_rate / 2)
    return [
        SweepPoint(values={"a.speed": 20.0, "b.rate": 1}, report=report),
        SweepPoint(values={"a.speed": 10.0, "b.rate": 1}, report=quick),
        SweepPoint(values={"a.speed": 20.0, "b.rate": 2}, report=worse),
        SweepPoint(values={"a.speed": 10.0, "b.rate": 2}, report=None, error="it cannot be"),
    ]


def test_best_of_equal_points_has_the_lowest_delay() -> None:
    best = best_point(example_points())
    assert best["best_values"] == {"a.speed": 10.0, "b.rate": 1}
    assert best["points_with_same_utility"] == 2
    assert best_point([example_points()[-1]])["best_values"] is None


def test_line_joins_points_that_differ_in_one_value(tmp_path: Path) -> None:
    found = {
        label: [value for value, _ in line]
        for label, line in points_by_line(example_points(), "a.speed")
    }
    assert found == {"rate 1": [10.0, 20.0], "rate 2": [20.0]}
    write_sweep(example_points(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img") == 2
    assert "it cannot be" in page
