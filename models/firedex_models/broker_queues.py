"""The broker: one M/M/1 queue in, one for each subscriber out (paper Eq. 6)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.grouping import group_sums
from firedex_models.inbound import Inbound
from firedex_models.single_class_queues import mm1_delay
from firedex_models.site import Site

__all__ = ["BrokerQueues", "through_broker"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BrokerQueues:
    """Time in the broker's two M/M/1 queues, for each stream, and what gets through them."""

    mean: Floats
    variance: Floats
    admitted: Floats
    in_load: float | None
    out_load: Floats | None


def through_broker(site: Site, inbound: Inbound) -> BrokerQueues:
    """The broker in the middle of the way: what reaches it takes this long to leave it."""
    broker = site.scenario.network.broker
    streams, flows = site.streams, site.flows
    mean, variance = np.zeros(len(streams.topic)), np.zeros(len(streams.topic))
    admitted = np.ones(len(streams.topic))
    in_load: float | None = None
    out_load: Floats | None = None
    if broker.in_events_per_second is not None:
        arriving = float(inbound.arrived.sum())
        delay = float(mm1_delay(broker.in_events_per_second, arriving))
        mean, variance = mean + delay, variance + delay**2
        in_load = arriving / broker.in_events_per_second
        admitted = admitted / max(in_load, 1.0)
    if broker.out_events_per_second is not None:
        subscriber = flows.subscriber[streams.flow]
        leaving = group_sums(
            subscriber, inbound.arrived[streams.topic], len(site.scenario.subscribers)
        )
        by_subscriber = mm1_delay(broker.out_events_per_second, leaving)
        mean, variance = mean + by_subscriber[subscriber], variance + by_subscriber[subscriber] ** 2
        out_load = leaving / broker.out_events_per_second
        admitted = admitted / np.maximum(out_load, 1.0)[subscriber]
    return BrokerQueues(
        mean=mean, variance=variance, admitted=admitted, in_load=in_load, out_load=out_load
    )
