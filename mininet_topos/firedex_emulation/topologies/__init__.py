"""Networks to emulate: the plan of a network and its Mininet nodes and links.

One module for each topology (``big_switch``, ``building``, ``campus``), which opens with a drawing.
Topologies that connect several sites are in ``site_networks``. This package does not know which
processes run on the hosts.
"""
