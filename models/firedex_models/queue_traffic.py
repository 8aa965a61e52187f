"""Traffic of many queues at once, and the sums that the queueing formulas use.

A *stream* is the packets of one topic on one flow at one queue. The packets of one publication
arrive together, as a *batch*; batches are the main cause of waits at a shared link. Arrays have one
row per stream, per batch (queue and topic), or are queues × classes. Class 0 is the highest.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firedex_models.columns import Floats, Integers, group_sums

__all__ = ["Batches", "QueueTraffic"]


@dataclass(frozen=True, kw_only=True)
class QueueTraffic:
    """The streams that arrive at a set of queues.

    ``publication``: streams of one queue with the same number arrive together. ``topic``: the topic
    whose sources are periodic or Poisson (``periodic_arrivals``). ``survival``: the probability
    that a packet of a publication reaches this queue. ``size_variability``: the squared coefficient
    of variation of the size, which all packets of a publication share (0 fixed, 1 exponential).
    """

    queues: int
    classes: int
    queue: Integers
    priority: Integers
    publication: Integers
    topic: Integers
    rate: Floats
    survival: Floats
    service_seconds: Floats
    size_variability: Floats

    def per_class(self, amount: Floats) -> Floats:
        """Sum ``amount`` over the streams of each queue and class."""
        cell = self.queue * self.classes + self.priority
        sums = group_sums(cell, amount, self.queues * self.classes)
        return sums.reshape(self.queues, self.classes)

    @cached_property
    def packet_rate(self) -> Floats:
        """Packets per second of each stream."""
        return self.rate * self.survival

    @cached_property
    def load(self) -> Floats:
        """ρ of each queue and class."""
        return self.per_class(self.packet_rate * self.service_seconds)

    def service_moment(self, order: int, admitted: Floats) -> Floats:
        """Return λ E[Sⁿ] of the admitted packets of each queue and class."""
        scale = size_scale_moment(self.size_variability, order)
        moment = self.per_class(self.packet_rate * scale * self.service_seconds**order)
        return moment * admitted

    @cached_property
    def batches(self) -> "Batches":
        """The batches of these streams."""
        return Batches(self)


class Batches:
    """The work that one publication adds to one queue, for each class.

    Cumulants add up over independent packets; the common size of a publication is a factor Z with
    mean 1, which is applied last.
    """

    def __init__(self, traffic: QueueTraffic) -> None:
        span = int(traffic.publication.max(initial=0)) + 1
        key = traffic.queue * span + traffic.publication
        _, first, self.batch_of_stream = np.unique(key, return_index=True, return_inverse=True)
        self.queue: Integers = traffic.queue[first]
        self.topic: Integers = traffic.topic[first]
        self.rate: Floats = traffic.rate[first]
        self.size_variability: Floats = traffic.size_variability[first]
        self._queues = traffic.queues
        self._shape = (len(first), traffic.classes)
        self._cell = self.batch_of_stream * traffic.classes + traffic.priority
        survival, service = traffic.survival, traffic.service_seconds
        self.work = self._sum(survival * service)
        self.square = self._sum(survival * service**2)
        self.survival_square = self._sum(survival**2 * service**2)
        skew = survival * (1 - survival) * (1 - 2 * survival) * service**3
        self._mean = np.cumsum(self.work, axis=1)
        self._variance = np.cumsum(self.square - self.survival_square, axis=1)
        self._skew = np.cumsum(self._sum(skew), axis=1)

    def _sum(self, amount: Floats) -> Floats:
        sums = group_sums(self._cell, amount, self._shape[0] * self._shape[1])
        return sums.reshape(self._shape)

    @cached_property
    def mean(self) -> Floats:
        """E[X], X being the work of a batch in classes up to k (batches × classes)."""
        return self._mean

    @property
    def drop_variance(self) -> Floats:
        """Var[X] at the mean size, that is, only the variance that random drops cause."""
        return self._variance

    @cached_property
    def variance(self) -> Floats:
        """Var[X], including the variance of the common size."""
        scale = 1 + self.size_variability[:, None]
        return scale * (self._mean**2 + self._variance) - self._mean**2

    def work_moment(self, order: int) -> Floats:
        """Return a_n of the model: Σ λ E[Xⁿ] over the batches of each queue, for each class."""
        mean, variance = self._mean, self._variance
        if order == 2:
            moment = mean**2 + variance
        else:
            moment = mean**3 + 3 * mean * variance + self._skew
        scale = size_scale_moment(self.size_variability, order)
        return self.per_queue((self.rate * scale)[:, None] * moment)

    def per_queue(self, amount: Floats) -> Floats:
        """Sum ``amount`` (batches × classes) over the batches of each queue."""
        columns = [
            group_sums(self.queue, amount[:, column], self._queues)
            for column in range(amount.shape[1])
        ]
        return np.stack(columns, axis=1)


def size_scale_moment(variability: Floats, order: int) -> Floats:
    """Return E[Zⁿ] of the common size factor: 1 for fixed sizes, n! for exponential ones."""
    factorial = 2.0 if order == 2 else 6.0
    return 1.0 + (factorial - 1.0) * variability
