"""Topologies on real switches: they come up, they carry what they should, their delays are real."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firedex_emulation.sandbox import run_in_sandbox

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPOLOGIES = [
    "big-switch",
    pytest.param("building", marks=pytest.mark.long),
    pytest.param("campus", marks=pytest.mark.long),
]
MACHINE_SECONDS = 0.003
"""What hosts and scheduling may add to a round trip on a machine that has other things to do."""


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run one of the checks of ``topologies_inside`` in a sandbox."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)

    def run(*arguments: str) -> Any:
        return json.loads(run_in_sandbox("topologies_inside", arguments, timeout_seconds=60))

    return run


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_it_comes_up_and_carries_tcp_once_there_are_rules(
    name: str, inside: Callable[..., Any]
) -> None:
    found = inside("topology", name)
    assert found["with_no_rules"] is False, "a managed switch does nothing by itself"
    assert found["reached"]
    assert all(found["reached"].values()), found["reached"]


def test_a_researcher_starts_and_stops_one_with_mininet_alone(inside: Callable[..., Any]) -> None:
    found = inside("plain_mininet")
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
def test_a_scenario_becomes_switches_as_they_should_be(
    source: str, topology: str, inside: Callable[..., Any]
) -> None:
    found = inside("scenario", source)
    assert found["topology"] == topology
    for name, switch in found["switches"].items():
        assert switch["datapath_id"] == switch["asked_datapath_id"], name
        assert switch["datapath_type"] == "netdev"
        if switch["managed"]:
            assert switch["fail_mode"] == "secure"
            assert switch["protocols"] == "[OpenFlow13]"
            assert switch["controllers"] == "tcp:127.0.0.1:6653"
            assert switch["hosts_port"] in switch["ports"]
            told = f"{name}={switch['datapath_id']}:{switch['hosts_port']}"
            assert told in found["options"]
        else:
            assert switch["fail_mode"] == "standalone"
            assert switch["controllers"] == ""
    assert set(found["max_backoff"]) == {"1000"}
    managed = {port for s in found["switches"].values() if s["managed"] for port in s["ports"]}
    assert not managed & set(found["shaped"]), "those are for the controller to shape"
    for one, other, delay, measured in found["links"]:
        assert (measured is None) == (delay == 0), (one, other)


def test_a_link_can_be_cut_and_restored(inside: Callable[..., Any]) -> None:
    before, cut, after = inside("failing_link")
    assert all(before.values())
    assert cut == {**before, "sub0": False}
    assert after == before


def test_a_trunk_has_its_bandwidth_without_a_controller(inside: Callable[..., Any]) -> None:
    assert inside("trunk_rate") == pytest.approx(2e6, rel=0.1)


@pytest.mark.parametrize("seconds", [0.005, pytest.param(0.02, marks=pytest.mark.long)])
def test_a_delay_is_real_and_frames_come_through_unchanged(
    seconds: float, inside: Callable[..., Any]
) -> None:
    found = inside("delay", str(seconds))
    assert found["when_made"] == pytest.approx(2 * seconds, abs=max(0.001, 0.05 * 2 * seconds))
    assert 2 * seconds <= found["round_trips"] <= 2 * seconds + MACHINE_SECONDS
    assert all(found["frames"].values()), found["frames"]
    assert found["fast"]["in_order"], found["fast"]


def test_a_delay_that_is_not_real_is_refused(inside: Callable[..., Any]) -> None:
    said = inside("refused_delays")
    assert "25 ms was asked for, 10." in said["shorter than asked"]
    assert "6 ms was asked for, 10." in said["longer than asked"]
    assert "nothing came through" in said["no relay"]
    assert "each way has 0 to 2 s" in said["too long"]
    assert "each way has 0 to 2 s" in said["negative"]
