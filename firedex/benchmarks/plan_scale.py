"""How long a plan takes, how that grows, and what the default solver is against a general one.

Making the scenarios is not counted.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np

from firedex.benchmarks.city import city
from firedex.benchmarks.result import BenchmarkResult, Comparison, Report
from firedex.benchmarks.timing import best_seconds
from firedex.planning import plan_scenario
from firedex.planning.allocation import AllocationProblem
from firedex.planning.convex_solver import solve_with_cvxpy
from firedex.planning.price_search import solve_by_prices
from firedex.planning.utility_pieces import UtilityPieces
from firedex.wire import LogUtility, Scenario
from firedex_models import UtilityColumns

__all__ = ["plan_scale"]

FLOWS = 10_000
SOLVER_REPEATS = 5
CVXPY_REPEATS = 2
PLAN_REPEATS = 3
GIGABYTE = 1e9
MEMORY_PROGRAM = """
import resource
from dataclasses import replace
from firedex.benchmarks.city import city
from firedex.planning import plan_scenario
scenario = replace(city(100_000), assignment=None)
plan_scenario(scenario).assignment
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def plan_scale(report: Report) -> BenchmarkResult:
    """The solver against CVXPY; a city's plan against two seconds, a gigabyte, a straight line."""
    plan_scenario(_fresh(1_000))
    small_count, _, changed = _plans(10_000, report)
    middle_count, middle, _ = _plans(100_000, report)
    report("plan: 100 000 subscriptions, how much memory")
    memory = float(
        subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True
        ).stdout
    )
    large_count, large, _ = _plans(1_000_000, report)
    growth = large_count / middle_count
    return BenchmarkResult(
        name="plan",
        comparisons=(
            _solvers(report),
            Comparison(
                what="a whole plan (rank, split, assign, drop, predict) on one core",
                left=f"{middle_count} subscriptions",
                left_value=middle,
                right="the bar",
                right_value=2.0,
                unit="s",
                at_most=1.0,
            ),
            Comparison(
                what="memory of a process that makes such a scenario and plans it",
                left=f"{middle_count} subscriptions",
                left_value=memory / GIGABYTE,
                right="the bar",
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
                right="the bar",
                right_value=0.1,
                unit="s",
                at_most=1.0,
            ),
        ),
    )


def _fresh(subscriptions: int) -> Scenario:
    return replace(city(subscriptions), assignment=None)


def _plans(subscriptions: int, report: Report) -> tuple[int, float, float]:
    """How many there are, the time of a plan, and (for few) of another after one change."""
    report(f"plan: {subscriptions} subscriptions, making them (not counted)")
    scenario = _fresh(subscriptions)
    report(f"plan: {subscriptions} subscriptions, best of {PLAN_REPEATS}")
    count = sum(len(subscriber.subscriptions) for subscriber in scenario.subscribers)
    first = best_seconds(lambda: plan_scenario(scenario), PLAN_REPEATS)
    again = 0.0
    if subscriptions <= FLOWS:
        previous = plan_scenario(scenario).assignment
        changed = _one_changed(scenario)
        again = best_seconds(lambda: plan_scenario(changed, previous=previous), PLAN_REPEATS)
    return count, first, again


def _one_changed(scenario: Scenario) -> Scenario:
    """The same with one subscription worth a hundred times as much."""
    someone = scenario.subscribers[len(scenario.subscribers) // 2]
    dearer = replace(someone.subscriptions[-1], utility=LogUtility(weight=2_000.0))
    changed = replace(someone, subscriptions=(*someone.subscriptions[:-1], dearer))
    return replace(
        scenario,
        subscribers=tuple(changed if s is someone else s for s in scenario.subscribers),
    )


def _solvers(report: Report) -> Comparison:
    problem = _problem(np.random.default_rng(1))
    report(f"plan: {FLOWS} flows by the default solver")
    solve_by_prices(problem)
    mine = best_seconds(lambda: solve_by_prices(problem), SOLVER_REPEATS)
    report(f"plan: {FLOWS} flows by CVXPY and Clarabel")
    theirs = best_seconds(lambda: solve_with_cvxpy(problem), CVXPY_REPEATS)
    ours, reference = solve_by_prices(problem), solve_with_cvxpy(problem)
    lost = (reference.worth - ours.worth) / reference.worth
    return Comparison(
        what=f"drop rates of {FLOWS} flows with 1-4 subscriptions each, twice overloaded; "
        f"utility lost against CVXPY {lost:.0e}, dual gap {ours.gap:.0e}",
        left="the default solver",
        left_value=mine,
        right="CVXPY with Clarabel",
        right_value=theirs,
        unit="s",
        at_most=1 / 150,
    )


def _problem(random: np.random.Generator) -> AllocationProblem:
    """Logarithmic utilities, as in the paper, on one switch."""
    members = random.integers(1, 5, FLOWS)
    flow_of = np.repeat(np.arange(FLOWS), members)
    weights = random.exponential(0.7, len(flow_of)) + 0.01
    load = random.exponential(1.0, FLOWS) * members
    pieces = UtilityPieces.of(
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
