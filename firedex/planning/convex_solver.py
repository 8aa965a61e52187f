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
Booleans = NDArray[np.bool_]
ATTEMPTS: tuple[dict[str, float], ...] = (
    {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8},
    {"max_step_fraction": 0.9},
    {"static_regularization_constant": 1e-7},
)
"""Clarabel's settings, one after another until it succeeds: from tight to forgiving."""
DUST = 1e-8
"""An interior point stays this far inside: so little is nothing, and so little less is all."""
ROUNDING = 1e-10
GOOD_GAP = 1e-9
WORST_GAP = 1e-3
"""A certificate to stop at, and one that is none."""


def solve_with_cvxpy(problem: AllocationProblem) -> Allocation:
    """The optimum by an interior-point method, with its prices; its status is checked.

    Solved is only what is to be decided. What no limit concerns passes whole, what has no room not
    at all, and what is worth nothing shares what is left in the end.
    """
    concerned = problem.limited[problem.hop] & (problem.load > 0)
    loading = np.zeros(problem.flows, dtype=bool)
    loading[problem.flow[concerned]] = True
    barred, closed = _without_room(problem)
    worthless = problem.pieces.best(np.full(problem.flows, np.finfo(float).tiny)) == 0
    open_flows = np.flatnonzero(loading & ~barred & ~worthless)
    passing = np.where(loading, 0.0, 1.0)
    price = np.where(closed, np.inf, 0.0)
    if len(open_flows):
        passing, price = _best_attempt(problem, open_flows, passing, price)
    passing = _fill_up(problem, passing, loading & ~barred & worthless)
    return Allocation(problem=problem, passing=passing, price=price, solver="cvxpy")


def _best_attempt(
    problem: AllocationProblem, flows: Integers, passing: Floats, price: Floats
) -> tuple[Floats, Floats]:
    """x of these flows, and prices, by the first attempt whose certificate is good."""
    cp: Any = import_module("cvxpy")  # takes a second, and most plans do without
    rows, matrix, limit = _limits(problem)
    x = cp.Variable(len(flows), bounds=[0.0, 1.0])
    fits = matrix[:, flows] @ x <= limit
    worth, definitions = _worth(cp, problem, flows, x)
    # in units of what there is to earn: interior points like numbers around one
    whole = problem.worth(np.ones(problem.flows))
    task = cp.Problem(cp.Maximize(worth / whole), [*([fits] if len(rows) else []), *definitions])
    said = ""
    best: Allocation | None = None
    for options in ATTEMPTS:
        status = _status(cp, task, options)
        if x.value is None or status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            said = said or f"its status is {status!r}"
            continue
        chosen, asked = passing.copy(), price.copy()
        chosen[flows] = np.where(x.value < DUST, 0.0, np.clip(x.value, 0.0, 1.0))
        if len(rows):
            asked.ravel()[rows] = np.maximum(fits.dual_value, 0.0) * whole
        made = Allocation(
            problem=problem, passing=_within_limits(problem, chosen), price=asked, solver="cvxpy"
        )
        best = made if best is None or made.gap < best.gap else best
        if best.gap <= GOOD_GAP:
            break
    if best is None:
        raise SolverFailed(said)
    if best.gap > WORST_GAP:
        raise SolverFailed(f"the dual gap is {best.gap:.1e}")
    return best.passing, best.price


def _status(cp: Any, task: Any, options: dict[str, float]) -> str:
    """What became of an attempt."""
    try:
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # about accuracy, which the gap tells exactly
            task.solve(solver=cp.CLARABEL, **options)
    except cp.error.SolverError as error:
        return str(error).split(". ")[0]
    return str(task.status)


def _without_room(problem: AllocationProblem) -> tuple[Booleans, Booleans]:
    """Flows of which nothing may pass, and the limits (hops × classes) that say so."""
    closed = problem.binding & (problem.limit <= 0)
    below = np.flip(np.logical_or.accumulate(np.flip(closed, 1), axis=1), 1)
    stuck = below[problem.hop, problem.priority[problem.flow]] & (problem.load > 0)
    barred = np.zeros(problem.flows, dtype=bool)
    barred[problem.flow[stuck]] = True
    return barred, closed


def _fill_up(problem: AllocationProblem, passing: Floats, worthless: Booleans) -> Floats:
    """Let what is worth nothing have what the others leave on its way."""
    more = problem.used(np.where(worthless, 1.0, 0.0))
    room = np.maximum(problem.limit - problem.used(passing), 0.0)
    share = np.minimum(np.divide(room, more, out=np.ones_like(room), where=more > 0), 1.0)
    # a flow counts in the limits of its own class and of all below
    strictest = np.minimum.accumulate(share[:, ::-1], axis=1)[:, ::-1]
    of_flow = np.ones(problem.flows)
    np.minimum.at(of_flow, problem.flow, strictest[problem.hop, problem.priority[problem.flow]])
    return np.where(worthless, of_flow, passing)


def _limits(problem: AllocationProblem) -> tuple[Integers, Any, Floats]:
    """Rows of ``limit`` that can bind, the loads of flows on them, and what they allow."""
    classes = problem.limit.shape[1]
    rows = np.flatnonzero((problem.binding & (problem.limit > 0)).ravel())
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


def _worth(cp: Any, problem: AllocationProblem, flows: Integers, x: Any) -> tuple[Any, list[Any]]:
    """ΣU of these flows but for constants, and the constraints that define the powers in it."""
    start, logs, powers, ramps, _ = problem.pieces
    position = np.full(problem.flows, -1)
    position[flows] = np.arange(len(flows))
    flow, kept = [], []
    for kind, pieces in enumerate((logs, powers, ramps)):
        of = position[np.repeat(np.arange(problem.flows), np.diff(start[:, kind]))]
        flow.append(of[of >= 0])
        kept.append(pieces[of >= 0])
    logs, powers, ramps = kept
    worth: Any = 0.0
    definitions = []
    if len(logs):
        worth = worth + logs[:, 0] @ cp.log1p(cp.multiply(logs[:, 1], x[flow[0]]))
    if len(powers):
        power = cp.Variable(len(powers), nonneg=True)
        one = np.ones(len(powers))
        definitions.append(cp.PowCone3D(x[flow[1]], one, power, powers[:, 1]))
        worth = worth + powers[:, 0] @ power
    if len(ramps):
        worth = worth + ramps[:, 0] @ cp.minimum(x[flow[2]], ramps[:, 1])
    return worth, definitions


def _within_limits(problem: AllocationProblem, passing: Floats) -> Floats:
    """An interior-point solution may exceed a limit by its tolerance: take that back."""
    used = problem.used(passing)
    over = np.where(problem.limit > 0, used / np.where(problem.limit > 0, problem.limit, 1.0), 1.0)
    over = np.where(used <= problem.limit, 1.0, np.maximum(over, 1.0))
    factor = np.maximum.accumulate(over[:, ::-1], axis=1)[:, ::-1]  # classes 0 … k count in all ≥ k
    shrink = np.ones(problem.flows)
    np.maximum.at(shrink, problem.flow, factor[problem.hop, problem.priority[problem.flow]])
    kept = passing / shrink
    whole = np.where(kept > 1 - DUST, 1.0, kept)
    return whole if (problem.used(whole) <= problem.limit + ROUNDING).all() else kept
