"""What of the emulation needs no switch: measuring, ways, schedules, requirements."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

from firedex.planning import plan_scenario
from firedex.scenario_file import read_scenario
from firedex.wire import (
    Configuration,
    DeliveryRecord,
    Prediction,
    Publication,
    Publisher,
    from_plain,
    to_plain,
)
from firedex_clients.delivery_log import write_records
from firedex_emulation import sandbox
from firedex_emulation.errors import CannotEmulate
from firedex_emulation.measurement import WayMeasurement, measure_way
from firedex_emulation.one_run import WAYS, as_run
from firedex_emulation.publisher_program import _schedule
from firedex_emulation.sandbox import check_requirements

SCENARIO = read_scenario("builtin:critical-event")
ALARM, CAMERA = "alarm/floor3", "camera/floor3"
START_SECONDS = 1000.0
PREDICTED = {
    (ALARM, "engine1"): 0.001,
    (ALARM, "engine2"): 0.003,
    (CAMERA, "engine1"): 0.1,
    (CAMERA, "engine2"): None,
}


def row(subscriber: str, name: str) -> dict[str, Any]:
    """What the service would have predicted for one subscription."""
    delay = PREDICTED[name, subscriber]
    camera = name == CAMERA
    return {
        "subscriber": subscriber,
        "filter": name,
        "flow": int(camera),
        "priority": int(camera),
        "drop_rate": 0.5 if camera else 0.0,
        "offered_events_per_second": 10.0,
        "success_rate": 0.5 if camera else 1.0,
        "delay_mean_seconds": delay,
        "delay_p50_seconds": delay,
        "delay_p95_seconds": delay,
        "delay_p99_seconds": delay,
        "utility": 1.0,
        "maximum_utility": 1.0,
        "timely_fraction": 1.0,
        "deadline_seconds": None,
        "deadline_met": None,
        "method": "queueing",
        "reason": None,
    }


def predicted_configuration() -> Configuration:
    """A made-up prediction in an otherwise true configuration."""
    prediction = to_plain(plan_scenario(SCENARIO).table.to_prediction())
    prediction["subscriptions"] = [row(who, name) for name, who in PREDICTED]
    return Configuration(
        version=3,
        broker="edge",
        created_at=datetime(2025, 3, 1, tzinfo=UTC),
        reason="a test",
        flows=(),
        prediction=from_plain(Prediction, prediction),
    )


def record(name: str, subscriber: str, delay: float | None, **changes: Any) -> DeliveryRecord:
    return DeliveryRecord(
        **{
            "run": "firedex",
            "broker": "edge",
            "publication_id": "e",
            "topic": name,
            "publisher": None,
            "subscriber": subscriber,
            "filter": name,
            "flow": 0,
            "priority": 0,
            "configuration_version": 3,
            "wire_bytes": 900,
            "published_at_seconds": START_SECONDS,
            "received_at_seconds": None if delay is None else START_SECONDS + delay,
            "outcome": "dropped-at-gateway" if delay is None else "delivered",
            **changes,
        }
    )


def measured(
    folder: Path, records: Sequence[DeliveryRecord], sent: Sequence[str]
) -> WayMeasurement:
    for who in ("engine1", "engine2"):
        mine = [each for each in records if each.subscriber == who]
        write_records(folder / f"firedex-{who}.parquet", mine)
    times = [(topic, START_SECONDS) for topic in sent]
    return measure_way(SCENARIO, "firedex", predicted_configuration(), times, folder)


# -- measurement -----------------------------------------------------------------------------------


def test_what_was_sent_counts_for_each_listener(tmp_path: Path) -> None:
    records = [record(ALARM, "engine1", 0.25), record(ALARM, "engine2", 0.75)]
    alarm, camera = measured(tmp_path, records, [ALARM, ALARM, CAMERA]).filters
    assert (alarm.filter, alarm.sent, alarm.delivered) == (ALARM, 4, 2)
    assert alarm.success_measured == 0.5
    assert alarm.delay_mean_seconds == pytest.approx(0.5)
    assert alarm.delay_p50_seconds == pytest.approx(0.5)
    assert (camera.sent, camera.delivered, camera.success_measured) == (2, 0, 0.0)


def test_without_deliveries_there_is_no_delay(tmp_path: Path) -> None:
    for row_ in measured(tmp_path, [], [ALARM]).filters:
        assert row_.delay_mean_seconds is None
        assert row_.delay_p50_seconds is None
        assert row_.delay_p95_seconds is None


def test_without_traffic_nothing_is_divided_by_nothing(tmp_path: Path) -> None:
    assert [row_.success_measured for row_ in measured(tmp_path, [], []).filters] == [0.0, 0.0]


def test_predictions_are_averaged_over_subscribers(tmp_path: Path) -> None:
    alarm, camera = measured(tmp_path, [], [ALARM]).filters
    assert alarm.delay_predicted_seconds == pytest.approx(0.002)
    assert (alarm.priority, alarm.drop_rate, alarm.success_predicted) == (0, 0.0, 1.0)
    assert camera.delay_predicted_seconds is None, "one of the two has none to state"
    assert (camera.priority, camera.drop_rate, camera.success_predicted) == (1, 0.5, 0.5)


def test_what_was_dropped_enters_no_delay(tmp_path: Path) -> None:
    records = [record(ALARM, "engine1", 0.25), record(ALARM, "engine1", None)]
    alarm, _ = measured(tmp_path, records, [ALARM, ALARM]).filters
    assert alarm.delivered == 1
    assert alarm.delay_mean_seconds == pytest.approx(0.25)


def test_an_event_without_a_stamp_is_delivered_but_has_no_delay(tmp_path: Path) -> None:
    records = [
        record(ALARM, "engine1", 0.25),
        record(ALARM, "engine2", 0.25, published_at_seconds=None),
    ]
    alarm, _ = measured(tmp_path, records, [ALARM]).filters
    assert (alarm.delivered, alarm.delay_mean_seconds) == (2, pytest.approx(0.25))


def test_probes_before_the_traffic_are_the_hosts_own_time(tmp_path: Path) -> None:
    probes = [
        record(ALARM, "engine1", 0, published_at_seconds=990.0, received_at_seconds=990.0 + seconds)
        for seconds in (0.001, 0.002, 0.9)
    ]
    found = measured(tmp_path, [*probes, record(ALARM, "engine1", 0.25)], [ALARM])
    alarm, _ = found.filters
    assert found.host_seconds == pytest.approx(0.002)
    assert (alarm.delivered, alarm.delay_mean_seconds) == (1, pytest.approx(0.25))
    assert alarm.delay_predicted_seconds == pytest.approx(0.002 + 0.002)


def test_what_links_take_is_not_the_hosts_own_time(tmp_path: Path) -> None:
    switches = tuple(replace(s, propagation_seconds=0.01) for s in SCENARIO.network.switches)
    slow = replace(SCENARIO, network=replace(SCENARIO.network, switches=switches))
    for who in ("engine1", "engine2"):
        probe = record(ALARM, who, 0, published_at_seconds=990.0, received_at_seconds=990.022)
        write_records(tmp_path / f"firedex-{who}.parquet", [probe])
    sent = [(ALARM, START_SECONDS)]
    found = measure_way(slow, "firedex", predicted_configuration(), sent, tmp_path)
    assert found.host_seconds == pytest.approx(0.002), "lan and core take 10 ms each"


def test_machines_get_plain_data(tmp_path: Path) -> None:
    found = measured(tmp_path, [record(ALARM, "engine1", 0.5)], [ALARM])
    assert WayMeasurement.from_plain(json.loads(json.dumps(found.as_plain()))) == found
    plain = found.as_plain()
    assert plain["way"] == "firedex"
    assert plain["filters"][0]["delay_p95_seconds"] == pytest.approx(0.5)


# -- ways ------------------------------------------------------------------------------------------


def test_with_firedex_the_scenario_is_as_it_is() -> None:
    assert as_run(SCENARIO, "firedex") == SCENARIO


def test_without_it_there_is_one_flow_one_class_and_no_drop_rate() -> None:
    planning = as_run(SCENARIO, "none").planning
    assert (planning.flows_per_subscriber, planning.priorities) == (1, 1)
    assert (planning.priority_policy, planning.drop_policy) == ("none", "none")
    assert planning.rho_tolerance == SCENARIO.planning.rho_tolerance
    assert WAYS == ("none", "firedex")


# -- schedules -------------------------------------------------------------------------------------


def publishing(*publications: Publication) -> Publisher:
    return Publisher(id="p0", switch="lan", publications=publications)


def scheduled(publisher: Publisher, seconds: float, seed: int = 1) -> tuple[list[float], list[int]]:
    return _schedule(publisher, seconds, np.random.default_rng(seed))


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
