"""All policies side by side on one scenario."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from firedex.planning.errors import PlanningError
from firedex.planning.plan import Plan, plan_scenario
from firedex.wire import DropPolicy, PriorityPolicy, Ranking, Scenario, Solver, Split

__all__ = ["PolicyOutcome", "compare_policies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """What a pair of policies came to: a plan, or why there is none."""

    priority_policy: PriorityPolicy
    drop_policy: DropPolicy
    plan: Plan | None
    problem: str | None


def compare_policies(
    scenario: Scenario,
    *,
    priority_policy: PriorityPolicy | None = None,
    ranking: Ranking | None = None,
    split: Split | None = None,
    seed: int | None = None,
    solver: Solver = "kkt",
    report: Callable[[str], None] = lambda _: None,
) -> list[PolicyOutcome]:
    """Every priority policy without drop rates, then every drop policy with one of them."""
    chosen = priority_policy or scenario.planning.priority_policy
    pairs: list[tuple[PriorityPolicy, DropPolicy]] = [
        (policy, "none") for policy in get_args(PriorityPolicy) if policy != chosen
    ]
    pairs += [(chosen, policy) for policy in get_args(DropPolicy)]
    outcomes = []
    for priorities, drops in pairs:
        report(f"{priorities}, {drops}")
        plan, problem = None, None
        try:
            plan = plan_scenario(
                scenario,
                priority_policy=priorities,
                drop_policy=drops,
                ranking=ranking,
                split=split,
                seed=seed,
                solver=solver,
            )
        except PlanningError as error:
            problem = str(error)
        outcomes.append(
            PolicyOutcome(priority_policy=priorities, drop_policy=drops, plan=plan, problem=problem)
        )
    return outcomes
