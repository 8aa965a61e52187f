"""Learning the topology from reports of switches. The caller passes the time; there is no I/O.

A port leads to hosts if it has announced itself for a while and no neighbour was seen. A link is
removed when one of its ports goes down, or when no LLDP frame has crossed it for some seconds. The
links of a disconnected switch are kept, because the switch still forwards.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from firedex_controller.topology import Host, PortRef, Topology

__all__ = ["Discovery", "Port"]

SETTLE_SECONDS = 1.0
SETTLE_ANNOUNCEMENTS = 3
"""A new port carries no floods for this time and this number of announcements, because it may close
a loop. A busy controller needs longer for the announcements."""
LINK_TIMEOUT_SECONDS = 4.0
MAX_HOSTS_PER_PORT = 256
"""Further addresses behind one port are ignored, because a host may send forged addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port as its switch describes it."""

    number: int
    name: str
    hardware_address: str
    up: bool


class Discovery:
    """The topology that has been discovered so far."""

    def __init__(self, expected: Iterable[str] = ()) -> None:
        self._ports: dict[str, dict[int, Port]] = {}
        self._up_since: dict[PortRef, float] = {}
        self._announcements: dict[PortRef, int] = {}
        self._disconnected: set[str] = set(expected)
        self._links: dict[frozenset[PortRef], float] = {}
        self._timed_out: set[PortRef] = set()
        self._cut_links: set[frozenset[PortRef]] = set()
        self._hosts: dict[str, Host] = {}

    # -- reports of switches -------------------------------------------------------------------

    def switch_connected(self, switch: str, ports: Iterable[Port], now: float) -> None:
        """Handle a new control channel; known links and hosts of the switch stay."""
        self._disconnected.discard(switch)
        described = {port.number: port for port in ports}
        for number in set(self._ports.get(switch, {})) - set(described):
            self.port_removed(switch, number, now)
        self._ports[switch] = {}
        for port in described.values():
            self.port_changed(switch, port, now)
        for link in self._links:
            if any(end.switch == switch for end in link):
                self._links[link] = now

    def switch_disconnected(self, switch: str) -> None:
        """Handle a closed control channel; the switch itself may still forward."""
        self._disconnected.add(switch)

    def port_changed(self, switch: str, port: Port, now: float) -> None:
        """Handle a port that was added or went up or down."""
        ref = PortRef(switch, port.number)
        self._ports.setdefault(switch, {})[port.number] = port
        if port.up:
            self._up_since.setdefault(ref, now)
        else:
            self._port_down(ref, now)

    def port_removed(self, switch: str, number: int, now: float) -> None:
        """Handle a port that was removed."""
        self._ports.get(switch, {}).pop(number, None)
        self._port_down(PortRef(switch, number), now)
        self._remove_cut_links({PortRef(switch, number)})

    def announcements_sent(self, ports: Iterable[PortRef]) -> None:
        """Count an announcement of each of these ports."""
        for port in self._up_since.keys() & set(ports):
            self._announcements[port] = self._announcements.get(port, 0) + 1

    def refresh_link(self, near: PortRef, far: PortRef, now: float) -> bool:
        """Record that a known link was seen; return False for an unknown link.

        Any thread may call this, because it changes nothing else.
        """
        link = frozenset({near, far})
        if link not in self._links:
            return False
        self._links[link] = now
        return True

    def link_seen(self, near: PortRef, far: PortRef, now: float) -> None:
        """Handle an LLDP frame of ``far`` that arrived at ``near``."""
        if near == far or not (self._is_up(near) and self._is_up(far)):
            return
        for link in [link for link in self._links if link & {near, far} and link != {near, far}]:
            self._remove_link(link, now)  # a cable was plugged into another port
        self._links[frozenset({near, far})] = now
        self._timed_out -= {near, far}
        self._remove_cut_links({near, far})
        self._remove_hosts_at({near, far})

    def host_seen(self, port: PortRef, hardware_address: str, address: IPv4Address | None) -> None:
        """Handle a frame that a host sent into ``port``."""
        if any(port in link for link in self._links) or not self._is_up(port):
            return
        self._remove_cut_links({port})
        known = self._hosts.get(hardware_address)
        if known is None and self._count_hosts_at(port) >= MAX_HOSTS_PER_PORT:
            return
        if known is None:
            known = Host(hardware_address=hardware_address, port=port)
        self._hosts[hardware_address] = replace(known, port=port, address=address or known.address)

    def restore(
        self,
        hosts: Iterable[Host],
        links: Iterable[frozenset[PortRef]],
        cut: Iterable[frozenset[PortRef]],
        now: float,
    ) -> None:
        """Restore the topology saved before a restart; reports of switches replace it."""
        self._cut_links |= set(cut)
        self._hosts |= {host.hardware_address: host for host in hosts}
        self._links |= dict.fromkeys(links, now)

    # -- results ------------------------------------------------------------------------------

    def ports(self) -> Mapping[str, Mapping[int, Port]]:
        """Return the ports of every switch that has connected since the start."""
        return self._ports

    def topology(self, now: float) -> Topology:
        """Return the topology at ``now``; links that have timed out are removed."""
        for link, seen in list(self._links.items()):
            if now - seen > LINK_TIMEOUT_SECONDS and not any(
                end.switch in self._disconnected for end in link
            ):
                self._remove_link(link, now)
                self._timed_out |= (
                    link  # the link may return: no floods until one of its ports goes down
                )
        ends = {end for link in self._links for end in link}
        links: dict[PortRef, PortRef] = {}
        for link in self._links:
            one, other = sorted(link)
            links |= {one: other, other: one}
        return Topology(
            switches=frozenset(self._ports) | {end.switch for end in ends},
            links=links,
            cut_links=frozenset(self._cut_links),
            edge_ports=frozenset(
                port
                for port in self._up_since.keys() - ends - self._timed_out
                if self._port_settled(port, now)
            ),
            hosts=dict(self._hosts),
        )

    def settled(self, now: float) -> bool:
        """Return whether all expected switches are connected and all their ports are settled."""
        return not self._disconnected and all(
            self._port_settled(port, now) for port in self._up_since
        )

    def switch_settled(self, switch: str, now: float) -> bool:
        """Return whether all ports of one switch are settled."""
        return all(
            self._port_settled(port, now) for port in self._up_since if port.switch == switch
        )

    def _is_up(self, ref: PortRef) -> bool:
        port = self._ports.get(ref.switch, {}).get(ref.number)
        return port is not None and port.up

    def _port_settled(self, port: PortRef, now: float) -> bool:
        return (
            now - self._up_since[port] >= SETTLE_SECONDS
            and self._announcements.get(port, 0) >= SETTLE_ANNOUNCEMENTS
        )

    def _port_down(self, port: PortRef, now: float) -> None:
        self._up_since.pop(port, None)
        self._announcements.pop(port, None)
        self._timed_out.discard(port)
        for link in [link for link in self._links if port in link]:
            self._remove_link(link, now)
        self._remove_hosts_at({port})

    def _remove_link(self, link: frozenset[PortRef], now: float) -> None:
        """Remove a link; its ports have to settle again, because anything may be behind them."""
        del self._links[link]
        self._cut_links.add(link)
        for end in link & self._up_since.keys():
            self._up_since[end] = now
            self._announcements[end] = 0

    def _remove_hosts_at(self, ports: set[PortRef]) -> None:
        for name in [name for name, host in self._hosts.items() if host.port in ports]:
            del self._hosts[name]

    def _remove_cut_links(self, ports: set[PortRef]) -> None:
        self._cut_links = {link for link in self._cut_links if not link & ports}

    def _count_hosts_at(self, port: PortRef) -> int:
        return sum(host.port == port for host in self._hosts.values())
