"""A running Mininet network: its nodes by the ids of the scenario.

::

    network = build_network(scenario, controller_port=6653)        # or topology="campus"
    network.subscribers["engine1"].node.popen(…)
    network.switches["core"].hosts_port                            # 's2-eth3'
    network.controller_options()                                   # ['--switch', 'core=…:s2-eth3']

A separate management link connects the edge host (10.255.0.2) with the switch host (10.255.0.1),
where the controller runs.
"""

import resource
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import RemoteController
from mininet.topo import Topo

from firedex.wire import Scenario
from firedex_emulation.errors import PartFailed, UnsupportedTopology
from firedex_emulation.topologies.delayed_link import DelayedLink
from firedex_emulation.topologies.mininet_nodes import PlannedTopo
from firedex_emulation.topologies.network_plan import (
    NetworkPlan,
    PlannedHost,
    PlannedLink,
)
from firedex_emulation.topologies.registry import plan_network

__all__ = [
    "EDGE_MANAGEMENT",
    "HOST_MANAGEMENT",
    "EmulatedHost",
    "EmulatedLink",
    "EmulatedNetwork",
    "EmulatedSwitch",
    "bring_up",
    "build_network",
    "start_mininet",
]

EDGE_MANAGEMENT = "10.255.0.2"
HOST_MANAGEMENT = "10.255.0.1"


@dataclass(frozen=True, kw_only=True)
class EmulatedHost:
    """A Mininet host, its address, and the scenario's switch that it is attached to."""

    node: Any
    address: str
    switch: str


@dataclass(frozen=True, kw_only=True)
class EmulatedSwitch:
    """A switch of the scenario. ``hosts_port`` leads to its own subscribers, if it has any."""

    node: Any
    managed: bool
    datapath_id: str
    hosts_port: str | None


@dataclass(frozen=True, kw_only=True)
class EmulatedLink:
    """A link between two of the scenario's switches, or a switch's trunk (``other`` is None).

    ``measured_round_trip_seconds``: of a link with a delay, when it was made; else None.
    """

    one: str
    one_port: str
    other: str | None
    other_port: str
    delay_seconds: float
    delay_back_seconds: float
    measured_round_trip_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class EmulatedNetwork:
    """The running network; mappings are by the ids of the scenario."""

    net: Mininet
    topology: str
    edge: EmulatedHost
    publishers: Mapping[str, EmulatedHost]
    subscribers: Mapping[str, EmulatedHost]
    switches: Mapping[str, EmulatedSwitch]
    links: tuple[EmulatedLink, ...]

    @property
    def managed(self) -> Mapping[str, EmulatedSwitch]:
        """The managed switches."""
        return {name: switch for name, switch in self.switches.items() if switch.managed}

    def controller_options(self) -> list[str]:
        """Return the options of ``firedex controller`` for the managed switches."""
        options = []
        for name, switch in self.managed.items():
            options += ["--switch", f"{name}={switch.datapath_id}:{switch.hosts_port}"]
        return options

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Disconnect the link between two switches, or restore it."""
        for link in self.links:
            if {link.one, link.other} == {one, other}:
                for port in (link.one_port, link.other_port):
                    state = "up" if up else "down"
                    subprocess.run(["ip", "link", "set", port, state], check=True)
                return
        raise UnsupportedTopology(self.topology, f"no link between {one!r} and {other!r}")

    def stop(self) -> None:
        """Stop the network; not needed in a sandbox, which removes everything."""
        self.net.stop()


def build_network(
    scenario: Scenario, *, controller_port: int | None = None, topology: str | None = None
) -> EmulatedNetwork:
    """Plan and start the network of a scenario.

    Managed switches connect to the controller at ``controller_port``. Without a port they have no
    controller and forward nothing until rules are installed.
    """
    return bring_up(plan_network(scenario, topology), controller_port=controller_port)


def bring_up(plan: NetworkPlan, *, controller_port: int | None = None) -> EmulatedNetwork:
    """Build and start the network of a plan. Open vSwitch must be running."""
    net = start_mininet(PlannedTopo(plan), controller_port=controller_port)
    _add_management(net["edge"])
    hosts = {kind: _hosts(net, plan, kind) for kind in ("edge", "publisher", "subscriber")}
    return EmulatedNetwork(
        net=net,
        topology=plan.topology,
        edge=hosts["edge"]["edge"],
        publishers=hosts["publisher"],
        subscribers=hosts["subscriber"],
        switches=_switches(net, plan),
        links=_links(net, plan),
    )


def start_mininet(topo: Topo, *, controller_port: int | None = None) -> Mininet:
    """Build and start a Mininet network; raise PartFailed if a port of a switch has an error."""
    setLogLevel("error")
    _prepare_mininet()
    net = Mininet(topo=topo, controller=None, build=False, autoSetMacs=True)
    if controller_port is not None:
        net.addController("c0", controller=RemoteController, ip="127.0.0.1", port=controller_port)
    net.build()
    net.start()
    _check_ports()
    return net


def _prepare_mininet() -> None:
    """Raise the limits of this process as Mininet does, without its changes to the machine.

    Mininet sets sysctls of the whole machine (``kernel.pty.max`` and others) and never restores
    them.
    """
    for limit, wanted in ((resource.RLIMIT_NPROC, 8192), (resource.RLIMIT_NOFILE, 16384)):
        _, hard_limit = resource.getrlimit(limit)
        new_limit = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
        resource.setrlimit(limit, (new_limit, hard_limit))
    Mininet.inited = True


def _hosts(net: Mininet, plan: NetworkPlan, kind: str) -> Mapping[str, EmulatedHost]:
    def emulated_host(host: PlannedHost) -> EmulatedHost:
        return EmulatedHost(node=net[host.name], address=host.address, switch=host.switch)

    return MappingProxyType(
        {host.scenario_id: emulated_host(host) for host in plan.hosts if host.kind == kind}
    )


def _switches(net: Mininet, plan: NetworkPlan) -> Mapping[str, EmulatedSwitch]:
    trunks = {link.hosts_of: link for link in plan.links if link.hosts_of is not None}
    emulated = {}
    for switch in plan.switches:
        if switch.switch is None:
            continue
        its_trunk = trunks.get(switch.switch)
        emulated[switch.switch] = EmulatedSwitch(
            node=net[switch.name],
            managed=switch.managed,
            datapath_id=switch.datapath_id,
            hosts_port=_mininet_link(net, its_trunk).intf1.name if its_trunk else None,
        )
    return MappingProxyType(emulated)


def _links(net: Mininet, plan: NetworkPlan) -> tuple[EmulatedLink, ...]:
    ids = {switch.name: switch.switch for switch in plan.switches}
    emulated = []
    for link in plan.links:
        one, other = ids.get(link.one), ids.get(link.other)
        if one is None:
            continue  # the link of a host
        mininet_link = _mininet_link(net, link)
        measured = mininet_link.measured if isinstance(mininet_link, DelayedLink) else None
        emulated.append(
            EmulatedLink(
                one=one,
                one_port=mininet_link.intf1.name,
                other=other,
                other_port=mininet_link.intf2.name,
                delay_seconds=link.delay_seconds,
                delay_back_seconds=link.delay_back_seconds,
                measured_round_trip_seconds=measured.round_trip_seconds if measured else None,
            )
        )
    return tuple(emulated)


def _mininet_link(net: Mininet, link: PlannedLink) -> Any:
    """Return the Mininet link of a planned link, with its ends in the planned order."""
    found = net.linksBetween(net[link.one], net[link.other])
    return found[0]


def _check_ports() -> None:
    """Raise PartFailed if Open vSwitch reports an error for a port; Mininet ignores it."""
    listing = subprocess.run(
        ["ovs-vsctl", "--bare", "--columns=name,error", "find", "interface", "error!=[]"],
        capture_output=True,
        text=True,
        check=True,
    )
    if errors := listing.stdout.strip():
        raise PartFailed("Open vSwitch", errors)


def _add_management(edge: Any) -> None:
    """Add the management link between the edge host and the switch host."""
    here, there = "mgmt0", "edge-mgmt"
    subprocess.run(
        ["ip", "link", "add", here, "type", "veth", "peer", "name", there]
        + ["netns", str(edge.pid)],
        check=True,
    )
    subprocess.run(["ip", "addr", "add", f"{HOST_MANAGEMENT}/24", "dev", here], check=True)
    subprocess.run(["ip", "link", "set", here, "up"], check=True)
    edge.cmd(f"ip addr add {EDGE_MANAGEMENT}/24 dev {there}")
    edge.cmd(f"ip link set {there} up")
