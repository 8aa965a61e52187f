"""Which deadlines a prediction misses, and by how much."""

from typing import Literal

import numpy as np

from firedex.wire import UnmetDeadline
from firedex_models import PredictionTable

__all__ = ["unmet_deadlines"]


def unmet_deadlines(table: PredictionTable) -> tuple[UnmetDeadline, ...]:
    """Every deadline that is not met at its percentile, in the scenario's order."""
    demand = table.site.demand
    missed = np.flatnonzero(table.deadline_met == 0)
    delay = np.full(len(demand.subscriptions), np.nan)
    for level in np.unique(demand.deadline_percentile[missed]):
        rows = missed[demand.deadline_percentile[missed] == level]
        delay[rows] = table.mixture.percentile(float(level))[rows]
    found = []
    for row in missed.tolist():
        subscription = demand.subscriptions[row]
        deadline = float(demand.deadline_seconds[row])
        known = bool(np.isfinite(delay[row]))
        found.append(
            UnmetDeadline(
                subscriber=demand.scenario.subscribers[demand.subscriber[row]].id,
                filter=subscription.filter,
                deadline_seconds=deadline,
                percentile=subscription.deadline_percentile,
                reason="late" if known else _reason(float(table.success_rate[row])),
                delay_seconds=float(delay[row]) if known else None,
                late_by_seconds=max(float(delay[row]) - deadline, 0.0) if known else None,
            )
        )
    return tuple(found)


def _reason(success_rate: float) -> Literal["nothing-delivered", "unstable"]:
    return "unstable" if success_rate > 0 else "nothing-delivered"
