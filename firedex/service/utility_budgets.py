"""What a subscriber may claim: its utilities, brought down to its role's budget. Pure.

Utility is a claim on shared bandwidth. A subscriber's subscriptions together count for at most its
budget: who asks for more keeps the proportions among its own, and gains nothing over others.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from firedex.wire import ReservedBudget, Subscriber
from firedex.wire.incident import Budgets
from firedex_models import UtilityColumns

__all__ = ["claim", "reserved_budgets", "within_budget"]


def claim(subscriber: Subscriber) -> float:
    """What all of its subscriptions are worth together, if nothing were lost."""
    if not subscriber.subscriptions:
        return 0.0
    columns = UtilityColumns([s.utility for s in subscriber.subscriptions])
    return float(np.sum(columns.maximum))


def granted_share(subscriber: Subscriber, budgets: Budgets) -> float:
    """The part of its claim that counts."""
    budget = budgets.of(subscriber.role).utility
    asked = claim(subscriber)
    return 1.0 if budget is None or asked <= budget else budget / asked


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
