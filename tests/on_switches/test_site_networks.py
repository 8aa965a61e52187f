"""Networks of sites on real switches, with a broker and a federator at each site."""

import pytest

from tests.on_switches.runs import run_program


@pytest.mark.long
@pytest.mark.parametrize("sites", [6, 15])
def test_federation_on_switches_merges_after_a_partition(sites: int) -> None:
    found = run_program("site_networks", "federation", str(sites))
    assert found["crossing_seconds"] > 0
    for measured, requested in zip(found["round_trips"], found["requested"], strict=True):
        assert measured == pytest.approx(requested, abs=0.001)
