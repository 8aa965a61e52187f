"""Test schedules, host time, requirements and health notes of the emulation, without switches."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

from firedex.scenario import read_scenario
from firedex.wire import Publication, Publisher
from firedex_controller.agent.messages import AgentHealth, PortProblem
from firedex_emulation.errors import RequirementsMissing
from firedex_emulation.measurement.host_time import Arrival, host_seconds
from firedex_emulation.testbed import sandbox
from firedex_emulation.testbed.sandbox import check_requirements
from firedex_emulation.testbed.site_processes import health_notes
from firedex_emulation.testbed.timeline import publication_times

SCENARIO = read_scenario("builtin:critical-event")
ALARM = "alarm/floor3"


# -- host time -------------------------------------------------------------------------------------


def test_host_time_is_the_median_of_probes() -> None:
    arrivals: list[Arrival] = [
        ("engine1", ALARM, 990.0, 990.0 + took) for took in (0.001, 0.002, 0.9)
    ]
    arrivals += [("engine1", ALARM, 1000.5, 1007.0), ("engine1", ALARM, None, 995.0)]
    assert host_seconds(SCENARIO, arrivals, 1000.0) == pytest.approx(0.002)


def test_host_time_excludes_the_time_on_links() -> None:
    switches = tuple(replace(s, propagation_seconds=0.01) for s in SCENARIO.network.switches)
    scenario_with_delays = replace(SCENARIO, network=replace(SCENARIO.network, switches=switches))
    arrivals = [("engine1", ALARM, 990.0, 990.022)]
    assert host_seconds(scenario_with_delays, arrivals, 1000.0) == pytest.approx(
        0.002
    )  # lan and core: 10 ms each


def test_host_time_is_none_without_probes() -> None:
    assert host_seconds(SCENARIO, [], 1000.0) is None


# -- schedules -------------------------------------------------------------------------------------


def publisher_of(*publications: Publication) -> Publisher:
    return Publisher(id="p0", switch="lan", publications=publications)


def schedule(publisher: Publisher, seconds: float, seed: int = 1) -> tuple[list[float], list[int]]:
    times, indexes = publication_times(publisher, (), seconds, np.random.default_rng(seed))
    return times.tolist(), indexes.tolist()


def test_publication_times_are_sorted_and_within_the_run() -> None:
    both = publisher_of(
        Publication(topic="a", rate_per_second=50.0),
        Publication(topic="b", rate_per_second=20.0, arrivals="periodic"),
    )
    times, indexes = schedule(both, 10.0)
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] < 10.0
    assert set(indexes) == {0, 1}
    least, most = poisson.interval(0.9999, 500)
    assert least <= indexes.count(0) <= most


def test_periodic_events_are_evenly_spaced() -> None:
    times, indexes = schedule(
        publisher_of(Publication(topic="a", rate_per_second=20.0, arrivals="periodic")), 5.0
    )
    assert indexes == [0] * 100
    assert np.diff(times) == pytest.approx(1 / 20)


def test_same_seed_gives_the_same_traffic() -> None:
    one = publisher_of(Publication(topic="a", rate_per_second=50.0))
    assert schedule(one, 5.0, seed=4) == schedule(one, 5.0, seed=4)
    assert schedule(one, 5.0, seed=4) != schedule(one, 5.0, seed=5)


@pytest.mark.parametrize("arrivals", ["poisson", "periodic"])
def test_rate_zero_publishes_nothing(arrivals: Any) -> None:
    silent = publisher_of(Publication(topic="a", rate_per_second=0.0, arrivals=arrivals))
    assert schedule(silent, 5.0) == ([], [])


def test_publisher_without_topics_publishes_nothing() -> None:
    assert schedule(publisher_of(), 5.0) == ([], [])


# -- requirements ----------------------------------------------------------------------------------


def test_running_without_root_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RequirementsMissing, match="must be run as root"):
        check_requirements()


def test_missing_programs_are_reported_by_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sandbox, "SYSTEM_PATHS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementsMissing) as raised:
        check_requirements()
    for package in ("ethtool", "iproute2", "mininet", "mosquitto", "openvswitch-switch"):
        assert package in str(raised.value)


def test_requirements_are_met_with_all_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in sandbox.TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_requirements()


HEALTHY = AgentHealth(
    healthy=True, shaped_ports=2, send_buffer_bytes=2**25, send_buffer_needed_bytes=2**20
)


def test_problems_of_the_switch_agent_are_noted() -> None:
    assert health_notes(HEALTHY) == ()
    unhealthy = replace(
        HEALTHY,
        healthy=False,
        problems=("it may queue too little",),
        port_problems=(PortProblem(port="s1-eth1", detail="no such class"),),
    )
    assert health_notes(unhealthy) == (
        "switch agent: it may queue too little",
        "queues of s1-eth1: no such class",
    )


def test_missing_send_buffer_is_noted_if_there_are_queues() -> None:
    (note,) = health_notes(replace(HEALTHY, send_buffer_bytes=None))
    assert "was not found" in note
    assert health_notes(replace(HEALTHY, send_buffer_bytes=None, shaped_ports=0)) == ()
