"""Discovery of links and hosts from the reports of switches."""

from ipaddress import IPv4Address

from firedex_controller.discovery import (
    LINK_TIMEOUT_SECONDS,
    MAX_HOSTS_PER_PORT,
    SETTLE_ANNOUNCEMENTS,
    SETTLE_SECONDS,
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


def discovery_with_two_switches(now: float = 0.0) -> Discovery:
    """Return a discovery with two connected switches that have sent enough announcements."""
    discovery = Discovery(["a", "b"])
    for switch in ("a", "b"):
        discovery.switch_connected(switch, [port(number) for number in (1, 2, 3)], now)
        send_announcements(discovery, switch)
    return discovery


def send_announcements(discovery: Discovery, switch: str) -> None:
    for _ in range(SETTLE_ANNOUNCEMENTS):
        discovery.announcements_sent(PortRef(switch, number) for number in (1, 2, 3))


def test_link_counts_in_both_directions_when_seen_in_one() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B2, 0.1)
    assert discovery.topology(0.2).links == {A1: B2, B2: A1}


def test_new_port_carries_floods_after_it_settled() -> None:
    discovery = discovery_with_two_switches()
    assert not discovery.topology(SETTLE_SECONDS / 2).edge_ports
    assert not discovery.settled(SETTLE_SECONDS / 2)
    discovery.link_seen(A1, B1, 0.5)
    assert discovery.topology(SETTLE_SECONDS).edge_ports == {A2, A3, B2, PortRef("b", 3)}
    assert discovery.settled(SETTLE_SECONDS)


def test_port_settles_later_if_announcements_are_late() -> None:
    discovery = Discovery(["a"])
    discovery.switch_connected("a", [port(1)], 0.0)
    for _ in range(SETTLE_ANNOUNCEMENTS - 1):
        discovery.announcements_sent([A1])
    assert not discovery.topology(60.0).edge_ports
    discovery.announcements_sent([A1])
    assert discovery.topology(60.0).edge_ports == {A1}


def test_announcement_of_a_port_that_is_down_does_not_count() -> None:
    discovery = discovery_with_two_switches()
    discovery.port_changed("a", port(2, up=False), 1.0)
    send_announcements(discovery, "a")
    discovery.port_changed("a", port(2), 2.0)
    assert A2 not in discovery.topology(60.0).edge_ports


def test_ports_of_a_moved_link_have_to_settle_again() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    discovery.link_seen(A2, B1, 5.0)
    send_announcements(discovery, "a")
    assert A1 not in discovery.topology(5.0 + SETTLE_SECONDS / 2).edge_ports
    discovery.refresh_link(A2, B1, 5.0 + SETTLE_SECONDS)
    assert A1 in discovery.topology(5.0 + SETTLE_SECONDS).edge_ports


def test_ports_of_a_timed_out_link_carry_no_floods() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    assert not discovery.topology(10.0).links
    send_announcements(discovery, "a")
    send_announcements(discovery, "b")
    assert not {A1, B1} & discovery.topology(1000.0).edge_ports
    discovery.port_changed("a", port(1, up=False), 1000.0)
    discovery.port_changed("a", port(1), 1000.0)
    send_announcements(discovery, "a")
    assert A1 in discovery.topology(1000.0 + SETTLE_SECONDS).edge_ports, (
        "the port went down and up again"
    )


def test_cut_link_is_kept_until_its_ports_are_used() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    assert discovery.topology(0.0).ports_towards("a", "b") == [1]
    discovery.port_changed("b", port(1, up=False), 0.0)
    assert not discovery.topology(0.0).links
    assert discovery.topology(0.0).ports_towards("a", "b") == [1]
    discovery.link_seen(A1, B2, 1.0)
    assert discovery.topology(1.0).ports_towards("b", "a") == [2]


def test_cut_link_is_removed_if_its_port_is_removed_or_has_a_host() -> None:
    for remove in (
        lambda discovery: discovery.port_removed("b", 1, 0.0),
        lambda discovery: discovery.host_seen(A1, MAC, ADDRESS),
    ):
        discovery = discovery_with_two_switches()
        discovery.link_seen(A1, B1, 0.0)
        discovery.port_changed("b", port(1, up=False), 0.0)
        remove(discovery)
        assert discovery.topology(0.0).ports_towards("a", "b") == []


def test_silent_link_times_out() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    assert discovery.topology(LINK_TIMEOUT_SECONDS).links
    assert not discovery.topology(LINK_TIMEOUT_SECONDS + 0.1).links


def test_link_is_removed_when_its_port_goes_down() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    discovery.port_changed("b", port(1, up=False), 0.1)
    assert not discovery.topology(0.1).links
    discovery.link_seen(A1, B1, 0.2)
    assert not discovery.topology(0.2).links, "a late LLDP frame does not restore the link"


def test_links_of_a_disconnected_switch_are_kept() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    discovery.switch_disconnected("b")
    assert discovery.topology(100.0).links
    discovery.switch_connected("b", [port(number) for number in (1, 2, 3)], 100.0)
    assert discovery.topology(100.0 + LINK_TIMEOUT_SECONDS).links
    assert not discovery.topology(100.1 + LINK_TIMEOUT_SECONDS).links


def test_moved_cable_replaces_its_link() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    discovery.link_seen(A2, B1, 0.5)
    assert discovery.topology(0.5).links == {A2: B1, B1: A2}


def test_moved_host_keeps_its_address() -> None:
    discovery = discovery_with_two_switches()
    discovery.host_seen(A2, MAC, ADDRESS)
    discovery.host_seen(B2, MAC, None)
    (host,) = discovery.topology(0.0).hosts.values()
    assert (host.port, host.address) == (B2, ADDRESS)


def test_frame_from_a_link_is_not_a_host() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    discovery.host_seen(A1, MAC, ADDRESS)
    assert not discovery.topology(0.0).hosts
    discovery.host_seen(A2, MAC, ADDRESS)
    discovery.link_seen(A2, B2, 0.1)
    assert not discovery.topology(0.1).hosts, "the port belongs to a link"


def test_hosts_are_removed_with_their_port() -> None:
    discovery = discovery_with_two_switches()
    discovery.host_seen(A2, MAC, ADDRESS)
    discovery.port_removed("a", 2, 0.0)
    assert not discovery.topology(0.0).hosts


def test_number_of_hosts_behind_a_port_is_limited() -> None:
    discovery = discovery_with_two_switches()
    for number in range(MAX_HOSTS_PER_PORT + 50):
        discovery.host_seen(A2, f"02:00:00:00:{number // 256:02x}:{number % 256:02x}", None)
    discovery.host_seen(A3, MAC, ADDRESS)
    hosts = discovery.topology(0.0).hosts
    assert len(hosts) == MAX_HOSTS_PER_PORT + 1
    assert MAC in hosts


def test_restored_topology_is_used_until_switches_report_changes() -> None:
    discovery = Discovery(["a", "b"])
    host = Host(hardware_address=MAC, address=ADDRESS, port=A2)
    discovery.restore([host], [frozenset({A1, B1})], [], 0.0)
    before = discovery.topology(60.0)
    assert before.links == {A1: B1, B1: A1}
    assert before.hosts == {MAC: host}
    discovery.switch_connected("a", [port(1), port(2, up=False)], 60.0)
    after = discovery.topology(60.0)
    assert after.links
    assert not after.hosts


def test_link_of_a_port_that_is_missing_after_reconnection_is_removed() -> None:
    discovery = discovery_with_two_switches()
    discovery.link_seen(A1, B1, 0.0)
    discovery.switch_disconnected("a")
    discovery.switch_connected("a", [port(2), port(3)], 1.0)
    assert not discovery.topology(1.0).links
