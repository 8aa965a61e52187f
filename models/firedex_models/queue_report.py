"""Which queue is how full, and which would be the first to overflow."""

import numpy as np
from numpy.typing import NDArray

from firedex.wire import QueueKind, QueuePrediction
from firedex_models.journey import Journey
from firedex_models.network_hops import Route
from firedex_models.site import Site

__all__ = ["queue_report"]

Floats = NDArray[np.float64]


def queue_report(
    site: Site,
    up_route: Route,
    up: Journey,
    down: Journey,
    broker_in_load: float | None,
    broker_out_load: Floats | None,
) -> list[QueuePrediction]:
    """All queues in the order in which events meet them; of those out of the broker the busiest."""
    broker = site.scenario.network.broker.id
    queues = _hops("switch-uplink", up_route, up)
    if broker_in_load is not None:
        queues.append(_single(f"{broker} in", "broker-in", broker_in_load))
    if broker_out_load is not None and broker_out_load.size:
        busiest = int(broker_out_load.argmax())
        name = f"{broker} out to {site.scenario.subscribers[busiest].id}"
        queues.append(_single(name, "broker-out", float(broker_out_load[busiest])))
    queues += [
        _single(f"{switch} in", "switch-in", load, switch)
        for switch, load in {**up.switch_in_load, **down.switch_in_load}.items()
    ]
    queues += _hops("switch-out", site.downlinks, down)
    return queues


def _hops(kind: QueueKind, route: Route, journey: Journey) -> list[QueuePrediction]:
    return [
        _hop(
            hop.name,
            kind,
            hop.switch.id,
            journey.hop_load[row],
            journey.saturated[row],
            journey.overflowing[row],
            endless=hop.switch.buffer is None,
            classes=hop.switch.managed,
        )
        for row, hop in enumerate(route.hops)
    ]


def _single(
    name: str, kind: QueueKind, utilization: float, switch: str | None = None
) -> QueuePrediction:
    stable = utilization < 1
    return QueuePrediction(
        id=name,
        kind=kind,
        switch=switch,
        utilization=utilization,
        stable=stable,
        reason=None if stable else _grows(utilization),
    )


def _hop(
    name: str,
    kind: QueueKind,
    switch: str,
    load: Floats,
    saturated: NDArray[np.bool_],
    overflowing: NDArray[np.bool_],
    *,
    endless: bool,
    classes: bool,
) -> QueuePrediction:
    utilization = float(load.sum())
    reason = None
    full = saturated | overflowing
    if full.any():
        first = int(np.flatnonzero(full)[0])
        reason = _grows(utilization) if endless else _overflows(utilization)
        reason += f" from class {first} down" if classes and len(load) > 1 else ""
        reason = reason.removesuffix(",")
    return QueuePrediction(
        id=name,
        kind=kind,
        switch=switch,
        utilization=utilization,
        stable=not saturated.any(),
        reason=reason,
    )


def _overflows(utilization: float) -> str:
    if utilization < 1:
        return f"at a load of {utilization:.3g} its buffer is full at times,"
    return f"offered {utilization:.3g} times what it carries: its buffer overflows"


def _grows(utilization: float) -> str:
    return (
        f"offered {utilization:.3g} times what it carries, with an endless buffer: "
        "the queue grows without bound"
    )
