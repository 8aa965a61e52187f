"""Building and campus on real switches under the real controller: loops, failures, moves."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from in_sandbox import experiment

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ("broadcasts", "failing_link")
FULL = (
    *SHORT,
    "silent_link",
    "shaped_links",
    "late_link",
    "controller_killed",
    "moving_hosts",
)
CALLS_PER_SECOND = 2.5
"""How often the controller calls neighbours, on every port."""
MOST_IDLE_PACKETS = 30
"""Calls both ways, and now and then an ARP to check on a neighbour; a storm is thousands."""
RYU = pytest.mark.skipif(find_spec("ryu") is None, reason="ryu is not installed")


@cache
def run(framework: str, scenario: str, *checks: str) -> Any:
    return experiment("networks", framework, str(EXAMPLES / f"{scenario}.yaml"), *checks)


@pytest.fixture(
    params=[
        ("os-ken", "building", "broadcasts"),
        pytest.param(("os-ken", "campus", *FULL), marks=pytest.mark.long),
        pytest.param(("ryu", "campus", *SHORT), marks=[RYU, pytest.mark.long]),
    ],
    ids=["building", "campus", "campus on ryu"],
)
def seen(request: pytest.FixtureRequest) -> Any:
    return run(*request.param)


@pytest.fixture
def campus() -> Any:
    return run("os-ken", "campus", *FULL)


@pytest.fixture(params=["os-ken", pytest.param("ryu", marks=[RYU, pytest.mark.long])])
def campus_of_both(request: pytest.FixtureRequest) -> Any:
    return run(request.param, "campus", *(FULL if request.param == "os-ken" else SHORT))


def test_everybody_reaches_everybody_soon_and_all_links_are_found(seen: Any) -> None:
    up = seen["comes_up"]
    assert up["met_seconds"] < 8
    assert up["links"] == (5 if up["hosts"] == 8 else 2)
    assert up["troubles"] == []
    assert up["misplaced"] == {}
    assert up["strangers"] == []
    assert seen["mistakes"] == []


def test_a_broadcast_reaches_everybody_once_and_then_it_is_quiet(seen: Any) -> None:
    found = seen["broadcasts"]
    for host, copies in found["copies"].items():
        assert set(copies.values()) == {1}, host
    assert found["own"] == []
    assert CALLS_PER_SECOND < found["idle_most"] < MOST_IDLE_PACKETS


@pytest.mark.long
def test_traffic_goes_around_a_failed_link_and_back(campus_of_both: Any) -> None:
    found = campus_of_both["failing_link"]
    assert found["links_missing"] == 1
    assert found["outage_seconds"] < 2
    assert found["short_way_packets"] > 50, "the short way again"
    assert found["most_copies"] == 1
    assert found["heard_least"] > 0.8 * found["shouts"]


@pytest.mark.long
def test_traffic_goes_around_a_link_that_loses_everything_in_silence(campus: Any) -> None:
    found = campus["silent_link"]
    assert 1 < found["outage_seconds"] < 5
    assert found["most_copies"] == 1, "it comes back, and closes no loop"


@pytest.mark.long
def test_a_link_that_comes_late_closes_no_loop(campus: Any) -> None:
    found = campus["late_link"]
    assert found["most_copies"] == 1
    assert found["heard_least"] > 0.8 * found["shouts"]
    assert found["idle_most"] < 2 * MOST_IDLE_PACKETS


@pytest.mark.long
def test_ports_between_switches_are_shaped(campus: Any) -> None:
    found = campus["shaped_links"]
    assert found["shaped"] == {"core1": 2, "core2": 0, "hall1": 1, "hall2": 1}
    for port, leaves in found["leaves"].items():
        assert leaves == [[str(n), "12Kbit", "8Mbit"] for n in range(3)], port
    assert found["unshaped"] == []
    assert found["met_seconds"] < 5


@pytest.mark.long
def test_queues_towards_who_is_no_neighbour_are_refused_by_name(campus: Any) -> None:
    found = campus["shaped_links"]
    assert found["wrong"] == [409, {"error": "no link from 'hall1' to 'hall2' is known"}]
    assert found["stands"]
    assert found["version"] == 1


@pytest.mark.long
def test_a_configuration_is_changed_while_a_link_is_down(campus: Any) -> None:
    found = campus["late_link"]
    assert found["changed"] == [200, 200]
    assert found["leaves"] == 4


@pytest.mark.long
def test_nothing_is_lost_while_the_controller_is_away_and_comes_back(campus: Any) -> None:
    found = campus["controller_killed"]
    assert found["lost"] == 0
    assert found["most_copies"] == 1
    assert found["heard_least"] == found["shouts"]
    assert found["back_seconds"] < 5


@pytest.mark.long
def test_a_host_that_moves_is_followed_after_one_packet(campus: Any) -> None:
    plugged, taken = campus["moving_hosts"]["plugged"], campus["moving_hosts"]["taken"]
    assert plugged["before"] == "hall1"
    assert plugged["resumed_seconds"] < 1
    assert taken["before"] == "core2"
    for moved in (plugged, taken):
        assert moved["known_seconds"] < 1
        assert moved["met_seconds"] < 5
