"""A solver based on CVXPY and Clarabel.

It checks the default solver, and solves problems in which several hops limit a flow.
"""

from importlib import import_module
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.sparse import csr_array

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.errors import SolverFailed
from firedex_models.columns import Booleans, Floats, Integers

__all__ = ["solve_with_cvxpy"]

ATTEMPTS: tuple[dict[str, float], ...] = (
    {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8},
    {"max_step_fraction": 0.9},
    {"static_regularization_constant": 1e-7},
)
"""Settings of Clarabel, tried in this order until one succeeds; the tolerances increase."""
BOUND_DISTANCE = 1e-8
"""An interior point is this far from the bounds; x is rounded to 0 or 1 within this distance."""
ROUNDING = 1e-10
GOOD_GAP = 1e-9
MAX_GAP = 1e-3
"""The dual gap at which to stop, and the largest dual gap to accept."""


def solve_with_cvxpy(problem: AllocationProblem) -> Allocation:
    """Return the optimum and its prices, found by an interior-point method.

    Flows without a binding limit pass completely, flows without capacity do not pass, and flows
    without utility share the remaining capacity. The solver gets the other flows only.
    """
    binding_rows = problem.limited_hops[problem.hop] & (problem.load > 0)
    is_limited = np.zeros(problem.flows, dtype=bool)
    is_limited[problem.flow[binding_rows]] = True
    blocked, closed = _find_blocked_flows(problem)
    without_utility = problem.pieces.best_x(np.full(problem.flows, np.finfo(float).tiny)) == 0
    open_flows = np.flatnonzero(is_limited & ~blocked & ~without_utility)
    passing = np.where(is_limited, 0.0, 1.0)
    price = np.where(closed, np.inf, 0.0)
    if len(open_flows):
        passing, price = _solve_with_attempts(problem, open_flows, passing, price)
    passing = _fill_remaining_capacity(problem, passing, is_limited & ~blocked & without_utility)
    return Allocation(problem=problem, passing=passing, price=price, solver="cvxpy")


def _solve_with_attempts(
    problem: AllocationProblem, flows: Integers, passing: Floats, price: Floats
) -> tuple[Floats, Floats]:
    """Return x of these flows and the prices, from the first attempt with a small dual gap."""
    cp: Any = import_module("cvxpy")  # the import takes a second, and most plans do not need it
    rows, matrix, limit = _limit_matrix(problem)
    x = cp.Variable(len(flows), bounds=[0.0, 1.0])
    limits_met = matrix[:, flows] @ x <= limit
    utility, definitions = _utility_expression(cp, problem, flows, x)
    # scaled by the maximum utility: interior-point methods work best with numbers around 1
    max_utility = problem.utility_at(np.ones(problem.flows))
    program = cp.Problem(
        cp.Maximize(utility / max_utility), [*([limits_met] if len(rows) else []), *definitions]
    )
    failure = ""
    best: Allocation | None = None
    for options in ATTEMPTS:
        status = _run_solver(cp, program, options)
        if x.value is None or status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            failure = failure or f"its status is {status!r}"
            continue
        solution, prices = passing.copy(), price.copy()
        solution[flows] = np.where(x.value < BOUND_DISTANCE, 0.0, np.clip(x.value, 0.0, 1.0))
        if len(rows):
            prices.ravel()[rows] = np.maximum(limits_met.dual_value, 0.0) * max_utility
        attempt = Allocation(
            problem=problem,
            passing=_scale_to_limits(problem, solution),
            price=prices,
            solver="cvxpy",
        )
        best = attempt if best is None or attempt.gap < best.gap else best
        if best.gap <= GOOD_GAP:
            break
    if best is None:
        raise SolverFailed(failure)
    if best.gap > MAX_GAP:
        raise SolverFailed(f"the dual gap is {best.gap:.1e}")
    return best.passing, best.price


def _run_solver(cp: Any, program: Any, options: dict[str, float]) -> str:
    """Solve, and return the status of the solver."""
    try:
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # about accuracy, which the dual gap measures
            program.solve(solver=cp.CLARABEL, **options)
    except cp.error.SolverError as error:
        return str(error).split(". ")[0]
    return str(program.status)


def _find_blocked_flows(problem: AllocationProblem) -> tuple[Booleans, Booleans]:
    """Return the flows without capacity, and the limits (hops × classes) that are 0."""
    closed = problem.binding_limits & (problem.limit <= 0)
    below = np.flip(np.logical_or.accumulate(np.flip(closed, 1), axis=1), 1)
    blocked_rows = below[problem.hop, problem.priority[problem.flow]] & (problem.load > 0)
    blocked = np.zeros(problem.flows, dtype=bool)
    blocked[problem.flow[blocked_rows]] = True
    return blocked, closed


def _fill_remaining_capacity(
    problem: AllocationProblem, passing: Floats, without_utility: Booleans
) -> Floats:
    """Give the capacity that the other flows leave to flows without utility."""
    wanted_load = problem.load_at(np.where(without_utility, 1.0, 0.0))
    remaining = np.maximum(problem.limit - problem.load_at(passing), 0.0)
    share = np.minimum(
        np.divide(remaining, wanted_load, out=np.ones_like(remaining), where=wanted_load > 0), 1.0
    )
    # a flow uses the limits of its own class and of all lower classes
    strictest = np.minimum.accumulate(share[:, ::-1], axis=1)[:, ::-1]
    flow_share = np.ones(problem.flows)
    np.minimum.at(flow_share, problem.flow, strictest[problem.hop, problem.priority[problem.flow]])
    return np.where(without_utility, flow_share, passing)


def _limit_matrix(problem: AllocationProblem) -> tuple[Integers, Any, Floats]:
    """Return the rows of ``limit`` that can bind, the loads of flows on them, and the limits."""
    classes = problem.limit.shape[1]
    rows = np.flatnonzero((problem.binding_limits & (problem.limit > 0)).ravel())
    position = np.full(problem.limit.size, -1)
    position[rows] = np.arange(len(rows))
    row_parts, flow_parts, load_parts = [], [], []
    for k in range(classes):  # a limit of class k counts the flows of classes 0 … k
        row = position[problem.hop * classes + k]
        counts = (row >= 0) & (problem.priority[problem.flow] <= k)
        row_parts.append(row[counts])
        flow_parts.append(problem.flow[counts])
        load_parts.append(problem.load[counts])
    matrix = csr_array(
        (np.concatenate(load_parts), (np.concatenate(row_parts), np.concatenate(flow_parts))),
        shape=(len(rows), problem.flows),
    )
    return rows, matrix, np.maximum(problem.limit.ravel()[rows], 0.0)


def _utility_expression(
    cp: Any, problem: AllocationProblem, flows: Integers, x: Any
) -> tuple[Any, list[Any]]:
    """Return ΣU of these flows without constants, and the constraints that define powers."""
    start, logs, powers, ramps, _ = problem.pieces
    position = np.full(problem.flows, -1)
    position[flows] = np.arange(len(flows))
    flow, selected = [], []
    for kind, pieces in enumerate((logs, powers, ramps)):
        positions = position[np.repeat(np.arange(problem.flows), np.diff(start[:, kind]))]
        flow.append(positions[positions >= 0])
        selected.append(pieces[positions >= 0])
    logs, powers, ramps = selected
    utility: Any = 0.0
    definitions = []
    if len(logs):
        utility = utility + logs[:, 0] @ cp.log1p(cp.multiply(logs[:, 1], x[flow[0]]))
    if len(powers):
        power = cp.Variable(len(powers), nonneg=True)
        one = np.ones(len(powers))
        definitions.append(cp.PowCone3D(x[flow[1]], one, power, powers[:, 1]))
        utility = utility + powers[:, 0] @ power
    if len(ramps):
        utility = utility + ramps[:, 0] @ cp.minimum(x[flow[2]], ramps[:, 1])
    return utility, definitions


def _scale_to_limits(problem: AllocationProblem, passing: Floats) -> Floats:
    """Scale x down where the solution exceeds a limit by the tolerance of the solver."""
    used = problem.load_at(passing)
    over = np.where(problem.limit > 0, used / np.where(problem.limit > 0, problem.limit, 1.0), 1.0)
    over = np.where(used <= problem.limit, 1.0, np.maximum(over, 1.0))
    factor = np.maximum.accumulate(over[:, ::-1], axis=1)[:, ::-1]  # classes 0 … k count in all ≥ k
    shrink = np.ones(problem.flows)
    np.maximum.at(shrink, problem.flow, factor[problem.hop, problem.priority[problem.flow]])
    scaled = passing / shrink
    rounded = np.where(scaled > 1 - BOUND_DISTANCE, 1.0, scaled)
    return rounded if (problem.load_at(rounded) <= problem.limit + ROUNDING).all() else scaled
