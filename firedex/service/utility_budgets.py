"""What a subscriber may claim: its utilities, brought down to its role's budget. Pure.

Utility is a claim on shared bandwidth. A subscriber's subscriptions together count for at most its
budget: who asks for more keeps the proportions among its own, and gains nothing over others.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from firedex.wire import (
    LogUtility,
    PiecewiseLinearUtility,
    ReservedBudget,
    Subscriber,
    Utility,
)
from firedex.wire.incident import Budgets

__all__ = ["claim", "granted_share", "reserved_budgets", "within_budget"]

LOG_2 = math.log(2.0)


def claim(subscriber: Subscriber) -> float:
    """What all of its subscriptions are worth together, if nothing were lost."""
    return sum(_most(subscription.utility) for subscription in subscriber.subscriptions)


def _most(utility: Utility) -> float:
    """The worth of losing nothing; the same as ``UtilityColumns.maximum``, one by one."""
    if isinstance(utility, LogUtility):
        return utility.weight * LOG_2
    if isinstance(utility, PiecewiseLinearUtility):
        return utility.weight * utility.points[-1][1]
    return utility.weight


def granted_share(subscriber: Subscriber, budgets: Budgets) -> float:
    """The part of its claim that counts."""
    budget = budgets.of(subscriber.role).utility
    if budget is None:
        return 1.0
    asked = claim(subscriber)
    return 1.0 if asked <= budget else budget / asked


def within_budget(subscriber: Subscriber, budgets: Budgets) -> Subscriber:
    """The subscriber as the planner sees it."""
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
    """What each of ``roles`` may reserve, where that is bounded."""
    found = []
    for role in sorted(set(roles)):
        share = budgets.of(role).reserved_share
        if share is not None:
            found.append(ReservedBudget(role=role, share=share))
    return tuple(found)
