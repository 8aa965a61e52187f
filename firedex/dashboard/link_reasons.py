"""What is wrong with links, and whether that is why a subscription is late. Pure.

A link that has lost bandwidth is on many ways, and most that is late on them may have other
reasons. It is said to be the reason only where it must be one: the plan made with it predicts the
lateness, or it has more to carry than it can, or what it serves later is no sooner there. Otherwise
it is told that it happens meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from firedex.dashboard.flow_measurements import FlowForecast, FlowKey, FlowMeasurement
from firedex.dashboard.link_shares import Port
from firedex.dashboard.wording import loss_text, share_text
from firedex.wire.overview import LateSubscription, LinkNow

__all__ = ["MEANWHILE", "LinkTrouble", "link_trouble", "slowness_of_ports", "with_reasons"]

FULL = 1.0
LEAST_LOSS = 0.05
"""A link that has lost less of its bandwidth is as it was built."""
MEANWHILE = "meanwhile "
Slowness = Mapping[Port, Mapping[int, float]]
"""The shortest 95th percentile that was measured of each class of a port."""
UNKNOWN: Slowness = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTrouble:
    """What is wrong with a link, and since when, if that was said."""

    text: str
    since: datetime | None = None
    overloaded: bool = False


def link_trouble(link: LinkNow) -> LinkTrouble | None:
    """What is wrong with a link, if anything."""
    lost = 1 - link.bandwidth_bits_per_second / link.full_bandwidth_bits_per_second
    overloaded = link.planned_load > FULL
    if lost >= LEAST_LOSS:
        return LinkTrouble(
            text=f"link {link.name} has lost {loss_text(lost)} its bandwidth",
            since=link.reduced_since,
            overloaded=overloaded,
        )
    if overloaded:
        needed = share_text(link.planned_load)
        return LinkTrouble(
            text=f"link {link.name} would need {needed} of its bandwidth", overloaded=True
        )
    return None


def slowness_of_ports(
    ports: Iterable[Port],
    ways: Mapping[str, tuple[Port, ...]],
    flows: Mapping[FlowKey, FlowForecast],
    measured: Mapping[FlowKey, FlowMeasurement],
) -> Slowness:
    """How slow each class is at best, of what crosses these ports."""
    found: dict[Port, dict[int, float]] = {port: {} for port in ports}
    for key, flow in measured.items():
        p95 = flow.delay_p95_seconds
        if p95 is None or key not in flows:
            continue
        for port in ways.get(key[0], ()):
            if port in found:
                priority = flows[key].priority
                found[port][priority] = min(found[port].get(priority, p95), p95)
    return found


def with_reasons(
    late: Iterable[LateSubscription],
    ways: Mapping[str, tuple[Port, ...]],
    troubles: Mapping[Port, LinkTrouble],
    slowness: Slowness = UNKNOWN,
) -> list[LateSubscription]:
    """Late subscriptions with the trouble on their way that explains them, or that there is any.

    A reason that is known stays.
    """
    explained = []
    for one in late:
        found = [
            (port, troubles[port]) for port in ways.get(one.subscriber, ()) if port in troubles
        ]
        if one.reason is None and found:
            reasons = [why for port, why in found if _explains(why, one, slowness.get(port, {}))]
            why = (reasons or [found[0][1]])[0]
            text = why.text if reasons else f"{MEANWHILE}{why.text}"
            one = replace(one, reason=text, reason_since=why.since)
        explained.append(one)
    return explained


def _explains(why: LinkTrouble, one: LateSubscription, slowness: Mapping[int, float]) -> bool:
    predicted = one.predicted_delay_seconds
    if why.overloaded or one.predicted or predicted is None or predicted > one.deadline_seconds:
        return True
    lower = [p95 for priority, p95 in slowness.items() if priority > one.priority]
    own = one.delay_p95_seconds
    return own is not None and bool(lower) and min(lower) >= own
