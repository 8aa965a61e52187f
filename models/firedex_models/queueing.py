"""Queueing formulas: the priority queue with batches, M/M/1, and the paper's FIFO queue.

The priority queue is non-preemptive with several classes and batch arrivals.

For class k, with the sums of ``queue_traffic``: a_n = Σ λ E[Xⁿ] over publications (X is the work
that one publication adds to classes ≤ k), b_n = Σ λ E[Sⁿ] over the packets of lower classes,
σ_k = Σ_{j≤k} ρ_j, c = 1 − σ_k, d = 1 − σ_{k−1}. A packet finds the work V ahead of it, packets of
the same publication that are sent first add B, and later arrivals of higher classes multiply the
sum by 1/d:

    E V  = (a₂ + b₂) / 2c                 E V² = (a₃ + b₃) / 3c + a₂ (a₂ + b₂) / 2c²
    E W  = (E V + E B) / d                E W² = E (V+B)² / d² + E (V+B) · h₂ / d³

with h₂ = a₂ of class k − 1. The mean is exact for Poisson publications. If no publication has two
packets in a queue, B = 0 and this is Cobham's formula. ``docs/concepts/model.md`` has the
derivation.
"""

from dataclasses import dataclass

import numpy as np

from firedex_models.columns import Floats
from firedex_models.queue_traffic import QueueTraffic

__all__ = [
    "Waits",
    "found_work",
    "mm1_delay",
    "paper_fifo_delay",
    "priority_waits",
    "residual_service",
]

MIN_SPARE = 1e-30


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Mean and raw second moment of each stream's wait before its own transmission.

    ``covariance``: covariance of the wait and the packet's own transmission time, because packets
    of one publication share their size. The values are not meaningful in unstable classes.
    """

    mean: Floats
    square: Floats
    covariance: Floats


def residual_service(traffic: QueueTraffic, admitted: Floats, order: int) -> Floats:
    """Return b_n: λ E[Sⁿ] summed over the classes below each class."""
    moment = traffic.service_moment(order, admitted)
    below: Floats = moment.sum(axis=1, keepdims=True) - np.cumsum(moment, axis=1)
    return below


def found_work(traffic: QueueTraffic, admitted: Floats) -> Floats:
    """Return E V of each queue and class: the work that a publication finds ahead of it."""
    spare = _spare_capacity(np.cumsum(traffic.load, axis=1))
    below = residual_service(traffic, admitted, 2)
    return (traffic.batches.work_moment(2) + below) / (2 * spare)


def priority_waits(traffic: QueueTraffic, admitted: Floats) -> Waits:
    """Return the waits of all streams; ``admitted`` is the fraction of each class not lost."""
    batches = traffic.batches
    total = np.cumsum(traffic.load, axis=1)
    spare = _spare_capacity(total)
    spare_above = _spare_capacity(total - traffic.load)
    second, third = batches.work_moment(2), batches.work_moment(3)
    arriving = second + residual_service(traffic, admitted, 2)
    found = arriving / (2 * spare)
    found_square = (third + residual_service(traffic, admitted, 3)) / (
        3 * spare
    ) + second * arriving / (2 * spare**2)
    above = np.concatenate([np.zeros_like(second[:, :1]), second[:, :-1]], axis=1)

    cell = (traffic.queue, traffic.priority)
    companions, companions_square = _same_publication_ahead(traffic)
    ahead = found[cell] + companions
    ahead_square = found_square[cell] + 2 * found[cell] * companions + companions_square
    d = spare_above[cell]
    with np.errstate(over="ignore"):  # in unstable classes
        return Waits(
            mean=ahead / d,
            square=ahead_square / d**2 + ahead * above[cell] / d**3,
            covariance=traffic.size_variability * companions * traffic.service_seconds / d,
        )


def _same_publication_ahead(traffic: QueueTraffic) -> tuple[Floats, Floats]:
    """Return E B and E B²: the work of packets of the same publication that are sent first.

    These are all packets of higher classes, and those of the same class that are ahead in the
    random order. Given the place u ∈ (0, 1) of a packet, each other packet is ahead with
    probability u.
    """
    batches = traffic.batches
    cell = (batches.batch_of_stream, traffic.priority)
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


def _spare_capacity(total: Floats) -> Floats:
    """Return 1 − σ, at least a tiny positive value, so that saturated classes stay finite."""
    return np.maximum(1.0 - total, MIN_SPARE)


def mm1_delay(service_rate: Floats | float, arrival_rate: Floats | float) -> Floats:
    """Return the mean time in an M/M/1 queue, service included (paper Eq. 3).

    It is infinite if the queue is unstable. The time is exponentially distributed, so its variance
    is the square of its mean.
    """
    spare = np.asarray(service_rate, dtype=float) - np.asarray(arrival_rate, dtype=float)
    with np.errstate(divide="ignore"):
        delay: Floats = np.where(spare > 0, 1.0 / np.maximum(spare, 0.0), np.inf)
    return delay


def paper_fifo_delay(service_seconds: Floats, utilization: Floats | float) -> Floats:
    """Return the mean time in a FIFO queue by the paper's Eq. 4: ``1 / (μ_r − μ_r Σ λ_i/μ_i)``.

    It is exact if all service times have the same exponential distribution. It is used for
    comparison only.
    """
    spare = 1.0 - np.asarray(utilization, dtype=float)
    with np.errstate(divide="ignore"):
        delay: Floats = np.where(spare > 0, service_seconds / np.maximum(spare, 0.0), np.inf)
    return delay
