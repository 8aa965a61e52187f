"""A whole plan: priorities, then drop rates."""

from dataclasses import replace

from firedex.planning.drop_policies import DROP_POLICIES, assign_drop_rates
from firedex.planning.errors import PolicyNotAvailable
from firedex.planning.priority_policies import assign_priorities
from firedex.wire import DropPolicy, PriorityPolicy, Scenario

__all__ = ["PRIORITY_POLICIES", "plan_scenario"]

PRIORITY_POLICIES = ("bandwidth-adjusted", "information-only", "none")


def plan_scenario(
    scenario: Scenario,
    *,
    priority_policy: PriorityPolicy | None = None,
    drop_policy: DropPolicy | None = None,
) -> Scenario:
    """Return the scenario with an assignment made by its policies, or by those given."""
    priorities = priority_policy or scenario.planning.priority_policy
    drops = drop_policy or scenario.planning.drop_policy
    if priorities not in PRIORITY_POLICIES:
        raise PolicyNotAvailable("priority_policy", priorities, PRIORITY_POLICIES)
    if drops not in DROP_POLICIES:
        raise PolicyNotAvailable("drop_policy", drops, DROP_POLICIES)
    assignment = assign_priorities(scenario, priorities)
    assignment = assign_drop_rates(scenario, assignment, drops)
    return replace(scenario, assignment=tuple(assignment))
