"""A network of sites on Open vSwitch with Mininet: a site is a switch with one host.

::

    h0 ── [s0] ═══ link with bandwidth and real delay ═══ [s1] ── h1
            ║                                               ║
           [s2] ── h2                                      [s3] ── h3

``sN`` and ``hN`` belong to ``siteN``. The switches have no controller. Fixed rules forward packets
to the own host and to the hosts of neighbours, so loops of links do no harm.

In Mininet's own shell, as root on a dedicated machine (without the rules, switches forward
nothing)::

    mn --custom switch_form.py --topo six-sites --controller none
"""

import subprocess
from typing import Any

from mininet.net import Mininet
from mininet.topo import Topo

from firedex_emulation.site_networks.catalog import SITE_NETWORKS
from firedex_emulation.site_networks.hosts import SiteHosts
from firedex_emulation.site_networks.network import SiteNetwork
from firedex_emulation.testbed.emulated_network import start_mininet
from firedex_emulation.topologies.mininet_nodes import PlannedTopo, add_plan
from firedex_emulation.topologies.network_plan import (
    NetworkPlan,
    PlannedHost,
    PlannedLink,
    PlannedSwitch,
    datapath_id,
)

__all__ = ["SiteSwitches", "SiteTopo", "plan_sites", "topos"]


def plan_sites(network: SiteNetwork) -> NetworkPlan:
    """Return the switches, hosts and links of a network of sites. Pure."""
    numbers = {site: number for number, site in enumerate(network.sites)}
    return NetworkPlan(
        topology=network.name,
        switches=tuple(
            PlannedSwitch(
                name=f"s{number}", switch=site, managed=True, datapath_id=datapath_id(number + 1)
            )
            for site, number in numbers.items()
        ),
        hosts=tuple(
            PlannedHost(
                name=f"h{number}",
                kind="site",
                scenario_id=site,
                address=network.address(site),
                switch=site,
            )
            for site, number in numbers.items()
        ),
        links=(
            *(PlannedLink(one=f"h{n}", other=f"s{n}") for n in numbers.values()),
            *(
                PlannedLink(
                    one=f"s{numbers[link.one]}",
                    other=f"s{numbers[link.other]}",
                    bandwidth_bits_per_second=link.bandwidth_bits_per_second,
                    bandwidth_back_bits_per_second=link.bandwidth_bits_per_second,
                    delay_seconds=link.delay_seconds,
                    delay_back_seconds=link.delay_seconds,
                )
                for link in network.links
            ),
        ),
    )


class SiteTopo(Topo):  # type: ignore[misc]  # Mininet ships no types
    """The Mininet topology of a network of sites."""

    def build(self, sites: int = 6) -> None:
        """Build the network with this number of sites; Mininet's constructor calls this."""
        add_plan(self, plan_sites(SITE_NETWORKS[sites]))


class SiteSwitches(SiteHosts):
    """The running switches and hosts. Open vSwitch must be running (``testbed.sandbox``)."""

    def __init__(self, network: SiteNetwork) -> None:
        super().__init__(network)
        plan = plan_sites(network)
        self._hosts = {host.scenario_id: host.name for host in plan.hosts}
        self._switches = {switch.switch: switch.name for switch in plan.switches}
        self._net: Mininet = start_mininet(PlannedTopo(plan))
        for site in network.sites:
            self._add_rules(site)

    def pid(self, site: str) -> int:
        """Return the id of the shell of a site's host."""
        pid: int = self._net[self._hosts[site]].pid
        return pid

    def stop(self) -> None:
        """Stop the network; not needed in a sandbox, which removes everything."""
        self._net.stop()

    def measured_round_trips(self) -> list[float | None]:
        """Return the round trip of each link, as measured when it was made; None without delay."""
        return [
            getattr(getattr(self._link(number), "measured", None), "round_trip_seconds", None)
            for number in range(len(self.network.links))
        ]

    def _link(self, number: int) -> Any:
        link = self.network.links[number]
        ends = (self._net[self._switches[site]] for site in (link.one, link.other))
        return self._net.linksBetween(*ends)[0]

    def _add_rules(self, site: str) -> None:
        switch = self._net[self._switches[site]]
        host = self._net[self._hosts[site]]
        ports = {self.network.address(site): switch.connectionsTo(host)[0][0]}
        for neighbour in self.network.neighbours[site]:
            other = self._net[self._switches[neighbour]]
            ports[self.network.address(neighbour)] = switch.connectionsTo(other)[0][0]
        rules = []
        for address, interface in ports.items():
            number = switch.ports[interface]
            rules += [
                f"priority=1,ip,nw_dst={address},actions=output:{number}",
                f"priority=1,arp,arp_tpa={address},actions=output:{number}",
            ]
        command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flows", switch.name, "-"]
        subprocess.run(command, input="\n".join(rules), text=True, check=True)

    def _set_link(self, number: int, *, up: bool) -> None:
        link = self._link(number)
        for interface in (link.intf1, link.intf2):
            state = "up" if up else "down"
            subprocess.run(["ip", "link", "set", interface.name, state], check=True)


topos = {
    network.name: (lambda sites=sites: SiteTopo(sites=sites))
    for sites, network in SITE_NETWORKS.items()
}
