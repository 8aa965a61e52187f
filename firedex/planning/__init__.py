"""Assigning flows, priorities and drop rates. Pure: a scenario in, a scenario with a plan out."""

from firedex.planning.errors import LoadCannotBeMet, PlanningError, PolicyNotAvailable
from firedex.planning.plan import plan_scenario

__all__ = ["LoadCannotBeMet", "PlanningError", "PolicyNotAvailable", "plan_scenario"]
