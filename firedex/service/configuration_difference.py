"""What changed between two sets of flows. Pure."""

from collections.abc import Iterable

from firedex.wire import Flow
from firedex.wire.service_api import ConfigurationDifference, FlowChange, SubscriptionMove

__all__ = ["difference"]

LEAST_DIFFERENCE = 0.001
"""Of drop rates: less than a tenth of a per cent is the same to everybody who reads it."""


def difference(
    from_version: int, before: Iterable[Flow], to_version: int, after: Iterable[Flow]
) -> ConfigurationDifference:
    """Flows that came, went or are different, and subscriptions that are served otherwise."""
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
        subscriptions=tuple(_moves(was.values(), now.values())),
    )


def _moves(before: Iterable[Flow], after: Iterable[Flow]) -> Iterable[SubscriptionMove]:
    was = {(flow.subscriber, name): flow for flow in before for name in flow.filters}
    now = {(flow.subscriber, name): flow for flow in after for name in flow.filters}
    for key in sorted(was.keys() | now.keys()):
        old, new = was.get(key), now.get(key)
        if old and new and _alike(old, new):
            continue
        yield SubscriptionMove(
            subscriber=key[0],
            filter=key[1],
            priority_before=old.priority if old else None,
            priority_after=new.priority if new else None,
            drop_rate_before=old.drop_rate if old else None,
            drop_rate_after=new.drop_rate if new else None,
        )


def _alike(old: Flow, new: Flow) -> bool:
    moved = abs(old.drop_rate - new.drop_rate)
    return old.priority == new.priority and moved < LEAST_DIFFERENCE
