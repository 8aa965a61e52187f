"""An incident, its phases, and what each phase makes of the subscribers' utilities."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from firedex.wire.mqtt_names import FilterName
from firedex.wire.utility import Utility
from firedex.wire.values import (
    Amount,
    Identifier,
    Moment,
    NonNegative,
    Positive,
    Probability,
    value,
)

__all__ = [
    "ANYBODY",
    "Budgets",
    "Claim",
    "Incident",
    "IncidentOpening",
    "PhaseChange",
    "PhaseProfile",
    "ProfileRule",
    "RoleBudget",
    "UtilityProfile",
]

ANYBODY = "anybody"
"""The role that stands for every role without an entry of its own."""
Title = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
OneLine = Annotated[Title, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Without control characters."""


@value
class IncidentOpening:
    """What command says when it opens an incident."""

    title: OneLine
    phase: Identifier = "size-up"


@value
class PhaseChange:
    """The phase that an incident goes into.

    ``expected_phase_since``: only if the phase that the caller has seen is still the present one
    (its ``phase_since``); another one, or another incident, may have come meanwhile.
    """

    phase: Identifier
    expected_phase_since: Moment | None = None


@value
class Incident:
    """The incident that is going on, or the last one."""

    title: Title
    phase: Identifier
    opened_at: datetime
    phase_since: datetime
    closed_at: datetime | None = None


@value
class ProfileRule:
    """What a phase makes of the subscriptions that ``filter`` covers, for a role or for anybody.

    Exactly one of ``utility`` (stands in place of the subscriber's own) and ``factor`` (multiplies
    its weight).
    """

    filter: FilterName
    role: Identifier = ANYBODY
    utility: Utility | None = None
    factor: NonNegative | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "ProfileRule":
        if (self.utility is None) == (self.factor is None):
            raise ValueError("give either 'utility' or 'factor'")
        return self


@value
class UtilityProfile:
    """The rules of one phase; the first that covers a subscription decides."""

    rules: Annotated[tuple[ProfileRule, ...], Field(max_length=1000)] = ()


@value
class PhaseProfile:
    """A phase with its utility profile."""

    phase: Identifier
    rules: tuple[ProfileRule, ...]


@value
class RoleBudget:
    """What a role may claim of shared bandwidth.

    ``utility``: the most that all of a subscriber's subscriptions together are worth to the plan;
    who asks for more is scaled down to it. ``reserved_share``: the part of every switch that the
    whole role may reserve with QoS 1 and 2. None is no bound.
    """

    role: Identifier
    utility: Positive | None = None
    reserved_share: Probability | None = None


@value
class Budgets:
    """The budgets of all roles; ``anybody`` is for those that are not named."""

    roles: Annotated[tuple[RoleBudget, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _one_for_each_role(self) -> "Budgets":
        names = [budget.role for budget in self.roles]
        if len(set(names)) < len(names):
            raise ValueError("more than one budget for a role")
        return self

    def of(self, role: str) -> RoleBudget:
        """The budget of ``role``: its own, anybody's, or none."""
        by_role = {budget.role: budget for budget in self.roles}
        return by_role.get(role) or by_role.get(ANYBODY) or RoleBudget(role=role)


@value
class Claim:
    """What a subscriber's utilities come to, and what part of it counts."""

    subscriber: Identifier
    asked: Amount
    granted_share: Probability
