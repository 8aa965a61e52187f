"""Every subscription on a flow of its own: what it would load by itself."""

import numpy as np

from firedex_models.demand import Demand
from firedex_models.downlink_loads import DownlinkLoads, downlink_loads
from firedex_models.inbound import Inbound
from firedex_models.site import Flows, Site, assign

__all__ = ["on_lone_flows"]


def on_lone_flows(demand: Demand, inbound: Inbound) -> tuple[Site, DownlinkLoads]:
    """The site with as many flows as subscriptions, in the same order, and their loads."""
    rows = np.arange(len(demand.subscriptions))
    nothing = np.zeros(len(rows), dtype=np.int64)
    flows = Flows(
        subscriber=demand.subscriber,
        number=nothing,
        priority=nothing,
        drop_rate=np.zeros(len(rows)),
        at_meter=np.zeros(len(rows), dtype=bool),
    )
    site = assign(demand, rows, flows)
    return site, downlink_loads(site, inbound)
