"""Flows for a thought: what subscriptions would load by themselves, or put together."""

import numpy as np
from numpy.typing import NDArray

from firedex_models.demand import Demand
from firedex_models.downlink_loads import DownlinkLoads, downlink_loads
from firedex_models.inbound import Inbound
from firedex_models.site import Flows, Site, assign

__all__ = ["on_flows", "on_lone_flows"]

Integers = NDArray[np.int64]


def on_flows(
    demand: Demand, inbound: Inbound, flow: Integers, subscriber: Integers
) -> tuple[Site, DownlinkLoads]:
    """The site with each subscription on that flow, and what the flows load.

    ``subscriber``: the owner of each flow.
    """
    nothing = np.zeros(len(subscriber), dtype=np.int64)
    flows = Flows(
        subscriber=subscriber,
        number=nothing,
        priority=nothing,
        drop_rate=np.zeros(len(subscriber)),
        at_meter=np.zeros(len(subscriber), dtype=bool),
    )
    site = assign(demand, flow, flows)
    return site, downlink_loads(site, inbound)


def on_lone_flows(demand: Demand, inbound: Inbound) -> tuple[Site, DownlinkLoads]:
    """Every subscription on a flow of its own, in the same order."""
    return on_flows(demand, inbound, np.arange(len(demand.subscriptions)), demand.subscriber)
