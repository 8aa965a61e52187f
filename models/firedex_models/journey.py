"""A packet's way through several stages of queues: delays add, losses multiply.

Each stage is taken as if its batches arrived at one instant, as they do at the first. Behind a link
that has already spread a batch out this overstates the wait (``docs/model.md``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.grouping import group_sums
from firedex_models.link_queues import LinkQueues, StageDelays, stage_delays
from firedex_models.network_hops import Hop, Route
from firedex_models.periodic_arrivals import Sources
from firedex_models.queue_traffic import QueueTraffic
from firedex_models.single_class_queues import mm1_delay, paper_fifo_delay

__all__ = ["Journey", "Load", "travel"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What sets out: one row for each stream (see ``QueueTraffic``).

    ``metered``: the fraction that the first managed switch drops, after looking it up.
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
class Journey:
    """What becomes of each stream, and how loaded each hop and each switch's lookup are.

    ``survival`` includes what was given. ``mean`` is infinite where the stream meets an unstable
    queue; ``blocked_at`` is then, or where a buffer overflows, the first such hop, else −1.
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


def travel(
    load: Load,
    route: Route,
    sources: Sources,
    *,
    paper_fifo: bool = False,
    looked_up_before: Mapping[str, float] | None = None,
) -> Journey:
    """Follow all streams along ``route``.

    ``looked_up_before``: packets per second that switches have to look up besides these.
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
    switch_in_packets: dict[str, float] = dict(looked_up_before or {})
    for depth in range(route.stage.shape[1]):
        hop = route.stage[load.route_row, depth]
        here = np.flatnonzero(hop >= 0)
        if not here.size:
            continue
        hops = np.unique(hop[here])
        chosen = [route.hops[number] for number in hops]
        queue = np.searchsorted(hops, hop[here])
        lookup, looked_up = _lookup(
            chosen, queue, load.rate[here] * survival[here], switch_in_packets, switch_in_load
        )
        polices = np.array([hop.switch.managed for hop in chosen])[queue]
        survival[here] *= looked_up * np.where(polices, 1.0 - metered[here], 1.0)
        metered[here[polices]] = 0.0
        traffic = _traffic(load, here, queue, chosen, survival[here])
        stage = stage_delays(traffic, _links(chosen), sources)
        if paper_fifo:
            stage = _by_paper(traffic, stage)
        propagation = _of(chosen, "propagation_seconds")[queue]
        mean[here] += stage.mean + lookup + propagation
        variance[here] += stage.variance + lookup**2
        fixed[here] += stage.fixed + propagation
        full = (stage.capacity.saturated | stage.overflowing)[traffic.queue, traffic.priority]
        newly = here[(full | ~np.isfinite(lookup)) & (blocked_at[here] < 0)]
        blocked_at[newly] = hop[newly]
        survival[here] *= stage.admitted * (1 - _of(chosen, "error_rate")[queue])
        hop_load[hops] = traffic.load
        saturated[hops] = stage.capacity.saturated
        overflowing[hops] = stage.overflowing
    return Journey(
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


def _traffic(
    load: Load, here: Integers, queue: Integers, hops: list[Hop], survival: Floats
) -> QueueTraffic:
    speed = np.array([hop.bandwidth_bits_per_second for hop in hops])
    managed = np.array([hop.switch.managed for hop in hops])
    return QueueTraffic(
        queues=len(hops),
        classes=int(load.priority.max(initial=0)) + 1,
        queue=queue,
        priority=np.where(managed[queue], load.priority[here], 0),
        publication=load.publication[here],
        topic=load.topic[here],
        rate=load.rate[here],
        survival=survival,
        service_seconds=load.wire_bytes[here] * 8 / speed[queue],
        size_variability=load.size_variability[here],
    )


def _links(hops: list[Hop]) -> LinkQueues:
    speed = np.array([hop.bandwidth_bits_per_second for hop in hops])
    buffers = [hop.switch.buffer for hop in hops]
    return LinkQueues(
        burst_seconds=_of(hops, "burst_bytes") * 8 / speed,
        guaranteed_share=_of(hops, "guaranteed_bits_per_second") / speed,
        buffer_packets=np.array([b.packets if b else np.inf for b in buffers], dtype=float),
        shared_buffer=np.array([b is None or b.kind == "shared-push-out" for b in buffers]),
    )


def _of(hops: list[Hop], name: str) -> Floats:
    return np.array([getattr(hop.switch, name) for hop in hops], dtype=float)


def _lookup(
    hops: list[Hop],
    queue: Integers,
    packets: Floats,
    total: dict[str, float],
    load: dict[str, float],
) -> tuple[Floats, Floats]:
    """Each switch's inbound queue (M/M/1), shared by all its ports: the time, and what passes it.

    ``total`` and ``load`` are brought up to date with what these packets add.
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


def _by_paper(traffic: QueueTraffic, stage: StageDelays) -> StageDelays:
    """The same stage with the paper's Eq. 4 for the mean; its variance as of an M/M/1 queue."""
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
