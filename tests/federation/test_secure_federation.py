"""Federators with certificates: mutual TLS, refused peers and revocation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firedex.certificates.contents import fingerprint_of
from tests.support.organisations import Organisation, organisation, trust_each_other
from tests.support.real_federation import Collector, RealFederation, connected_client
from tests.support.waiting import wait_until

LINE = [("a", "b"), ("b", "c")]


@pytest.fixture
def certificates(tmp_path: Path) -> Organisation:
    return organisation(tmp_path / "certs", "a", "b", "c")


@pytest.fixture
def secure(tmp_path: Path, certificates: Organisation) -> Iterator[RealFederation]:
    with RealFederation(
        tmp_path,
        LINE,
        interest={"c": ["alarm/#"]},
        security={"certificates": str(certificates.path)},
    ) as federation:
        yield federation


def test_events_cross_over_tls_until_a_certificate_is_revoked(
    secure: RealFederation, certificates: Organisation
) -> None:
    secure.wait_for_interest("c", "alarm/#")
    with (
        connected_client(secure.broker_ports["c"]) as subscriber,
        connected_client(secure.broker_ports["a"]) as publisher,
    ):
        received = Collector(subscriber, "alarm/#")
        publisher.publish("alarm/1", "before", 1)
        received.wait_for("before")
        revoked = certificates.credentials("c").fingerprint
        with (certificates.path / "revoked.txt").open("a") as file:
            file.write(f"{revoked}\n")

        def is_refused() -> bool:
            status = secure.status("b")
            reported = any("is revoked" in e["reason"] for e in status["refused_peers"])
            up = {link["neighbour"] for link in status["own_links"] if link["up"]}
            return reported and "c" not in up

        wait_until(is_refused, "b refuses and reports the revoked site")


def test_site_of_an_unknown_authority_is_refused_and_reported(tmp_path: Path) -> None:
    """Site b has certificates of an organisation that site a does not trust."""
    port = organisation(tmp_path / "port", "a")
    fire = organisation(tmp_path / "fire", "b")
    with RealFederation(
        tmp_path,
        [("a", "b")],
        security={"certificates": str(port.path)},
        own_certificates={"b": str(fire.path)},
    ) as federation:
        wait_until(
            lambda: any(
                "authority that is not trusted" in entry["reason"]
                for entry in federation.status("a")["refused_peers"]
            ),
            "a reports the unknown authority",
        )
        assert not federation.status("a")["links"]


def test_two_organisations_that_trust_each_other_are_connected(tmp_path: Path) -> None:
    port = organisation(tmp_path / "port", "a")
    fire = organisation(tmp_path / "fire", "b")
    trust_each_other(port, fire)
    with RealFederation(
        tmp_path,
        [("a", "b")],
        security={"certificates": str(port.path)},
        own_certificates={"b": str(fire.path)},
        authorities={
            "a": fingerprint_of(port.folder.authority()),
            "b": fingerprint_of(fire.folder.authority()),
        },
    ) as federation:
        wait_until(lambda: federation.status("a")["links"], "the link is up")
