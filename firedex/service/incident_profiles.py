"""What the phase of an incident makes of utilities. Pure."""

from dataclasses import replace

from firedex.wire import Subscriber, Subscription
from firedex.wire.incident import ANYBODY, UtilityProfile
from firedex.wire.values import LARGEST

__all__ = ["covers", "under_profile"]


def covers(general: str, specific: str) -> bool:
    """Whether everything that the filter ``specific`` matches is also matched by ``general``."""
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


def under_profile(subscriber: Subscriber, profile: UtilityProfile) -> Subscriber:
    """The subscriber with the utilities that the profile gives it."""
    return replace(
        subscriber,
        subscriptions=tuple(
            _valued(subscription, subscriber.role, profile)
            for subscription in subscriber.subscriptions
        ),
    )


def _valued(subscription: Subscription, role: str, profile: UtilityProfile) -> Subscription:
    for rule in profile.rules:
        if rule.role not in (ANYBODY, role) or not covers(rule.filter, subscription.filter):
            continue
        if rule.utility is not None:
            return replace(subscription, utility=rule.utility)
        weight = min(subscription.utility.weight * (rule.factor or 0.0), LARGEST)
        return replace(subscription, utility=replace(subscription.utility, weight=weight))
    return subscription
