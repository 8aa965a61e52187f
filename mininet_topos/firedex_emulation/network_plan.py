"""What is to be built: switches, hosts and links by name. Pure values, and what they cannot be.

Naming scheme, everywhere: an interface is Mininet's ``NODE-ethN``; the kernel has room for 15
letters, so nodes have short names and carry the scenario's own ids beside them. Addresses: the edge
host 10.0.0.10, publishers from 10.0.1.1, subscribers from 10.0.16.1, all in 10.0.0.0/16.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

from firedex_emulation.errors import TopologyRefused

__all__ = [
    "ACCESS_DATAPATHS",
    "EDGE_ADDRESS",
    "NETWORK_PREFIX",
    "TOPOLOGIES",
    "NetworkPlan",
    "PlannedHost",
    "PlannedLink",
    "PlannedSwitch",
    "check_count",
    "check_quantity",
    "datapath_id",
    "edge_host",
    "publisher_host",
    "subscriber_host",
    "trunk",
]

TOPOLOGIES = ("big-switch", "building", "campus")
"""From the most particular to the most general: the first that carries a scenario is taken."""
NETWORK_PREFIX = 16
EDGE_ADDRESS = "10.0.0.10"
FIRST_PUBLISHER = IPv4Address("10.0.1.1")
FIRST_SUBSCRIBER = IPv4Address("10.0.16.1")
MOST_HOSTS = 500
"""Of each kind; more than this is not emulated on one machine."""
LONGEST_INTERFACE_NAME = 15
ACCESS_DATAPATHS = 0x1000
"""Access switches are numbered from here, so that scenario switches have 1, 2, 3, …"""

HostKind = Literal["edge", "publisher", "subscriber"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSwitch:
    """A switch node. ``switch`` is its id in the scenario; an access switch has none."""

    name: str
    switch: str | None
    managed: bool
    datapath_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHost:
    """A host node: who it is in the scenario, and which switch id it belongs to."""

    name: str
    kind: HostKind
    party: str
    address: str
    switch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLink:
    """A link between two nodes; bandwidth and delay are of the way from ``one`` to ``other``.

    ``hosts_of``: the switch id whose own hosts this link leads to, if it is such a trunk.
    """

    one: str
    other: str
    bandwidth_bits_per_second: float | None = None
    bandwidth_back_bits_per_second: float | None = None
    delay_seconds: float = 0.0
    delay_back_seconds: float = 0.0
    hosts_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """A whole network, in the order in which it is built."""

    topology: str
    switches: tuple[PlannedSwitch, ...]
    hosts: tuple[PlannedHost, ...]
    links: tuple[PlannedLink, ...]

    def __post_init__(self) -> None:
        """Refuse names that are there twice, do not exist, or do not fit an interface."""
        names = Counter(switch.name for switch in self.switches)
        names.update(host.name for host in self.hosts)
        if twice := [name for name, count in names.items() if count > 1]:
            raise TopologyRefused(self.topology, f"the node {twice[0]!r} is there twice")
        kinds = Counter(host.kind for host in self.hosts)
        if kinds and max(kinds.values()) > MOST_HOSTS:
            raise TopologyRefused(self.topology, f"more than {MOST_HOSTS} hosts of one kind")
        ends = Counter(end for link in self.links for end in (link.one, link.other))
        for end, count in ends.items():
            if end not in names:
                raise TopologyRefused(self.topology, f"a link leads to {end!r}, which is no node")
            if len(f"{end}-eth{count}") > LONGEST_INTERFACE_NAME:
                raise TopologyRefused(self.topology, f"{end!r} is too long a name for interfaces")


def datapath_id(number: int) -> str:
    """As OpenFlow writes it."""
    return f"{number:016x}"


def edge_host(switch: str) -> PlannedHost:
    """The host of broker, gateway and service."""
    return PlannedHost(name="edge", kind="edge", party="edge", address=EDGE_ADDRESS, switch=switch)


def publisher_host(number: int, party: str, switch: str) -> PlannedHost:
    """The publisher that comes ``number``-th (from 0) in the scenario."""
    return PlannedHost(
        name=f"pub{number}",
        kind="publisher",
        party=party,
        address=str(FIRST_PUBLISHER + number),
        switch=switch,
    )


def subscriber_host(number: int, party: str, switch: str) -> PlannedHost:
    """The subscriber that comes ``number``-th (from 0) in the scenario."""
    return PlannedHost(
        name=f"sub{number}",
        kind="subscriber",
        party=party,
        address=str(FIRST_SUBSCRIBER + number),
        switch=switch,
    )


def trunk(
    switch: PlannedSwitch,
    access: str,
    number: int,
    hosts: Iterable[PlannedHost],
    *,
    bandwidth_bits_per_second: float,
    delay_seconds: float,
) -> tuple[PlannedSwitch, Sequence[PlannedLink]]:
    """An unmanaged access switch and the one link to it that all of ``hosts`` share."""
    planned = PlannedSwitch(
        name=access,
        switch=None,
        managed=False,
        datapath_id=datapath_id(ACCESS_DATAPATHS + number),
    )
    shared = PlannedLink(
        one=switch.name,
        other=access,
        bandwidth_bits_per_second=bandwidth_bits_per_second,
        delay_seconds=delay_seconds,
        delay_back_seconds=delay_seconds,
        hosts_of=switch.switch,
    )
    return planned, [shared, *(PlannedLink(one=host.name, other=access) for host in hosts)]


def check_count(topology: str, name: str, given: int, *, least: int, most: int) -> None:
    """Refuse a number of things that cannot be built."""
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise TopologyRefused(topology, f"{name} is {given!r}; give {least} to {most}")


def check_quantity(topology: str, name: str, given: float, *, above: float, most: float) -> None:
    """Refuse a quantity that is not one, or out of bounds (``above`` itself is allowed at 0)."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not math.isfinite(given) or given < above or given > most:
        raise TopologyRefused(topology, f"{name} is {given!r}; give {above:g} to {most:g}")
