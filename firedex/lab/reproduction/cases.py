"""Cases of the reproduction: scenarios that are planned, predicted and simulated in parallel."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firedex.planning import plan_scenario
from firedex.scenario.table_2 import Table2
from firedex.wire import DropPolicy, PriorityPolicy
from firedex_models import PredictionTable, predict
from firedex_models.simulation import Estimate, SimulationSettings, simulate

__all__ = ["Case", "Outcome", "average_over_seeds", "run_cases"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One scenario with one pair of policies; with 0 ``publications`` it is not simulated."""

    table: Table2
    priorities: PriorityPolicy = "bandwidth-adjusted"
    drops: DropPolicy = "exponential"
    publications: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a case, by class and overall; NaN where there is no value.

    ``rate`` is ΣU ÷ ΣÛ, ``mean_rate`` is the mean of U ÷ Û (as in the paper), and ``timely`` is the
    timely utility ÷ ΣÛ.
    """

    load: float
    model_delay: Floats
    independent_delay: Floats
    model_success: Floats
    model_rate: float
    model_mean_rate: float
    model_timely: float
    delay: Floats
    success: Floats
    overall_delay: float
    overall_success: float
    rate: float
    mean_rate: float
    timely: float


def run_cases(
    cases: Sequence[Case], workers: int, progress: Callable[[], None]
) -> dict[Case, Outcome]:
    """Run every distinct case once, on ``workers`` processes."""
    distinct = list(dict.fromkeys(cases))
    outcomes: dict[Case, Outcome] = {}
    if workers <= 1:
        for case in distinct:
            outcomes[case] = _run(case)
            progress()
        return outcomes
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_run, case): case for case in distinct}
        for done in as_completed(running):
            outcomes[running[done]] = done.result()
            progress()
    return outcomes


def _run(case: Case) -> Outcome:
    plan = plan_scenario(
        case.table.scenario(), priority_policy=case.priorities, drop_policy=case.drops
    )
    table = plan.table
    independent = predict(plan.scenario, model="independent", assignment=plan.assignment)
    maximum = float(table.maximum_utility.sum())
    missing = np.full(1, np.nan)
    measured: dict[str, Any] = {
        "delay": missing,
        "success": missing,
        "overall_delay": np.nan,
        "overall_success": np.nan,
        "rate": np.nan,
        "mean_rate": np.nan,
        "timely": np.nan,
    }
    if case.publications:
        settings = SimulationSettings(
            replications=1, publications=case.publications, seed=case.table.seed
        )
        summary = simulate(plan.scenario, settings, assignment=plan.assignment)
        (tally,) = summary.tallies
        measured = {
            "delay": summary.classes.delay_mean_seconds.mean,
            "success": summary.classes.success_rate.mean,
            "overall_delay": float(tally.delay.sum() / max(tally.delivered.sum(), 1)),
            "overall_success": float(tally.delivered.sum() / max(tally.offered.sum(), 1)),
            "rate": summary.achieved_utility_rate,
            "mean_rate": summary.achieved_utility_rate_per_subscription,
            "timely": summary.timely_utility / maximum,
        }
    return Outcome(
        load=max(switch.utilization for switch in table.switches()),
        model_delay=_by_class(table, "delay_mean_seconds"),
        independent_delay=_by_class(independent, "delay_mean_seconds"),
        model_success=_by_class(table, "success_rate"),
        model_rate=table.achieved_utility_rate,
        model_mean_rate=table.achieved_utility_rate_per_subscription,
        model_timely=table.timely_utility / maximum,
        **measured,
    )


def _by_class(table: PredictionTable, name: str) -> Floats:
    rows = {row.priority: getattr(row, name) for row in table.classes()}
    values = [rows.get(k) for k in range(max(rows, default=-1) + 1)]
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def average_over_seeds(values: Sequence[Floats | float]) -> tuple[Floats, Floats]:
    """Return the mean over seeds and the half-width of its 95 % confidence interval by column."""
    widest = max(np.size(value) for value in values)
    rows = np.full((len(values), widest), np.nan)
    for row, value in enumerate(values):
        rows[row, : np.size(value)] = value
    estimate = Estimate.from_replications(rows)
    return estimate.mean, estimate.half_width
