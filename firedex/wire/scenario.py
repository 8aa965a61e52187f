"""A site and its workload, whole: what one scenario file says."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import ArgsKwargs, InitErrorDetails, PydanticCustomError

from firedex.wire.flows import Assignment
from firedex.wire.incident import PhaseProfile
from firedex.wire.network import ClassCount, Network
from firedex.wire.scenario_references import reference_problems
from firedex.wire.timeline import TimelineEvent
from firedex.wire.values import Count, Flag, Identifier, PositiveCount, Probability, value
from firedex.wire.workload import Publisher, Subscriber, Topic, Transport

__all__ = [
    "DropPolicy",
    "Planning",
    "PriorityPolicy",
    "Ranking",
    "ReservedBudget",
    "Scenario",
    "Split",
]

PriorityPolicy = Literal["bandwidth-adjusted", "information-only", "random", "none"]
DropPolicy = Literal["none", "flat", "linear", "exponential", "optimized", "deadline-aware"]
Ranking = Literal["per-subscriber", "global"]
Split = Literal["equal", "optimal"]


@value
class ReservedBudget:
    """The part of every switch's bandwidth that a role may reserve with QoS 1 and 2."""

    role: Identifier
    share: Probability


@value
class Planning:
    """How a plan is to be made.

    ``ranking``: whether a subscription's class follows from its rank among its subscriber's own or
    among all. ``split``: how a subscriber's ranked subscriptions are cut into flows. ``seed`` is
    the ``random`` policy's. A role without a budget may reserve whatever there is.
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
    def _one_for_each_role(cls, budgets: tuple[ReservedBudget, ...]) -> tuple[ReservedBudget, ...]:
        roles = [budget.role for budget in budgets]
        doubled = sorted({role for role in roles if roles.count(role) > 1})
        if doubled:
            raise ValueError(f"more than one budget for {', '.join(doubled)}")
        return budgets


@value
class Scenario:
    """Topics, publishers, subscribers, the network between them, and how to plan for it.

    Whatever way it is made, it is checked whole: names that refer to nothing, doubled names,
    assignments that contradict each other are refused together with whatever else is wrong.
    ``phases`` and ``timeline`` are for runs that last; a plan is made of the rest.
    """

    name: Annotated[str, Field(strict=True, min_length=1)]
    transport: Transport = "udp"
    stamped_events: Flag = False
    topics: tuple[Topic, ...]
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    network: Network
    planning: Planning = Planning()
    assignment: tuple[Assignment, ...] | None = None
    phases: tuple[PhaseProfile, ...] = ()
    timeline: tuple[TimelineEvent, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _checked_whole(cls, data: Any, build: ValidatorFunctionWrapHandler) -> "Scenario":
        raw = data.kwargs if isinstance(data, ArgsKwargs) else data
        errors: list[InitErrorDetails] = []
        try:
            made: Scenario = build(data)
        except ValidationError as error:
            errors = [_kept(details) for details in error.errors()]
        errors += [
            InitErrorDetails(
                type=PydanticCustomError("reference", "{text}", {"text": problem.message}),
                loc=problem.path,
                input=None,
            )
            for problem in reference_problems(raw)
        ]
        if errors:
            raise ValidationError.from_exception_data("Scenario", errors)
        return made


def _kept(details: Any) -> InitErrorDetails:
    """Carry an error over into the combined one; texts of custom errors are final."""
    context = details.get("ctx", {})
    kind: str | PydanticCustomError = details["type"]
    if details["type"] == "value_error":
        kind = PydanticCustomError("value_error", "{text}", {"text": details["msg"]})
        context = {}
    made = InitErrorDetails(type=kind, loc=details["loc"], input=details["input"])
    if context:
        made["ctx"] = context
    return made
