"""What an HTB-shaped link does differently from a plain one, as a factor on each class's wait.

Two things (``docs/model.md`` has the derivation and the measurements):

*Burst.* An idle link has saved up to b bytes of tokens; a publication that finds τ of them loses
that much of its work. Work queued in classes ≤ k is then an M/G/1 queue whose busy periods begin
with an exceptional batch (x − τ)⁺. With F the probability that there are tokens at all,
A(x) the mean over publications and tokens, and r the mean residual of a lower packet:

    E Y = ((1−F) a₂ + F A₂ + 2 β r) / 2c,      β = (1−F) c − F A₁.

*Guarantee.* Each leaf is served within its guaranteed rate before any borrower. Classes ≤ k
therefore share 1 − Σ_{j>k} γ_j, not the whole link.

The work queued in class k alone is E Y_k − E Y_{k−1}; compared with the same difference on a plain
link it gives the factor by which the class waits longer or shorter.
"""

from collections.abc import Iterator

import numpy as np
from numpy.polynomial.laguerre import laggauss
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from firedex_models.priority_queue import residual_service
from firedex_models.queue_traffic import Batches, QueueTraffic

__all__ = ["own_transmission", "queued_work"]

Floats = NDArray[np.float64]

TOKEN_POINTS, TOKEN_WEIGHTS = leggauss(8)
SIZE_POINTS, SIZE_WEIGHTS = laggauss(6)
"""For the common size of a publication, where that is exponential."""


def own_transmission(service_seconds: Floats, burst_seconds: Floats) -> Floats:
    """The part of a packet's own transmission time that its shaper makes it wait for."""
    return np.maximum(service_seconds - burst_seconds, 0.0)


def queued_work(
    traffic: QueueTraffic,
    *,
    admitted: Floats,
    guaranteed: Floats,
    burst_seconds: Floats,
    variability: Floats,
) -> Floats:
    """The mean work waiting in each class of each queue.

    ``variability`` scales a₂, for publications that are more regular than Poisson.
    """
    load = traffic.load
    below = residual_service(traffic, admitted, 2)
    below_load = (load * admitted).sum(axis=1, keepdims=True) - np.cumsum(load * admitted, axis=1)
    residual = np.divide(below, 2 * below_load, out=np.zeros_like(below), where=below_load > 1e-12)
    lent = guaranteed.sum(axis=1, keepdims=True) - np.cumsum(guaranteed, axis=1)
    spare = np.maximum(1.0 - lent - np.cumsum(load, axis=1), 1e-9)
    second = traffic.batches.work_moment(2) * variability

    tokens_left, first, first_square = _exceptional_batches(traffic, burst_seconds)
    blocked = np.maximum((1 - tokens_left) * spare - tokens_left * first, 0.0)
    work = ((1 - tokens_left) * second + tokens_left * first_square * variability) / (2 * spare)
    work += blocked * residual / spare

    nothing = ((1 - tokens_left) * _all_residual(traffic, admitted))[:, :1]
    return np.diff(work, axis=1, prepend=nothing)


def _all_residual(traffic: QueueTraffic, admitted: Floats) -> Floats:
    """Mean residual of the packet in transmission, whatever its class, on a busy link."""
    moment = traffic.service_moment(2, admitted).sum(axis=1, keepdims=True) / 2
    busy = np.minimum((traffic.load * admitted).sum(axis=1, keepdims=True), 1.0)
    residual: Floats = np.divide(moment, busy, out=np.zeros_like(moment), where=busy > 0)
    return residual


def _exceptional_batches(
    traffic: QueueTraffic, burst_seconds: Floats
) -> tuple[Floats, Floats, Floats]:
    """F (queues × 1), and Σ λ E[(X−τ)⁺], Σ λ E[(X−τ)⁺²] (queues × classes).

    Tokens τ = b − D where D, the work ahead, has an atom 1 − ρ at 0 and an exponential tail with
    the right mean. F follows from the balance of the whole link: 1 − F is the share of time it is
    busy, which must carry what tokens do not.
    """
    batches = traffic.batches
    total = traffic.load.sum(axis=1)
    idle = np.maximum(1.0 - total, 0.0)
    mean_packet = _mean_packet(traffic)
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
            left = np.maximum(work - tokens[batches.queue, column][:, None], 0.0)
            likely = share * weight[batches.queue, column][:, None]
            first += likely * left
            first_square += likely * left**2
    first = batches.per_queue(batches.rate[:, None] * first)
    first_square = batches.per_queue(batches.rate[:, None] * first_square)
    whole = first[:, -1]
    tokens_left = np.divide(idle, idle + whole, out=np.zeros_like(idle), where=idle + whole > 0)
    return tokens_left[:, None], first, first_square


def _work_points(batches: Batches) -> Iterator[tuple[Floats, Floats]]:
    """Points and weights that stand for the work of a batch, with its mean and variance exactly.

    The number of packets that survive is nearly normal where it is large (three-point Gauss–Hermite
    rule); where that would reach below zero, the batch is empty or has its mean when it is not.
    """
    mean, spread = batches.mean, np.maximum(batches.coin_variance, 0.0)
    reach = np.sqrt(3.0 * spread)
    large = mean >= reach
    square = np.maximum(mean**2 + spread, np.finfo(float).tiny)
    alone = np.divide(square, mean, out=np.zeros_like(mean), where=mean > 0)
    points = [
        (np.where(large, mean, alone), np.where(large, 2 / 3, mean**2 / square)),
        (np.where(large, mean + reach, 0.0), large / 6),
        (np.where(large, mean - reach, 0.0), large / 6),
    ]
    exponential = batches.size_variability > 0
    if not exponential.any():
        yield from points
        return
    for size, likely in zip(SIZE_POINTS, SIZE_WEIGHTS, strict=True):
        factor = np.where(exponential, size, 1.0)[:, None]
        for work, share in points:
            yield factor * work, likely * share


def _mean_packet(traffic: QueueTraffic) -> Floats:
    packets: Floats = traffic.per_class(traffic.packet_rate).sum(axis=1)
    load: Floats = traffic.load.sum(axis=1)
    return np.divide(load, packets, out=np.zeros_like(packets), where=packets > 0)
