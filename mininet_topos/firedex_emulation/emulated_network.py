"""A plan brought up: Mininet nodes by the scenario's ids, and where everything is.

::

    network = build_network(scenario, controller_port=6653)        # or topology="campus"
    network.subscribers["engine1"].node.popen(…)
    network.switches["core"].hosts_port                            # 's2-eth3'
    network.controller_options()                                   # ['--switch', 'core=…:s2-eth3']

Management: a link of its own between the edge host (10.255.0.2) and the switch host (10.255.0.1),
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

from firedex.wire import Scenario
from firedex_emulation import big_switch, building, campus
from firedex_emulation.delayed_link import DelayedLink
from firedex_emulation.errors import PartFailed, TopologyRefused
from firedex_emulation.network_plan import TOPOLOGIES, NetworkPlan, PlannedHost, PlannedLink
from firedex_emulation.switch_nodes import PlannedTopo

__all__ = [
    "EDGE_MANAGEMENT",
    "HOST_MANAGEMENT",
    "EmulatedNetwork",
    "PlacedHost",
    "PlacedLink",
    "PlacedSwitch",
    "bring_up",
    "build_network",
    "plan_network",
]

EDGE_MANAGEMENT = "10.255.0.2"
HOST_MANAGEMENT = "10.255.0.1"
PLANNERS = {
    big_switch.NAME: big_switch.plan_for,
    building.NAME: building.plan_for,
    campus.NAME: campus.plan_for,
}


@dataclass(frozen=True, kw_only=True)
class PlacedHost:
    """A Mininet host, its address, and the scenario's switch that it is behind."""

    node: Any
    address: str
    switch: str


@dataclass(frozen=True, kw_only=True)
class PlacedSwitch:
    """A scenario's switch. ``hosts_port`` leads to its own subscribers; None if it has no such."""

    node: Any
    managed: bool
    datapath_id: str
    hosts_port: str | None


@dataclass(frozen=True, kw_only=True)
class PlacedLink:
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
    """The network and who is where, by the scenario's ids."""

    net: Mininet
    topology: str
    edge: PlacedHost
    publishers: Mapping[str, PlacedHost]
    subscribers: Mapping[str, PlacedHost]
    switches: Mapping[str, PlacedSwitch]
    links: tuple[PlacedLink, ...]

    @property
    def managed(self) -> Mapping[str, PlacedSwitch]:
        """The managed ones of its switches."""
        return {name: switch for name, switch in self.switches.items() if switch.managed}

    def controller_options(self) -> list[str]:
        """What ``firedex controller`` has to be told of the managed switches."""
        options = []
        for name, switch in self.managed.items():
            options += ["--switch", f"{name}={switch.datapath_id}:{switch.hosts_port}"]
        return options

    def set_link(self, one: str, other: str, *, up: bool) -> None:
        """Cut the link between two switches, or restore it."""
        for link in self.links:
            if {link.one, link.other} == {one, other}:
                for port in (link.one_port, link.other_port):
                    state = "up" if up else "down"
                    subprocess.run(["ip", "link", "set", port, state], check=True)
                return
        raise TopologyRefused(self.topology, f"there is no link between {one!r} and {other!r}")

    def stop(self) -> None:
        """Take it down; not needed in a sandbox, which takes everything with it."""
        self.net.stop()


def plan_network(scenario: Scenario, topology: str | None = None) -> NetworkPlan:
    """The scenario on ``topology``, or on the first that carries it; TopologyRefused says why not.

    Pure: it may be asked before anything is built.
    """
    if topology is not None:
        if topology not in PLANNERS:
            raise TopologyRefused(topology, f"unknown; there are {', '.join(TOPOLOGIES)}")
        return PLANNERS[topology](scenario)
    reasons = []
    for name in TOPOLOGIES:
        try:
            return PLANNERS[name](scenario)
        except TopologyRefused as refused:
            reasons.append(f"{name}: {refused.reason}")
    raise TopologyRefused("any", "; ".join(reasons))


def build_network(
    scenario: Scenario, *, controller_port: int | None = None, topology: str | None = None
) -> EmulatedNetwork:
    """Bring a scenario's network up; managed switches wait for a controller at ``controller_port``.

    Without a port they have no controller and forward nothing until somebody gives them rules.
    """
    return bring_up(plan_network(scenario, topology), controller_port=controller_port)


def bring_up(plan: NetworkPlan, *, controller_port: int | None = None) -> EmulatedNetwork:
    """Build and start the network of a plan. Open vSwitch runs already."""
    setLogLevel("error")
    _prepare_mininet()
    net = Mininet(topo=PlannedTopo(plan), controller=None, build=False, autoSetMacs=True)
    if controller_port is not None:
        net.addController("c0", controller=RemoteController, ip="127.0.0.1", port=controller_port)
    net.build()
    net.start()
    _check_ports()
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


def _prepare_mininet() -> None:
    """Raise this process's limits as Mininet would, and keep it from changing the machine's.

    It sets sysctls of the whole machine (``kernel.pty.max`` and others) and never sets them back.
    """
    for limit, wanted in ((resource.RLIMIT_NPROC, 8192), (resource.RLIMIT_NOFILE, 16384)):
        _, most = resource.getrlimit(limit)
        enough = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(limit, (enough, most))
    Mininet.inited = True


def _hosts(net: Mininet, plan: NetworkPlan, kind: str) -> Mapping[str, PlacedHost]:
    def place(host: PlannedHost) -> PlacedHost:
        return PlacedHost(node=net[host.name], address=host.address, switch=host.switch)

    return MappingProxyType({host.party: place(host) for host in plan.hosts if host.kind == kind})


def _switches(net: Mininet, plan: NetworkPlan) -> Mapping[str, PlacedSwitch]:
    trunks = {link.hosts_of: link for link in plan.links if link.hosts_of is not None}
    placed = {}
    for switch in plan.switches:
        if switch.switch is None:
            continue
        its_trunk = trunks.get(switch.switch)
        placed[switch.switch] = PlacedSwitch(
            node=net[switch.name],
            managed=switch.managed,
            datapath_id=switch.datapath_id,
            hosts_port=_made(net, its_trunk).intf1.name if its_trunk else None,
        )
    return MappingProxyType(placed)


def _links(net: Mininet, plan: NetworkPlan) -> tuple[PlacedLink, ...]:
    ids = {switch.name: switch.switch for switch in plan.switches}
    placed = []
    for link in plan.links:
        one, other = ids.get(link.one), ids.get(link.other)
        if one is None:
            continue  # a host's
        made = _made(net, link)
        measured = made.measured if isinstance(made, DelayedLink) else None
        placed.append(
            PlacedLink(
                one=one,
                one_port=made.intf1.name,
                other=other,
                other_port=made.intf2.name,
                delay_seconds=link.delay_seconds,
                delay_back_seconds=link.delay_back_seconds,
                measured_round_trip_seconds=measured.round_trip_seconds if measured else None,
            )
        )
    return tuple(placed)


def _made(net: Mininet, link: PlannedLink) -> Any:
    """The Mininet link of a planned one, its ends in the planned order."""
    found = net.linksBetween(net[link.one], net[link.other])
    return found[0]


def _check_ports() -> None:
    """Mininet does not look at what Open vSwitch answers: a port that is not there is said here."""
    listed = subprocess.run(
        ["ovs-vsctl", "--bare", "--columns=name,error", "find", "interface", "error!=[]"],
        capture_output=True,
        text=True,
        check=True,
    )
    if troubles := listed.stdout.strip():
        raise PartFailed("Open vSwitch", troubles)


def _add_management(edge: Any) -> None:
    """A link of its own between the edge host and the switch host."""
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
