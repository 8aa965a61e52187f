"""The default solver beside CVXPY with Clarabel, and beside its own certificate."""

from dataclasses import replace

import numpy as np
import pytest
from random_problems import KINDS, random_problem, random_utility

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.bandwidth import solve
from firedex.planning.convex_solver import solve_with_cvxpy
from firedex.planning.errors import SolverFailed
from firedex.planning.price_search import solve_by_prices
from firedex.planning.utility_pieces import UtilityPieces
from firedex.wire import LinearUtility, LogUtility, PowerUtility, Utility
from firedex_models import UtilityColumns, utility_of

PROBLEMS = 25
"""For each of ten sizes."""
LOST, OVER, GAP = 1e-6, 1e-9, 1e-6


def check(solved: Allocation) -> None:
    assert solved.excess <= OVER
    assert 0 <= solved.gap <= GAP
    assert solved.passing.min() >= 0
    assert solved.passing.max() <= 1


@pytest.mark.parametrize("hops", [1, 2, 3, 5, 8, 12, 20, 35, 60, 100])
def test_the_default_solver_loses_nothing_against_cvxpy(hops: int) -> None:
    random = np.random.default_rng([4, hops])
    for _ in range(PROBLEMS):
        flows = int(random.integers(hops, 40 + 2 * hops))
        problem = random_problem(random, flows=flows, hops=hops)
        mine, theirs = solve_by_prices(problem), solve_with_cvxpy(problem)
        check(mine)
        assert mine.worth >= theirs.worth * (1 - LOST)
        assert theirs.excess <= OVER
        assert theirs.gap <= GAP


@pytest.mark.parametrize("classes", [2, 4, 9])
def test_nested_limits_lose_nothing_against_cvxpy_either(classes: int) -> None:
    random = np.random.default_rng([5, classes])
    for _ in range(PROBLEMS):
        problem = random_problem(random, flows=int(random.integers(2, 60)), hops=3, classes=classes)
        mine, theirs = solve_by_prices(problem), solve_with_cvxpy(problem)
        check(mine)
        assert mine.worth >= theirs.worth * (1 - LOST)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [1, 5])
def test_every_kind_of_utility_is_solved_to_its_certificate(kind: str, classes: int) -> None:
    random = np.random.default_rng([6, KINDS.index(kind), classes])
    for _ in range(100):
        flows = int(random.integers(1, 80))
        check(solve(random_problem(random, flows=flows, hops=4, classes=classes, kinds=[kind])))


def test_flows_that_several_hops_limit_go_to_cvxpy() -> None:
    random = np.random.default_rng(7)
    for _ in range(20):
        problem = random_problem(random, flows=30, hops=4, hops_of_a_flow=2)
        assert not problem.separable
        solved = solve(problem)
        assert solved.solver == "cvxpy"
        check(solved)


def test_hops_that_cannot_be_full_do_not_count() -> None:
    random = np.random.default_rng(8)
    problem = random_problem(random, flows=30, hops=4, hops_of_a_flow=2)
    limit = problem.limit.copy()
    limit[1:] = 100.0
    relaxed = replace(problem, limit=limit)
    assert relaxed.separable
    assert solve(relaxed).solver == "kkt"
    assert solve(relaxed).worth >= solve_with_cvxpy(relaxed).worth * (1 - LOST)


def test_switches_in_line_are_as_good_as_the_narrowest() -> None:
    """The same flows on two hops: the one that is filled more decides."""
    random = np.random.default_rng(14)
    for _ in range(20):
        single = random_problem(random, flows=30, hops=1, classes=int(random.integers(1, 4)))
        wider = float(random.uniform(1.0, 2.0))
        line = replace(
            single,
            hop=np.repeat([0, 1], 30),
            flow=np.tile(single.flow, 2),
            load=np.concatenate([single.load / wider, single.load]),
            limit=np.repeat(single.limit, 2, axis=0),
        )
        assert line.separable
        solved = solve(line)
        assert solved.solver == "kkt"
        check(solved)
        assert solved.worth == pytest.approx(solve(single).worth, rel=1e-9)


def one_hop(
    utilities: list[Utility], load: list[float], limit: float = 0.9, priority: int = 0
) -> AllocationProblem:
    flows = len(load)
    pieces = UtilityPieces.of(UtilityColumns(utilities), np.ones(flows), np.arange(flows), flows)
    return AllocationProblem(
        pieces=pieces,
        priority=np.full(flows, priority),
        hop=np.zeros(flows, dtype=np.int64),
        flow=np.arange(flows),
        load=np.array(load),
        limit=np.array([[limit]]),
    )


def test_a_problem_small_enough_to_solve_by_hand() -> None:
    # α log(1 + x): α/(1 + x) = ν·load on both; loads 1 and 1, limit 1: x + y = 1, 1+y = 2(1+x)/… :
    # 2/(1 + x) = 1/(1 + y) and x + y = 1 give x = 1, y = 0 at the boundary.
    solved = solve(one_hop([LogUtility(weight=2.0), LogUtility(weight=1.0)], [1.0, 1.0], limit=1.0))
    assert solved.passing == pytest.approx([1.0, 0.0], abs=1e-9)
    # with weights 3 and 2: 3(1 + y) = 2(1 + x) and x + y = 1 give x = 0.8, y = 0.2
    solved = solve(one_hop([LogUtility(weight=3.0), LogUtility(weight=2.0)], [1.0, 1.0], limit=1.0))
    assert solved.passing == pytest.approx([0.8, 0.2], abs=1e-9)
    assert solved.price[0, 0] == pytest.approx(3 / 1.8)


def test_whoever_is_indifferent_shares_alike() -> None:
    solved = solve(one_hop([LinearUtility(weight=1.0)] * 4, [1.0] * 4, limit=3.0))
    assert solved.passing == pytest.approx([0.75] * 4)
    check(solved)


def test_what_is_worth_nothing_gets_what_is_left_over() -> None:
    worthless, dear = LogUtility(weight=0.0), LogUtility(weight=1.0)
    solved = solve(one_hop([dear, worthless], [0.6, 0.6], limit=0.9))
    assert solved.passing == pytest.approx([1.0, 0.5])
    check(solved)


def test_no_room_is_no_traffic() -> None:
    for utility in (LogUtility(weight=1.0), PowerUtility(weight=1.0, exponent=0.3)):
        solved = solve(one_hop([utility] * 3, [1.0] * 3, limit=0.0))
        assert solved.passing.tolist() == [0.0] * 3
        assert solved.gap == 0


def test_bandwidth_below_the_smallest_packets_worth() -> None:
    utilities: list[Utility] = [LogUtility(weight=1.0), PowerUtility(weight=1.0, exponent=0.3)]
    solved = solve(one_hop(utilities, [1e9, 1e9]))
    check(solved)
    assert solved.problem.used(solved.passing)[0, 0] == pytest.approx(0.9)


@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e15])
@pytest.mark.parametrize("load", [1e-9, 1e9])
def test_extreme_weights_and_loads(weight: float, load: float) -> None:
    utilities: list[Utility] = [LogUtility(weight=weight), LogUtility(weight=1.0)]
    solved = solve(one_hop(utilities, [load, 1.0], limit=0.4))
    check(solved)


def test_ten_thousand_subscriptions_on_one_flow() -> None:
    random = np.random.default_rng(9)
    utilities = [random_utility(random) for _ in range(10_000)]
    pieces = UtilityPieces.of(
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
    check(solved)
    assert solved.passing == pytest.approx([0.3])


def test_pieces_add_up_to_the_utilities() -> None:
    random = np.random.default_rng(10)
    utilities = [random_utility(random) for _ in range(300)]
    ceiling = random.uniform(0, 1, 300)
    flow = random.integers(0, 20, 300)
    pieces = UtilityPieces.of(UtilityColumns(utilities), ceiling, flow, 20)
    for x in (0.0, 0.1, 0.5, 0.77, 1.0):
        by_hand = np.zeros(20)
        for row, utility in enumerate(utilities):
            by_hand[flow[row]] += utility_of(utility, float(ceiling[row]) * x)
        assert pieces.worth(np.full(20, x)) == pytest.approx(by_hand, rel=1e-12)


def test_the_certificate_exposes_a_bad_solution() -> None:
    problem = random_problem(np.random.default_rng(11), flows=30, hops=1, kinds=["log"])
    good = solve(problem)
    fair = np.full(30, 0.9 / problem.used(np.ones(30))[0, 0])
    bad = replace(good, passing=np.minimum(fair, 1.0))
    assert bad.gap > 1e-3
    assert bad.gap >= (good.worth - bad.worth) / bad.worth * (1 - 1e-9)


def test_a_power_next_to_a_line_is_not_mistaken_for_nothing() -> None:
    # its own marginal falls to the price only below the smallest number; with others it does not
    flow = [
        LogUtility(weight=3.1),
        PowerUtility(weight=0.19, exponent=0.998),
        LinearUtility(weight=0.9),
    ]
    pieces = UtilityPieces.of(UtilityColumns(flow), np.ones(3), np.zeros(3, dtype=np.int64), 1)
    price = np.array([4.09])
    best = pieces.best(price)
    grid = np.linspace(1e-6, 1, 100_001)
    values = [float(pieces.worth(np.array([x]))[0] - price[0] * x) for x in grid]
    assert best[0] == pytest.approx(grid[int(np.argmax(values))], abs=2e-5)
    assert pieces.most_to_gain(price, best)[0] < 1e-9


def test_the_bound_on_what_can_be_gained_holds_wherever_it_is_taken() -> None:
    random = np.random.default_rng(13)
    utilities = [random_utility(random) for _ in range(400)]
    pieces = UtilityPieces.of(
        UtilityColumns(utilities), np.ones(400), np.repeat(np.arange(100), 4), 100
    )
    price = random.exponential(3.0, 100)
    best = pieces.best(price)
    top = pieces.worth(best) - price * best
    for x in random.uniform(0, 1, (20, 100)):
        here = pieces.worth(x) - price * x
        assert (here <= top + 1e-9).all(), "the best is no maximum"
        assert (here + pieces.most_to_gain(price, x) >= top - 1e-9).all()


def test_a_solver_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(np.random.default_rng(12), flows=5, hops=1, kinds=["log"])
    monkeypatch.setattr("cvxpy.Problem.status", "unbounded")
    with pytest.raises(SolverFailed, match=r"planning.solver: .*status is 'unbounded'"):
        solve_with_cvxpy(problem)
