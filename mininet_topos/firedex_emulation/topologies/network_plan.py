"""The plan of a network: validated values for its switches, hosts and links. Pure.

Naming scheme: Mininet names interfaces ``NODE-ethN``, and the kernel limits such a name to 15
characters. Nodes therefore have short names, and the ids of the scenario are separate fields.
Addresses are in 10.0.0.0/16: the edge host has 10.0.0.10, publishers start at 10.0.1.1 and
subscribers at 10.0.16.1. Networks of several sites have no such hosts; their sites have 10.0.0.1, …
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

from firedex_emulation.errors import UnsupportedTopology

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
    "plan_trunk",
    "publisher_host",
    "subscriber_host",
]

TOPOLOGIES = ("big-switch", "building", "campus")
"""From the most specific to the most general; the first that can carry a scenario is used."""
NETWORK_PREFIX = 16
EDGE_ADDRESS = "10.0.0.10"
FIRST_PUBLISHER = IPv4Address("10.0.1.1")
FIRST_SUBSCRIBER = IPv4Address("10.0.16.1")
MAX_HOSTS = 500
"""Maximum of each kind of host on one machine."""
MAX_INTERFACE_NAME_LENGTH = 15
ACCESS_DATAPATHS = 0x1000
"""First datapath id of access switches; switches of the scenario have 1, 2, 3, …"""

HostKind = Literal["edge", "publisher", "subscriber", "site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSwitch:
    """A switch node. ``switch`` is its id in the scenario; an access switch has none."""

    name: str
    switch: str | None
    managed: bool
    datapath_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHost:
    """A host node: its id in the scenario and the id of its switch."""

    name: str
    kind: HostKind
    scenario_id: str
    address: str
    switch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLink:
    """A link between two nodes; bandwidth and delay apply from ``one`` to ``other``.

    ``hosts_of``: for a trunk, the id of the switch whose hosts are behind it.
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
    """All nodes and links of a network, in the order in which they are built."""

    topology: str
    switches: tuple[PlannedSwitch, ...]
    hosts: tuple[PlannedHost, ...]
    links: tuple[PlannedLink, ...]

    def __post_init__(self) -> None:
        """Reject duplicate and unknown names, and names that are too long for an interface."""
        names = Counter(switch.name for switch in self.switches)
        names.update(host.name for host in self.hosts)
        if twice := [name for name, count in names.items() if count > 1]:
            raise UnsupportedTopology(self.topology, f"two nodes have the name {twice[0]!r}")
        kinds = Counter(host.kind for host in self.hosts)
        if kinds and max(kinds.values()) > MAX_HOSTS:
            raise UnsupportedTopology(self.topology, f"more than {MAX_HOSTS} hosts of one kind")
        ends = Counter(end for link in self.links for end in (link.one, link.other))
        for end, count in ends.items():
            if end not in names:
                raise UnsupportedTopology(self.topology, f"a link ends at the unknown node {end!r}")
            if len(f"{end}-eth{count}") > MAX_INTERFACE_NAME_LENGTH:
                raise UnsupportedTopology(
                    self.topology, f"the node name {end!r} is too long for an interface name"
                )


def datapath_id(number: int) -> str:
    """Return a datapath id in the notation of OpenFlow."""
    return f"{number:016x}"


def edge_host(switch: str) -> PlannedHost:
    """Return the host of broker, gateway and configuration service."""
    return PlannedHost(
        name="edge", kind="edge", scenario_id="edge", address=EDGE_ADDRESS, switch=switch
    )


def publisher_host(number: int, scenario_id: str, switch: str) -> PlannedHost:
    """Return the host of the publisher with index ``number`` in the scenario."""
    return PlannedHost(
        name=f"pub{number}",
        kind="publisher",
        scenario_id=scenario_id,
        address=str(FIRST_PUBLISHER + number),
        switch=switch,
    )


def subscriber_host(number: int, scenario_id: str, switch: str) -> PlannedHost:
    """Return the host of the subscriber with index ``number`` in the scenario."""
    return PlannedHost(
        name=f"sub{number}",
        kind="subscriber",
        scenario_id=scenario_id,
        address=str(FIRST_SUBSCRIBER + number),
        switch=switch,
    )


def plan_trunk(
    switch: PlannedSwitch,
    access: str,
    number: int,
    hosts: Iterable[PlannedHost],
    *,
    bandwidth_bits_per_second: float,
    delay_seconds: float,
) -> tuple[PlannedSwitch, Sequence[PlannedLink]]:
    """Return an unmanaged access switch, the link to it that ``hosts`` share, and their links."""
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
    """Raise UnsupportedTopology if a count is not an integer in the range."""
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise UnsupportedTopology(
            topology, f"{name} is {given!r}; it must be an integer from {least} to {most}"
        )


def check_quantity(topology: str, name: str, given: float, *, above: float, most: float) -> None:
    """Raise UnsupportedTopology if a quantity is not a finite number in the range."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not math.isfinite(given) or given < above or given > most:
        raise UnsupportedTopology(
            topology, f"{name} is {given!r}; it must be a number from {above:g} to {most:g}"
        )
