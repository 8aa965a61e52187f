"""Who gets through when more is offered than a queue can carry: a fluid picture.

Every class first gets what its leaf is guaranteed, then the rest goes by priority. A class that
gets less than it offers is *saturated*: with an endless buffer its delay grows without bound; with
a finite one it is about the time that a full buffer takes to pass.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Capacity", "full_buffer_wait", "share_capacity"]

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
