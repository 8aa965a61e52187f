"""The effect of an HTB shaper on the wait of each class, relative to a link without a shaper.

There are two effects (``docs/concepts/model.md`` has the derivation and the measurements):

*Burst.* An idle link has up to b bytes of unused tokens; a publication that finds τ tokens does not
wait for that part of its work. The work queued in classes ≤ k is then an M/G/1 queue whose busy
periods begin with an exceptional batch (x − τ)⁺. Let F be the probability that there are tokens,
A(x) the mean over publications and tokens, and r the mean residual time of a lower-class packet:

    E Y = ((1−F) a₂ + F A₂ + 2 β r) / 2c,      β = (1−F) c − F A₁.

*Guarantee.* HTB serves each class up to its guaranteed rate before any class that borrows. Classes
≤ k therefore share 1 − Σ_{j>k} γ_j, not the whole link.

The work queued in class k alone is E Y_k − E Y_{k−1}; its ratio to the same difference on a link
without a shaper is the factor on the wait of the class.
"""

from collections.abc import Iterator

import numpy as np
from numpy.polynomial.laguerre import laggauss
from numpy.polynomial.legendre import leggauss

from firedex_models.columns import Floats
from firedex_models.queue_traffic import Batches, QueueTraffic
from firedex_models.queueing import residual_service

__all__ = ["own_transmission", "queued_work"]


TOKEN_POINTS, TOKEN_WEIGHTS = leggauss(8)
SIZE_POINTS, SIZE_WEIGHTS = laggauss(6)
"""Quadrature points for the common size of a publication, if it is exponential."""


def own_transmission(service_seconds: Floats, burst_seconds: Floats) -> Floats:
    """Return the part of a packet's transmission time that the burst does not cover."""
    return np.maximum(service_seconds - burst_seconds, 0.0)


def queued_work(
    traffic: QueueTraffic,
    *,
    admitted: Floats,
    guaranteed: Floats,
    burst_seconds: Floats,
    variability: Floats,
) -> Floats:
    """Return the mean work waiting in each class of each queue.

    ``variability`` scales a₂, for publications that are more regular than Poisson publications.
    """
    load = traffic.load
    below = residual_service(traffic, admitted, 2)
    below_load = (load * admitted).sum(axis=1, keepdims=True) - np.cumsum(load * admitted, axis=1)
    residual = np.divide(below, 2 * below_load, out=np.zeros_like(below), where=below_load > 1e-12)
    reserved_below = guaranteed.sum(axis=1, keepdims=True) - np.cumsum(guaranteed, axis=1)
    spare = np.maximum(1.0 - reserved_below - np.cumsum(load, axis=1), 1e-9)
    second = traffic.batches.work_moment(2) * variability

    tokens_left, first, first_square = _exceptional_batches(traffic, burst_seconds)
    blocked = np.maximum((1 - tokens_left) * spare - tokens_left * first, 0.0)
    work = ((1 - tokens_left) * second + tokens_left * first_square * variability) / (2 * spare)
    work += blocked * residual / spare

    work_before = ((1 - tokens_left) * _residual_of_busy_link(traffic, admitted))[:, :1]
    return np.diff(work, axis=1, prepend=work_before)


def _residual_of_busy_link(traffic: QueueTraffic, admitted: Floats) -> Floats:
    """Return the mean residual time of the packet in transmission on a busy link."""
    moment = traffic.service_moment(2, admitted).sum(axis=1, keepdims=True) / 2
    busy = np.minimum((traffic.load * admitted).sum(axis=1, keepdims=True), 1.0)
    residual: Floats = np.divide(moment, busy, out=np.zeros_like(moment), where=busy > 0)
    return residual


def _exceptional_batches(
    traffic: QueueTraffic, burst_seconds: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return F (queues × 1), and Σ λ E[(X−τ)⁺], Σ λ E[(X−τ)⁺²] (queues × classes).

    Tokens are τ = b − D, where D is the work ahead: 0 with probability 1 − ρ, and otherwise
    exponential with the right mean. F follows from the balance of the whole link: in the fraction
    1 − F of the time in which it is busy, the link carries all work that tokens do not cover.
    """
    batches = traffic.batches
    total = traffic.load.sum(axis=1)
    idle = np.maximum(1.0 - total, 0.0)
    mean_packet = _mean_packet_seconds(traffic)
    bucket = np.maximum(burst_seconds - mean_packet, 0.0)
    backlog = batches.work_moment(2)[:, -1] / (2 * np.maximum(idle, 1e-9))
    decay = np.divide(total, backlog, out=np.zeros_like(total), where=backlog > 0)

    ahead = (TOKEN_POINTS + 1) / 2 * bucket[:, None]
    weight = TOKEN_WEIGHTS / 2 * bucket[:, None] * (total * decay)[:, None]
    weight = weight * np.exp(-decay[:, None] * ahead)
    tokens = np.concatenate([bucket[:, None] - ahead, bucket[:, None]], axis=1)
    weight = np.concatenate([weight, np.maximum(idle, 1e-12)[:, None]], axis=1)
    weight /= weight.sum(axis=1, keepdims=True)

    first = np.zeros_like(batches.mean)
    first_square = np.zeros_like(batches.mean)
    for work, share in _work_points(batches):
        for column in range(tokens.shape[1]):
            remaining = np.maximum(work - tokens[batches.queue, column][:, None], 0.0)
            probability = share * weight[batches.queue, column][:, None]
            first += probability * remaining
            first_square += probability * remaining**2
    first = batches.per_queue(batches.rate[:, None] * first)
    first_square = batches.per_queue(batches.rate[:, None] * first_square)
    whole = first[:, -1]
    tokens_left = np.divide(idle, idle + whole, out=np.zeros_like(idle), where=idle + whole > 0)
    return tokens_left[:, None], first, first_square


def _work_points(batches: Batches) -> Iterator[tuple[Floats, Floats]]:
    """Yield points and weights with the exact mean and variance of the work of a batch.

    A large number of surviving packets is nearly normal (three-point Gauss–Hermite rule). If this
    rule would give negative work, two points are used: an empty batch, and a non-empty one.
    """
    mean, spread = batches.mean, np.maximum(batches.drop_variance, 0.0)
    half_range = np.sqrt(3.0 * spread)
    large = mean >= half_range
    square = np.maximum(mean**2 + spread, np.finfo(float).tiny)
    non_empty = np.divide(square, mean, out=np.zeros_like(mean), where=mean > 0)
    points = [
        (np.where(large, mean, non_empty), np.where(large, 2 / 3, mean**2 / square)),
        (np.where(large, mean + half_range, 0.0), large / 6),
        (np.where(large, mean - half_range, 0.0), large / 6),
    ]
    exponential = batches.size_variability > 0
    if not exponential.any():
        yield from points
        return
    for size, probability in zip(SIZE_POINTS, SIZE_WEIGHTS, strict=True):
        factor = np.where(exponential, size, 1.0)[:, None]
        for work, share in points:
            yield factor * work, probability * share


def _mean_packet_seconds(traffic: QueueTraffic) -> Floats:
    packets: Floats = traffic.per_class(traffic.packet_rate).sum(axis=1)
    load: Floats = traffic.load.sum(axis=1)
    return np.divide(load, packets, out=np.zeros_like(packets), where=packets > 0)
