"""All outbound queues of one stage of the network: plain or shaped, stable or overloaded.

Combines the priority queue, the shaper, periodic publications and overload, and returns the delay
and the admitted fraction of each stream.

Overload is a fluid model: every class first gets its guaranteed rate, then the rest is shared by
priority. A class that gets less than it offers is *saturated*: with an infinite buffer its delay
grows without bound; with a finite buffer its delay is about the time that a full buffer takes to
drain.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from firedex_models.columns import Booleans, Floats
from firedex_models.periodic_arrivals import Sources, periodic_ratios
from firedex_models.queue_traffic import QueueTraffic, size_scale_moment
from firedex_models.queueing import found_work, priority_waits
from firedex_models.shaped_link import own_transmission, queued_work

__all__ = [
    "Capacity",
    "LinkQueues",
    "StageDelays",
    "full_buffer_wait",
    "longest_wait",
    "overflow_loss",
    "share_capacity",
    "stage_delays",
    "truncated_wait",
]


HEADROOM = 1e-9
"""A class that leaves less than this share of the queue free counts as saturated."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How each queue's capacity is shared (queues × classes).

    ``guaranteed``: fraction that is served before classes borrow. ``served``: total fraction.
    """

    guaranteed: Floats
    served: Floats
    admitted: Floats
    saturated: Booleans


NOTICEABLE_LOSS = 1e-3


@dataclass(frozen=True, kw_only=True)
class LinkQueues:
    """The shaping and the buffer of each queue (arrays over queues).

    ``buffer_packets``: infinity for an infinite buffer. ``shared_buffer``: the buffer is
    ``shared-push-out``, not ``per-class-head-drop``.
    """

    burst_seconds: Floats
    guaranteed_share: Floats
    buffer_packets: Floats
    shared_buffer: Booleans

    @classmethod
    def without_limits(cls, queues: int) -> "LinkQueues":
        """Return links without shaping and with infinite buffers."""
        return cls(
            burst_seconds=np.zeros(queues),
            guaranteed_share=np.zeros(queues),
            buffer_packets=np.full(queues, np.inf),
            shared_buffer=np.ones(queues, dtype=bool),
        )


@dataclass(frozen=True, kw_only=True)
class StageDelays:
    """Delay and admitted fraction of each stream at one stage.

    ``fixed``: the constant part of ``mean``. ``overflowing`` (queues × classes): the class is
    stable, but its finite buffer loses a noticeable fraction.
    """

    mean: Floats
    variance: Floats
    fixed: Floats
    admitted: Floats
    overflowing: Booleans
    capacity: Capacity


def stage_delays(traffic: QueueTraffic, links: LinkQueues, sources: Sources) -> StageDelays:
    """Predict the time of every stream in these queues (wait and transmission)."""
    guaranteed = np.where(
        np.isfinite(links.buffer_packets) & links.shared_buffer, 0.0, links.guaranteed_share
    )
    capacity = share_capacity(traffic.load, guaranteed)
    waits = priority_waits(traffic, capacity.admitted)
    factor, moment_ratio = _wait_factors(traffic, links, sources, capacity)
    cell = (traffic.queue, traffic.priority)
    service = own_transmission(traffic.service_seconds, links.burst_seconds[traffic.queue])
    mean = waits.mean * factor[cell]
    # A burst alone never increases a delay, but the approximation for mixed batches can.
    only_burst = (capacity.guaranteed.sum(axis=1) == 0)[traffic.queue]
    unshaped = waits.mean + traffic.service_seconds - service
    mean = np.where(only_burst, np.minimum(mean, unshaped), mean)
    with np.errstate(over="ignore"):  # in unstable classes
        square = np.maximum(waits.square * factor[cell] ** 2 * moment_ratio[cell], mean**2)

    mean, square, admitted = _limit_waits_by_buffers(traffic, links, capacity, mean, square)
    saturated = capacity.saturated[cell]
    overflowing = traffic.per_class((admitted < 1 - NOTICEABLE_LOSS).astype(float)) > 0
    service_square = size_scale_moment(traffic.size_variability, 2) * service**2
    with np.errstate(invalid="ignore", over="ignore"):
        wait_variance = np.where(
            saturated, 0.0, np.maximum(square - mean**2, 0.0) + 2 * waits.covariance * factor[cell]
        )
    variance = wait_variance + service_square - service**2
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
    """Return the wait of each class relative to an unshaped link with Poisson arrivals.

    The second result is the ratio of the second moment to the square of that factor.
    """
    shaped = bool((links.burst_seconds > 0).any() or (capacity.guaranteed > 0).any())
    variability, moment_ratio = periodic_ratios(traffic, sources)
    if not shaped and (variability == 1.0).all():
        return variability, moment_ratio
    work_before = traffic.service_moment(2, capacity.admitted).sum(axis=1, keepdims=True) / 2
    unshaped_work = np.diff(found_work(traffic, capacity.admitted), axis=1, prepend=work_before)
    shaped_work = queued_work(
        traffic,
        admitted=capacity.admitted,
        guaranteed=capacity.guaranteed,
        burst_seconds=links.burst_seconds,
        variability=variability,
    )
    usable = (unshaped_work > 0) & (traffic.load > 0) & ~capacity.saturated
    factor = np.divide(shaped_work, unshaped_work, out=np.ones_like(unshaped_work), where=usable)
    return np.maximum(factor, 0.0), moment_ratio


def _limit_waits_by_buffers(
    traffic: QueueTraffic, links: LinkQueues, capacity: Capacity, mean: Floats, square: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return mean and second moment of the waits with finite buffers, and the admitted fraction.

    A saturated class waits behind a full buffer; with an infinite buffer its wait is infinite. In a
    stable class, a packet is lost if its wait would be longer than the buffer allows.
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
    limited_mean, limited_square, within = truncated_wait(
        np.where(saturated, 0.0, mean), np.where(saturated, 0.0, square), longest[cell]
    )
    total = np.cumsum(traffic.load, axis=1)[cell]
    admitted = 1.0 - overflow_loss(1.0 - within, total, traffic.load[cell])
    return (
        np.where(saturated, full[cell], limited_mean),
        np.where(saturated, full[cell] ** 2, limited_square),
        np.where(saturated, capacity.admitted[cell], admitted),
    )


def share_capacity(load: Floats, guaranteed_share: Floats) -> Capacity:
    """Share every queue by guarantee, then by priority.

    ``load`` is ρ (queues × classes), ``guaranteed_share`` each leaf's guarantee as a fraction of
    the queue's capacity.
    """
    guaranteed = np.minimum(load, guaranteed_share[:, None])
    total_guaranteed = guaranteed.sum(axis=1, keepdims=True)
    guaranteed = guaranteed / np.maximum(total_guaranteed, 1.0)
    spare = 1.0 - guaranteed.sum(axis=1)
    served = guaranteed.copy()
    saturated = np.zeros(load.shape, dtype=bool)
    for priority in range(load.shape[1]):
        borrowing = load[:, priority] - guaranteed[:, priority]
        saturated[:, priority] = (borrowing > 0) & (borrowing >= spare - HEADROOM)
        served[:, priority] += np.minimum(borrowing, spare)
        spare = np.maximum(spare - borrowing, 0.0)
    admitted = np.divide(served, load, out=np.ones_like(load), where=load > 0)
    return Capacity(
        guaranteed=guaranteed,
        served=served,
        admitted=np.minimum(admitted, 1.0),
        saturated=saturated,
    )


def full_buffer_wait(
    *,
    capacity: Capacity,
    packet_rate: Floats,
    waiting_above: Floats,
    shared: Booleans,
    packets: Floats,
) -> Floats:
    """Return the wait of each saturated class behind a full buffer; may be infinite.

    ``shared-push-out``: the buffer space that higher classes leave, divided by the throughput.
    ``per-class-head-drop``: only the newest ``packets`` are kept, so the one at the head is as old
    as the time in which that many arrive.
    """
    throughput = packet_rate * capacity.admitted
    with np.errstate(divide="ignore", invalid="ignore"):
        pushed_out = np.maximum(packets[:, None] - waiting_above, 1.0) / throughput
        head_dropped = packets[:, None] / packet_rate
        wait: Floats = np.where(shared[:, None], pushed_out, head_dropped)
    wait[~(throughput > 0)] = np.inf
    return wait


def longest_wait(*, load: Floats, packet_rate: Floats, shared: Booleans, packets: Floats) -> Floats:
    """Return the longest wait that the buffer of a stable class allows (queues × classes).

    ``shared-push-out``: an arrival is lost if its class and those above already fill the buffer;
    that much work takes 1/(1 − σ_{k−1}) times as long, since higher classes continue to arrive.
    ``per-class-head-drop``: a packet is lost when that many newer packets of its class arrived.
    """
    total, rates = np.cumsum(load, axis=1), np.cumsum(packet_rate, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        packet = np.where(rates > 0, total / rates, 0.0)
        pushed_out = packets[:, None] * packet / np.maximum(1.0 - (total - load), 1e-9)
        head_dropped = packets[:, None] / packet_rate
        longest: Floats = np.where(shared[:, None], pushed_out, head_dropped)
    longest[~(packet_rate > 0)] = np.inf
    return longest


def truncated_wait(mean: Floats, square: Floats, longest: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean and second moment of a gamma wait below ``longest``, and its probability."""
    variance = square - mean**2
    cut = np.isfinite(longest) & (variance > 0) & (mean > 0) & np.isfinite(variance)
    limited_mean, limited_square, probability_within = (
        mean.copy(),
        square.copy(),
        np.ones_like(mean),
    )
    scale = variance[cut] / mean[cut]
    shape, limit = mean[cut] / scale, longest[cut] / scale
    probability = np.maximum(gammainc(shape, limit), 1e-12)
    limited_mean[cut] *= gammainc(shape + 1, limit) / probability
    limited_square[cut] = shape * (shape + 1) * scale**2 * gammainc(shape + 2, limit) / probability
    probability_within[cut] = probability
    return limited_mean, np.maximum(limited_square, limited_mean**2), probability_within


def overflow_loss(beyond: Floats, total: Floats, load: Floats) -> Floats:
    """Return the fraction of a stable class that its full buffer loses.

    ``beyond`` is the probability P that an infinite queue is longer than the buffer. A finite queue
    is shorter, because it loses packets: as in M/M/1/N, the fraction (1 − σ) P / (1 − σ P) of the
    work of classes ≤ k is lost, all of it from class k, the lowest. ``total`` is σ, ``load`` ρ_k.
    """
    lost = (1.0 - total) * beyond / np.maximum(1.0 - total * beyond, 1e-12)
    class_loss = np.divide(lost * total, load, out=np.zeros_like(lost), where=load > 0)
    return np.clip(class_loss, 0.0, beyond)
