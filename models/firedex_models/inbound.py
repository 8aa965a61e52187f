"""From publishers to the broker: what arrives of each topic, and when (paper Eq. 4).

No assignment changes it, so it is computed once for all the plans that are tried.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Scenario
from firedex_models.demand import event_wire_bytes
from firedex_models.grouping import group_sums
from firedex_models.journey import Journey, Load, travel
from firedex_models.network_hops import Route, uplinks
from firedex_models.periodic_arrivals import Sources

__all__ = ["Inbound", "travel_to_broker"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
VANISHING_RATE = 1e-12
"""Slower than one event in thirty thousand years is never: it keeps differences from cancelling."""


@dataclass(frozen=True, kw_only=True)
class Inbound:
    """What reaches the broker of each topic, and how long that took (arrays over topics)."""

    offered: Floats
    arrived: Floats
    success: Floats
    mean: Floats
    variance: Floats
    fixed: Floats
    blocked_at: Integers
    sources: Sources
    route: Route
    journey: Journey


def travel_to_broker(scenario: Scenario, *, paper_fifo: bool = False) -> Inbound:
    """Follow every publication to the broker and add them up by topic."""
    position = {topic.name: row for row, topic in enumerate(scenario.topics)}
    topics = len(scenario.topics)
    route, published = uplinks(scenario)
    rows = len(published)
    topic = np.array([position[publication.topic] for _, publication in published], dtype=np.int64)
    rate = np.array([publication.rate_per_second for _, publication in published], dtype=float)
    rate[rate < VANISHING_RATE] = 0.0
    periodic = np.array([publication.arrivals == "periodic" for _, publication in published], bool)
    size = [
        event_wire_bytes(
            scenario, scenario.topics[row], publisher.transport or scenario.transport, 0
        )
        for row, (publisher, _) in zip(topic, published, strict=True)
    ]
    exponential = [t.size_distribution == "exponential" for t in scenario.topics]
    each = np.arange(rows, dtype=np.int64)
    journey = travel(
        Load(
            route_row=each,
            priority=np.zeros(rows, dtype=np.int64),
            publication=each,
            topic=each,
            rate=rate,
            survival=np.ones(rows),
            wire_bytes=np.array(size, dtype=float),
            size_variability=np.array(exponential, dtype=float)[topic],
        ),
        route,
        Sources(topic=each, rate=rate, kept=np.ones(rows), periodic=periodic),
        paper_fifo=paper_fifo,
    )
    forwarded = scenario.network.broker.forwarded
    all_topic = np.append(topic, [position[f.topic] for f in forwarded]).astype(np.int64)
    arriving = np.append(rate * journey.survival, [f.rate_per_second for f in forwarded])
    offered = np.append(rate, [f.rate_per_second for f in forwarded])
    nothing = np.zeros(len(forwarded))
    delay = np.append(journey.mean, nothing)
    square = np.append(journey.variance + journey.mean**2, nothing)
    order = np.argsort(all_topic, kind="stable")

    def total(amount: Floats) -> Floats:
        return group_sums(all_topic, amount, topics)

    arrived = total(arriving)
    weight = np.divide(
        arriving, arrived[all_topic], out=np.zeros_like(arriving), where=arriving > 0
    )
    with np.errstate(invalid="ignore"):
        mean = total(np.where(weight > 0, weight * delay, 0.0))
        variance = total(np.where(weight > 0, weight * square, 0.0)) - mean**2
    least = np.full(topics, np.inf)
    np.minimum.at(least, all_topic, np.append(journey.fixed, nothing))
    blocked_at = np.full(topics, -1, dtype=np.int64)
    np.maximum.at(blocked_at, topic, np.where(rate > 0, journey.blocked_at, -1))
    offered_total = total(offered)
    return Inbound(
        offered=offered_total,
        arrived=arrived,
        success=np.divide(arrived, offered_total, out=np.ones(topics), where=offered_total > 0),
        mean=mean,
        variance=np.maximum(variance, 0.0),
        fixed=np.where(np.isfinite(least), np.minimum(least, mean), 0.0),
        blocked_at=blocked_at,
        sources=Sources(
            topic=all_topic[order],
            rate=offered[order],
            kept=np.append(journey.survival, np.ones(len(forwarded)))[order],
            periodic=np.append(periodic, np.zeros(len(forwarded), dtype=bool))[order],
        ),
        route=route,
        journey=journey,
    )
