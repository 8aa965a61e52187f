"""The default solver, compared with CVXPY and checked by its dual gap."""

from dataclasses import replace

import numpy as np
import pytest

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.convex_solver import solve_with_cvxpy
from firedex.planning.drop_rates import solve
from firedex.planning.errors import SolverFailed
from firedex.planning.flow_utility import UtilityPieces
from firedex.planning.price_search import solve_by_prices
from firedex.wire import LinearUtility, LogUtility, PowerUtility, Utility
from firedex_models import UtilityColumns, utility_of
from tests.planning.random_problems import KINDS, random_problem, random_utility

pytestmark = pytest.mark.slow

PROBLEMS = 25
"""Random problems per number of hops."""
MAX_LOSS, MAX_EXCESS, MAX_GAP = 1e-6, 1e-9, 1e-6


def check_solution(solved: Allocation) -> None:
    assert solved.excess <= MAX_EXCESS
    assert 0 <= solved.gap <= MAX_GAP
    assert solved.passing.min() >= 0
    assert solved.passing.max() <= 1


@pytest.mark.parametrize("hops", [1, 2, 3, 5, 8, 12, 20, 35, 60, 100])
def test_default_solver_is_as_good_as_cvxpy(hops: int) -> None:
    random = np.random.default_rng([4, hops])
    for _ in range(PROBLEMS):
        flows = int(random.integers(hops, 40 + 2 * hops))
        problem = random_problem(random, flows=flows, hops=hops)
        default, reference = solve_by_prices(problem), solve_with_cvxpy(problem)
        check_solution(default)
        assert default.utility >= reference.utility * (1 - MAX_LOSS)
        assert reference.excess <= MAX_EXCESS
        assert reference.gap <= MAX_GAP


@pytest.mark.parametrize("classes", [2, 4, 9])
def test_default_solver_is_as_good_as_cvxpy_with_nested_limits(classes: int) -> None:
    random = np.random.default_rng([5, classes])
    for _ in range(PROBLEMS):
        problem = random_problem(random, flows=int(random.integers(2, 60)), hops=3, classes=classes)
        default, reference = solve_by_prices(problem), solve_with_cvxpy(problem)
        check_solution(default)
        assert default.utility >= reference.utility * (1 - MAX_LOSS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [1, 5])
def test_dual_gap_is_small_for_every_kind_of_utility(kind: str, classes: int) -> None:
    random = np.random.default_rng([6, KINDS.index(kind), classes])
    for _ in range(100):
        flows = int(random.integers(1, 80))
        check_solution(
            solve(random_problem(random, flows=flows, hops=4, classes=classes, kinds=[kind]))
        )


def test_flows_limited_by_several_hops_are_solved_by_cvxpy() -> None:
    random = np.random.default_rng(7)
    for _ in range(20):
        problem = random_problem(random, flows=30, hops=4, hops_per_flow=2)
        assert not problem.separable
        solved = solve(problem)
        assert solved.solver == "cvxpy"
        check_solution(solved)


def test_hops_that_cannot_be_full_are_ignored() -> None:
    random = np.random.default_rng(8)
    problem = random_problem(random, flows=30, hops=4, hops_per_flow=2)
    limit = problem.limit.copy()
    limit[1:] = 100.0
    relaxed = replace(problem, limit=limit)
    assert relaxed.separable
    assert solve(relaxed).solver == "kkt"
    assert solve(relaxed).utility >= solve_with_cvxpy(relaxed).utility * (1 - MAX_LOSS)


def test_switches_in_series_equal_the_narrowest_switch() -> None:
    """If the same flows cross two hops, the hop with the higher load determines the result."""
    random = np.random.default_rng(14)
    for _ in range(20):
        single = random_problem(random, flows=30, hops=1, classes=int(random.integers(1, 4)))
        ratio = float(random.uniform(1.0, 2.0))
        series = replace(
            single,
            hop=np.repeat([0, 1], 30),
            flow=np.tile(single.flow, 2),
            load=np.concatenate([single.load / ratio, single.load]),
            limit=np.repeat(single.limit, 2, axis=0),
        )
        assert series.separable
        solved = solve(series)
        assert solved.solver == "kkt"
        check_solution(solved)
        assert solved.utility == pytest.approx(solve(single).utility, rel=1e-9)


def one_hop(
    utilities: list[Utility], load: list[float], limit: float = 0.9, priority: int = 0
) -> AllocationProblem:
    flows = len(load)
    pieces = UtilityPieces.from_utilities(
        UtilityColumns(utilities), np.ones(flows), np.arange(flows), flows
    )
    return AllocationProblem(
        pieces=pieces,
        priority=np.full(flows, priority),
        hop=np.zeros(flows, dtype=np.int64),
        flow=np.arange(flows),
        load=np.array(load),
        limit=np.array([[limit]]),
    )


def test_two_flows_agree_with_manual_solution() -> None:
    # The derivative of α log(1 + x) is α/(1 + x). With weights 2 and 1, loads of 1 and limit 1,
    # 2/(1 + x) = 1/(1 + y) and x + y = 1 give x = 1, y = 0 at the boundary.
    solved = solve(one_hop([LogUtility(weight=2.0), LogUtility(weight=1.0)], [1.0, 1.0], limit=1.0))
    assert solved.passing == pytest.approx([1.0, 0.0], abs=1e-9)
    # With weights 3 and 2, 3(1 + y) = 2(1 + x) and x + y = 1 give x = 0.8, y = 0.2.
    solved = solve(one_hop([LogUtility(weight=3.0), LogUtility(weight=2.0)], [1.0, 1.0], limit=1.0))
    assert solved.passing == pytest.approx([0.8, 0.2], abs=1e-9)
    assert solved.price[0, 0] == pytest.approx(3 / 1.8)


def test_flows_with_equal_linear_utility_share_equally() -> None:
    solved = solve(one_hop([LinearUtility(weight=1.0)] * 4, [1.0] * 4, limit=3.0))
    assert solved.passing == pytest.approx([0.75] * 4)
    check_solution(solved)


def test_flow_without_utility_gets_the_remaining_capacity() -> None:
    without_utility, useful = LogUtility(weight=0.0), LogUtility(weight=1.0)
    solved = solve(one_hop([useful, without_utility], [0.6, 0.6], limit=0.9))
    assert solved.passing == pytest.approx([1.0, 0.5])
    check_solution(solved)


def test_limit_of_0_drops_all_flows() -> None:
    for utility in (LogUtility(weight=1.0), PowerUtility(weight=1.0, exponent=0.3)):
        solved = solve(one_hop([utility] * 3, [1.0] * 3, limit=0.0))
        assert solved.passing.tolist() == [0.0] * 3
        assert solved.gap == 0


def test_very_high_loads_are_reduced_to_the_limit() -> None:
    utilities: list[Utility] = [LogUtility(weight=1.0), PowerUtility(weight=1.0, exponent=0.3)]
    solved = solve(one_hop(utilities, [1e9, 1e9]))
    check_solution(solved)
    assert solved.problem.load_at(solved.passing)[0, 0] == pytest.approx(0.9)


@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e15])
@pytest.mark.parametrize("load", [1e-9, 1e9])
def test_extreme_weights_and_loads_are_solved(weight: float, load: float) -> None:
    utilities: list[Utility] = [LogUtility(weight=weight), LogUtility(weight=1.0)]
    solved = solve(one_hop(utilities, [load, 1.0], limit=0.4))
    check_solution(solved)


def test_flow_with_10000_subscriptions_is_solved() -> None:
    random = np.random.default_rng(9)
    utilities = [random_utility(random) for _ in range(10_000)]
    pieces = UtilityPieces.from_utilities(
        UtilityColumns(utilities), np.ones(10_000), np.zeros(10_000, dtype=np.int64), 1
    )
    problem = AllocationProblem(
        pieces=pieces,
        priority=np.zeros(1, dtype=np.int64),
        hop=np.zeros(1, dtype=np.int64),
        flow=np.zeros(1, dtype=np.int64),
        load=np.array([3.0]),
        limit=np.array([[0.9]]),
    )
    solved = solve(problem)
    check_solution(solved)
    assert solved.passing == pytest.approx([0.3])


def test_sum_of_pieces_equals_utility_functions() -> None:
    random = np.random.default_rng(10)
    utilities = [random_utility(random) for _ in range(300)]
    ceiling = random.uniform(0, 1, 300)
    flow = random.integers(0, 20, 300)
    pieces = UtilityPieces.from_utilities(UtilityColumns(utilities), ceiling, flow, 20)
    for x in (0.0, 0.1, 0.5, 0.77, 1.0):
        expected = np.zeros(20)
        for row, utility in enumerate(utilities):
            expected[flow[row]] += utility_of(utility, float(ceiling[row]) * x)
        assert pieces.utilities_at(np.full(20, x)) == pytest.approx(expected, rel=1e-12)


def test_dual_gap_reveals_a_bad_solution() -> None:
    problem = random_problem(np.random.default_rng(11), flows=30, hops=1, kinds=["log"])
    good = solve(problem)
    equal = np.full(30, 0.9 / problem.load_at(np.ones(30))[0, 0])
    bad = replace(good, passing=np.minimum(equal, 1.0))
    assert bad.gap > 1e-3
    assert bad.gap >= (good.utility - bad.utility) / bad.utility * (1 - 1e-9)


def test_best_x_of_power_and_linear_pieces_is_found() -> None:
    # The root of the power piece alone is below the smallest float; that of the sum is not.
    flow: list[Utility] = [
        LogUtility(weight=3.1),
        PowerUtility(weight=0.19, exponent=0.998),
        LinearUtility(weight=0.9),
    ]
    pieces = UtilityPieces.from_utilities(
        UtilityColumns(flow), np.ones(3), np.zeros(3, dtype=np.int64), 1
    )
    price = np.array([4.09])
    best = pieces.best_x(price)
    grid = np.linspace(1e-6, 1, 100_001)
    values = [float(pieces.utilities_at(np.array([x]))[0] - price[0] * x) for x in grid]
    assert best[0] == pytest.approx(grid[int(np.argmax(values))], abs=2e-5)
    assert pieces.gain_bound(price, best)[0] < 1e-9


def test_gain_bound_holds_at_any_x() -> None:
    random = np.random.default_rng(13)
    utilities = [random_utility(random) for _ in range(400)]
    pieces = UtilityPieces.from_utilities(
        UtilityColumns(utilities), np.ones(400), np.repeat(np.arange(100), 4), 100
    )
    price = random.exponential(3.0, 100)
    best = pieces.best_x(price)
    best_value = pieces.utilities_at(best) - price * best
    for x in random.uniform(0, 1, (20, 100)):
        value = pieces.utilities_at(x) - price * x
        assert (value <= best_value + 1e-9).all(), "best_x is not the maximum"
        assert (value + pieces.gain_bound(price, x) >= best_value - 1e-9).all()


def test_failed_solver_raises_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(np.random.default_rng(12), flows=5, hops=1, kinds=["log"])
    monkeypatch.setattr("cvxpy.Problem.status", "unbounded")
    with pytest.raises(SolverFailed, match=r"planning.solver: .*status is 'unbounded'"):
        solve_with_cvxpy(problem)
