"""The event rates that a plan assumes, and whether measured rates have drifted from them. Pure."""

from collections.abc import Iterable

from firedex.service.state.offered_rates import (
    RateSnapshot,
    SnapshotRate,
    differs_enough,
    has_drifted,
    is_reliable,
    is_stale,
    spread,
)
from firedex.service.state.site_state import SiteState
from firedex.wire import Publisher, Scenario

__all__ = ["declared_rates", "drifted_topics", "expected_rates", "rate_snapshot"]

LARGEST_RATE_PER_SECOND = 1e12
"""The largest rate that a scenario accepts."""


def declared_rates(publishers: Iterable[Publisher]) -> dict[str, float]:
    """Return the declared rate of each topic, summed over its publishers."""
    rates: dict[str, float] = {}
    for publisher in publishers:
        for publication in publisher.publications:
            estimate = rates.get(publication.topic, 0.0)
            rates[publication.topic] = estimate + publication.rate_per_second
    return rates


def expected_rates(site: Scenario, state: SiteState) -> dict[str, float]:
    """Return the declared rate of each topic, of registered publishers and those of the site."""
    registered = [registration.publisher for registration in state.publishers.values()]
    others = [publisher for publisher in site.publishers if publisher.id not in state.publishers]
    return declared_rates([*others, *registered])


def rate_snapshot(site: Scenario, state: SiteState, now_seconds: float) -> RateSnapshot:
    """Return the rates that a plan made now uses: recent measurements with enough events."""
    expected = expected_rates(site, state)
    return RateSnapshot(
        {
            topic: SnapshotRate(
                rate_per_second=min(estimate.rate_per_second, LARGEST_RATE_PER_SECOND),
                spread=spread(estimate),
                event_bytes=estimate.event_bytes if estimate.events >= 1 else None,
            )
            for topic, estimate in state.measured.items()
            if is_reliable(estimate, expected.get(topic, 0.0))
            and not is_stale(estimate, now_seconds)
        }
    )


def drifted_topics(
    site: Scenario, state: SiteState, planned: RateSnapshot, now_seconds: float
) -> list[str]:
    """Return the topics whose rate has drifted from the rate used by the last plan.

    A topic that is no longer measured drifts back to its declared rate.
    """
    declared = expected_rates(site, state)
    found = []
    for name in {**state.measured, **planned.rates}:
        estimate, used = state.measured.get(name), planned.rates.get(name)
        expected = declared.get(name, 0.0)
        if estimate is None or is_stale(estimate, now_seconds):
            if used is not None and differs_enough(used.rate_per_second, expected):
                found.append(name)
        elif has_drifted(
            estimate, used.rate_per_second if used else expected, used.spread if used else 0.0
        ):
            found.append(name)
    return found
