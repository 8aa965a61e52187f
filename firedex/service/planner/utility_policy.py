"""Utilities as the planner counts them: profiles of incident phases, budgets of roles. Pure.

A profile changes the utilities of subscriptions in one phase of an incident. A budget limits the
sum of a subscriber's utilities: a subscriber that claims more keeps the proportions among its own
subscriptions and gains nothing over others.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from firedex.wire import (
    LogUtility,
    PiecewiseLinearUtility,
    ReservedBudget,
    Subscriber,
    Subscription,
    Utility,
)
from firedex.wire.incident import ANY_ROLE, Budgets, ProfileRule, UtilityProfile
from firedex.wire.values import MAX_NUMBER

__all__ = [
    "ProfileDifference",
    "apply_budget",
    "apply_profile",
    "claim",
    "covers",
    "difference_of",
    "granted_share",
    "reserved_budgets",
]


def covers(general: str, specific: str) -> bool:
    """Return True if ``general`` matches everything that the filter ``specific`` matches."""
    if specific[0] in "+#$" and general[0] in "+#" and specific[0] == "$":
        return False
    wide, narrow = general.split("/"), specific.split("/")
    for position, level in enumerate(wide):
        if level == "#":
            return True
        if position == len(narrow) or narrow[position] == "#":
            return False
        if level not in ("+", narrow[position]):
            return False
    return len(wide) == len(narrow)


def apply_profile(subscriber: Subscriber, profile: UtilityProfile) -> Subscriber:
    """Return the subscriber with the utilities of the profile."""
    return replace(
        subscriber,
        subscriptions=tuple(
            _apply_rules(subscription, subscriber.role, profile)
            for subscription in subscriber.subscriptions
        ),
    )


def _apply_rules(subscription: Subscription, role: str, profile: UtilityProfile) -> Subscription:
    for rule in profile.rules:
        if rule.role not in (ANY_ROLE, role) or not covers(rule.filter, subscription.filter):
            continue
        if rule.utility is not None:
            return replace(subscription, utility=rule.utility)
        weight = min(subscription.utility.weight * (rule.factor or 0.0), MAX_NUMBER)
        return replace(subscription, utility=replace(subscription.utility, weight=weight))
    return subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDifference:
    """Differences between two lists of rules.

    ``reordered``: the order of common rules differs, so another rule may match first.
    """

    new: tuple[ProfileRule, ...]
    changed: tuple[tuple[ProfileRule, ProfileRule], ...]
    removed: tuple[ProfileRule, ...]
    unchanged: int
    reordered: bool

    def __str__(self) -> str:
        counts = [
            (len(self.new), "new"),
            (len(self.changed), "changed"),
            (len(self.removed), "removed"),
            (self.unchanged, "unchanged"),
        ]
        text = ", ".join(f"{count} {what}" for count, what in counts if count) or "no rules"
        return text + (", in a different order" if self.reordered else "")


def difference_of(before: Sequence[ProfileRule], after: Sequence[ProfileRule]) -> ProfileDifference:
    """Compare two lists of rules; the first rule of each filter and role counts."""
    old, new = _by_name(before), _by_name(after)
    kept = [name for name in new if name in old]
    changed = tuple((old[name], new[name]) for name in kept if old[name] != new[name])
    return ProfileDifference(
        new=tuple(rule for name, rule in new.items() if name not in old),
        changed=changed,
        removed=tuple(rule for name, rule in old.items() if name not in new),
        unchanged=len(kept) - len(changed),
        reordered=kept != [name for name in old if name in new],
    )


def _by_name(rules: Sequence[ProfileRule]) -> dict[tuple[str, str], ProfileRule]:
    by_name: dict[tuple[str, str], ProfileRule] = {}
    for rule in rules:
        by_name.setdefault((rule.filter, rule.role), rule)
    return by_name


LOG_2 = math.log(2.0)


def claim(subscriber: Subscriber) -> float:
    """Return the sum of the utilities of all subscriptions without any loss."""
    return sum(_maximum(subscription.utility) for subscription in subscriber.subscriptions)


def _maximum(utility: Utility) -> float:
    """Return the utility without loss, like ``UtilityColumns.maximum``."""
    if isinstance(utility, LogUtility):
        return utility.weight * LOG_2
    if isinstance(utility, PiecewiseLinearUtility):
        return utility.weight * utility.points[-1][1]
    return utility.weight


def granted_share(subscriber: Subscriber, budgets: Budgets) -> float:
    """Return the part of the claim that is within the budget."""
    budget = budgets.for_role(subscriber.role).utility
    if budget is None:
        return 1.0
    asked = claim(subscriber)
    return 1.0 if asked <= budget else budget / asked


def apply_budget(subscriber: Subscriber, budgets: Budgets) -> Subscriber:
    """Return the subscriber with utilities scaled down to its budget."""
    share = granted_share(subscriber, budgets)
    if share == 1.0:
        return subscriber
    return replace(
        subscriber,
        subscriptions=tuple(
            replace(s, utility=replace(s.utility, weight=s.utility.weight * share))
            for s in subscriber.subscriptions
        ),
    )


def reserved_budgets(budgets: Budgets, roles: Iterable[str]) -> tuple[ReservedBudget, ...]:
    """Return the share of bandwidth that each of ``roles`` may reserve, if it is limited."""
    found = []
    for role in sorted(set(roles)):
        share = budgets.for_role(role).reserved_share
        if share is not None:
            found.append(ReservedBudget(role=role, share=share))
    return tuple(found)
