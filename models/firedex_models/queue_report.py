"""Which queue is how full, and which would be the first to overflow."""

import numpy as np
from numpy.typing import NDArray

from firedex.wire import QueuePrediction
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
    """All queues in the order in which an event meets them; of the broker's outbound ones the busiest."""
    broker = site.scenario.network.broker.id
    queues = [
        _hop(hop.name, "switch-uplink", up.hop_load[row], up.saturated[row], has_buffer=hop.switch.buffer is not None)
        for row, hop in enumerate(up_route.hops)
    ]
    if broker_in_load is not None:
        queues.append(_single(f"{broker} in", "broker-in", broker_in_load))
    if broker_out_load is not None and broker_out_load.size:
        busiest = int(broker_out_load.argmax())
        name = f"{broker} out to {site.scenario.subscribers[busiest].id}"
        queues.append(_single(name, "broker-out", float(broker_out_load[busiest])))
    queues += [
        _single(f"{switch} in", "switch-in", load) for switch, load in down.switch_in_load.items()
    ]
    queues += [
        _hop(hop.name, "switch-out", down.hop_load[row], down.saturated[row], has_buffer=hop.switch.buffer is not None)
        for row, hop in enumerate(site.downlinks.hops)
    ]
    return queues


def _single(name: str, kind: str, utilization: float) -> QueuePrediction:
    stable = utilization < 1
    return QueuePrediction(
        id=name,
        kind=kind,  # type: ignore[arg-type]  # a literal of the caller
        utilization=utilization,
        stable=stable,
        reason=None if stable else _grows(utilization),
    )


def _hop(
    name: str, kind: str, load: Floats, saturated: NDArray[np.bool_], *, has_buffer: bool
) -> QueuePrediction:
    utilization = float(load.sum())
    reason = None
    if saturated.any():
        first = int(np.flatnonzero(saturated)[0])
        reason = _grows(utilization) if not has_buffer else (
            f"offered {utilization:.3g} times what it carries: its buffer overflows"
        )
        reason += f" from class {first} down" if len(load) > 1 else ""
    return QueuePrediction(
        id=name,
        kind=kind,  # type: ignore[arg-type]  # a literal of the caller
        utilization=utilization,
        stable=reason is None,
        reason=reason,
    )


def _grows(utilization: float) -> str:
    return (
        f"offered {utilization:.3g} times what it carries, with an endless buffer: "
        "the queue grows without bound"
    )
