"""Learning the topology from what switches report. Keeps time by what it is told, and does no I/O.

A port leads to hosts when it has announced itself for a while and no neighbour was heard. A link is
gone when a port of it goes down, or when it has been silent; while a switch's control channel is
away its links are taken to stand, since the switch goes on forwarding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from firedex_controller.topology import Host, PortRef, Topology

__all__ = ["Discovery", "Port"]

SETTLE_SECONDS = 1.0
SETTLE_ANNOUNCEMENTS = 3
"""So long a new port carries no floods, since it may turn out to close a loop: both a time, and a
number of announcements, which a busy controller takes longer to make."""
SILENCE_SECONDS = 4.0
MOST_HOSTS_PER_PORT = 256
"""More addresses behind one port are somebody making them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port as its switch describes it."""

    number: int
    name: str
    hardware_address: str
    up: bool


class Discovery:
    """The topology as known so far."""

    def __init__(self, expected: Iterable[str] = ()) -> None:
        self._ports: dict[str, dict[int, Port]] = {}
        self._up_since: dict[PortRef, float] = {}
        self._announcements: dict[PortRef, int] = {}
        self._away: set[str] = set(expected)
        self._heard: dict[frozenset[PortRef], float] = {}
        self._hosts: dict[str, Host] = {}

    # -- what switches report ------------------------------------------------------------------

    def switch_joined(self, switch: str, ports: Iterable[Port], now: float) -> None:
        """A control channel came up; what was known of its links and hosts stands."""
        self._away.discard(switch)
        described = {port.number: port for port in ports}
        for number in set(self._ports.get(switch, {})) - set(described):
            self._port_gone(PortRef(switch, number), now)
        self._ports[switch] = {}
        for port in described.values():
            self.port_changed(switch, port, now)
        for link in self._heard:
            if any(end.switch == switch for end in link):
                self._heard[link] = now

    def switch_left(self, switch: str) -> None:
        """A control channel went away; the switch itself may well go on."""
        self._away.add(switch)

    def port_changed(self, switch: str, port: Port, now: float) -> None:
        """A port is there, up or down."""
        place = PortRef(switch, port.number)
        self._ports.setdefault(switch, {})[port.number] = port
        if port.up:
            self._up_since.setdefault(place, now)
        else:
            self._port_gone(place, now)

    def port_removed(self, switch: str, number: int, now: float) -> None:
        """A port is no longer there."""
        self._ports.get(switch, {}).pop(number, None)
        self._port_gone(PortRef(switch, number), now)

    def announced(self, switch: str) -> None:
        """Every port of a switch has told its neighbour, if there is one, that it is there."""
        for number in self._ports.get(switch, {}):
            place = PortRef(switch, number)
            self._announcements[place] = self._announcements.get(place, 0) + 1

    def still_heard(self, near: PortRef, far: PortRef, now: float) -> bool:
        """Note the time for a link that is known; any thread may, since nothing else changes."""
        link = frozenset({near, far})
        if link not in self._heard:
            return False
        self._heard[link] = now
        return True

    def heard_neighbour(self, near: PortRef, far: PortRef, now: float) -> None:
        """What ``far`` sent has arrived at ``near``."""
        if near == far or not (self._is_up(near) and self._is_up(far)):
            return
        for link in [link for link in self._heard if link & {near, far} and link != {near, far}]:
            self._link_gone(link, now)  # one of its ends has been plugged in elsewhere
        self._heard[frozenset({near, far})] = now
        self._forget_hosts_at({near, far})

    def heard_host(
        self, place: PortRef, hardware_address: str, address: IPv4Address | None
    ) -> None:
        """A host has sent something from ``place``."""
        if any(place in link for link in self._heard) or not self._is_up(place):
            return
        known = self._hosts.get(hardware_address)
        if known is None and self._hosts_at(place) >= MOST_HOSTS_PER_PORT:
            return
        if known is None:
            known = Host(hardware_address=hardware_address, place=place)
        self._hosts[hardware_address] = replace(
            known, place=place, address=address or known.address
        )

    def remember(
        self, hosts: Iterable[Host], links: Iterable[frozenset[PortRef]], now: float
    ) -> None:
        """What is known from before a restart; it holds until its switches say otherwise."""
        self._hosts |= {host.hardware_address: host for host in hosts}
        self._heard |= dict.fromkeys(links, now)

    # -- what is known -------------------------------------------------------------------------

    def ports(self) -> Mapping[str, Mapping[int, Port]]:
        """Of every switch that has ever joined."""
        return self._ports

    def topology(self, now: float) -> Topology:
        """What holds at ``now``; links that have been silent for too long are forgotten."""
        for link, heard in list(self._heard.items()):
            if now - heard > SILENCE_SECONDS and not any(end.switch in self._away for end in link):
                self._link_gone(link, now)
        ends = {end for link in self._heard for end in link}
        links: dict[PortRef, PortRef] = {}
        for link in self._heard:
            one, other = sorted(link)
            links |= {one: other, other: one}
        return Topology(
            switches=frozenset(self._ports) | {end.switch for end in ends},
            links=links,
            edge_ports=frozenset(
                place
                for place in self._up_since
                if place not in ends and self._port_settled(place, now)
            ),
            hosts=dict(self._hosts),
        )

    def settled(self, now: float) -> bool:
        """Whether all expected switches are there, and every port had its time to be a link."""
        return not self._away and all(self._port_settled(place, now) for place in self._up_since)

    def switch_settled(self, switch: str, now: float) -> bool:
        """Whether every port of one switch had its time."""
        return all(
            self._port_settled(place, now) for place in self._up_since if place.switch == switch
        )

    def _is_up(self, place: PortRef) -> bool:
        port = self._ports.get(place.switch, {}).get(place.number)
        return port is not None and port.up

    def _port_settled(self, place: PortRef, now: float) -> bool:
        return (
            now - self._up_since[place] >= SETTLE_SECONDS
            and self._announcements.get(place, 0) >= SETTLE_ANNOUNCEMENTS
        )

    def _port_gone(self, place: PortRef, now: float) -> None:
        self._up_since.pop(place, None)
        self._announcements.pop(place, None)
        for link in [link for link in self._heard if place in link]:
            self._link_gone(link, now)
        self._forget_hosts_at({place})

    def _link_gone(self, link: frozenset[PortRef], now: float) -> None:
        """Its ports begin anew: what is behind them now is not known."""
        del self._heard[link]
        for end in link & self._up_since.keys():
            self._up_since[end] = now
            self._announcements[end] = 0

    def _forget_hosts_at(self, places: set[PortRef]) -> None:
        for name in [name for name, host in self._hosts.items() if host.place in places]:
            del self._hosts[name]

    def _hosts_at(self, place: PortRef) -> int:
        return sum(host.place == place for host in self._hosts.values())
