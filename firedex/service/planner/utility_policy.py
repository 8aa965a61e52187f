"""Utilities as the planner counts them: profiles of incident phases, budgets of roles. Pure.

A profile changes the utilities of subscriptions in one phase of an incident. A budget is the sum of
the utilities of all subscribers of one owner: claims are scaled to it, so an owner decides about
the proportions among its own subscriptions, and gains nothing over other owners by larger claims
or by more subscribers.
"""

import math
from collections import Counter
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
from firedex.wire.incident import ANY_ROLE, Budgets, ProfileRule, RoleBudget, UtilityProfile
from firedex.wire.values import MAX_NUMBER

__all__ = [
    "ClaimingSubscriber",
    "ProfileDifference",
    "apply_budgets",
    "apply_profile",
    "claim",
    "covers",
    "difference_of",
    "granted_shares",
    "phase_subscriber",
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
    rule = _first_rule(subscription, role, profile)
    if rule is None:
        return subscription
    if rule.utility is not None:
        return replace(subscription, utility=rule.utility)
    weight = min(subscription.utility.weight * (rule.factor or 0.0), MAX_NUMBER)
    return replace(subscription, utility=replace(subscription.utility, weight=weight))


def _first_rule(
    subscription: Subscription, role: str, profile: UtilityProfile
) -> ProfileRule | None:
    for rule in profile.rules:
        if rule.role in (ANY_ROLE, role) and covers(rule.filter, subscription.filter):
            return rule
    return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimingSubscriber:
    """A subscriber in the present phase, its owner, and its claim before the profile's factors."""

    subscriber: Subscriber
    owner: str
    claim_before_factors: float


def phase_subscriber(
    subscriber: Subscriber, owner: str, profile: UtilityProfile | None
) -> ClaimingSubscriber:
    """Return a subscriber with the utilities of a phase."""
    changed = subscriber if profile is None else apply_profile(subscriber, profile)
    before = 0.0
    for given, now in zip(subscriber.subscriptions, changed.subscriptions, strict=True):
        rule = None if profile is None else _first_rule(given, subscriber.role, profile)
        multiplied = rule is not None and rule.utility is None
        before += _maximum(given.utility if multiplied else now.utility)
    return ClaimingSubscriber(subscriber=changed, owner=owner, claim_before_factors=before)


def granted_shares(subscribers: Sequence[ClaimingSubscriber], budgets: Budgets) -> list[float]:
    """Return the factor by which the budget of its owner scales each subscriber's utilities.

    Every owner of a role gets the same total, whatever it claims and however many subscribers it
    has. The factors of a phase change that total, because incident command sets them.
    """
    claims: dict[tuple[str, str], list[float]] = {}
    for each in subscribers:
        total = claims.setdefault((each.subscriber.role, each.owner), [0.0, 0.0])
        total[0] += claim(each.subscriber)
        total[1] += each.claim_before_factors
    owners = Counter(role for role, _ in claims)
    shares: dict[tuple[str, str], float] = {}
    for (role, owner), (asked, before) in claims.items():
        budget = _owner_budget(budgets.for_role(role), owners[role])
        if budget is None or asked <= 0 or before <= 0:
            shares[role, owner] = 1.0
        else:
            shares[role, owner] = budget / before  # = budget · (asked / before) / asked
    return [shares[each.subscriber.role, each.owner] for each in subscribers]


def _owner_budget(budget: RoleBudget, owners: int) -> float | None:
    limits = [] if budget.utility is None else [budget.utility]
    if budget.total_utility is not None:
        limits.append(budget.total_utility / owners)
    return min(limits, default=None)


def apply_budgets(subscribers: Sequence[ClaimingSubscriber], budgets: Budgets) -> list[Subscriber]:
    """Return the subscribers with utilities scaled to the budgets of their owners."""
    shares = granted_shares(subscribers, budgets)
    return [
        _scaled(each.subscriber, share) for each, share in zip(subscribers, shares, strict=True)
    ]


def _scaled(subscriber: Subscriber, share: float) -> Subscriber:
    if share == 1.0:
        return subscriber
    return replace(
        subscriber,
        subscriptions=tuple(
            replace(s, utility=replace(s.utility, weight=min(s.utility.weight * share, MAX_NUMBER)))
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
