"""Emulation of a site: run a scenario on emulated switches and compare it with its prediction.

Packages, from the lowest layer to the highest:

- ``topologies``: networks as plans and as Mininet topologies.
- ``measurement``: statistics of a finished run and the comparison with its prediction. Pure.
- ``testbed``: processes, switches and the sandbox that an experiment runs in.
- ``site_networks``: networks of several sites, on switches or as plain network namespaces.
- ``embedded``: the testbed without root and without switches, on loopback.
- ``report``: a finished run as pages, plots and tables.

``command`` is ``firedex emulate``.
"""
