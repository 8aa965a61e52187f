"""From a scenario and its assignment to what every subscription will get (paper Eq. 2).

Publisher's link → broker in → broker out → switch in → switch out, with drops and errors thinning
the rates along the way. Pure: a scenario in, a table out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Assignment, ModelName, Scenario
from firedex_models.errors import NotAssigned
from firedex_models.grouping import group_sums
from firedex_models.journey import Journey, Load, travel
from firedex_models.network_hops import Route, uplinks
from firedex_models.periodic_arrivals import Sources
from firedex_models.prediction_table import PredictionTable, StreamOutcome, tabulate
from firedex_models.queue_report import queue_report
from firedex_models.single_class_queues import mm1_delay
from firedex_models.site import Site, compile_site, event_wire_bytes

__all__ = ["FifoModel", "predict"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
FifoModel = Literal["exact", "paper"]
VANISHING_RATE = 1e-12
"""Slower than one event in thirty thousand years is never: it keeps differences from cancelling."""


def predict(
    scenario: Scenario,
    *,
    model: ModelName = "fan-out",
    fifo: FifoModel = "exact",
    assignment: Sequence[Assignment] | None = None,
) -> PredictionTable:
    """Predict delay, success and utility of every subscription.

    ``assignment`` replaces the scenario's own. ``model``: whether packets of one publication arrive
    at a link together (``fan-out``, the truth) or independently (``independent``, the paper's).
    ``fifo``: the publishers' links by Pollaczek–Khinchine, or by the paper's Eq. 4.
    """
    chosen = scenario.assignment if assignment is None else assignment
    if chosen is None:
        raise NotAssigned(scenario.name)
    site = compile_site(scenario, chosen)
    inbound = _inbound(scenario, paper_fifo=fifo == "paper")
    broker = _through_broker(site, inbound)
    outbound = travel(
        _outbound_load(site, inbound, broker, model),
        site.downlinks,
        inbound.sources,
        looked_up_before=inbound.journey.switch_in_packets,
    )
    outcome = StreamOutcome(
        offered=inbound.offered[site.streams.topic],
        success=inbound.success[site.streams.topic] * outbound.survival,
        mean=inbound.mean[site.streams.topic] + broker.mean + outbound.mean,
        variance=inbound.variance[site.streams.topic] + broker.variance + outbound.variance,
        fixed=inbound.fixed[site.streams.topic] + outbound.fixed,
        blocked_at=_blocked_at(site, inbound, outbound),
    )
    queues = queue_report(
        site, inbound.route, inbound.journey, outbound, broker.in_load, broker.out_load
    )
    hops = [*site.downlinks.hops, *inbound.route.hops]
    return tabulate(site, model, outcome, queues, hops)


def _blocked_at(site: Site, inbound: "_Inbound", outbound: Journey) -> Integers:
    """The hop to blame: an uplink where that is what never ends, else the downlink, else any."""
    topic = site.streams.topic
    up = np.where(inbound.blocked_at >= 0, inbound.blocked_at + len(site.downlinks.hops), -1)[topic]
    from_uplink = ~np.isfinite(inbound.mean[topic]) | (outbound.blocked_at < 0)
    return np.where(from_uplink, up, outbound.blocked_at)


@dataclass(frozen=True, kw_only=True)
class _Inbound:
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


def _inbound(scenario: Scenario, *, paper_fifo: bool) -> _Inbound:
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
    return _Inbound(
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


@dataclass(frozen=True, kw_only=True)
class _Broker:
    """Time in the broker's two M/M/1 queues, for each stream, and what gets through them."""

    mean: Floats
    variance: Floats
    admitted: Floats
    in_load: float | None
    out_load: Floats | None


def _through_broker(site: Site, inbound: _Inbound) -> _Broker:
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
    return _Broker(
        mean=mean, variance=variance, admitted=admitted, in_load=in_load, out_load=out_load
    )


def _outbound_load(site: Site, inbound: _Inbound, broker: _Broker, model: ModelName) -> Load:
    streams, flows = site.streams, site.flows
    rate = inbound.arrived[streams.topic]
    drop_rate = flows.drop_rate[streams.flow]
    at_meter = flows.at_meter[streams.flow]
    return Load(
        route_row=flows.subscriber[streams.flow],
        priority=flows.priority[streams.flow],
        publication=streams.topic if model == "fan-out" else np.arange(len(rate), dtype=np.int64),
        topic=streams.topic,
        rate=rate,
        survival=broker.admitted * np.where(at_meter, 1.0, 1.0 - drop_rate),
        wire_bytes=streams.wire_bytes,
        size_variability=site.topic_size_variability[streams.topic],
        metered=np.where(at_meter, drop_rate, 0.0),
    )
