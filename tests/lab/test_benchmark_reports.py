"""Reports of benchmarks; no benchmark is run here."""

import json
from dataclasses import replace
from typing import Any

import pytest

from firedex.lab.benchmarks import BenchmarkResult, benchmark_names
from firedex.lab.benchmarks.result import Comparison, machine, seconds_by_round
from firedex.lab.benchmarks.scale import city
from firedex_models import predict


def comparison(left: float = 0.5, right: float = 2.0, at_most: float = 1.0) -> Comparison:
    return Comparison(
        what="first side compared with second side",
        left="first side",
        left_value=left,
        right="second side",
        right_value=right,
        unit="s",
        at_most=at_most,
    )


def result(**changes: Any) -> BenchmarkResult:
    return BenchmarkResult(
        name="trial", comparisons=(comparison(**changes),), machine={"cores": "2"}
    )


@pytest.mark.parametrize(
    ("left", "right", "at_most", "within_limit"),
    [(0.5, 2.0, 1.0, True), (2.0, 2.0, 1.0, True), (2.1, 2.0, 1.0, False), (1.0, 2.0, 0.4, False)],
)
def test_limit_is_met_if_ratio_is_not_larger(
    left: float, right: float, at_most: float, within_limit: bool
) -> None:
    measured = comparison(left, right, at_most)
    assert measured.ratio == left / right
    assert measured.within_limit is within_limit


def test_text_of_result_contains_values_ratio_and_verdict() -> None:
    assert result().as_text() == (
        "trial, on cores 2\n"
        "  first side compared with second side\n"
        "    first side: 0.5 s\n"
        "    second side: 2 s\n"
        "    ratio 0.25, limit 1: met"
    )
    assert result(left=3.0).as_text().endswith("ratio 1.5, limit 1: EXCEEDED")


def test_ratio_of_several_rounds_is_their_median() -> None:
    measured = replace(comparison(at_most=0.01), rounds=(0.005, 0.02, 0.004))
    assert measured.ratio == 0.005
    assert measured.within_limit
    assert measured.as_text().endswith("ratio 1/200 (1/250 to 1/50 in 3 rounds), limit 1/100: met")


def test_rounds_measure_all_functions_in_turns() -> None:
    done: list[str] = []
    rounds = list(seconds_by_round(2, lambda: done.append("one"), lambda: done.append("other")))
    assert done == ["one", "other"] * 2
    assert [len(seconds) for seconds in rounds] == [2, 2]


def test_json_of_result_contains_ratio_and_verdict() -> None:
    plain = json.loads(json.dumps(result().as_plain()))
    assert (plain["name"], plain["machine"]) == ("trial", {"cores": "2"})
    assert plain["comparisons"][0]["ratio"] == 0.25
    assert plain["comparisons"][0]["kept"] is True
    assert plain["comparisons"][0]["left_value"] == 0.5


def test_result_contains_the_machine() -> None:
    assert set(machine()) == {"processor", "cores", "system", "python", "numpy"}
    assert BenchmarkResult(name="trial", comparisons=()).machine == machine()


def test_benchmark_of_predictions_exists() -> None:
    assert "predict" in benchmark_names()


def test_city_scenario_has_the_intended_load() -> None:
    scenario = city(500)
    table = predict(scenario)
    subscriptions = [s for subscriber in scenario.subscribers for s in subscriber.subscriptions]
    wildcards = [s for s in subscriptions if "+" in s.filter or "#" in s.filter]
    loads = {switch.id: switch.utilization for switch in table.switches()}
    assert len(subscriptions) == len(table.success_rate) == len(scenario.assignment or ())
    assert 300 <= len(subscriptions) <= 500  # duplicate filters of a subscriber are removed
    assert wildcards
    assert 0.8 < loads["out"] <= 0.9
    assert (table.delay_p95_seconds > table.delay_mean_seconds).all()


def test_city_scenario_is_deterministic() -> None:
    assert city(100) == city(100)
    assert city(100) != city(100, seed=2)
