"""Every outbound queue of one stage of the network: plain or shaped, stable or not.

Puts together the priority queue, the shaper, regular publications and overload, and says for each
stream how long it takes here and what fraction of it gets through.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.overload import (
    Capacity,
    full_buffer_wait,
    longest_wait,
    overflow_loss,
    share_capacity,
    truncated_wait,
)
from firedex_models.periodic_arrivals import Sources, regularity
from firedex_models.priority_queue import found_work, priority_waits
from firedex_models.queue_traffic import QueueTraffic, size_scale_moment
from firedex_models.shaped_link import own_transmission, queued_work

__all__ = ["LinkQueues", "StageDelays", "stage_delays"]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
NOTICEABLE_LOSS = 1e-3


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
    """What one stage does to each stream; ``fixed`` is the part of ``mean`` that never varies.

    ``overflowing`` (queues × classes): stable, but its finite buffer loses a noticeable part.
    """

    mean: Floats
    variance: Floats
    fixed: Floats
    admitted: Floats
    overflowing: Booleans
    capacity: Capacity


def stage_delays(traffic: QueueTraffic, links: LinkQueues, sources: Sources) -> StageDelays:
    """Time in these queues, waiting and transmission, for every stream."""
    guaranteed = np.where(
        np.isfinite(links.buffer_packets) & links.shared_buffer, 0.0, links.guaranteed_share
    )
    capacity = share_capacity(traffic.load, guaranteed)
    waits = priority_waits(traffic, capacity.admitted)
    factor, evenness = _wait_factors(traffic, links, sources, capacity)
    cell = (traffic.queue, traffic.priority)
    service = own_transmission(traffic.service_seconds, links.burst_seconds[traffic.queue])
    mean = waits.mean * factor[cell]
    # Tokens alone make nothing slower; the approximation of a mixed batch can say otherwise.
    only_burst = (capacity.guaranteed.sum(axis=1) == 0)[traffic.queue]
    unshaped = waits.mean + traffic.service_seconds - service
    mean = np.where(only_burst, np.minimum(mean, unshaped), mean)
    with np.errstate(over="ignore"):  # in classes that are not stable
        square = np.maximum(waits.square * factor[cell] ** 2 * evenness[cell], mean**2)

    mean, square, admitted = _bounded_by_buffers(traffic, links, capacity, mean, square)
    saturated = capacity.saturated[cell]
    overflowing = traffic.per_class((admitted < 1 - NOTICEABLE_LOSS).astype(float)) > 0
    service_square = size_scale_moment(traffic.size_variability, 2) * service**2
    with np.errstate(invalid="ignore", over="ignore"):
        waiting = np.where(
            saturated, 0.0, np.maximum(square - mean**2, 0.0) + 2 * waits.covariance * factor[cell]
        )
    variance = waiting + service_square - service**2
    return StageDelays(
        mean=mean + service,
        variance=variance,
        fixed=np.where(traffic.size_variability == 0, service, 0.0),
        admitted=admitted,
        overflowing=overflowing & ~capacity.saturated,
        capacity=capacity,
    )


def _wait_factors(
    traffic: QueueTraffic, links: LinkQueues, sources: Sources, capacity: Capacity
) -> tuple[Floats, Floats]:
    """How much longer or shorter each class waits than on a plain link with Poisson arrivals.

    And by how much its second moment falls short of that factor's square.
    """
    shaped = bool((links.burst_seconds > 0).any() or (capacity.guaranteed > 0).any())
    variability, evenness = regularity(traffic, sources)
    if not shaped and (variability == 1.0).all():
        return variability, evenness
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
    factor = np.divide(actual, plain, out=np.ones_like(plain), where=usable)
    return np.maximum(factor, 0.0), evenness


def _bounded_by_buffers(
    traffic: QueueTraffic, links: LinkQueues, capacity: Capacity, mean: Floats, square: Floats
) -> tuple[Floats, Floats, Floats]:
    """Mean and second moment of the waits that buffers allow, and the fraction that is admitted.

    A saturated class waits behind a full buffer; where that is endless it has no delay: infinite
    here. In a stable class what would wait longer than the buffer takes to pass is lost.
    """
    cell = (traffic.queue, traffic.priority)
    saturated = capacity.saturated[cell]
    packet_rate = traffic.per_class(traffic.packet_rate)
    waiting = traffic.per_class(traffic.packet_rate * np.where(saturated, 0.0, mean))
    full = full_buffer_wait(
        capacity=capacity,
        packet_rate=packet_rate,
        waiting_above=np.cumsum(waiting, axis=1) - waiting,
        shared=links.shared_buffer,
        packets=links.buffer_packets,
    )
    longest = longest_wait(
        load=traffic.load,
        packet_rate=packet_rate,
        shared=links.shared_buffer,
        packets=links.buffer_packets,
    )
    kept_mean, kept_square, within = truncated_wait(
        np.where(saturated, 0.0, mean), np.where(saturated, 0.0, square), longest[cell]
    )
    total = np.cumsum(traffic.load, axis=1)[cell]
    kept = 1.0 - overflow_loss(1.0 - within, total, traffic.load[cell])
    return (
        np.where(saturated, full[cell], kept_mean),
        np.where(saturated, full[cell] ** 2, kept_square),
        np.where(saturated, capacity.admitted[cell], kept),
    )
