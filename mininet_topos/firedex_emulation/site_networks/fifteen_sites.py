"""Fifteen sites, for the fifteen-node experiment of the thesis on MQTT federation (2023).

::

       0 ───── 1 ───── 2 ───── 3 ───── 4
       │ ╲     │       │ ╲     │       │
       │   ╲   │       │   ╲   │       │     3 stands for site3; horizontal and vertical
       5 ───── 6 ───── 7 ───── 8 ───── 9     links: 10 Mbit/s, 5 ms in each direction;
       │       │ ╲     │       │ ╲     │     diagonal links: 10 Mbit/s, 7 ms
       │       │   ╲   │       │   ╲   │
      10 ──── 11 ──── 12 ──── 13 ──── 14

The thesis (see ``six_sites``) shows its network as a picture only (Fig. 5.4), which its text does
not describe. The number of sites is that of the thesis; links, bandwidths and delays are our
choice: 26 links, 3.5 for each site on average.

Without sites 2, 7 and 12 the network is divided into two parts.
"""

from firedex_emulation.site_networks.network import SiteNetwork, grid_links, site_names

__all__ = ["NETWORK"]

NETWORK = SiteNetwork(
    name="fifteen-sites",
    sites=site_names(15),
    links=grid_links(
        3,
        5,
        diagonals=((0, 0), (0, 2), (1, 1), (1, 3)),
        bandwidth_bits_per_second=10e6,
        delay_seconds=0.005,
    ),
    separators=("site2", "site7", "site12"),
)
