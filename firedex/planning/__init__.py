"""Assigning flows, priorities and drop rates. Pure: a scenario in, a plan out."""

from firedex.planning.comparison import PolicyOutcome, compare_policies
from firedex.planning.errors import LoadCannotBeMet, PlanningError, SolverFailed
from firedex.planning.plan import Plan, plan_scenario

__all__ = [
    "LoadCannotBeMet",
    "Plan",
    "PlanningError",
    "PolicyOutcome",
    "SolverFailed",
    "compare_policies",
    "plan_scenario",
]
