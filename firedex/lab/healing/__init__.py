"""How a federation heals: rounds of failures with real brokers and federators, under traffic.

- ``failures``: which sites fail in a round. Pure.
- ``traffic``: events between all sites, with the time of each arrival.
- ``rounds``: one round each: cold start, failed sites, a partition with its merge.
"""
