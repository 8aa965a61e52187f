"""A site joins a running federation with an invitation: real federators and real Mosquittos."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from firedex.certificates.invitations import Invitation
from tests.support.organisations import Organisation, organisation, trust_each_other
from tests.support.real_federation import Collector, RealFederation, connected_client
from tests.support.waiting import wait_until

LINE = [("a", "b")]
OTHER_FINGERPRINT = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def port_authority(tmp_path_factory: pytest.TempPathFactory) -> Organisation:
    return organisation(tmp_path_factory.mktemp("organisations") / "port", "a", "b", "e")


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, port_authority: Organisation
) -> Iterator[RealFederation]:
    """Start the sites a and b of one organisation; each test adds another site."""
    with RealFederation(
        tmp_path_factory.mktemp("secure"),
        LINE,
        interest={"a": ["alarm/#"]},
        security={"certificates": str(port_authority.path)},
        metrics=True,
    ) as federation:
        yield federation


def invitation_of(
    federation: RealFederation, site: str, certificates: Organisation | None = None
) -> str:
    address = ("127.0.0.1", federation.link_ports[site])
    if certificates is None:
        return str(Invitation(address=address, site=site))
    return str(certificates.folder.invite(site, address))


def exchange_events(federation: RealFederation, one: str, other: str) -> None:
    """Publish at both sites, each of which wants ``alarm/#``, and wait for the events."""
    federation.wait_for_interest(one, "alarm/#")
    federation.wait_for_interest(other, "alarm/#")
    with (
        connected_client(federation.broker_ports[one]) as first,
        connected_client(federation.broker_ports[other]) as second,
    ):
        received_first, received_second = Collector(first, "alarm/#"), Collector(second, "alarm/#")
        first.publish("alarm/1", f"from {one}", 1)
        second.publish("alarm/1", f"from {other}", 1)
        received_first.wait_for(f"from {other}")
        received_second.wait_for(f"from {one}")


def metrics_of(federation: RealFederation, site: str) -> str:
    url = f"http://127.0.0.1:{federation.metrics_ports[site]}/metrics"
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(response.read().decode())


def test_site_of_another_organisation_joins_without_a_restart(
    secure: RealFederation, port_authority: Organisation, tmp_path: Path
) -> None:
    """Site c knows only b. Its authority becomes trusted while the federators of a and b run."""
    running = {site: secure.federators[site].pid for site in "ab"}
    fire = organisation(tmp_path / "fire", "c")
    trust_each_other(port_authority, fire)
    join = invitation_of(secure, "b", port_authority)
    secure.add_site("c", join=join, security={"certificates": str(fire.path)}, interest=["alarm/#"])
    secure.wait_ready("c")
    exchange_events(secure, "a", "c")
    known = {site["id"]: site for site in secure.status("a")["sites"]}
    assert known["c"]["reachable"]
    assert known["c"]["next_hop"] == "b"
    assert {site: secure.federators[site].pid for site in "ab"} == running


def test_invitation_with_another_fingerprint_is_refused(
    secure: RealFederation, port_authority: Organisation
) -> None:
    genuine = invitation_of(secure, "b", port_authority)
    join = f"{genuine.rpartition('/')[0]}/{OTHER_FINGERPRINT}"
    secure.add_site("e", join=join, security={"certificates": str(port_authority.path)})
    expected = f"the invitation names another certificate, with the fingerprint {OTHER_FINGERPRINT}"
    wait_until(lambda: expected in secure.log_of("e"), "e logs the wrong fingerprint")
    assert 'refused_connections_total{site="b"}' in metrics_of(secure, "e")
    assert "e" not in {site["id"] for site in secure.status("a")["sites"]}


def test_site_of_an_unknown_authority_cannot_join(
    secure: RealFederation, port_authority: Organisation, tmp_path: Path
) -> None:
    """Site d trusts the authority of b, but b does not trust the authority of d."""
    bus = organisation(tmp_path / "bus", "d")
    bus.folder.trust(
        port_authority.folder.authority(), where=port_authority.path, now=port_authority.now
    )
    join = invitation_of(secure, "b", port_authority)
    secure.add_site("d", join=join, security={"certificates": str(bus.path)})
    wait_until(
        lambda: "authority that is not trusted" in secure.log_of("b"), "b logs the refused site"
    )
    wait_until(
        lambda: "it may not trust the authority of this site" in secure.log_of("d"),
        "d logs why it is refused",
    )
    assert "firedex_federation_refused_connections_total" in metrics_of(secure, "b")
    assert "d" not in {site["id"] for site in secure.status("a")["sites"]}


def test_site_joins_a_federation_without_certificates(tmp_path: Path) -> None:
    with RealFederation(tmp_path, LINE, interest={"a": ["alarm/#"]}) as federation:
        join = invitation_of(federation, "b")
        federation.add_site("c", join=join, interest=["alarm/#"], by_option=True)
        federation.wait_ready("c")
        exchange_events(federation, "a", "c")
