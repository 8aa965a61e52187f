"""Whether measured rates have left a plan's, and whether that would change the plan. Pure."""

from collections.abc import Iterable, Mapping

from firedex.service.offered_rates import drifted, far_off
from firedex.service.planning_scenario import Basis, expected_rates, stale
from firedex.service.site_state import SiteState
from firedex.wire import Flow, Scenario

__all__ = ["drifted_topics", "materially_different"]

SMALLEST_DROP_CHANGE = 0.02
"""Drop rates that move by less are left alone: the second half of the hysteresis."""


def drifted_topics(site: Scenario, state: SiteState, tried: Basis, now_seconds: float) -> list[str]:
    """The topics that have drifted from what was planned with last, with or without effect.

    What is no longer measured drifts back to what is declared.
    """
    declared = expected_rates(site, state)
    found = []
    for name in {**state.measured, **tried.rates}:
        known, used = state.measured.get(name), tried.rates.get(name)
        expected = declared.get(name, 0.0)
        if known is None or stale(known, now_seconds):
            if used is not None and far_off(used.rate_per_second, expected):
                found.append(name)
        elif drifted(
            known, used.rate_per_second if used else expected, used.spread if used else 0.0
        ):
            found.append(name)
    return found


def materially_different(before: Iterable[Flow], after: Iterable[Flow]) -> bool:
    """Whether somebody's subscriptions would be served otherwise."""
    was, would = _places(before), _places(after)
    if was.keys() != would.keys():
        return True
    return any(
        there[:2] != would[key][:2] or abs(there[2] - would[key][2]) > SMALLEST_DROP_CHANGE
        for key, there in was.items()
    )


def _places(flows: Iterable[Flow]) -> Mapping[tuple[str, str], tuple[int, int, float]]:
    return {
        (flow.subscriber, name): (flow.flow, flow.priority, flow.drop_rate)
        for flow in flows
        for name in flow.filters
    }
