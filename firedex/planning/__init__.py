"""Planning: assigns flows, priorities and drop rates to the subscriptions of a scenario.

Owns the algorithms and is pure: it takes a scenario and returns a plan. Must not know files, the
service, sockets or the command line.
"""

from firedex.planning.errors import LoadLimitNotReachable, PlanningError, SolverFailed
from firedex.planning.plan import Plan, PolicyOutcome, compare_policies, plan_scenario

__all__ = [
    "LoadLimitNotReachable",
    "Plan",
    "PlanningError",
    "PolicyOutcome",
    "SolverFailed",
    "compare_policies",
    "plan_scenario",
]
