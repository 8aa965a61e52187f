"""What of the emulation needs no switch: schedules, host time, requirements, the agent's health."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

from firedex.scenario_file import read_scenario
from firedex.wire import Publication, Publisher
from firedex_controller.agent.messages import AgentHealth, PortTrouble
from firedex_emulation import sandbox
from firedex_emulation.errors import CannotEmulate
from firedex_emulation.host_time import host_seconds
from firedex_emulation.sandbox import check_requirements
from firedex_emulation.site_processes import health_notes
from firedex_emulation.timeline_effects import publication_times

SCENARIO = read_scenario("builtin:critical-event")
ALARM = "alarm/floor3"


# -- host time -------------------------------------------------------------------------------------


def test_probes_before_the_traffic_are_the_hosts_own_time() -> None:
    arrivals = [("engine1", ALARM, 990.0, 990.0 + took) for took in (0.001, 0.002, 0.9)]
    arrivals += [("engine1", ALARM, 1000.5, 1007.0), ("engine1", ALARM, None, 995.0)]
    assert host_seconds(SCENARIO, arrivals, 1000.0) == pytest.approx(0.002)


def test_what_links_take_is_not_the_hosts_own_time() -> None:
    switches = tuple(replace(s, propagation_seconds=0.01) for s in SCENARIO.network.switches)
    slow = replace(SCENARIO, network=replace(SCENARIO.network, switches=switches))
    arrivals = [("engine1", ALARM, 990.0, 990.022)]
    assert host_seconds(slow, arrivals, 1000.0) == pytest.approx(0.002)  # lan and core: 10 ms each


def test_without_probes_host_time_is_not_known() -> None:
    assert host_seconds(SCENARIO, [], 1000.0) is None


# -- schedules -------------------------------------------------------------------------------------


def publishing(*publications: Publication) -> Publisher:
    return Publisher(id="p0", switch="lan", publications=publications)


def scheduled(publisher: Publisher, seconds: float, seed: int = 1) -> tuple[list[float], list[int]]:
    when, what = publication_times(publisher, (), seconds, np.random.default_rng(seed))
    return when.tolist(), what.tolist()


def test_times_are_in_order_and_within_the_run() -> None:
    both = publishing(
        Publication(topic="a", rate_per_second=50.0),
        Publication(topic="b", rate_per_second=20.0, arrivals="periodic"),
    )
    when, what = scheduled(both, 10.0)
    assert when == sorted(when)
    assert 0 <= when[0] < when[-1] < 10.0
    assert set(what) == {0, 1}
    least, most = poisson.interval(0.9999, 500)
    assert least <= what.count(0) <= most


def test_periodic_events_are_evenly_spaced() -> None:
    when, what = scheduled(
        publishing(Publication(topic="a", rate_per_second=20.0, arrivals="periodic")), 5.0
    )
    assert what == [0] * 100
    assert np.diff(when) == pytest.approx(1 / 20)


def test_the_same_seed_is_the_same_traffic() -> None:
    one = publishing(Publication(topic="a", rate_per_second=50.0))
    assert scheduled(one, 5.0, seed=4) == scheduled(one, 5.0, seed=4)
    assert scheduled(one, 5.0, seed=4) != scheduled(one, 5.0, seed=5)


@pytest.mark.parametrize("arrivals", ["poisson", "periodic"])
def test_a_rate_of_nothing_publishes_nothing(arrivals: Any) -> None:
    silent = publishing(Publication(topic="a", rate_per_second=0.0, arrivals=arrivals))
    assert scheduled(silent, 5.0) == ([], [])


def test_who_publishes_to_no_topic_publishes_nothing() -> None:
    assert scheduled(publishing(), 5.0) == ([], [])


# -- requirements ----------------------------------------------------------------------------------


def test_without_root_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotEmulate, match="emulation needs root"):
        check_requirements()


def test_missing_tools_are_named_by_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sandbox, "SYSTEM_PATHS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotEmulate) as raised:
        check_requirements()
    for package in ("ethtool", "iproute2", "mininet", "mosquitto", "openvswitch-switch"):
        assert package in str(raised.value)


def test_with_every_tool_it_is_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for tool in sandbox.TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_requirements()


HEALTHY = AgentHealth(
    healthy=True, shaped_ports=2, send_buffer_bytes=2**25, send_buffer_needed_bytes=2**20
)


def test_what_the_switch_agent_finds_wrong_is_noted_and_nothing_else() -> None:
    assert health_notes(HEALTHY) == ()
    troubled = replace(
        HEALTHY,
        healthy=False,
        problems=("it may queue too little",),
        troubled_ports=(PortTrouble(port="s1-eth1", detail="no such class"),),
    )
    assert health_notes(troubled) == (
        "switch agent: it may queue too little",
        "queues of s1-eth1: no such class",
    )


def test_a_send_buffer_that_was_not_found_is_noted_once_there_are_queues() -> None:
    (note,) = health_notes(replace(HEALTHY, send_buffer_bytes=None))
    assert "was not found" in note
    assert health_notes(replace(HEALTHY, send_buffer_bytes=None, shaped_ports=0)) == ()
