"""Assigning flows, priorities and drop rates. Pure: a scenario in, a scenario with a plan out."""

from firedex.planning.errors import PlanningError, PolicyNotAvailable
from firedex.planning.plan import plan_scenario

__all__ = ["PlanningError", "PolicyNotAvailable", "plan_scenario"]
