"""From a scenario and its assignment to what every subscription will get (paper Eq. 2).

Publisher's link → broker in → broker out → switch in → switch out, with drops and errors thinning
the rates along the way. Pure: a scenario in, a table out.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Assignment, ModelName, Scenario
from firedex_models.broker_queues import BrokerQueues, through_broker
from firedex_models.demand import compile_demand
from firedex_models.errors import NotAssigned
from firedex_models.inbound import Inbound, travel_to_broker
from firedex_models.journey import Journey, Load, travel
from firedex_models.prediction_table import PredictionTable, StreamOutcome, tabulate
from firedex_models.queue_report import queue_report
from firedex_models.site import Site, assigned

__all__ = ["FifoModel", "predict", "predict_site"]

Integers = NDArray[np.int64]
FifoModel = Literal["exact", "paper"]


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
    site = assigned(compile_demand(scenario), chosen)
    return predict_site(site, travel_to_broker(scenario, paper_fifo=fifo == "paper"), model=model)


def predict_site(site: Site, inbound: Inbound, *, model: ModelName = "fan-out") -> PredictionTable:
    """Predict for columns: what ``predict`` does once a scenario is compiled."""
    broker = through_broker(site, inbound)
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


def _blocked_at(site: Site, inbound: Inbound, outbound: Journey) -> Integers:
    """The hop to blame: an uplink where that is what never ends, else the downlink, else any."""
    topic = site.streams.topic
    up = np.where(inbound.blocked_at >= 0, inbound.blocked_at + len(site.downlinks.hops), -1)[topic]
    from_uplink = ~np.isfinite(inbound.mean[topic]) | (outbound.blocked_at < 0)
    return np.where(from_uplink, up, outbound.blocked_at)


def _outbound_load(site: Site, inbound: Inbound, broker: BrokerQueues, model: ModelName) -> Load:
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
