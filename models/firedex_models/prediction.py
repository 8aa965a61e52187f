"""Prediction of delay, success and utility for a scenario with an assignment (paper Eq. 2).

The path is: publisher's link → broker in → broker out → switch in → switch out. Drops and errors
reduce the rates along the path.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firedex.wire import Assignment, ModelName, QueueKind, QueuePrediction, Scenario
from firedex_models.broker import BrokerQueues, InboundTraffic, predict_broker, predict_uplinks
from firedex_models.columns import Floats, Integers
from firedex_models.errors import MissingAssignment
from firedex_models.paths import PathResult, PathTraffic, predict_path
from firedex_models.prediction_table import PredictionTable, StreamOutcome, build_table
from firedex_models.routes import Route
from firedex_models.site import Site, compile_demand, site_from_assignment

__all__ = ["FifoModel", "predict", "predict_site", "queue_report"]

FifoModel = Literal["exact", "paper"]


def predict(
    scenario: Scenario,
    *,
    model: ModelName = "fan-out",
    fifo: FifoModel = "exact",
    assignment: Sequence[Assignment] | None = None,
) -> PredictionTable:
    """Predict delay, success and utility of every subscription.

    ``assignment`` replaces the scenario's assignment. ``model``: packets of one publication arrive
    at a link together (``fan-out``, as in reality) or independently (``independent``, as in the
    paper). ``fifo``: the publishers' links by Pollaczek–Khinchine (``exact``) or by Eq. 4 of the
    paper (``paper``).
    """
    selected = scenario.assignment if assignment is None else assignment
    if selected is None:
        raise MissingAssignment(scenario.name)
    site = site_from_assignment(compile_demand(scenario), selected)
    return predict_site(site, predict_uplinks(scenario, paper_fifo=fifo == "paper"), model=model)


def predict_site(
    site: Site, inbound: InboundTraffic, *, model: ModelName = "fan-out"
) -> PredictionTable:
    """Predict delay, success and utility of every subscription of a compiled site."""
    broker = predict_broker(site, inbound)
    outbound = predict_path(
        _outbound_traffic(site, inbound, broker, model),
        site.downlinks,
        inbound.sources,
        other_lookups=inbound.uplink_result.switch_in_packets,
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
        site, inbound.route, inbound.uplink_result, outbound, broker.in_load, broker.out_load
    )
    hops = [*site.downlinks.hops, *inbound.route.hops]
    return build_table(site, model, outcome, queues, hops)


def _blocked_at(site: Site, inbound: InboundTraffic, outbound: PathResult) -> Integers:
    """Return the first unstable or overflowing hop of each stream; uplinks come first."""
    topic = site.streams.topic
    up = np.where(inbound.blocked_at >= 0, inbound.blocked_at + len(site.downlinks.hops), -1)[topic]
    from_uplink = ~np.isfinite(inbound.mean[topic]) | (outbound.blocked_at < 0)
    return np.where(from_uplink, up, outbound.blocked_at)


def _outbound_traffic(
    site: Site, inbound: InboundTraffic, broker: BrokerQueues, model: ModelName
) -> PathTraffic:
    streams, flows = site.streams, site.flows
    rate = inbound.arrived[streams.topic]
    drop_rate = flows.drop_rate[streams.flow]
    at_meter = flows.at_meter[streams.flow]
    return PathTraffic(
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


def queue_report(
    site: Site,
    up_route: Route,
    up: PathResult,
    down: PathResult,
    broker_in_load: float | None,
    broker_out_load: Floats | None,
) -> list[QueuePrediction]:
    """Return all queues in path order, but only the busiest outbound queue of the broker."""
    broker = site.scenario.network.broker.id
    queues = _hop_reports("switch-uplink", up_route, up)
    if broker_in_load is not None:
        queues.append(_single_class_report(f"{broker} in", "broker-in", broker_in_load))
    if broker_out_load is not None and broker_out_load.size:
        busiest = int(broker_out_load.argmax())
        name = f"{broker} out to {site.scenario.subscribers[busiest].id}"
        queues.append(_single_class_report(name, "broker-out", float(broker_out_load[busiest])))
    queues += [
        _single_class_report(f"{switch} in", "switch-in", load, switch)
        for switch, load in {**up.switch_in_load, **down.switch_in_load}.items()
    ]
    queues += _hop_reports("switch-out", site.downlinks, down)
    return queues


def _hop_reports(kind: QueueKind, route: Route, result: PathResult) -> list[QueuePrediction]:
    return [
        _hop_report(
            hop.name,
            kind,
            hop.switch.id,
            result.hop_load[row],
            result.saturated[row],
            result.overflowing[row],
            infinite_buffer=hop.switch.buffer is None,
            has_classes=hop.switch.managed,
        )
        for row, hop in enumerate(route.hops)
    ]


def _single_class_report(
    name: str, kind: QueueKind, utilization: float, switch: str | None = None
) -> QueuePrediction:
    stable = utilization < 1
    return QueuePrediction(
        id=name,
        kind=kind,
        switch=switch,
        utilization=utilization,
        stable=stable,
        reason=None if stable else _unbounded_queue_reason(utilization),
    )


def _hop_report(
    name: str,
    kind: QueueKind,
    switch: str,
    load: Floats,
    saturated: NDArray[np.bool_],
    overflowing: NDArray[np.bool_],
    *,
    infinite_buffer: bool,
    has_classes: bool,
) -> QueuePrediction:
    utilization = float(load.sum())
    reason = None
    full = saturated | overflowing
    if full.any():
        first = int(np.flatnonzero(full)[0])
        reason = (
            _unbounded_queue_reason(utilization)
            if infinite_buffer
            else _overflow_reason(utilization)
        )
        reason += f" from class {first} down" if has_classes and len(load) > 1 else ""
        reason = reason.removesuffix(",")
    return QueuePrediction(
        id=name,
        kind=kind,
        switch=switch,
        utilization=utilization,
        stable=not saturated.any(),
        reason=reason,
    )


def _overflow_reason(utilization: float) -> str:
    if utilization < 1:
        return f"at a load of {utilization:.3g} the buffer is sometimes full,"
    return f"the offered load is {utilization:.3g} times the capacity: the buffer overflows"


def _unbounded_queue_reason(utilization: float) -> str:
    return (
        f"the offered load is {utilization:.3g} times the capacity and the buffer is infinite: "
        "the queue grows without bound"
    )
