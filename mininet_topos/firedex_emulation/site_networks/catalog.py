"""The networks of sites, by their number of sites."""

from collections.abc import Mapping
from types import MappingProxyType

from firedex_emulation.site_networks import (
    fifteen_sites,
    fifty_sites,
    six_sites,
    twenty_five_sites,
)
from firedex_emulation.site_networks.network import SiteNetwork

__all__ = ["SITE_NETWORKS"]

SITE_NETWORKS: Mapping[int, SiteNetwork] = MappingProxyType(
    {
        len(module.NETWORK.sites): module.NETWORK
        for module in (six_sites, fifteen_sites, twenty_five_sites, fifty_sites)
    }
)
