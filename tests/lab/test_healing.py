"""Rounds of failures in federations with real brokers and federators."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pytest

from firedex.certificates.folder import CertificateFolder
from firedex.lab.healing.failures import choose_failure
from firedex.lab.healing.rounds import Sites, failure_round, merge_round, running_sites
from firedex.lab.reproduction.federation import ReproductionSettings
from firedex_emulation.errors import RequirementsMissing
from firedex_emulation.site_networks.catalog import SITE_NETWORKS
from firedex_emulation.site_networks.namespace_form import SiteNamespaces, check_requirements
from firedex_emulation.site_networks.network import SiteNetwork

LONG_ROUNDS = 30
MAX_SECONDS = 60.0
"""A machine whose cores are all busy must not fail a test."""


@pytest.mark.parametrize("network", SITE_NETWORKS.values(), ids=lambda network: network.name)
def test_remaining_sites_are_connected_and_include_the_publishers(network: SiteNetwork) -> None:
    generator = random.Random(3)  # noqa: S311
    for _ in range(50):
        count = len(network.sites) // 3
        choice = choose_failure(network, generator, failed=count, publishers=3)
        assert len(set(choice.failed)) == count
        assert len(set(choice.publishers)) == 3
        assert not set(choice.failed) & set(choice.publishers)
        assert len(network.parts(choice.failed)) == 1


def test_given_sites_fail() -> None:
    generator = random.Random(3)  # noqa: S311
    choice = choose_failure(SITE_NETWORKS[6], generator, failed=("site3", "site1"), publishers=2)
    assert choice.failed == ("site1", "site3")


def test_failure_that_divides_the_network_is_refused() -> None:
    generator = random.Random(3)  # noqa: S311
    for failed in (("site1", "site2"), 5):
        with pytest.raises(ValueError, match="six-sites: no choice of failed sites"):
            choose_failure(SITE_NETWORKS[6], generator, failed=failed, publishers=2)


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with running_sites(tmp_path_factory.mktemp("six"), SITE_NETWORKS[6]) as running:
        yield running


@pytest.mark.slow
@pytest.mark.xdist_group("healing")
def test_six_sites_heal_after_two_were_killed(six: Sites) -> None:
    generator = random.Random(1)  # noqa: S311
    choice = choose_failure(six.network, generator, failed=2, publishers=2)
    found = failure_round(six, choice, "killed")
    assert found.failed == choice.failed
    assert 0 < found.gap_seconds < MAX_SECONDS
    assert 0 < six.cold_start.ready_seconds <= six.cold_start.served_seconds


@pytest.mark.slow
@pytest.mark.xdist_group("healing")
def test_six_sites_have_the_same_retained_messages_after_a_merge(six: Sites) -> None:
    found = merge_round(six, 1)
    assert 0 < found.crossing_seconds < MAX_SECONDS
    assert 0 < found.retained_seconds < MAX_SECONDS


@pytest.mark.long
@pytest.mark.parametrize("sites", [6, 15, 25, 50])
def test_a_third_of_the_sites_fails_in_many_rounds(tmp_path: Path, sites: int) -> None:
    """``firedex reproduce federation`` reports the times; here, every round must heal."""
    network = SITE_NETWORKS[sites]
    generator = random.Random(sites)  # noqa: S311
    lease = ReproductionSettings.lease_seconds(sites)
    with running_sites(tmp_path / "sites", network, lease_seconds=lease) as running:
        for kind in ("killed", "stopped"):
            gaps = [
                failure_round(
                    running,
                    choose_failure(network, generator, failed=sites // 3, publishers=3),
                    kind,
                ).gap_seconds
                for _ in range(LONG_ROUNDS if sites == 25 else 5)
            ]
            print(f"{sites} sites, {kind}: median {median(gaps):.3f} s, worst {max(gaps):.3f} s")
            assert max(gaps) < MAX_SECONDS
        for number in range(3):
            assert merge_round(running, number).retained_seconds < MAX_SECONDS


@pytest.mark.long
def test_sites_in_namespaces_merge_after_links_were_cut(tmp_path: Path) -> None:
    """Links have bandwidth and delay; TLS is needed, because the sites are not on loopback."""
    try:
        check_requirements()
    except RequirementsMissing as reason:
        pytest.skip(str(reason))
    network = SITE_NETWORKS[15]
    certificates = CertificateFolder(tmp_path / "certificates")
    now = datetime.now(UTC)
    certificates.create_authority("sites", now=now)
    certificates.issue(network.sites, now=now)
    with (
        SiteNamespaces(network) as hosts,
        running_sites(
            tmp_path / "sites",
            network,
            lease_seconds=1.0,
            hosts=hosts,
            certificates=tmp_path / "certificates",
        ) as running,
    ):
        for number in range(2):
            found = merge_round(running, number, hosts=hosts)
            assert found.crossing_seconds < MAX_SECONDS
            assert found.retained_seconds < MAX_SECONDS
