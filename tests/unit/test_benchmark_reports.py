"""What a benchmark reports; none is run here."""

import json
from dataclasses import replace
from typing import Any

import pytest

from firedex.benchmarks import BenchmarkResult, benchmark_names
from firedex.benchmarks.city import city
from firedex.benchmarks.result import Comparison, machine
from firedex.benchmarks.timing import seconds_by_round
from firedex_models import predict


def comparison(left: float = 0.5, right: float = 2.0, at_most: float = 1.0) -> Comparison:
    return Comparison(
        what="one thing against another",
        left="one thing",
        left_value=left,
        right="another",
        right_value=right,
        unit="s",
        at_most=at_most,
    )


def result(**changes: Any) -> BenchmarkResult:
    return BenchmarkResult(
        name="trial", comparisons=(comparison(**changes),), machine={"cores": "2"}
    )


@pytest.mark.parametrize(
    ("left", "right", "at_most", "kept"),
    [(0.5, 2.0, 1.0, True), (2.0, 2.0, 1.0, True), (2.1, 2.0, 1.0, False), (1.0, 2.0, 0.4, False)],
)
def test_a_bar_is_kept_up_to_and_including_itself(
    left: float, right: float, at_most: float, kept: bool
) -> None:
    made = comparison(left, right, at_most)
    assert made.ratio == left / right
    assert made.kept is kept


def test_a_result_for_people_has_both_sides_the_ratio_and_the_verdict() -> None:
    assert result().as_text() == (
        "trial, on cores 2\n"
        "  one thing against another\n"
        "    one thing: 0.5 s\n"
        "    another: 2 s\n"
        "    ratio 0.25, bar at most 1: kept"
    )
    assert result(left=3.0).as_text().endswith("ratio 1.5, bar at most 1: NOT KEPT")


def test_of_several_rounds_the_median_counts_and_the_range_is_said() -> None:
    made = replace(comparison(at_most=0.01), rounds=(0.005, 0.02, 0.004))
    assert made.ratio == 0.005
    assert made.kept
    assert made.as_text().endswith(
        "ratio 1/200 (1/250 to 1/50 in 3 rounds), bar at most 1/100: kept"
    )


def test_rounds_measure_everything_in_turns() -> None:
    done: list[str] = []
    rounds = list(seconds_by_round(2, lambda: done.append("one"), lambda: done.append("other")))
    assert done == ["one", "other"] * 2
    assert [len(seconds) for seconds in rounds] == [2, 2]


def test_a_result_for_machines_is_json_with_ratio_and_verdict() -> None:
    plain = json.loads(json.dumps(result().as_plain()))
    assert (plain["name"], plain["machine"]) == ("trial", {"cores": "2"})
    assert plain["comparisons"][0]["ratio"] == 0.25
    assert plain["comparisons"][0]["kept"] is True
    assert plain["comparisons"][0]["left_value"] == 0.5


def test_a_result_says_on_which_machine_it_came_about() -> None:
    assert set(machine()) == {"processor", "cores", "system", "python", "numpy"}
    assert BenchmarkResult(name="trial", comparisons=()).machine == machine()


def test_there_is_a_benchmark_of_predictions() -> None:
    assert "predict" in benchmark_names()


def test_the_benchmarks_city_is_as_loaded_as_it_says() -> None:
    scenario = city(500)
    table = predict(scenario)
    subscriptions = [s for one in scenario.subscribers for s in one.subscriptions]
    wildcards = [s for s in subscriptions if "+" in s.filter or "#" in s.filter]
    loads = {switch.id: switch.utilization for switch in table.switches()}
    assert len(subscriptions) == len(table.success_rate) == len(scenario.assignment or ())
    assert 300 <= len(subscriptions) <= 500  # a subscriber's doubles are left out
    assert wildcards
    assert 0.8 < loads["out"] <= 0.9
    assert (table.delay_p95_seconds > table.delay_mean_seconds).all()


def test_the_benchmarks_city_is_the_same_every_time() -> None:
    assert city(100) == city(100)
    assert city(100) != city(100, seed=2)
