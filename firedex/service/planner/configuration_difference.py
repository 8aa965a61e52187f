"""Differences between the flows of two configurations. Pure."""

from collections.abc import Iterable, Mapping

from firedex.wire import Flow
from firedex.wire.service_api import ConfigurationDifference, FlowChange, SubscriptionChange

__all__ = ["difference", "materially_different"]

LEAST_DIFFERENCE = 0.001
"""Drop rates that differ by less are shown as equal."""
SMALLEST_DROP_CHANGE = 0.02
"""A new plan with smaller changes of drop rates is not used (hysteresis, second part)."""


def difference(
    from_version: int, before: Iterable[Flow], to_version: int, after: Iterable[Flow]
) -> ConfigurationDifference:
    """Return changed flows, and subscriptions with another class or drop rate."""
    was = {(flow.subscriber, flow.flow): flow for flow in before}
    now = {(flow.subscriber, flow.flow): flow for flow in after}
    flows = [
        FlowChange(subscriber=key[0], flow=key[1], before=was.get(key), after=now.get(key))
        for key in sorted(was.keys() | now.keys())
        if was.get(key) != now.get(key)
    ]
    return ConfigurationDifference(
        from_version=from_version,
        to_version=to_version,
        flows=tuple(flows),
        subscriptions=tuple(_subscription_changes(was.values(), now.values())),
    )


def _subscription_changes(
    before: Iterable[Flow], after: Iterable[Flow]
) -> Iterable[SubscriptionChange]:
    was = {(flow.subscriber, name): flow for flow in before for name in flow.filters}
    now = {(flow.subscriber, name): flow for flow in after for name in flow.filters}
    for key in sorted(was.keys() | now.keys()):
        old, new = was.get(key), now.get(key)
        if old and new and _same_service(old, new):
            continue
        yield SubscriptionChange(
            subscriber=key[0],
            filter=key[1],
            priority_before=old.priority if old else None,
            priority_after=new.priority if new else None,
            drop_rate_before=old.drop_rate if old else None,
            drop_rate_after=new.drop_rate if new else None,
        )


def _same_service(old: Flow, new: Flow) -> bool:
    change = abs(old.drop_rate - new.drop_rate)
    return old.priority == new.priority and change < LEAST_DIFFERENCE


def materially_different(before: Iterable[Flow], after: Iterable[Flow]) -> bool:
    """Return True if a subscription gets another flow, class or clearly different drop rate."""
    was, would = _assignments(before), _assignments(after)
    if was.keys() != would.keys():
        return True
    return any(
        assignment[:2] != would[key][:2]
        or abs(assignment[2] - would[key][2]) > SMALLEST_DROP_CHANGE
        for key, assignment in was.items()
    )


def _assignments(flows: Iterable[Flow]) -> Mapping[tuple[str, str], tuple[int, int, float]]:
    return {
        (flow.subscriber, name): (flow.flow, flow.priority, flow.drop_rate)
        for flow in flows
        for name in flow.filters
    }
