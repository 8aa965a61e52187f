"""Assigning flows, priorities and drop rates. Pure: a scenario in, a plan out."""

from firedex.planning.errors import LoadCannotBeMet, PlanningError, SolverFailed
from firedex.planning.plan import Plan, plan_scenario

__all__ = ["LoadCannotBeMet", "Plan", "PlanningError", "SolverFailed", "plan_scenario"]
