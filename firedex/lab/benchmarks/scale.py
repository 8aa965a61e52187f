"""How the time of predictions and plans grows with the number of subscriptions.

The workload is a city of sensors and subscribers: a fifth of the subscriptions have wildcards, and
there is one topic for every 25 subscriptions. Reading the scenario is not timed.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import log

import numpy as np

from firedex.lab.benchmarks.result import BenchmarkResult, Comparison, Report, best_seconds
from firedex.planning import plan_scenario
from firedex.planning.allocation import AllocationProblem
from firedex.planning.convex_solver import solve_with_cvxpy
from firedex.planning.flow_utility import UtilityPieces
from firedex.planning.price_search import solve_by_prices
from firedex.wire import LogUtility, Scenario, from_plain
from firedex_models import UtilityColumns, predict

__all__ = ["city", "plan_scale", "predict_scale"]

SENSORS = ("smoke", "heat", "vitals", "doors", "water")
FLOORS = 5
SUBSCRIPTIONS_PER_SUBSCRIBER = 20
CLASSES = 8


def city(subscriptions: int, seed: int = 1) -> Scenario:
    """Return an overloaded scenario with drop rates and about ``subscriptions`` subscriptions.

    Duplicate filters of a subscriber are removed, so there are a few less.
    """
    random = np.random.default_rng(seed)
    buildings = max(subscriptions // 25 // (FLOORS * len(SENSORS)), 1)
    topics = [
        f"b{building}/f{floor}/{sensor}"
        for building in range(buildings)
        for floor in range(FLOORS)
        for sensor in SENSORS
    ]
    subscribers, assignment = [], []
    rate = 0.0
    for number in range(subscriptions // SUBSCRIPTIONS_PER_SUBSCRIBER):
        filters = dict.fromkeys(_filters(random, buildings))
        name = f"s{number}"
        subscribers.append(
            {
                "id": name,
                "switch": "out",
                "subscriptions": [
                    {"filter": f, "utility": {"kind": "log", "weight": 1.0 + row}}
                    for row, f in enumerate(filters)
                ],
            }
        )
        for row, f in enumerate(filters):
            priority = row * CLASSES // len(filters)
            matched = FLOORS if "+" in f else len(SENSORS) if "#" in f else 1
            rate += matched * (1 - 0.08 * priority)
            assignment.append(
                {
                    "subscriber": name,
                    "filter": f,
                    "flow": priority,
                    "priority": priority,
                    "drop_rate": 0.08 * priority,
                }
            )
    return from_plain(
        Scenario,
        {
            "name": f"city of {subscriptions}",
            "topics": [{"name": name, "event_bytes": 51} for name in topics],
            "publishers": [
                {
                    "id": "sensors",
                    "switch": "in",
                    "publications": [{"topic": name, "rate_per_second": 1.0} for name in topics],
                }
            ],
            "subscribers": subscribers,
            "network": {
                "switches": [
                    {"id": "in", "managed": False, "bandwidth_bits_per_second": 1e12},
                    {"id": "out", "bandwidth_bits_per_second": rate * 800 / 0.9},
                ],
                "broker": {"id": "b"},
            },
            "assignment": assignment,
        },
    )


def _filters(random: np.random.Generator, buildings: int) -> Iterator[str]:
    for row in range(SUBSCRIPTIONS_PER_SUBSCRIBER):
        building, floor = random.integers(buildings), random.integers(FLOORS)
        sensor = SENSORS[random.integers(len(SENSORS))]
        if row % 10 == 0:
            yield f"b{building}/+/{sensor}"
        elif row % 10 == 5:
            yield f"b{building}/f{floor}/#"
        else:
            yield f"b{building}/f{floor}/{sensor}"


FLOWS = 10_000
SOLVER_REPEATS = 5
CVXPY_REPEATS = 2
PLAN_REPEATS = 3
GIGABYTE = 1e9
MEMORY_PROGRAM = """
import resource
from dataclasses import replace
from firedex.lab.benchmarks.scale import city
from firedex.planning import plan_scenario
scenario = replace(city(100_000), assignment=None)
plan_scenario(scenario).assignment
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def plan_scale(report: Report) -> BenchmarkResult:
    """Compare the solver with CVXPY, and the plan of a city with limits of time and memory."""
    plan_scenario(_city_without_assignment(1_000))
    small_count, _, changed = _time_plans(10_000, report)
    middle_count, middle, _ = _time_plans(100_000, report)
    report("plan: 100 000 subscriptions, measuring the memory")
    memory = float(
        subprocess.run(  # a program of this project
            [sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True
        ).stdout
    )
    large_count, large, _ = _time_plans(1_000_000, report)
    growth = large_count / middle_count
    return BenchmarkResult(
        name="plan",
        comparisons=(
            _compare_solvers(report),
            Comparison(
                what="a whole plan (rank, split, assign, drop, predict) on one core",
                left=f"{middle_count} subscriptions",
                left_value=middle,
                right="limit",
                right_value=2.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="memory of a process that creates such a scenario and plans it",
                left=f"{middle_count} subscriptions",
                left_value=memory / GIGABYTE,
                right="limit",
                right_value=1.0,
                unit="GB",
                at_most=1.0,
            ),
            Comparison(
                what="growth from 100 000 to 1 000 000 subscriptions: near-linear, "
                "at most twice as long for each",
                left=f"{large_count} subscriptions",
                left_value=large,
                right=f"{middle_count} subscriptions, times {growth:.1f}",
                right_value=middle * growth,
                unit="s",
                at_most=2.0,
            ),
            Comparison(
                what="planning again after one subscription has changed",
                left=f"{small_count} subscriptions",
                left_value=changed,
                right="limit",
                right_value=0.1,
                unit="s",
                at_most=1.0,
            ),
        ),
    )


def _city_without_assignment(subscriptions: int) -> Scenario:
    return replace(city(subscriptions), assignment=None)


def _time_plans(subscriptions: int, report: Report) -> tuple[int, float, float]:
    """Return the number of subscriptions and the times of a plan and of one after a change."""
    report(f"plan: {subscriptions} subscriptions, creating them (not timed)")
    scenario = _city_without_assignment(subscriptions)
    report(f"plan: {subscriptions} subscriptions, best of {PLAN_REPEATS}")
    count = sum(len(subscriber.subscriptions) for subscriber in scenario.subscribers)
    first = best_seconds(lambda: plan_scenario(scenario), PLAN_REPEATS)
    again = 0.0
    if subscriptions <= FLOWS:
        previous = plan_scenario(scenario).assignment
        changed = _change_one_utility(scenario)
        again = best_seconds(lambda: plan_scenario(changed, previous=previous), PLAN_REPEATS)
    return count, first, again


def _change_one_utility(scenario: Scenario) -> Scenario:
    """Return the scenario with a hundred times the utility weight of one subscription."""
    subscriber = scenario.subscribers[len(scenario.subscribers) // 2]
    heavier = replace(subscriber.subscriptions[-1], utility=LogUtility(weight=2_000.0))
    changed = replace(subscriber, subscriptions=(*subscriber.subscriptions[:-1], heavier))
    return replace(
        scenario,
        subscribers=tuple(changed if s is subscriber else s for s in scenario.subscribers),
    )


def _compare_solvers(report: Report) -> Comparison:
    problem = _random_problem(np.random.default_rng(1))
    report(f"plan: {FLOWS} flows by the default solver")
    solve_by_prices(problem)
    default_seconds = best_seconds(lambda: solve_by_prices(problem), SOLVER_REPEATS)
    report(f"plan: {FLOWS} flows by CVXPY and Clarabel")
    cvxpy_seconds = best_seconds(lambda: solve_with_cvxpy(problem), CVXPY_REPEATS)
    default, reference = solve_by_prices(problem), solve_with_cvxpy(problem)
    lost = (reference.utility - default.utility) / reference.utility
    return Comparison(
        what=f"drop rates of {FLOWS} flows with 1-4 subscriptions each, twice overloaded; "
        f"utility lost against CVXPY {lost:.0e}, dual gap {default.gap:.0e}",
        left="the default solver",
        left_value=default_seconds,
        right="CVXPY with Clarabel",
        right_value=cvxpy_seconds,
        unit="s",
        at_most=1 / 150,
    )


def _random_problem(random: np.random.Generator) -> AllocationProblem:
    """Return a problem with logarithmic utilities (as in the paper) on one switch."""
    members = random.integers(1, 5, FLOWS)
    flow_of = np.repeat(np.arange(FLOWS), members)
    weights = random.exponential(0.7, len(flow_of)) + 0.01
    load = random.exponential(1.0, FLOWS) * members
    pieces = UtilityPieces.from_utilities(
        UtilityColumns([LogUtility(weight=weight) for weight in weights.tolist()]),
        np.ones(len(flow_of)),
        flow_of,
        FLOWS,
    )
    return AllocationProblem(
        pieces=pieces,
        priority=np.zeros(FLOWS, dtype=np.int64),
        hop=np.zeros(FLOWS, dtype=np.int64),
        flow=np.arange(FLOWS),
        load=load * (1.8 / load.sum()),
        limit=np.array([[0.9]]),
    )


REPEATS = 3


def _predict_with_percentiles(scenario: Scenario) -> None:
    table = predict(scenario)
    _ = (table.delay_p50_seconds, table.delay_p95_seconds, table.delay_p99_seconds)


def _best_seconds(subscriptions: int, report: Report) -> tuple[int, float]:
    report(f"predict: {subscriptions} subscriptions, creating them (not timed)")
    scenario = city(subscriptions)
    report(f"predict: {subscriptions} subscriptions, best of {REPEATS}")
    return len(scenario.assignment or ()), best_seconds(
        lambda: _predict_with_percentiles(scenario), REPEATS
    )


def predict_scale(report: Report) -> BenchmarkResult:
    """Compare the time for 100 000 subscriptions with a second, and its growth with N log N."""
    predict(city(1_000))
    small_count, small = _best_seconds(10_000, report)
    middle_count, middle = _best_seconds(100_000, report)
    large_count, large = _best_seconds(1_000_000, report)
    growth = large_count * log(large_count) / (small_count * log(small_count))
    return BenchmarkResult(
        name="predict",
        comparisons=(
            Comparison(
                what="predicting 100 000 subscriptions on one core, wildcards included",
                left=f"{middle_count} subscriptions",
                left_value=middle,
                right="limit",
                right_value=1.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="growth from 10 000 to 1 000 000 subscriptions",
                left=f"{large_count} subscriptions",
                left_value=large,
                right=f"{small_count} subscriptions, times N log N ({growth:.0f})",
                right_value=small * growth,
                unit="s",
                at_most=1.0,
            ),
        ),
    )
