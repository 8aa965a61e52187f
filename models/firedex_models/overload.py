"""Who gets through when more is offered than a queue can carry: a fluid picture.

Every class first gets what its leaf is guaranteed, then the rest goes by priority. A class that
gets less than it offers is *saturated*: with an endless buffer its delay grows without bound; with
a finite one it is about the time that a full buffer takes to pass.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

__all__ = [
    "Capacity",
    "full_buffer_wait",
    "longest_wait",
    "overflow_loss",
    "share_capacity",
    "truncated_wait",
]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
HEADROOM = 1e-9
"""A class that leaves less than this share of the queue free counts as saturated."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How each queue's capacity is shared (queues × classes).

    ``guaranteed``: share served before any borrower. ``served``: share served in all.
    """

    guaranteed: Floats
    served: Floats
    admitted: Floats
    saturated: Booleans


def share_capacity(load: Floats, guaranteed_share: Floats) -> Capacity:
    """Share every queue by guarantee, then by priority.

    ``load`` is ρ (queues × classes), ``guaranteed_share`` each leaf's guarantee as a fraction of
    the queue's capacity.
    """
    guaranteed = np.minimum(load, guaranteed_share[:, None])
    promised = guaranteed.sum(axis=1, keepdims=True)
    guaranteed = guaranteed / np.maximum(promised, 1.0)
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
    """The wait of each saturated class behind a full buffer; infinite where there is none.

    ``shared-push-out``: what the classes above leave of the buffer, over the class's throughput.
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
    """The wait that a stable class's buffer leaves room for (queues × classes).

    ``shared-push-out``: an arrival is lost if its class and those above already fill the buffer;
    that much work takes 1/(1 − σ_{k−1}) times as long, since higher classes go on arriving.
    ``per-class-head-drop``: a packet is lost once as many newer ones of its class have come.
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
    """Mean and second moment of a gamma wait that stays below ``longest``, and that likelihood."""
    variance = square - mean**2
    cut = np.isfinite(longest) & (variance > 0) & (mean > 0) & np.isfinite(variance)
    kept_mean, kept_square, kept = mean.copy(), square.copy(), np.ones_like(mean)
    scale = variance[cut] / mean[cut]
    shape, reach = mean[cut] / scale, longest[cut] / scale
    probability = np.maximum(gammainc(shape, reach), 1e-12)
    kept_mean[cut] *= gammainc(shape + 1, reach) / probability
    kept_square[cut] = shape * (shape + 1) * scale**2 * gammainc(shape + 2, reach) / probability
    kept[cut] = probability
    return kept_mean, np.maximum(kept_square, kept_mean**2), kept


def overflow_loss(beyond: Floats, total: Floats, load: Floats) -> Floats:
    """The fraction that a stable class loses to its buffer.

    ``beyond`` is the probability P that an endless queue would be longer than the buffer. A finite
    one is shorter for what it has lost: as in M/M/1/N, of the work of classes ≤ k the fraction
    (1 − σ) P / (1 − σ P) is lost, all of it of class k, the lowest. ``total`` is σ, ``load`` ρ_k.
    """
    lost = (1.0 - total) * beyond / np.maximum(1.0 - total * beyond, 1e-12)
    of_class = np.divide(lost * total, load, out=np.zeros_like(lost), where=load > 0)
    return np.clip(of_class, 0.0, beyond)
