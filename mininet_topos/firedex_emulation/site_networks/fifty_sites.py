"""Fifty sites, twice as many as in the largest experiment of the thesis on MQTT federation.

::

       0 ───── 1 ───── 2 ── … ── 8 ───── 9
       │ ╲     │ ╲     │         │ ╲     │
       │   ╲   │   ╲   │         │   ╲   │     five rows of ten sites, a diagonal in every
      10 ──── 11 ──── 12 ── … ─ 18 ──── 19     cell; 3 stands for site3; horizontal and
       │ ╲     │ ╲     │         │ ╲     │     vertical links: 10 Mbit/s, 5 ms in each
       …       …       …         …       …     direction; diagonal links: 10 Mbit/s, 7 ms
       │   ╲   │   ╲   │         │   ╲   │
      40 ──── 41 ──── 42 ── … ─ 48 ──── 49

This network is not in the thesis. It extends ``twenty_five_sites``: 121 links, 4.8 for each site on
average. Without sites 5, 15, 25, 35 and 45 it is divided into two parts.
"""

from itertools import product

from firedex_emulation.site_networks.network import SiteNetwork, grid_links, site_names

__all__ = ["NETWORK"]

NETWORK = SiteNetwork(
    name="fifty-sites",
    sites=site_names(50),
    links=grid_links(
        5,
        10,
        diagonals=product(range(4), range(9)),
        bandwidth_bits_per_second=10e6,
        delay_seconds=0.005,
    ),
    separators=("site5", "site15", "site25", "site35", "site45"),
)
