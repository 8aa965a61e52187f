"""The load of every flow on every outbound queue without drops.

Loads are proportional to the fraction that is not dropped, so a plan computes them once. This holds
if no queue on the path overflows, which a plan ensures.
"""

from dataclasses import dataclass

import numpy as np

from firedex_models.broker import InboundTraffic, predict_broker
from firedex_models.columns import Floats, Integers, group_sums
from firedex_models.site import Demand, Flows, Site, site_from_flows

__all__ = ["DownlinkLoads", "downlink_loads", "loads_on_flows", "loads_on_separate_flows"]


@dataclass(frozen=True, kw_only=True)
class DownlinkLoads:
    """One row per pair of flow and hop, ordered by hop and flow.

    ``ceiling``: the success rate of each subscription without drops; 0 if no publisher publishes a
    matching topic.
    """

    hop: Integers
    flow: Integers
    load: Floats
    ceiling: Floats


def downlink_loads(site: Site, inbound: InboundTraffic) -> DownlinkLoads:
    """Return the loads and success rates of the site's flows at drop rate 0."""
    streams, route = site.streams, site.downlinks
    survival = predict_broker(site, inbound).admitted
    hops, flows, loads = [], [], []
    path = route.stage[site.flows.subscriber[streams.flow]]
    speed = np.array([hop.bandwidth_bits_per_second for hop in route.hops], dtype=float)
    success = np.array([1 - hop.switch.error_rate for hop in route.hops], dtype=float)
    for depth in range(path.shape[1]):
        rows = np.flatnonzero(path[:, depth] >= 0)
        hop = path[rows, depth]
        hops.append(hop)
        flows.append(streams.flow[rows])
        packets = inbound.arrived[streams.topic[rows]] * survival[rows]
        loads.append(packets * streams.wire_bytes[rows] * 8 / speed[hop])
        survival[rows] *= success[hop]
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


def _ceiling(site: Site, inbound: InboundTraffic, survival: Floats) -> Floats:
    subscription, stream = site.member_subscription, site.member_stream
    topic = site.streams.topic[stream]
    count = len(site.subscriptions)
    offered = group_sums(subscription, inbound.offered[topic], count)
    delivered = group_sums(subscription, inbound.arrived[topic] * survival[stream], count)
    return np.clip(np.divide(delivered, offered, out=np.zeros(count), where=offered > 0), 0.0, 1.0)


def loads_on_flows(
    demand: Demand, inbound: InboundTraffic, flow: Integers, subscriber: Integers
) -> tuple[Site, DownlinkLoads]:
    """Return the site with each subscription on its ``flow``, and the loads of the flows.

    ``subscriber``: the subscriber of each flow.
    """
    zeros = np.zeros(len(subscriber), dtype=np.int64)
    flows = Flows(
        subscriber=subscriber,
        number=zeros,
        priority=zeros,
        drop_rate=np.zeros(len(subscriber)),
        at_meter=np.zeros(len(subscriber), dtype=bool),
    )
    site = site_from_flows(demand, flow, flows)
    return site, downlink_loads(site, inbound)


def loads_on_separate_flows(demand: Demand, inbound: InboundTraffic) -> tuple[Site, DownlinkLoads]:
    """Return the site with a separate flow for every subscription, and the loads of the flows.

    Flows have the order of the subscriptions.
    """
    return loads_on_flows(demand, inbound, np.arange(len(demand.subscriptions)), demand.subscriber)
