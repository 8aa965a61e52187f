"""Mininet nodes as FireDeX's topologies use them, and how a plan is put into a Mininet ``Topo``."""

from typing import Any

from mininet.node import Host, OVSSwitch
from mininet.topo import Topo

from firedex_emulation.delayed_link import DelayedLink
from firedex_emulation.network_plan import NETWORK_PREFIX, NetworkPlan, PlannedLink

__all__ = ["AccessSwitch", "ManagedSwitch", "PlannedTopo", "SiteHost", "add_plan"]

FASTEST_SHAPED_BITS_PER_SECOND = 100e6
"""The userspace switch carries 200 to 440 Mbit/s: a link faster than this is left as it is."""


class SiteHost(Host):  # type: ignore[misc]  # Mininet ships no types
    """A host that TCP works on, and that says nothing by itself."""

    def config(self, **params: Any) -> Any:
        """Configure as Mininet does; then checksums in software, and no IPv6."""
        result = super().config(**params)
        for interface in self.intfList():
            # Without this ping works and TCP never connects: no hardware fills the checksums in.
            self.cmd(f"ethtool -K {interface.name} tx off")
        self.cmd("sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
        return result


class _UserspaceSwitch(OVSSwitch):  # type: ignore[misc]  # Mininet ships no types
    """Open vSwitch's userspace datapath. Ports with a bandwidth are shaped when it starts."""

    def start(self, controllers: list[Any]) -> None:
        """Start, keep the machine itself out of it, and shape what nobody else will."""
        super().start(controllers)
        for name in (self.name, *(port.name for port in self.intfList() if port.name != "lo")):
            # Else this machine speaks IPv6 on the switch's ports, like a host that is not there.
            self.cmd(f"sysctl -qw net.ipv6.conf.{name}.disable_ipv6=1")
        if not controllers:
            for interface in self.intfList():
                rate = interface.params.get("bandwidth_bits_per_second")
                if rate and rate <= FASTEST_SHAPED_BITS_PER_SECOND:
                    self._shape(interface.name, rate)

    def _shape(self, port: str, bits_per_second: float) -> None:
        """One queue, first come first served. In OVSDB, since OVS removes what tc alone sets."""
        self.cmd(
            f"ovs-vsctl set port {port} qos=@qos -- --id=@qos create qos type=linux-htb "
            f"other-config:max-rate={bits_per_second:.0f} queues:0=@queue -- --id=@queue "
            f"create queue other-config:min-rate={bits_per_second:.0f} "
            f"other-config:max-rate={bits_per_second:.0f}"
        )


class ManagedSwitch(_UserspaceSwitch):
    """Does what its controller says, also while that is away; shapes plainly if it has none."""

    def __init__(self, name: str, **params: Any) -> None:
        params = {"protocols": "OpenFlow13", "reconnectms": 1000, **params}
        super().__init__(name, **{**params, "failMode": "secure", "datapath": "user"})


class AccessSwitch(_UserspaceSwitch):
    """Forwards by itself (unmanaged); never asks a controller."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "failMode": "standalone", "datapath": "user"})

    def start(self, controllers: list[Any]) -> None:  # noqa: ARG002
        """Start without any controller, whatever the others have."""
        super().start([])


def add_plan(topo: Topo, plan: NetworkPlan) -> None:
    """Put everything of ``plan`` into a Mininet topology."""
    for switch in plan.switches:
        topo.addSwitch(
            switch.name,
            cls=ManagedSwitch if switch.managed else AccessSwitch,
            dpid=switch.datapath_id,
            batch=False,  # Mininet's batches do not say what went wrong
        )
    for host in plan.hosts:
        topo.addHost(host.name, cls=SiteHost, ip=f"{host.address}/{NETWORK_PREFIX}")
    for link in plan.links:
        topo.addLink(link.one, link.other, **_options(link))


def _options(link: PlannedLink) -> dict[str, Any]:
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
        """Called by Mininet's constructor."""
        self.plan = plan
        add_plan(self, plan)
