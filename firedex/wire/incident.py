"""Incidents, their phases, the utility profile of each phase, and the budgets of roles."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from firedex.wire.mqtt_names import FilterName
from firedex.wire.values import (
    Amount,
    Identifier,
    NonNegative,
    Positive,
    Probability,
    Timestamp,
    value,
)
from firedex.wire.workload import Utility

__all__ = [
    "ANY_ROLE",
    "Budgets",
    "Incident",
    "NewIncident",
    "PhaseChange",
    "PhaseProfile",
    "ProfileRule",
    "RoleBudget",
    "UtilityClaim",
    "UtilityProfile",
]

ANY_ROLE = "anybody"
"""The entry for every role without its own entry."""
Title = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
OneLine = Annotated[Title, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Text without control characters."""


@value
class NewIncident:
    """A request to open an incident."""

    title: OneLine
    phase: Identifier = "size-up"


@value
class PhaseChange:
    """A request to change the phase of the incident.

    ``expected_phase_since``: the ``phase_since`` that the caller last saw. If the incident or its
    phase has changed since then, the request fails.
    """

    phase: Identifier
    expected_phase_since: Timestamp | None = None


@value
class Incident:
    """The open incident, or the last one if none is open."""

    title: Title
    phase: Identifier
    opened_at: datetime
    phase_since: datetime
    closed_at: datetime | None = None


@value
class ProfileRule:
    """The effect of a phase on the subscriptions that ``filter`` covers, for one role or for all.

    Exactly one of the two is given: ``utility`` replaces the subscriber's utility, ``factor``
    multiplies its weight.
    """

    filter: FilterName
    role: Identifier = ANY_ROLE
    utility: Utility | None = None
    factor: NonNegative | None = None

    @model_validator(mode="after")
    def _check_utility_or_factor(self) -> "ProfileRule":
        if (self.utility is None) == (self.factor is None):
            raise ValueError("exactly one of 'utility' and 'factor' must be given")
        return self


@value
class UtilityProfile:
    """The rules of one phase; the first rule that covers a subscription applies."""

    rules: Annotated[tuple[ProfileRule, ...], Field(max_length=1000)] = ()


@value
class PhaseProfile:
    """A phase with its utility profile."""

    phase: Identifier
    rules: tuple[ProfileRule, ...]


@value
class RoleBudget:
    """The budget of one role, which the owners of the role's subscribers share.

    ``utility``: total utility of all subscribers of one owner. What they claim is scaled to it, up
    or down, so only the proportions among the subscriptions of an owner matter.
    ``total_utility``: total utility of all owners of the role; they get equal parts of it if their
    budgets exceed it together. ``reserved_share``: the fraction of every switch's bandwidth that
    all subscribers of the role together may reserve with QoS 1 and 2. Null means no limit.
    ``declared_events_per_second``: total rate of all publishers of one owner that plans use before
    it is measured; it applies to the role ``publisher``.
    """

    role: Identifier
    utility: Positive | None = None
    reserved_share: Probability | None = None
    total_utility: Positive | None = None
    declared_events_per_second: Positive | None = None
    total_declared_events_per_second: Positive | None = None


@value
class Budgets:
    """The budgets of all roles; ``anybody`` applies to roles that are not listed."""

    roles: Annotated[tuple[RoleBudget, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _check_one_budget_per_role(self) -> "Budgets":
        names = [budget.role for budget in self.roles]
        if len(set(names)) < len(names):
            raise ValueError("a role has more than one budget; keep one of them")
        return self

    def for_role(self, role: str) -> RoleBudget:
        """Return the budget of ``role``: its own, that of ``anybody``, or one without limits."""
        by_role = {budget.role: budget for budget in self.roles}
        return by_role.get(role) or by_role.get(ANY_ROLE) or RoleBudget(role=role)


@value
class UtilityClaim:
    """The total utility that a subscriber requests, and the factor by which the budget scales it.

    ``owner``: the owner of the token that registered it; all subscribers of an owner share one
    budget. ``granted_share`` is above 1 if the owner claims less than its budget.
    """

    subscriber: Identifier
    owner: str
    asked: Amount
    granted_share: Amount
