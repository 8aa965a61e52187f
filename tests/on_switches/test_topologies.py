"""Topologies on real switches: set-up, connectivity, bandwidth and delays."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.on_switches.runs import run_program

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPOLOGIES = [
    "big-switch",
    pytest.param("building", marks=pytest.mark.long),
    pytest.param("campus", marks=pytest.mark.long),
]
MACHINE_SECONDS = 0.003
"""Maximum time that hosts and scheduling add to the fastest of many round trips."""


def run_check(*arguments: str) -> Any:
    """Run one of the checks of ``programs.topologies`` in a sandbox."""
    return run_program("topologies", *arguments)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topology_carries_tcp_with_rules_only(name: str) -> None:
    found = run_check("topology", name)
    assert found["with_no_rules"] is False, "a managed switch forwards nothing without rules"
    assert found["reached"]
    assert all(found["reached"].values()), found["reached"]


def test_topology_can_be_started_and_stopped_with_plain_mininet() -> None:
    found = run_check("plain_mininet")
    floors = ["floor1", "floor2"]
    assert found["bridges"] == ["access0", "access1", "access2", "backbone", *floors]
    assert found["bridges_left"] == []
    assert set(found["links_left"]) <= {"lo", "ovs-netdev", "ovs-system"}


@pytest.mark.parametrize(
    ("source", "topology"),
    [
        ("builtin:critical-event", "big-switch"),
        (str(EXAMPLES / "building.yaml"), "building"),
        (str(EXAMPLES / "campus.yaml"), "campus"),
    ],
)
def test_switches_have_the_settings_of_the_scenario(source: str, topology: str) -> None:
    found = run_check("scenario", source)
    assert found["topology"] == topology
    for name, switch in found["switches"].items():
        assert switch["datapath_id"] == switch["asked_datapath_id"], name
        assert switch["datapath_type"] == "netdev"
        if switch["managed"]:
            assert switch["fail_mode"] == "secure"
            assert switch["protocols"] == "[OpenFlow13]"
            assert switch["controllers"] == "tcp:127.0.0.1:6653"
            assert switch["hosts_port"] in switch["ports"]
            option = f"{name}={switch['datapath_id']}:{switch['hosts_port']}"
            assert option in found["options"]
        else:
            assert switch["fail_mode"] == "standalone"
            assert switch["controllers"] == ""
    assert set(found["max_backoff"]) == {"1000"}
    managed = {port for s in found["switches"].values() if s["managed"] for port in s["ports"]}
    assert not managed & set(found["shaped"]), "the controller shapes these ports"
    for one, other, delay, measured in found["links"]:
        assert (measured is None) == (delay == 0), (one, other)


def test_link_can_be_cut_and_restored() -> None:
    before, cut, after = run_check("failing_link")
    assert all(before.values())
    assert cut == {**before, "sub0": False}
    assert after == before


def test_trunk_has_its_bandwidth_without_a_controller() -> None:
    assert run_check("trunk_rate") == pytest.approx(2e6, rel=0.1)


@pytest.mark.parametrize("seconds", [0.005, pytest.param(0.02, marks=pytest.mark.long)])
def test_link_delays_frames_and_does_not_change_them(seconds: float) -> None:
    found = run_check("delay", str(seconds))
    assert found["when_made"] == pytest.approx(2 * seconds, abs=max(0.001, 0.05 * 2 * seconds))
    assert 2 * seconds <= found["fastest_round_trip"] <= 2 * seconds + MACHINE_SECONDS
    assert all(found["frames"].values()), found["frames"]
    assert found["fast"]["in_order"], found["fast"]


def test_link_with_a_wrong_delay_is_rejected() -> None:
    errors = run_check("wrong_delays")
    for name, requested in (("shorter than asked", 25), ("longer than asked", 6)):
        found = re.search(r"of (\d+) ms was requested, ([\d.]+) ms was measured", errors[name])
        assert found, errors[name]
        assert int(found[1]) == requested
        assert float(found[2]) >= 10, "the link delays each direction by 5 ms"
    assert "no probe arrived" in errors["no relay"]
    assert "each direction must have from 0 to 2 s" in errors["too long"]
    assert "each direction must have from 0 to 2 s" in errors["negative"]
