"""Building and campus on real switches under the real controller: loops, failures, moves."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.on_switches.runs import run_program

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
DISCOVERY_FRAMES_PER_SECOND = 2.5
"""Rate of the controller's link discovery frames on every port."""
MAX_IDLE_PACKETS = 30
"""Discovery frames in both directions and a few ARP packets; a broadcast storm is thousands."""
RYU = pytest.mark.skipif(find_spec("ryu") is None, reason="ryu is not installed")


@cache
def run(framework: str, scenario: str, *checks: str) -> Any:
    return run_program("networks", framework, str(EXAMPLES / f"{scenario}.yaml"), *checks)


@pytest.fixture(
    params=[
        ("os-ken", "building", "broadcasts"),
        pytest.param(("os-ken", "campus", *FULL), marks=pytest.mark.long),
        pytest.param(("ryu", "campus", *SHORT), marks=[RYU, pytest.mark.long]),
    ],
    ids=["building", "campus", "campus on ryu"],
)
def result(request: pytest.FixtureRequest) -> Any:
    return run(*request.param)


@pytest.fixture
def campus() -> Any:
    return run("os-ken", "campus", *FULL)


@pytest.fixture(params=["os-ken", pytest.param("ryu", marks=[RYU, pytest.mark.long])])
def campus_on_both_frameworks(request: pytest.FixtureRequest) -> Any:
    return run(request.param, "campus", *(FULL if request.param == "os-ken" else SHORT))


def test_all_hosts_reach_each_other_and_all_links_are_discovered(result: Any) -> None:
    up = result["comes_up"]
    assert up["met_seconds"] < 8
    assert up["links"] == (5 if up["hosts"] == 8 else 2)
    assert up["troubles"] == []
    assert up["misplaced"] == {}
    assert up["strangers"] == []
    assert result["mistakes"] == []


def test_broadcast_reaches_each_host_once_and_does_not_loop(result: Any) -> None:
    figures = result["broadcasts"]
    for host, copies in figures["copies"].items():
        assert set(copies.values()) == {1}, host
    assert figures["own"] == []
    assert DISCOVERY_FRAMES_PER_SECOND < figures["idle_most"] < MAX_IDLE_PACKETS


@pytest.mark.long
def test_traffic_is_rerouted_around_a_failed_link_and_returns(
    campus_on_both_frameworks: Any,
) -> None:
    figures = campus_on_both_frameworks["failing_link"]
    assert figures["links_missing"] == 1
    assert figures["outage_seconds"] < 2
    assert figures["short_way_packets"] > 50, "the short path is used again"
    assert figures["most_copies"] == 1
    assert figures["heard_least"] > 0.8 * figures["shouts"]


@pytest.mark.long
def test_traffic_is_rerouted_around_a_link_that_silently_drops_frames(campus: Any) -> None:
    figures = campus["silent_link"]
    assert 1 < figures["outage_seconds"] < 5
    assert figures["most_copies"] == 1, "the restored link causes no loop"


@pytest.mark.long
def test_link_that_comes_up_late_causes_no_loop(campus: Any) -> None:
    figures = campus["late_link"]
    assert figures["most_copies"] == 1
    assert figures["heard_least"] > 0.8 * figures["shouts"]
    assert figures["idle_most"] < 2 * MAX_IDLE_PACKETS


@pytest.mark.long
def test_ports_between_switches_are_shaped(campus: Any) -> None:
    figures = campus["shaped_links"]
    assert figures["shaped"] == {"core1": 2, "core2": 0, "hall1": 1, "hall2": 1}
    for port, leaves in figures["leaves"].items():
        assert leaves == [[str(n), "12Kbit", "8Mbit"] for n in range(3)], port
    assert figures["unshaped"] == []
    assert figures["met_seconds"] < 5


@pytest.mark.long
def test_queues_towards_a_switch_without_link_are_rejected(campus: Any) -> None:
    figures = campus["shaped_links"]
    assert figures["wrong"] == [409, {"error": "no link from 'hall1' to 'hall2' is known"}]
    assert figures["stands"]
    assert figures["version"] == 1


@pytest.mark.long
def test_configuration_can_change_while_a_link_is_down(campus: Any) -> None:
    figures = campus["late_link"]
    assert figures["changed"] == [200, 200]
    assert figures["leaves"] == 4


@pytest.mark.long
def test_restart_of_the_controller_loses_no_packet(campus: Any) -> None:
    figures = campus["controller_killed"]
    assert figures["lost"] == 0
    assert figures["most_copies"] == 1
    assert figures["heard_least"] == figures["shouts"]
    assert figures["back_seconds"] < 5


@pytest.mark.long
def test_new_location_of_a_host_is_known_after_one_packet(campus: Any) -> None:
    plugged, taken = campus["moving_hosts"]["plugged"], campus["moving_hosts"]["taken"]
    assert plugged["before"] == "hall1"
    assert plugged["resumed_seconds"] < 1
    assert taken["before"] == "core2"
    for moved in (plugged, taken):
        assert moved["known_seconds"] < 1
        assert moved["met_seconds"] < 5
