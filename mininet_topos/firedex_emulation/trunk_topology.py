"""Subscribers behind one shared trunk.

::

      edge ──────┐                     ┌────── sub 1
   (broker,      │                     │
    gateway,   [core] ═══ trunk ═══ [access] ── sub 2
    service)     │    (queues here)    │
      pub ───────┘                     └────── …

    management: edge ── 10.255.0.2 / 10.255.0.1 ── the switch host, where the controller runs

``core`` is managed: its port to the trunk has FireDeX's queues. ``access`` only forwards.
Addresses: edge 10.0.0.10, publishers from 10.0.0.11, subscribers from 10.0.0.101, in the order
of the scenario.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host, OVSSwitch, RemoteController

from firedex.wire import Scenario
from firedex_emulation.errors import CannotEmulate

__all__ = [
    "EDGE_ADDRESS",
    "EDGE_MANAGEMENT",
    "HOST_MANAGEMENT",
    "TrunkNetwork",
    "build_trunk",
    "trunk_switch",
]

EDGE_ADDRESS = "10.0.0.10"
EDGE_MANAGEMENT = "10.255.0.2"
HOST_MANAGEMENT = "10.255.0.1"
CORE_DATAPATH = "0000000000000001"
ACCESS_DATAPATH = "0000000000000002"


@dataclass(frozen=True, kw_only=True)
class TrunkNetwork:
    """The network and who is where. Hosts are Mininet nodes; ``addresses`` are theirs by name."""

    net: Mininet
    edge: Host
    publishers: dict[str, Host]
    subscribers: dict[str, Host]
    addresses: dict[str, str]
    switch: str
    core_datapath: str
    trunk_port: str


def trunk_switch(scenario: Scenario) -> str:
    """The managed switch whose port is the trunk; CannotEmulate if there is no such thing."""
    managed = [switch.id for switch in scenario.network.switches if switch.managed]
    if len(managed) != 1:
        raise CannotEmulate(
            f"one managed switch is needed for the trunk; {scenario.name!r} has {len(managed)}"
        )
    elsewhere = [s.id for s in scenario.subscribers if s.switch != managed[0]]
    if elsewhere or not scenario.subscribers or not scenario.publishers:
        raise CannotEmulate(
            f"publishers are needed, and subscribers, all behind the switch {managed[0]!r}"
            + (f"; {elsewhere[0]!r} is not" if elsewhere else "")
        )
    return managed[0]


def build_trunk(scenario: Scenario, controller_port: int) -> TrunkNetwork:
    """Bring the network up; the core waits for its controller, the access switch needs none."""
    setLogLevel("error")
    net = Mininet(controller=None, build=False, autoSetMacs=True)
    net.addController("c0", controller=RemoteController, ip="127.0.0.1", port=controller_port)
    core = net.addSwitch(
        "core",
        cls=OVSSwitch,
        datapath="user",
        dpid=CORE_DATAPATH,
        protocols="OpenFlow13",
        failMode="secure",
        reconnectms=1000,
    )
    access = net.addSwitch(
        "access", cls=OVSSwitch, datapath="user", dpid=ACCESS_DATAPATH, failMode="standalone"
    )
    addresses = {"edge": EDGE_ADDRESS}
    addresses |= {p.id: f"10.0.0.{11 + n}" for n, p in enumerate(scenario.publishers)}
    addresses |= {s.id: f"10.0.0.{101 + n}" for n, s in enumerate(scenario.subscribers)}
    edge = net.addHost("edge", ip=f"{EDGE_ADDRESS}/24")
    net.addLink(edge, core)
    publishers = _hosts(net, "pub", [p.id for p in scenario.publishers], addresses)
    subscribers = _hosts(net, "sub", [s.id for s in scenario.subscribers], addresses)
    for host in publishers.values():
        net.addLink(host, core)
    trunk = net.addLink(core, access)
    for host in subscribers.values():
        net.addLink(host, access)
    net.build()
    core.start(net.controllers)
    access.start([])
    _add_management(edge)
    for host in (edge, *publishers.values(), *subscribers.values()):
        # Without this ping works and TCP never connects: no hardware fills the checksums in.
        host.cmd(f"ethtool -K {host.defaultIntf().name} tx off")
    return TrunkNetwork(
        net=net,
        edge=edge,
        publishers=publishers,
        subscribers=subscribers,
        addresses=addresses,
        switch=trunk_switch(scenario),
        core_datapath=CORE_DATAPATH,
        trunk_port=trunk.intf1.name,
    )


def _hosts(
    net: Mininet, kind: str, names: Sequence[str], addresses: Mapping[str, str]
) -> dict[str, Host]:
    """Hosts with short names, since a link's name has room for 15 letters only."""
    return {
        name: net.addHost(f"{kind}{number}", ip=f"{addresses[name]}/24")
        for number, name in enumerate(names)
    }


def _add_management(edge: Host) -> None:
    """A link of its own between the edge host and the switch host."""
    here, there = "mgmt0", "edge-mgmt"
    subprocess.run(["ip", "link", "add", here, "type", "veth", "peer", "name", there], check=True)
    subprocess.run(["ip", "link", "set", there, "netns", str(edge.pid)], check=True)
    subprocess.run(["ip", "addr", "add", f"{HOST_MANAGEMENT}/24", "dev", here], check=True)
    subprocess.run(["ip", "link", "set", here, "up"], check=True)
    edge.cmd(f"ip addr add {EDGE_MANAGEMENT}/24 dev {there}")
    edge.cmd(f"ip link set {there} up")
