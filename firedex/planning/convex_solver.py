"""The same problem handed to CVXPY and Clarabel: the cross-check, and the solver of what does not
separate (flows that several hops limit)."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.errors import SolverFailed

__all__ = ["solve_with_cvxpy"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
TOLERANCE = 1e-9
ACCEPTABLE_GAP = 1e-6


def solve_with_cvxpy(problem: AllocationProblem) -> Allocation:
    """The optimum by an interior-point method, with its prices; its status is checked."""
    cp: Any = import_module("cvxpy")  # takes a second, and most plans do without
    passing = cp.Variable(problem.flows, bounds=[0.0, 1.0])
    rows, matrix, limit = _limits(problem)
    scale = np.where(limit > 0, limit, 1.0)
    fits = matrix.multiply(1.0 / scale[:, None]) @ passing <= limit / scale
    worth, definitions = _worth(cp, problem, passing)
    task = cp.Problem(cp.Maximize(worth), [*([fits] if len(rows) else []), *definitions])
    try:
        task.solve(
            solver=cp.CLARABEL,
            tol_gap_abs=TOLERANCE,
            tol_gap_rel=TOLERANCE,
            tol_feas=TOLERANCE,
        )
    except cp.error.SolverError as error:
        raise SolverFailed(str(error)) from error
    if task.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE) or passing.value is None:
        raise SolverFailed(f"its status is {task.status!r}")
    price = np.zeros(problem.limit.size)
    if len(rows):
        price[rows] = np.maximum(fits.dual_value, 0.0) / scale
    solved = Allocation(
        problem=problem,
        passing=_within_limits(problem, np.clip(passing.value, 0.0, 1.0)),
        price=price.reshape(problem.limit.shape),
        solver="cvxpy",
    )
    if task.status != cp.OPTIMAL and solved.gap > ACCEPTABLE_GAP:
        raise SolverFailed(f"its status is {task.status!r} and the dual gap {solved.gap:.1e}")
    return solved


def _limits(problem: AllocationProblem) -> tuple[Integers, Any, Floats]:
    """Rows of ``limit`` that can bind, the loads of flows on them, and what they allow."""
    classes = problem.limit.shape[1]
    rows = np.flatnonzero(problem.binding.ravel())
    position = np.full(problem.limit.size, -1)
    position[rows] = np.arange(len(rows))
    pieces_row, pieces_flow, pieces_load = [], [], []
    for k in range(classes):  # a limit of class k counts the flows of classes 0 … k
        row = position[problem.hop * classes + k]
        counts = (row >= 0) & (problem.priority[problem.flow] <= k)
        pieces_row.append(row[counts])
        pieces_flow.append(problem.flow[counts])
        pieces_load.append(problem.load[counts])
    matrix = csr_array(
        (np.concatenate(pieces_load), (np.concatenate(pieces_row), np.concatenate(pieces_flow))),
        shape=(len(rows), problem.flows),
    )
    return rows, matrix, np.maximum(problem.limit.ravel()[rows], 0.0)


def _worth(cp: Any, problem: AllocationProblem, passing: Any) -> tuple[Any, list[Any]]:
    """ΣU, and the constraints that define the powers in it."""
    start, logs, powers, ramps, edges = problem.pieces
    flow = [np.repeat(np.arange(problem.flows), np.diff(start[:, kind])) for kind in range(3)]
    worth: Any = float(edges[:, 0].sum())
    definitions = []
    if len(logs):
        worth = worth + logs[:, 0] @ cp.log1p(cp.multiply(logs[:, 1], passing[flow[0]]))
    if len(powers):
        power = cp.Variable(len(powers), nonneg=True)
        one = np.ones(len(powers))
        definitions.append(cp.PowCone3D(passing[flow[1]], one, power, powers[:, 1]))
        worth = worth + powers[:, 0] @ power
    if len(ramps):
        worth = worth + ramps[:, 0] @ cp.minimum(passing[flow[2]], ramps[:, 1])
    return worth, definitions


def _within_limits(problem: AllocationProblem, passing: Floats) -> Floats:
    """An interior-point solution may exceed a limit by its tolerance: take that back."""
    used = problem.used(passing)
    over = np.where(problem.limit > 0, used / np.where(problem.limit > 0, problem.limit, 1.0), 1.0)
    over = np.where(used <= problem.limit, 1.0, np.maximum(over, 1.0))
    factor = np.maximum.accumulate(over[:, ::-1], axis=1)[:, ::-1]  # classes 0 … k count in all ≥ k
    shrink = np.ones(problem.flows)
    np.maximum.at(shrink, problem.flow, factor[problem.hop, problem.priority[problem.flow]])
    barred = np.zeros(problem.flows, dtype=bool)
    closed = np.flip(np.logical_or.accumulate(np.flip(problem.limit <= 0, 1), axis=1), 1)
    stuck = closed[problem.hop, problem.priority[problem.flow]] & (problem.load > 0)
    barred[problem.flow[stuck]] = True
    return np.where(barred, 0.0, passing / shrink)
