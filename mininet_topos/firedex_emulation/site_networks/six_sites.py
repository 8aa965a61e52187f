"""Six sites, after the six-node network of the thesis on self-managed MQTT federation (2023).

::

             1 ───────────── 4
           ╱   ╲           ╱ │
         ╱       ╲       ╱   │
       0           ╲   ╱     │        3 stands for site3; all links are alike:
         ╲           3       │        10 Mbit/s and 5 ms in each direction
           ╲       ╱   ╲     │
             ╲   ╱       ╲   │
               2 ─────────── 5

The thesis (J. F. de Lacerda Machado Jr., "Client-Transparent and Self-Managed MQTT Broker
Federation at the Application Layer", UFRGS, June 2023) shows the network as a picture only
(Figs. 5.1 and 5.3). These links follow from its text: the neighbour lists that it prints for nodes
3 (four neighbours) and 5 (three), the routes to node 0 over two different neighbours, and the event
of node 4 that is sent through node 1. The text does not say which of the two neighbours of node 0
is node 1; that choice is ours. The thesis gives neither bandwidths nor delays (its nodes are
containers on one bridge); both are our choice.

Without sites 1 and 2, site 0 is separated from the others.
"""

from firedex_emulation.site_networks.network import SiteLink, SiteNetwork, site_names

__all__ = ["NETWORK"]

BANDWIDTH_BITS_PER_SECOND = 10e6
DELAY_SECONDS = 0.005
PAIRS = ((0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 5), (3, 4), (3, 5), (4, 5))

NETWORK = SiteNetwork(
    name="six-sites",
    sites=site_names(6),
    links=tuple(
        SiteLink(
            one=f"site{one}",
            other=f"site{other}",
            bandwidth_bits_per_second=BANDWIDTH_BITS_PER_SECOND,
            delay_seconds=DELAY_SECONDS,
        )
        for one, other in PAIRS
    ),
    separators=("site1", "site2"),
)
