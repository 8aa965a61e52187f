"""Whether measured rates have left a plan's, and whether that would change the plan. Pure."""

from collections.abc import Iterable, Mapping

from firedex.service.offered_rates import drifted
from firedex.service.planning_scenario import Basis, expected_rates
from firedex.service.site_state import SiteState
from firedex.wire import Flow, Scenario

__all__ = ["drifted_topics", "materially_different"]

SMALLEST_DROP_CHANGE = 0.02
"""Drop rates that move by less are left alone: the second half of the hysteresis."""


def drifted_topics(site: Scenario, state: SiteState, basis: Basis, tried: Basis) -> list[str]:
    """The topics that have drifted from the plan, and from what was tried since without effect."""
    declared = expected_rates(site, state)
    found = []
    for name, known in state.measured.items():
        used = tried.rates.get(name) or basis.rates.get(name)
        rate = used.rate_per_second if used else declared.get(name, 0.0)
        if drifted(known, rate, used.spread if used else 0.0):
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
