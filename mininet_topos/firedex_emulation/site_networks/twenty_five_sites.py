"""Twenty-five sites, for the largest experiment of the thesis on MQTT federation (2023).

::

       0 ───── 1 ───── 2 ───── 3 ───── 4
       │ ╲     │ ╲     │ ╲     │ ╲     │
       │   ╲   │   ╲   │   ╲   │   ╲   │
       5 ───── 6 ───── 7 ───── 8 ───── 9
       │ ╲     │ ╲     │ ╲     │ ╲     │
       │   ╲   │   ╲   │   ╲   │   ╲   │     3 stands for site3; horizontal and vertical
      10 ──── 11 ──── 12 ──── 13 ──── 14     links: 10 Mbit/s, 5 ms in each direction;
       │ ╲     │ ╲     │ ╲     │ ╲     │     diagonal links: 10 Mbit/s, 7 ms
       │   ╲   │   ╲   │   ╲   │   ╲   │
      15 ──── 16 ──── 17 ──── 18 ──── 19
       │ ╲     │ ╲     │ ╲     │ ╲     │
       │   ╲   │   ╲   │   ╲   │   ╲   │
      20 ──── 21 ──── 22 ──── 23 ──── 24

The thesis (see ``six_sites``) shows its network as a picture only (Fig. 5.5); its text says that it
is denser than the one with fifteen nodes. The number of sites is that of the thesis; links,
bandwidths and delays are our choice: 56 links, 4.5 for each site on average.

Without sites 2, 7, 12, 17 and 22 the network is divided into two parts.
"""

from itertools import product

from firedex_emulation.site_networks.network import SiteNetwork, grid_links, site_names

__all__ = ["NETWORK"]

NETWORK = SiteNetwork(
    name="twenty-five-sites",
    sites=site_names(25),
    links=grid_links(
        5,
        5,
        diagonals=product(range(4), range(4)),
        bandwidth_bits_per_second=10e6,
        delay_seconds=0.005,
    ),
    separators=("site2", "site7", "site12", "site17", "site22"),
)
