"""The settings of planning, and the report on a plan."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from firedex.wire.mqtt_names import FilterName
from firedex.wire.network import ClassCount
from firedex.wire.values import (
    Amount,
    Count,
    Flag,
    Identifier,
    PositiveCount,
    Probability,
    value,
)

__all__ = [
    "DropPolicy",
    "Overcommitment",
    "PlanReport",
    "Planning",
    "PriorityPolicy",
    "Ranking",
    "ReservedBudget",
    "Solver",
    "Split",
    "UnmetDeadline",
]

PriorityPolicy = Literal["bandwidth-adjusted", "information-only", "random", "none"]
DropPolicy = Literal["none", "flat", "linear", "exponential", "optimized", "deadline-aware"]
Ranking = Literal["per-subscriber", "global"]
Split = Literal["equal", "optimal"]


@value
class ReservedBudget:
    """The fraction of every switch's bandwidth that a role may reserve with QoS 1 and 2."""

    role: Identifier
    share: Probability


@value
class Planning:
    """The settings of planning.

    ``ranking``: whether a subscription's class depends on its rank among the subscriptions of its
    subscriber or among all subscriptions. ``split``: how a subscriber's ranked subscriptions are
    divided into flows. ``seed``: seed of the ``random`` policy. A role without a budget may reserve
    all of the bandwidth.
    """

    flows_per_subscriber: PositiveCount = 8
    priorities: ClassCount = 8
    rho_tolerance: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.1
    priority_policy: PriorityPolicy = "bandwidth-adjusted"
    drop_policy: DropPolicy = "optimized"
    ranking: Ranking = "per-subscriber"
    split: Split = "equal"
    seed: Count = 0
    reserved_budgets: tuple[ReservedBudget, ...] = ()

    @field_validator("reserved_budgets")
    @classmethod
    def _check_one_budget_per_role(
        cls, budgets: tuple[ReservedBudget, ...]
    ) -> tuple[ReservedBudget, ...]:
        roles = [budget.role for budget in budgets]
        duplicates = sorted({role for role in roles if roles.count(role) > 1})
        if duplicates:
            raise ValueError(f"more than one budget for {', '.join(duplicates)}; keep one of them")
        return budgets


Solver = Literal["kkt", "cvxpy"]


@value
class Overcommitment:
    """A queue with more load at QoS 1 and 2 than may be reserved; the excess is served last.

    Loads are fractions of the bandwidth. ``role``: the role whose budget is exceeded; null if the
    switch is too small for the reservations of all roles together.
    """

    switch: Identifier
    queue: str
    role: Identifier | None
    reserved: Amount
    available: Amount
    excess: Amount
    excess_bits_per_second: Amount


@value
class UnmetDeadline:
    """A deadline that the plan does not meet, and the predicted delay.

    ``late``: ``delay_seconds`` is the delay at the deadline's percentile. ``nothing-delivered``:
    all events are dropped or lost. ``unstable``: a queue on the path grows without bound.
    """

    subscriber: Identifier
    filter: FilterName
    deadline_seconds: Amount
    percentile: Probability
    reason: Literal["late", "nothing-delivered", "unstable"]
    delay_seconds: Amount | None
    late_by_seconds: Amount | None


@value
class PlanReport:
    """The policies of a plan and how close it is to the optimum.

    ``utility_gap``: upper bound on how much more utility other drop rates could achieve, as a
    fraction of the plan's utility (proved by duality); null if the policy does not optimise.
    ``split_gap``: the same bound for other divisions into flows. ``moved_subscriptions``: number of
    subscriptions that changed their flow since the previous plan; null if there is none.
    """

    priority_policy: PriorityPolicy
    drop_policy: DropPolicy
    ranking: Ranking
    split: Split
    solver: Solver | None
    utility_gap: Amount | None
    split_gap: Amount | None
    moved_subscriptions: Count | None
    kept_previous_flows: Flag
    overcommitted: tuple[Overcommitment, ...]
    undropped_subscribers: tuple[Identifier, ...]
    unmet_deadlines: tuple[UnmetDeadline, ...]
