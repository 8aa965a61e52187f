"""The path from publishers to the broker (paper Eq. 4), and the broker's queues (paper Eq. 6).

The inbound traffic does not depend on the assignment, so it is computed once for all plans.
"""

from dataclasses import dataclass

import numpy as np

from firedex.wire import Scenario
from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.paths import PathResult, PathTraffic, predict_path
from firedex_models.periodic_arrivals import Sources
from firedex_models.queueing import mm1_delay
from firedex_models.routes import Route, uplinks
from firedex_models.site import Site, event_wire_bytes

__all__ = ["BrokerQueues", "InboundTraffic", "predict_broker", "predict_uplinks"]

VANISHING_RATE = 1e-12
"""Lower rates are treated as 0, to avoid cancellation in differences."""


@dataclass(frozen=True, kw_only=True)
class InboundTraffic:
    """The rates of topics at the broker, and the delays up to there (arrays over topics)."""

    offered: Floats
    arrived: Floats
    success: Floats
    mean: Floats
    variance: Floats
    fixed: Floats
    blocked_at: Integers
    sources: Sources
    route: Route
    uplink_result: PathResult


def predict_uplinks(scenario: Scenario, *, paper_fifo: bool = False) -> InboundTraffic:
    """Predict every publication's path to the broker, and sum up by topic."""
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
    row_numbers = np.arange(rows, dtype=np.int64)
    uplink_result = predict_path(
        PathTraffic(
            route_row=row_numbers,
            priority=np.zeros(rows, dtype=np.int64),
            publication=row_numbers,
            topic=row_numbers,
            rate=rate,
            survival=np.ones(rows),
            wire_bytes=np.array(size, dtype=float),
            size_variability=np.array(exponential, dtype=float)[topic],
        ),
        route,
        Sources(topic=row_numbers, rate=rate, arriving_fraction=np.ones(rows), periodic=periodic),
        paper_fifo=paper_fifo,
    )
    forwarded = scenario.network.broker.forwarded
    all_topic = np.append(topic, [position[f.topic] for f in forwarded]).astype(np.int64)
    arriving = np.append(rate * uplink_result.survival, [f.rate_per_second for f in forwarded])
    offered = np.append(rate, [f.rate_per_second for f in forwarded])
    zeros = np.zeros(len(forwarded))
    delay = np.append(uplink_result.mean, zeros)
    square = np.append(uplink_result.variance + uplink_result.mean**2, zeros)
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
    min_fixed = np.full(topics, np.inf)
    np.minimum.at(min_fixed, all_topic, np.append(uplink_result.fixed, zeros))
    blocked_at = np.full(topics, -1, dtype=np.int64)
    np.maximum.at(blocked_at, topic, np.where(rate > 0, uplink_result.blocked_at, -1))
    offered_total = total(offered)
    return InboundTraffic(
        offered=offered_total,
        arrived=arrived,
        success=np.divide(arrived, offered_total, out=np.ones(topics), where=offered_total > 0),
        mean=mean,
        variance=np.maximum(variance, 0.0),
        fixed=np.where(np.isfinite(min_fixed), np.minimum(min_fixed, mean), 0.0),
        blocked_at=blocked_at,
        sources=Sources(
            topic=all_topic[order],
            rate=offered[order],
            arriving_fraction=np.append(uplink_result.survival, np.ones(len(forwarded)))[order],
            periodic=np.append(periodic, np.zeros(len(forwarded), dtype=bool))[order],
        ),
        route=route,
        uplink_result=uplink_result,
    )


@dataclass(frozen=True, kw_only=True)
class BrokerQueues:
    """The time of each stream in the broker's two M/M/1 queues, and the admitted fraction."""

    mean: Floats
    variance: Floats
    admitted: Floats
    in_load: float | None
    out_load: Floats | None


def predict_broker(site: Site, inbound: InboundTraffic) -> BrokerQueues:
    """Predict the delay and the admitted fraction of each stream in the broker."""
    broker = site.scenario.network.broker
    streams, flows = site.streams, site.flows
    mean, variance = np.zeros(len(streams.topic)), np.zeros(len(streams.topic))
    admitted = np.ones(len(streams.topic))
    in_load: float | None = None
    out_load: Floats | None = None
    if broker.in_events_per_second is not None:
        arriving = float(inbound.arrived.sum())
        delay = float(mm1_delay(broker.in_events_per_second, arriving))
        mean, variance = mean + delay, variance + delay**2
        in_load = arriving / broker.in_events_per_second
        admitted = admitted / max(in_load, 1.0)
    if broker.out_events_per_second is not None:
        subscriber = flows.subscriber[streams.flow]
        leaving = group_sums(
            subscriber, inbound.arrived[streams.topic], len(site.scenario.subscribers)
        )
        by_subscriber = mm1_delay(broker.out_events_per_second, leaving)
        mean, variance = mean + by_subscriber[subscriber], variance + by_subscriber[subscriber] ** 2
        out_load = leaving / broker.out_events_per_second
        admitted = admitted / np.maximum(out_load, 1.0)[subscriber]
    return BrokerQueues(
        mean=mean, variance=variance, admitted=admitted, in_load=in_load, out_load=out_load
    )
