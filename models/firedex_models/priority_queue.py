"""The non-preemptive multi-class priority queue, with batches: the heart of the model.

For class k, with the sums of ``queue_traffic``: a_n = Σ λ E[Xⁿ] over publications (X the work one
brings to classes ≤ k), b_n = Σ λ E[Sⁿ] over the packets of lower classes, σ_k = Σ_{j≤k} ρ_j,
c = 1 − σ_k, d = 1 − σ_{k−1}. A packet finds V ahead of it, its mates of the same publication that
go first add B, and higher classes that arrive meanwhile stretch the sum by 1/d:

    E V  = (a₂ + b₂) / 2c                 E V² = (a₃ + b₃) / 3c + a₂ (a₂ + b₂) / 2c²
    E W  = (E V + E B) / d                E W² = E (V+B)² / d² + E (V+B) · h₂ / d³

with h₂ = a₂ of class k − 1. Exact in the mean for Poisson publications; where no publication has
two packets in a queue, B = 0 and this is Cobham's formula. ``docs/model.md`` has the derivation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.queue_traffic import QueueTraffic

__all__ = ["Waits", "found_work", "priority_waits", "residual_service"]

Floats = NDArray[np.float64]
SMALLEST_SPARE = 1e-30


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Mean and raw second moment of each stream's wait before its own transmission.

    ``covariance``: of the wait with the packet's own transmission time (mates share their size).
    Meaningless in classes that are not stable; the caller knows which.
    """

    mean: Floats
    square: Floats
    covariance: Floats


def residual_service(traffic: QueueTraffic, admitted: Floats, order: int) -> Floats:
    """b_n: λ E[Sⁿ] summed over the classes below each class."""
    moment = traffic.service_moment(order, admitted)
    below: Floats = moment.sum(axis=1, keepdims=True) - np.cumsum(moment, axis=1)
    return below


def found_work(traffic: QueueTraffic, admitted: Floats) -> Floats:
    """E V of each queue and class: the work a publication finds ahead of it."""
    spare = _spare(np.cumsum(traffic.load, axis=1))
    below = residual_service(traffic, admitted, 2)
    return (traffic.batches.work_moment(2) + below) / (2 * spare)


def priority_waits(traffic: QueueTraffic, admitted: Floats) -> Waits:
    """The waits of all streams; ``admitted`` is the share of each class that is not lost."""
    batches = traffic.batches
    total = np.cumsum(traffic.load, axis=1)
    spare = _spare(total)
    spare_above = _spare(total - traffic.load)
    second, third = batches.work_moment(2), batches.work_moment(3)
    arriving = second + residual_service(traffic, admitted, 2)
    found = arriving / (2 * spare)
    found_square = (third + residual_service(traffic, admitted, 3)) / (
        3 * spare
    ) + second * arriving / (2 * spare**2)
    above = np.concatenate([np.zeros_like(second[:, :1]), second[:, :-1]], axis=1)

    cell = (traffic.queue, traffic.priority)
    mates, mates_square = _mates_ahead(traffic)
    ahead = found[cell] + mates
    ahead_square = found_square[cell] + 2 * found[cell] * mates + mates_square
    d = spare_above[cell]
    with np.errstate(over="ignore"):  # in classes that are not stable
        return Waits(
            mean=ahead / d,
            square=ahead_square / d**2 + ahead * above[cell] / d**3,
            covariance=traffic.size_variability * mates * traffic.service_seconds / d,
        )


def _mates_ahead(traffic: QueueTraffic) -> tuple[Floats, Floats]:
    """E B and E B²: all mates of higher classes, and those of its own that the draw puts first.

    Within a class the order is a uniformly random one: given its place u ∈ (0, 1), each mate is
    ahead with probability u.
    """
    batches = traffic.batches
    cell = (batches.of_stream, traffic.priority)
    survival, service = traffic.survival, traffic.service_seconds
    same = np.maximum(batches.work[cell] - survival * service, 0.0)
    same_square = np.maximum(batches.square[cell] - survival * service**2, 0.0)
    same_survival_square = np.maximum(batches.survival_square[cell] - survival**2 * service**2, 0.0)
    higher = (np.cumsum(batches.work, axis=1) - batches.work)[cell]
    spread = batches.square - batches.survival_square
    higher_variance = (np.cumsum(spread, axis=1) - spread)[cell]
    mean = higher + same / 2
    square = (
        higher**2
        + higher_variance
        + higher * same
        + same**2 / 3
        + same_square / 2
        - same_survival_square / 3
    )
    return mean, square * (1 + traffic.size_variability)


def _spare(total: Floats) -> Floats:
    """1 − σ, kept positive so that saturated classes stay finite until they are masked."""
    return np.maximum(1.0 - total, SMALLEST_SPARE)
