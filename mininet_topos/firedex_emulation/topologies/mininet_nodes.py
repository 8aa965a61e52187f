"""Mininet nodes of FireDeX topologies, and a Mininet ``Topo`` from a network plan."""

from typing import Any

from mininet.node import Host, OVSSwitch
from mininet.topo import Topo

from firedex_emulation.topologies.delayed_link import DelayedLink
from firedex_emulation.topologies.network_plan import NETWORK_PREFIX, NetworkPlan, PlannedLink

__all__ = ["AccessSwitch", "ManagedSwitch", "PlannedTopo", "SiteHost", "add_plan"]

FASTEST_SHAPED_BITS_PER_SECOND = 100e6
"""Faster links are not shaped: the userspace switch carries only 200 to 440 Mbit/s."""


class SiteHost(Host):  # type: ignore[misc]  # Mininet ships no types
    """A host with checksums in software and without IPv6."""

    def config(self, **params: Any) -> Any:
        """Configure the host as Mininet does, then turn off checksum offload and IPv6."""
        result = super().config(**params)
        for interface in self.intfList():
            # Without this, ping works but TCP never connects: no hardware computes the checksums.
            self.cmd(f"ethtool -K {interface.name} tx off")
        self.cmd("sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
        return result


class _UserspaceSwitch(OVSSwitch):  # type: ignore[misc]  # Mininet ships no types
    """A switch with the userspace datapath of Open vSwitch; shapes its ports on start."""

    def start(self, controllers: list[Any]) -> None:
        """Start the switch, disable IPv6 on it, and shape its ports if it has no controller."""
        super().start(controllers)
        for name in (self.name, *(port.name for port in self.intfList() if port.name != "lo")):
            # Otherwise this machine sends IPv6 packets on the ports of the switch.
            self.cmd(f"sysctl -qw net.ipv6.conf.{name}.disable_ipv6=1")
        if not controllers:
            for interface in self.intfList():
                rate = interface.params.get("bandwidth_bits_per_second")
                if rate and rate <= FASTEST_SHAPED_BITS_PER_SECOND:
                    self._shape(interface.name, rate)

    def _shape(self, port: str, bits_per_second: float) -> None:
        """Add one FIFO queue through OVSDB; Open vSwitch removes queues that tc alone sets."""
        self.cmd(
            f"ovs-vsctl set port {port} qos=@qos -- --id=@qos create qos type=linux-htb "
            f"other-config:max-rate={bits_per_second:.0f} queues:0=@queue -- --id=@queue "
            f"create queue other-config:min-rate={bits_per_second:.0f} "
            f"other-config:max-rate={bits_per_second:.0f}"
        )


class ManagedSwitch(_UserspaceSwitch):
    """A switch that follows its controller and keeps its rules while that is unreachable."""

    def __init__(self, name: str, **params: Any) -> None:
        params = {"protocols": "OpenFlow13", "reconnectms": 1000, **params}
        super().__init__(name, **{**params, "failMode": "secure", "datapath": "user"})


class AccessSwitch(_UserspaceSwitch):
    """An unmanaged switch that forwards without a controller."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "failMode": "standalone", "datapath": "user"})

    def start(self, controllers: list[Any]) -> None:  # noqa: ARG002
        """Start without a controller, even if the network has one."""
        super().start([])


def add_plan(topo: Topo, plan: NetworkPlan) -> None:
    """Add all nodes and links of ``plan`` to a Mininet topology."""
    for switch in plan.switches:
        topo.addSwitch(
            switch.name,
            cls=ManagedSwitch if switch.managed else AccessSwitch,
            dpid=switch.datapath_id,
            batch=False,  # in batch mode Mininet does not report errors
        )
    for host in plan.hosts:
        topo.addHost(host.name, cls=SiteHost, ip=f"{host.address}/{NETWORK_PREFIX}")
    for link in plan.links:
        topo.addLink(link.one, link.other, **_link_options(link))


def _link_options(link: PlannedLink) -> dict[str, Any]:
    options: dict[str, Any] = {
        "params1": {"bandwidth_bits_per_second": link.bandwidth_bits_per_second},
        "params2": {"bandwidth_bits_per_second": link.bandwidth_back_bits_per_second},
    }
    if link.delay_seconds or link.delay_back_seconds:
        options |= {
            "cls": DelayedLink,
            "delay_seconds": link.delay_seconds,
            "delay_back_seconds": link.delay_back_seconds,
        }
    return options


class PlannedTopo(Topo):  # type: ignore[misc]  # Mininet ships no types
    """The Mininet topology of any plan."""

    def build(self, plan: NetworkPlan) -> None:
        """Add the plan to this topology; Mininet's constructor calls this."""
        self.plan = plan
        add_plan(self, plan)
