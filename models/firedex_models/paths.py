"""Paths through several stages of queues: delays add up, survival probabilities multiply.

Each stage is computed as if the packets of a batch arrived at the same time, as they do at the
first stage. After a link that has already spread a batch, this overestimates the wait
(``docs/concepts/model.md``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from firedex_models.columns import Booleans, Floats, Integers, group_sums
from firedex_models.link_queues import LinkQueues, StageDelays, stage_delays
from firedex_models.periodic_arrivals import Sources
from firedex_models.queue_traffic import QueueTraffic
from firedex_models.queueing import mm1_delay, paper_fifo_delay
from firedex_models.routes import Hop, Route

__all__ = ["PathResult", "PathTraffic", "predict_path"]


@dataclass(frozen=True, kw_only=True)
class PathTraffic:
    """The traffic at the start of a path: one row per stream (see ``QueueTraffic``).

    ``metered``: the fraction that the meter of the first managed switch drops.
    """

    route_row: Integers
    priority: Integers
    publication: Integers
    topic: Integers
    rate: Floats
    survival: Floats
    wire_bytes: Floats
    size_variability: Floats
    metered: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class PathResult:
    """The delay and survival of each stream, and the loads of hops and of switch lookups.

    ``survival`` includes the initial survival. ``mean`` is infinite if the stream crosses an
    unstable queue. ``blocked_at`` is the first unstable or overflowing hop of the stream, or −1.
    """

    mean: Floats
    variance: Floats
    fixed: Floats
    survival: Floats
    blocked_at: Integers
    hop_load: Floats
    saturated: Booleans
    overflowing: Booleans
    switch_in_load: dict[str, float]
    switch_in_packets: dict[str, float]


def predict_path(
    load: PathTraffic,
    route: Route,
    sources: Sources,
    *,
    paper_fifo: bool = False,
    other_lookups: Mapping[str, float] | None = None,
) -> PathResult:
    """Predict delay and survival of all streams along ``route``.

    ``other_lookups``: other packets per second that the switches look up.
    """
    rows = len(load.rate)
    mean, variance, fixed = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    survival = load.survival.copy()
    metered = np.zeros(rows) if load.metered is None else load.metered.copy()
    blocked_at = np.full(rows, -1, dtype=np.int64)
    hop_load: Floats = np.zeros((len(route.hops), int(load.priority.max(initial=0)) + 1))
    saturated = np.zeros(hop_load.shape, dtype=bool)
    overflowing = np.zeros(hop_load.shape, dtype=bool)
    switch_in_load: dict[str, float] = {}
    switch_in_packets: dict[str, float] = dict(other_lookups or {})
    for depth in range(route.stage.shape[1]):
        hop = route.stage[load.route_row, depth]
        rows_here = np.flatnonzero(hop >= 0)
        if not rows_here.size:
            continue
        hops = np.unique(hop[rows_here])
        stage_hops = [route.hops[number] for number in hops]
        queue = np.searchsorted(hops, hop[rows_here])
        lookup, lookup_success = _predict_lookup(
            stage_hops,
            queue,
            load.rate[rows_here] * survival[rows_here],
            switch_in_packets,
            switch_in_load,
        )
        has_meter = np.array([hop.switch.managed for hop in stage_hops])[queue]
        survival[rows_here] *= lookup_success * np.where(has_meter, 1.0 - metered[rows_here], 1.0)
        metered[rows_here[has_meter]] = 0.0
        traffic = _stage_traffic(load, rows_here, queue, stage_hops, survival[rows_here])
        stage = stage_delays(traffic, _link_queues(stage_hops), sources)
        if paper_fifo:
            stage = _apply_paper_fifo(traffic, stage)
        propagation = _switch_values(stage_hops, "propagation_seconds")[queue]
        mean[rows_here] += stage.mean + lookup + propagation
        variance[rows_here] += stage.variance + lookup**2
        fixed[rows_here] += stage.fixed + propagation
        full = (stage.capacity.saturated | stage.overflowing)[traffic.queue, traffic.priority]
        newly_blocked = rows_here[(full | ~np.isfinite(lookup)) & (blocked_at[rows_here] < 0)]
        blocked_at[newly_blocked] = hop[newly_blocked]
        survival[rows_here] *= stage.admitted * (
            1 - _switch_values(stage_hops, "error_rate")[queue]
        )
        hop_load[hops] = traffic.load
        saturated[hops] = stage.capacity.saturated
        overflowing[hops] = stage.overflowing
    return PathResult(
        mean=mean,
        variance=variance,
        fixed=fixed,
        survival=survival,
        blocked_at=blocked_at,
        hop_load=hop_load,
        saturated=saturated,
        overflowing=overflowing,
        switch_in_load=switch_in_load,
        switch_in_packets=switch_in_packets,
    )


def _stage_traffic(
    load: PathTraffic, rows_here: Integers, queue: Integers, hops: list[Hop], survival: Floats
) -> QueueTraffic:
    speed = np.array([hop.bandwidth_bits_per_second for hop in hops])
    managed = np.array([hop.switch.managed for hop in hops])
    return QueueTraffic(
        queues=len(hops),
        classes=int(load.priority.max(initial=0)) + 1,
        queue=queue,
        priority=np.where(managed[queue], load.priority[rows_here], 0),
        publication=load.publication[rows_here],
        topic=load.topic[rows_here],
        rate=load.rate[rows_here],
        survival=survival,
        service_seconds=load.wire_bytes[rows_here] * 8 / speed[queue],
        size_variability=load.size_variability[rows_here],
    )


def _link_queues(hops: list[Hop]) -> LinkQueues:
    speed = np.array([hop.bandwidth_bits_per_second for hop in hops])
    buffers = [hop.switch.buffer for hop in hops]
    return LinkQueues(
        burst_seconds=_switch_values(hops, "burst_bytes") * 8 / speed,
        guaranteed_share=_switch_values(hops, "guaranteed_bits_per_second") / speed,
        buffer_packets=np.array([b.packets if b else np.inf for b in buffers], dtype=float),
        shared_buffer=np.array([b is None or b.kind == "shared-push-out" for b in buffers]),
    )


def _switch_values(hops: list[Hop], name: str) -> Floats:
    return np.array([getattr(hop.switch, name) for hop in hops], dtype=float)


def _predict_lookup(
    hops: list[Hop],
    queue: Integers,
    packets: Floats,
    total: dict[str, float],
    load: dict[str, float],
) -> tuple[Floats, Floats]:
    """Return the delay and the passing fraction in each switch's inbound queue (M/M/1).

    All ports of a switch share the queue. ``total`` and ``load`` are updated with these packets.
    """
    names = sorted({hop.switch.id for hop in hops})
    switch = np.array([names.index(hop.switch.id) for hop in hops])[queue]
    rate = np.full(len(names), np.inf)
    for hop in hops:
        if hop.switch.managed and hop.switch.in_packets_per_second is not None:
            rate[names.index(hop.switch.id)] = hop.switch.in_packets_per_second
    arriving = group_sums(switch, packets, len(names))
    for row, name in enumerate(names):
        total[name] = arriving[row] = total.get(name, 0.0) + arriving[row]
        if np.isfinite(rate[row]):
            load[name] = float(arriving[row] / rate[row])
    delay = np.where(np.isfinite(rate), mm1_delay(rate, arriving), 0.0)
    passed = 1.0 / np.maximum(arriving / rate, 1.0)
    return delay[switch], passed[switch]


def _apply_paper_fifo(traffic: QueueTraffic, stage: StageDelays) -> StageDelays:
    """Return the stage with the mean of the paper's Eq. 4 and the variance of an M/M/1 queue."""
    total = traffic.load.sum(axis=1)[traffic.queue]
    mean = paper_fifo_delay(traffic.service_seconds, total)
    return StageDelays(
        mean=np.where(stage.capacity.saturated[traffic.queue, 0], stage.mean, mean),
        variance=mean**2,
        fixed=np.zeros_like(mean),
        admitted=stage.admitted,
        overflowing=stage.overflowing,
        capacity=stage.capacity,
    )
