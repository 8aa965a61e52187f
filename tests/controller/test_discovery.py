"""Learning who is where."""

from ipaddress import IPv4Address

from firedex_controller.discovery import (
    MOST_HOSTS_PER_PORT,
    SETTLE_ANNOUNCEMENTS,
    SETTLE_SECONDS,
    SILENCE_SECONDS,
    Discovery,
    Port,
)
from firedex_controller.topology import Host, PortRef

A1, A2, A3 = (PortRef("a", number) for number in (1, 2, 3))
B1, B2 = (PortRef("b", number) for number in (1, 2))
MAC = "00:00:00:00:00:0a"
ADDRESS = IPv4Address("10.0.0.1")


def port(number: int, *, up: bool = True) -> Port:
    return Port(
        number=number, name=f"eth{number}", hardware_address=f"02:00:00:00:00:{number:02x}", up=up
    )


def two_switches(now: float = 0.0) -> Discovery:
    """Both have announced themselves often enough."""
    discovery = Discovery(["a", "b"])
    for switch in ("a", "b"):
        discovery.switch_joined(switch, [port(number) for number in (1, 2, 3)], now)
        announce(discovery, switch)
    return discovery


def announce(discovery: Discovery, switch: str) -> None:
    for _ in range(SETTLE_ANNOUNCEMENTS):
        discovery.announced(switch)


def test_a_link_counts_both_ways_as_soon_as_one_is_heard() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B2, 0.1)
    assert discovery.topology(0.2).links == {A1: B2, B2: A1}


def test_a_port_carries_floods_only_after_it_had_time_to_turn_out_a_link() -> None:
    discovery = two_switches()
    assert not discovery.topology(SETTLE_SECONDS / 2).edge_ports
    assert not discovery.settled(SETTLE_SECONDS / 2)
    discovery.heard_neighbour(A1, B1, 0.5)
    assert discovery.topology(SETTLE_SECONDS).edge_ports == {A2, A3, B2, PortRef("b", 3)}
    assert discovery.settled(SETTLE_SECONDS)


def test_a_busy_controller_gives_ports_more_time() -> None:
    discovery = Discovery(["a"])
    discovery.switch_joined("a", [port(1)], 0.0)
    for _ in range(SETTLE_ANNOUNCEMENTS - 1):
        discovery.announced("a")
    assert not discovery.topology(60.0).edge_ports
    discovery.announced("a")
    assert discovery.topology(60.0).edge_ports == {A1}


def test_the_ends_of_a_link_that_is_gone_carry_no_floods_for_a_while() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    gone = SILENCE_SECONDS + 0.1
    assert not {A1, B1} & discovery.topology(gone).edge_ports
    announce(discovery, "a")
    announce(discovery, "b")
    assert not {A1, B1} & discovery.topology(gone + SETTLE_SECONDS / 2).edge_ports
    assert {A1, B1} <= discovery.topology(gone + SETTLE_SECONDS).edge_ports


def test_a_link_that_falls_silent_is_gone() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    assert discovery.topology(SILENCE_SECONDS).links
    assert not discovery.topology(SILENCE_SECONDS + 0.1).links


def test_a_link_is_gone_at_once_with_its_port() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    discovery.port_changed("b", port(1, up=False), 0.1)
    assert not discovery.topology(0.1).links
    discovery.heard_neighbour(A1, B1, 0.2)
    assert not discovery.topology(0.2).links, "what was still on its way brings nothing back"


def test_links_stand_while_a_switch_s_channel_is_away() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    discovery.switch_left("b")
    assert discovery.topology(100.0).links
    discovery.switch_joined("b", [port(number) for number in (1, 2, 3)], 100.0)
    assert discovery.topology(100.0 + SILENCE_SECONDS).links
    assert not discovery.topology(100.1 + SILENCE_SECONDS).links


def test_a_cable_that_is_plugged_in_elsewhere_takes_its_link_along() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    discovery.heard_neighbour(A2, B1, 0.5)
    assert discovery.topology(0.5).links == {A2: B1, B1: A2}


def test_a_host_that_moves_is_followed_and_keeps_its_address() -> None:
    discovery = two_switches()
    discovery.heard_host(A2, MAC, ADDRESS)
    discovery.heard_host(B2, MAC, None)
    (host,) = discovery.topology(0.0).hosts.values()
    assert (host.place, host.address) == (B2, ADDRESS)


def test_what_comes_over_a_link_is_no_host_there() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    discovery.heard_host(A1, MAC, ADDRESS)
    assert not discovery.topology(0.0).hosts
    discovery.heard_host(A2, MAC, ADDRESS)
    discovery.heard_neighbour(A2, B2, 0.1)
    assert not discovery.topology(0.1).hosts, "the port has turned out to be a link"


def test_hosts_go_with_their_port() -> None:
    discovery = two_switches()
    discovery.heard_host(A2, MAC, ADDRESS)
    discovery.port_removed("a", 2, 0.0)
    assert not discovery.topology(0.0).hosts


def test_somebody_who_makes_up_addresses_fills_only_his_own_port() -> None:
    discovery = two_switches()
    for number in range(MOST_HOSTS_PER_PORT + 50):
        discovery.heard_host(A2, f"02:00:00:00:{number // 256:02x}:{number % 256:02x}", None)
    discovery.heard_host(A3, MAC, ADDRESS)
    hosts = discovery.topology(0.0).hosts
    assert len(hosts) == MOST_HOSTS_PER_PORT + 1
    assert MAC in hosts


def test_what_was_remembered_holds_until_its_switches_say_otherwise() -> None:
    discovery = Discovery(["a", "b"])
    host = Host(hardware_address=MAC, address=ADDRESS, place=A2)
    discovery.remember([host], [frozenset({A1, B1})], 0.0)
    before = discovery.topology(60.0)
    assert before.links == {A1: B1, B1: A1}
    assert before.hosts == {MAC: host}
    discovery.switch_joined("a", [port(1), port(2, up=False)], 60.0)
    after = discovery.topology(60.0)
    assert after.links
    assert not after.hosts


def test_a_port_that_was_not_there_any_more_at_a_reconnection_takes_its_link_along() -> None:
    discovery = two_switches()
    discovery.heard_neighbour(A1, B1, 0.0)
    discovery.switch_left("a")
    discovery.switch_joined("a", [port(2), port(3)], 1.0)
    assert not discovery.topology(1.0).links
