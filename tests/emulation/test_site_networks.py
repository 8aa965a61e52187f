"""Networks of sites: their descriptions, and the form with plain network namespaces."""

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firedex_emulation.errors import RequirementsMissing, UnsupportedTopology
from firedex_emulation.site_networks import (
    fifteen_sites,
    fifty_sites,
    six_sites,
    twenty_five_sites,
)
from firedex_emulation.site_networks.catalog import SITE_NETWORKS
from firedex_emulation.site_networks.namespace_form import SiteNamespaces, check_requirements
from firedex_emulation.site_networks.network import SiteLink, SiteNetwork, grid_links
from firedex_emulation.site_networks.switch_form import SiteTopo, plan_sites, topos
from firedex_emulation.topologies.link_probes import socket_in_namespace_of
from tests.support.waiting import wait_until

SIX = SITE_NETWORKS[6]
PORT = 5000


# -- descriptions ----------------------------------------------------------------------------------


def test_networks_have_the_sites_of_the_thesis() -> None:
    assert list(SITE_NETWORKS) == [6, 15, 25, 50]
    assert [len(network.links) for network in SITE_NETWORKS.values()] == [9, 26, 56, 121]


@pytest.mark.parametrize("module", [six_sites, fifteen_sites, twenty_five_sites, fifty_sites])
def test_file_opens_with_a_drawing_and_says_what_is_chosen(module: object) -> None:
    text = str(module.__doc__)
    assert "│" in text
    assert "thesis" in text
    assert "choice" in text or "not in the thesis" in text


@pytest.mark.parametrize("network", SITE_NETWORKS.values(), ids=lambda network: network.name)
def test_network_has_no_single_point_of_failure(network: SiteNetwork) -> None:
    for site in network.sites:
        assert len(network.parts([site])) == 1
    assert len(network.parts(network.separators)) == 2


def test_six_sites_have_the_neighbours_that_the_thesis_prints() -> None:
    assert len(SIX.neighbours["site3"]) == 4
    assert len(SIX.neighbours["site5"]) == 3
    assert set(SIX.neighbours["site0"]) == {"site1", "site2"}
    assert "site1" in SIX.neighbours["site4"]
    assert len(SIX.parts(["site1", "site3"])) == 1


def test_diagonal_of_a_grid_is_longer() -> None:
    links = grid_links(2, 2, diagonals=[(0, 0)], bandwidth_bits_per_second=1e6, delay_seconds=0.01)
    assert {link.delay_seconds for link in links if link.ends != {"site0", "site3"}} == {0.01}
    (diagonal,) = [link for link in links if link.ends == {"site0", "site3"}]
    assert diagonal.delay_seconds == 0.014


def link(one: str, other: str, bandwidth: float = 1e6, delay: float = 0.001) -> SiteLink:
    return SiteLink(one=one, other=other, bandwidth_bits_per_second=bandwidth, delay_seconds=delay)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([link("site0", "site9")], "links[0]: unknown site 'site9'"),
        ([link("site0", "site1")] * 2, "links[1]: 'site0' and 'site1' are the same or repeated"),
        ([link("site0", "site0")], "links[0]: 'site0' and 'site0' are the same or repeated"),
        ([link("site0", "site1", 0.0)], "links[0].bandwidth_bits_per_second is 0.0"),
        ([link("site0", "site1", delay=-1)], "links[0].delay_seconds is -1"),
        ([link("site0", "site1", delay=float("nan"))], "links[0].delay_seconds is nan"),
        ([link("site0", "site1")], "links: the sites are not connected"),
    ],
)
def test_invalid_network_is_rejected(links: list[SiteLink], message: str) -> None:
    with pytest.raises(UnsupportedTopology) as error:
        SiteNetwork(name="test", sites=("site0", "site1", "site2"), links=tuple(links))
    assert message in str(error.value)


def test_separators_must_divide_the_network() -> None:
    with pytest.raises(UnsupportedTopology, match="separators: without them"):
        replace(SIX, separators=("site3",))


def test_switch_form_has_a_switch_and_a_host_for_each_site() -> None:
    plan = plan_sites(SIX)
    assert [host.address for host in plan.hosts] == [f"10.0.0.{n}" for n in range(1, 7)]
    between = [link for link in plan.links if link.one.startswith("s")]
    assert len(between) == 9
    assert {(link.delay_seconds, link.delay_back_seconds) for link in between} == {(0.005, 0.005)}
    assert {link.bandwidth_bits_per_second for link in between} == {10e6}


def test_mininet_can_use_each_network_by_name() -> None:
    assert set(topos) == {"six-sites", "fifteen-sites", "twenty-five-sites", "fifty-sites"}
    topo = topos["fifteen-sites"]()
    assert isinstance(topo, SiteTopo)
    assert len(topo.hosts()) == len(topo.switches()) == 15


# -- namespaces ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts() -> Iterator[SiteNamespaces]:
    try:
        check_requirements()
    except RequirementsMissing as reason:
        pytest.skip(str(reason))
    with SiteNamespaces(SIX) as running:
        yield running


def exchange(hosts: SiteNamespaces, one: str, other: str) -> float | None:
    """Send a datagram from one site to another; return the delay, or None if it is lost."""
    receiver = socket_in_namespace_of(hosts.pid(other), socket.AF_INET, socket.SOCK_DGRAM, 0)
    sender = socket_in_namespace_of(hosts.pid(one), socket.AF_INET, socket.SOCK_DGRAM, 0)
    with receiver, sender:
        receiver.settimeout(0.3)
        receiver.bind((hosts.network.address(other), PORT))
        begin = time.monotonic()
        try:
            sender.sendto(b"?", (hosts.network.address(other), PORT))
            receiver.recv(10)
        except OSError:
            return None
        return time.monotonic() - begin


def test_only_neighbours_reach_each_other_and_with_the_delay(hosts: SiteNamespaces) -> None:
    delay = wait_until(lambda: exchange(hosts, "site0", "site1"), "a datagram arrives")
    assert delay >= 0.005
    assert exchange(hosts, "site0", "site3") is None


def test_all_links_have_their_delay(hosts: SiteNamespaces) -> None:
    for number, planned in enumerate(SIX.links):
        found = wait_until(
            lambda number=number: hosts.measure_link(number).round_trip_seconds,  # type: ignore[misc]
            f"probes cross link {number}",
        )
        assert found >= 2 * planned.delay_seconds


def test_cut_link_carries_nothing_and_works_again_when_restored(hosts: SiteNamespaces) -> None:
    hosts.set_link("site4", "site1", up=False)
    assert exchange(hosts, "site1", "site4") is None
    hosts.set_link("site1", "site4", up=True)
    wait_until(lambda: exchange(hosts, "site1", "site4"), "the restored link carries datagrams")
    with pytest.raises(UnsupportedTopology, match="no link between 'site0' and 'site5'"):
        hosts.set_link("site0", "site5", up=False)


def test_link_is_limited_to_its_bandwidth(hosts: SiteNamespaces) -> None:
    """100 kB at 10 Mbit/s take 80 ms; without a limit, they take a few milliseconds."""
    size = 100_000
    listener = socket_in_namespace_of(hosts.pid("site5"), socket.AF_INET, socket.SOCK_STREAM, 0)
    sender = socket_in_namespace_of(hosts.pid("site4"), socket.AF_INET, socket.SOCK_STREAM, 0)
    with listener, sender:
        listener.bind((hosts.network.address("site5"), PORT))
        listener.listen()
        sender.connect((hosts.network.address("site5"), PORT))
        connection, _ = listener.accept()
        with connection:
            begin = time.monotonic()
            threading.Thread(target=sender.sendall, args=(bytes(size),), daemon=True).start()
            received = 0
            while received < size:
                received += len(connection.recv(65_536))
            assert time.monotonic() - begin >= 0.06


def test_namespaces_leave_nothing_behind(hosts: SiteNamespaces) -> None:
    with SiteNamespaces(SIX) as second:
        pids = [second.pid(site) for site in SIX.sites]
        assert len({Path(f"/proc/{pid}/ns/net").readlink() for pid in pids}) == 6
        assert hosts.pid("site0") not in pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
