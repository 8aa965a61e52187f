"""Assigning flows, priorities and drop rates. Pure: a scenario in, a scenario with a plan out."""

from firedex.planning.drop_policies import DROP_POLICIES
from firedex.planning.errors import LoadCannotBeMet, PlanningError, PolicyNotAvailable
from firedex.planning.plan import PRIORITY_POLICIES, plan_scenario

__all__ = [
    "DROP_POLICIES",
    "PRIORITY_POLICIES",
    "LoadCannotBeMet",
    "PlanningError",
    "PolicyNotAvailable",
    "plan_scenario",
]
