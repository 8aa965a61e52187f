"""The same problem handed to CVXPY and Clarabel: the cross-check, and the solver of what does not
separate (flows that several hops limit)."""

from importlib import import_module
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from firedex.planning.allocation import Allocation, AllocationProblem
from firedex.planning.errors import SolverFailed

__all__ = ["solve_with_cvxpy"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
ATTEMPTS: tuple[dict[str, float], ...] = (
    {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    {},
    {"max_step_fraction": 0.9},
    {"static_regularization_constant": 1e-7},
)
"""Clarabel's settings, one after another until it succeeds: from tight to forgiving."""
ACCEPTABLE_GAP = 1e-6


def solve_with_cvxpy(problem: AllocationProblem) -> Allocation:
    """The optimum by an interior-point method, with its prices; its status is checked."""
    cp: Any = import_module("cvxpy")  # takes a second, and most plans do without
    rows, matrix, limit = _limits(problem)
    passing = cp.Variable(problem.flows, bounds=[0.0, 1.0])
    fits = matrix @ passing <= limit
    worth, definitions = _worth(cp, problem, passing)
    # in units of what there is to earn: interior points like numbers around one
    whole = max(problem.worth(np.ones(problem.flows)), np.finfo(float).tiny)
    task = cp.Problem(cp.Maximize(worth / whole), [*([fits] if len(rows) else []), *definitions])
    status = _solve(cp, task)
    if passing.value is None:
        raise SolverFailed(f"its status is {status!r}")
    price = np.zeros(problem.limit.size)
    if len(rows):
        price[rows] = np.maximum(fits.dual_value, 0.0) * whole
    solved = Allocation(
        problem=problem,
        passing=_within_limits(problem, np.clip(passing.value, 0.0, 1.0)),
        price=price.reshape(problem.limit.shape),
        solver="cvxpy",
    )
    if status != cp.OPTIMAL and solved.gap > ACCEPTABLE_GAP:
        raise SolverFailed(f"its status is {status!r} and the dual gap {solved.gap:.1e}")
    return solved


def _solve(cp: Any, task: Any) -> str:
    """Solve as tightly as the problem lets; the status, which is good or is an error."""
    said = ""
    for options in ATTEMPTS:
        try:
            with catch_warnings():
                simplefilter("ignore", UserWarning)  # about accuracy, which the gap tells exactly
                task.solve(solver=cp.CLARABEL, **options)
        except cp.error.SolverError as error:
            said = str(error).split(". ")[0]
            continue
        if task.status == cp.OPTIMAL:
            break
        said = f"its status is {task.status!r}"
    if task.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise SolverFailed(said)
    return str(task.status)


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
