"""Every outbound queue of one stage of the network: plain or shaped, stable or not.

Puts together the priority queue, the shaper, regular publications and overload, and says for each
stream how long it takes here and what fraction of it gets through.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.overload import Capacity, full_buffer_wait, share_capacity
from firedex_models.periodic_arrivals import Sources, regularity
from firedex_models.priority_queue import found_work, priority_waits
from firedex_models.queue_traffic import QueueTraffic, size_scale_moment
from firedex_models.shaped_link import own_transmission, queued_work

__all__ = ["LinkQueues", "StageDelays", "stage_delays"]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class LinkQueues:
    """What each queue is, beyond its speed (arrays over queues).

    ``buffer_packets`` is infinite where the buffer is; ``shared_buffer`` tells a push-out buffer
    from leaves that drop their oldest.
    """

    burst_seconds: Floats
    guaranteed_share: Floats
    buffer_packets: Floats
    shared_buffer: Booleans

    @classmethod
    def plain(cls, queues: int) -> "LinkQueues":
        """Unshaped links with endless buffers."""
        return cls(
            burst_seconds=np.zeros(queues),
            guaranteed_share=np.zeros(queues),
            buffer_packets=np.full(queues, np.inf),
            shared_buffer=np.ones(queues, dtype=bool),
        )


@dataclass(frozen=True, kw_only=True)
class StageDelays:
    """What one stage does to each stream; ``fixed`` is the part of ``mean`` that never varies."""

    mean: Floats
    variance: Floats
    fixed: Floats
    admitted: Floats
    saturated: Booleans
    capacity: Capacity


def stage_delays(traffic: QueueTraffic, links: LinkQueues, sources: Sources) -> StageDelays:
    """Time in these queues, waiting and transmission, for every stream."""
    guaranteed = np.where(
        np.isfinite(links.buffer_packets) & links.shared_buffer, 0.0, links.guaranteed_share
    )
    capacity = share_capacity(traffic.load, guaranteed)
    waits = priority_waits(traffic, capacity.admitted)
    factor = _wait_factor(traffic, links, sources, capacity)
    cell = (traffic.queue, traffic.priority)
    mean = waits.mean * factor[cell]
    with np.errstate(over="ignore"):  # in classes that are not stable
        square = np.maximum(waits.square * factor[cell] ** 2, mean**2)

    mean, square = _bounded_by_buffers(traffic, links, capacity, mean, square)
    saturated = capacity.saturated[cell]
    service = own_transmission(traffic.service_seconds, links.burst_seconds[traffic.queue])
    service_square = size_scale_moment(traffic.size_variability, 2) * service**2
    with np.errstate(invalid="ignore", over="ignore"):
        waiting = np.where(saturated, 0.0, square - mean**2 + 2 * waits.covariance * factor[cell])
    variance = waiting + service_square - service**2
    return StageDelays(
        mean=mean + service,
        variance=variance,
        fixed=np.where(traffic.size_variability == 0, service, 0.0),
        admitted=capacity.admitted[cell],
        saturated=saturated,
        capacity=capacity,
    )


def _wait_factor(
    traffic: QueueTraffic, links: LinkQueues, sources: Sources, capacity: Capacity
) -> Floats:
    """How much longer or shorter each class waits than on a plain link with Poisson arrivals."""
    shaped = bool((links.burst_seconds > 0).any() or (capacity.guaranteed > 0).any())
    variability = regularity(traffic, sources)
    if not shaped and (variability == 1.0).all():
        return variability
    nothing = traffic.service_moment(2, capacity.admitted).sum(axis=1, keepdims=True) / 2
    plain = np.diff(found_work(traffic, capacity.admitted), axis=1, prepend=nothing)
    actual = queued_work(
        traffic,
        admitted=capacity.admitted,
        guaranteed=capacity.guaranteed,
        burst_seconds=links.burst_seconds,
        variability=variability,
    )
    usable = (plain > 0) & (traffic.load > 0) & ~capacity.saturated
    return np.maximum(np.divide(actual, plain, out=np.ones_like(plain), where=usable), 0.0)


def _bounded_by_buffers(
    traffic: QueueTraffic, links: LinkQueues, capacity: Capacity, mean: Floats, square: Floats
) -> tuple[Floats, Floats]:
    """A saturated class waits behind a full buffer; nothing waits longer than that.

    Where the buffer is endless a saturated class has no delay: infinite here.
    """
    cell = (traffic.queue, traffic.priority)
    packet_rate = traffic.per_class(traffic.packet_rate)
    stable_wait = np.where(capacity.saturated[cell], 0.0, mean)
    waiting = traffic.per_class(traffic.packet_rate * stable_wait)
    full = full_buffer_wait(
        capacity=capacity,
        packet_rate=packet_rate,
        waiting_above=np.cumsum(waiting, axis=1) - waiting,
        shared=links.shared_buffer,
        packets=links.buffer_packets,
    )
    saturated = capacity.saturated[cell]
    class_mean = np.divide(waiting, packet_rate, out=np.zeros_like(waiting), where=packet_rate > 0)
    excess = np.maximum(np.divide(class_mean, full, out=np.zeros_like(full), where=full > 0), 1.0)[
        cell
    ]
    bounded = np.where(saturated, full[cell], mean / excess)
    return bounded, np.where(saturated, full[cell] ** 2, square / excess**2)
