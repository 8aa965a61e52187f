"""What every flow would put on every outbound queue if nothing of it were dropped.

Loads are linear in what passes the drop, so a plan needs them only once. Holds as long as no queue
on the way overflows, which is what a plan is for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firedex_models.broker_queues import through_broker
from firedex_models.grouping import group_sums
from firedex_models.inbound import Inbound
from firedex_models.site import Site

__all__ = ["DownlinkLoads", "downlink_loads"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DownlinkLoads:
    """Each pair of a flow and a hop that it loads, ordered by hop and flow.

    ``ceiling``: the success rate of each subscription if nothing were dropped; 0 where nobody
    publishes what it matches.
    """

    hop: Integers
    flow: Integers
    load: Floats
    ceiling: Floats


def downlink_loads(site: Site, inbound: Inbound) -> DownlinkLoads:
    """The loads and success rates of the site's flows at drop rate 0."""
    streams, route = site.streams, site.downlinks
    survival = through_broker(site, inbound).admitted
    hops, flows, loads = [], [], []
    way = route.stage[site.flows.subscriber[streams.flow]]
    speed = np.array([hop.bandwidth_bits_per_second for hop in route.hops], dtype=float)
    passing = np.array([1 - hop.switch.error_rate for hop in route.hops], dtype=float)
    for depth in range(way.shape[1]):
        here = np.flatnonzero(way[:, depth] >= 0)
        hop = way[here, depth]
        hops.append(hop)
        flows.append(streams.flow[here])
        packets = inbound.arrived[streams.topic[here]] * survival[here]
        loads.append(packets * streams.wire_bytes[here] * 8 / speed[hop])
        survival[here] *= passing[hop]
    count = len(site.flows.number)
    key, pair = np.unique(
        np.concatenate([*hops, np.array([], dtype=np.int64)]) * max(count, 1)
        + np.concatenate([*flows, np.array([], dtype=np.int64)]),
        return_inverse=True,
    )
    return DownlinkLoads(
        hop=key // max(count, 1),
        flow=key % max(count, 1),
        load=group_sums(pair, np.concatenate([*loads, np.array([])]), len(key)),
        ceiling=_ceiling(site, inbound, survival),
    )


def _ceiling(site: Site, inbound: Inbound, survival: Floats) -> Floats:
    of, stream = site.member_subscription, site.member_stream
    topic = site.streams.topic[stream]
    count = len(site.subscriptions)
    offered = group_sums(of, inbound.offered[topic], count)
    delivered = group_sums(of, inbound.arrived[topic] * survival[stream], count)
    return np.clip(np.divide(delivered, offered, out=np.zeros(count), where=offered > 0), 0.0, 1.0)
