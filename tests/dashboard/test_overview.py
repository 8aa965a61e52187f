"""Figures of the first page from plans and reports; no browser, no service."""

from datetime import UTC, datetime
from typing import Any

import pytest

from firedex.dashboard.flow_measurements import (
    FlowForecast,
    FlowMeasurement,
    class_rows,
    flow_measurements,
)
from firedex.dashboard.health import controller_health, heartbeat_health, switch_health
from firedex.dashboard.links import MissingLinks, link_rows, planned_shares
from firedex.planning import plan_scenario
from firedex.wire import (
    ClassPrediction,
    Heartbeat,
    Network,
    NetworkStatistics,
    NetworkTopology,
    Scenario,
    Statistics,
    from_plain,
)
from firedex.wire.service_api import HeartbeatRecord
from tests.support.service_site import publisher, subscriber

WHEN = datetime(2026, 3, 1, tzinfo=UTC)


def report(
    flow: int, delivered: int, missing: int, mean: float | None, version: int = 1
) -> dict[str, Any]:
    return {
        "reporter": "crew",
        "subscriber": "crew",
        "flow": flow,
        "configuration_version": version,
        "window_start": WHEN.isoformat(),
        "window_seconds": 20.0,
        "topics": [{"topic": "smoke/1", "delivered_events": delivered, "missing_events": missing}],
        "delay_mean_seconds": mean,
        "delay_p95_seconds": None if mean is None else 2 * mean,
    }


def forecast(priority: int, rate: float) -> FlowForecast:
    return FlowForecast(priority=priority, offered_per_second=rate, delivered_per_second=rate)


def test_class_has_the_mean_delay_of_events_and_the_worst_percentile() -> None:
    reports = [
        from_plain(Statistics, report(0, 90, 10, 0.1)),
        from_plain(Statistics, report(1, 10, 0, 0.5)),
    ]
    assert flow_measurements(reports, 2) == {}, "measured under another configuration"
    measured = flow_measurements(reports, 1)
    assert measured["crew", 0].success_rate == 0.9
    predicted = ClassPrediction(
        priority=3,
        subscriptions=2,
        offered_events_per_second=20.0,
        success_rate=1.0,
        delay_mean_seconds=0.1,
        delay_p95_seconds=0.2,
    )
    flows = {("crew", n): forecast(3, 20.0) for n in range(3)}
    (row,) = class_rows([predicted], flows, measured)
    assert row.delay_mean_seconds == pytest.approx(0.14)
    assert row.delay_p95_seconds == 1.0
    assert row.success_rate == pytest.approx(100 / 110)
    (nothing,) = class_rows([predicted], {("crew", 0): forecast(1, 20.0)}, measured)
    assert nothing.delay_mean_seconds is None
    (row,) = class_rows([predicted], flows, measured, {3: 5.0})
    assert row.success_rate == pytest.approx(100 / 210), "5 events per second arrived, 5.5 did not"
    (row,) = class_rows([predicted], {}, {}, {3: 20.0})
    assert row.success_rate == 0.0
    claims = [report(0, 10, 40, 0.4), report(1, 10**12, 0, 0.001)]
    claimed = flow_measurements([from_plain(Statistics, each) for each in claims], 1)
    (row,) = class_rows([predicted], {key: forecast(3, 2.5) for key in claimed}, claimed)
    assert row.success_rate == pytest.approx(170 / 210), "160 of the claimed events count"
    assert (
        FlowMeasurement(
            delivered=0, numbered=0, missing=0, delay_mean_seconds=None, delay_p95_seconds=None
        ).success_rate
        is None
    )


def test_success_rate_counts_only_events_with_sequence_numbers() -> None:
    plain = report(0, 90, 10, 0.1)
    plain["topics"] = [{"topic": "smoke/1", "delivered_events": 90}]
    reports = [from_plain(Statistics, plain)]
    (unknown,) = flow_measurements(reports, 1).values()
    assert (unknown.delivered, unknown.success_rate) == (90, None)
    plain["topics"].append({"topic": "heat/1", "delivered_events": 5, "missing_events": 5})
    (known,) = flow_measurements([from_plain(Statistics, plain)], 1).values()
    assert (known.delivered, known.success_rate) == (95, 0.5)


def test_reports_by_others_are_not_measurements_of_a_subscriber() -> None:
    reports = from_plain(Statistics, {**report(0, 9, 1, 0.1), "reporter": "gateway"})
    assert flow_measurements([reports], 1) == {}


def heartbeat_record(
    part: str, kind: Any, ago: float, every: float | None = None
) -> HeartbeatRecord:
    heartbeat = Heartbeat(part=part, kind=kind, started_at=WHEN, sent_at=WHEN, every_seconds=every)
    return HeartbeatRecord(heartbeat=heartbeat, seconds_ago=ago)


def test_component_is_stale_after_three_of_its_heartbeat_intervals() -> None:
    parts = heartbeat_health(
        [
            heartbeat_record("crew-1", "client", 1.4, every=0.5),
            heartbeat_record("crew-2", "client", 1.6, every=0.5),
            heartbeat_record("gateway", "gateway", 14.0),
            heartbeat_record("gone", "client", 1.0),
        ],
        ["crew-1", "crew-2", "crew-3"],
    )
    assert {part.part: part.state for part in parts} == {
        "gateway": "healthy",
        "crew-1": "healthy",
        "crew-2": "stale",
        "crew-3": "unknown",
        "broker": "unknown",
    }
    assert [part.kind for part in parts[:2]] == ["broker", "gateway"]


def test_controller_is_unknown_before_its_first_response() -> None:
    assert controller_health(configured=True, error=None, answered=True).state == "healthy"
    assert controller_health(configured=True, error=None, answered=False).state == "unknown"
    assert controller_health(configured=True, error="gone", answered=True).state == "trouble"
    assert controller_health(configured=False, error=None, answered=False).detail is not None


def test_switch_health_follows_the_topology_of_the_controller() -> None:
    assert switch_health(None) == ()
    topology = from_plain(
        NetworkTopology,
        {
            "switches": [
                {"switch": "a", "datapath_id": "0" * 16, "connected": True, "settled": True},
                {"switch": "b", "datapath_id": "1" * 16, "connected": False, "settled": False},
                {"switch": "c", "datapath_id": "2" * 16, "connected": True, "settled": False},
            ]
        },
    )
    assert [(part.state, part.detail) for part in switch_health(topology)] == [
        ("healthy", None),
        ("trouble", "not connected"),
        ("trouble", "its rules differ from the desired rules"),
    ]


NETWORK: dict[str, Any] = {
    "switches": [
        {"id": "core", "bandwidth_bits_per_second": 10e6},
        {"id": "floor", "bandwidth_bits_per_second": 5e6},
    ],
    "links": [{"from": "core", "to": "floor", "bandwidth_bits_per_second": 8e6}],
    "broker": {"id": "edge", "switch": "core"},
}


def test_links_show_planned_and_measured_load_by_class() -> None:
    scenario = from_plain(
        Scenario,
        {
            "name": "two switches",
            "topics": [{"name": "smoke/1", "event_bytes": 100}],
            "network": NETWORK,
            "publishers": [publisher("p0", {"smoke/1": 10.0})["publisher"] | {"switch": "core"}],
            "subscribers": [subscriber("crew", {"smoke/#": 1.0}, switch="floor")["subscriber"]],
        },
    )
    rows = plan_scenario(scenario).table.to_prediction().subscriptions
    shares = planned_shares(scenario, rows)
    assert shares.keys() == {("core", "floor"), ("floor", None)}
    (bits,) = shares["floor", None].values()
    assert 10 * 8 * 100 < bits < 10 * 8 * 250
    slower = from_plain(
        Network,
        {
            **NETWORK,
            "switches": [
                NETWORK["switches"][0],
                {**NETWORK["switches"][1], "bandwidth_bits_per_second": 2e6},
            ],
        },
    )
    topology = from_plain(
        NetworkTopology,
        {"links": [{"from": "core", "from_port": "c1", "to": "floor", "to_port": "f1"}]},
    )
    queue = {"packets": 1, "bytes": 1, "bits_per_second": 123.0}
    statistics = from_plain(
        NetworkStatistics,
        {
            "switches": [
                {
                    "switch": "core",
                    "window_seconds": 1.0,
                    "queues": [{"port": "c1", "priority": 0, **queue}],
                }
            ]
        },
    )
    links = link_rows(
        slower,
        scenario.network,
        shares,
        reduced_since={("floor", None): WHEN},
        topology=topology,
        statistics=statistics,
    )
    by_port = {(each.switch, each.towards): each for each in links}
    assert by_port.keys() == {("core", "floor"), ("floor", None)}
    assert by_port["core", "floor"].classes[0].bits_per_second == 123.0
    assert by_port["core", "floor"].reduced_since is None
    assert by_port["floor", None].reduced_since == WHEN
    assert by_port["floor", None].classes[0].bits_per_second is None


@pytest.mark.parametrize(
    ("links", "hosts", "counted"),
    [(True, False, {("core", "floor"): 123.0}), (False, False, {}), (False, True, {"core": 123.0})],
)
def test_port_with_unknown_neighbour_is_not_counted_as_host_port(
    links: bool, hosts: bool, counted: dict[Any, float]
) -> None:
    switch = {"datapath_id": "0" * 16, "connected": True, "settled": True}
    link = {"from": "core", "from_port": "c1", "to": "floor", "to_port": "f1"}
    host = {"hardware_address": "00:00:00:00:00:01", "address": None, "switch": "core"}
    topology = {
        "switches": [{"switch": name, **switch} for name in ("core", "floor")],
        "links": [link] if links else [],
        "hosts": [{**host, "port": "c1"}] if hosts else [],
    }
    queue = {"port": "c1", "priority": 0, "packets": 1, "bytes": 1, "bits_per_second": 123.0}
    core = {"switch": "core", "window_seconds": 1.0, "queues": [queue]}
    network = from_plain(Network, NETWORK)
    found = link_rows(
        network,
        network,
        {},
        reduced_since={},
        topology=from_plain(NetworkTopology, topology),
        statistics=from_plain(NetworkStatistics, {"switches": [core]}),
    )
    assert {
        (row.switch, row.towards) if row.towards else row.switch: row.classes[0].bits_per_second
        for row in found
    } == counted


def test_link_missing_in_the_topology_is_reported() -> None:
    switch = {"datapath_id": "0" * 16, "connected": True, "settled": True}
    both = {"switches": [{"switch": name, **switch} for name in ("core", "floor")]}
    link = {"from": "floor", "from_port": "f1", "to": "core", "to_port": "c1"}
    network, links = from_plain(Network, NETWORK), MissingLinks()

    def missing_links_at(at: float, topology: dict[str, Any] | None) -> list[str]:
        given = None if topology is None else from_plain(NetworkTopology, topology)
        return [each.name for each in links.update(network, given, at)]

    assert missing_links_at(0.0, both) == missing_links_at(60.0, both) == [], (
        "the controller does not discover links"
    )
    assert missing_links_at(61.0, {**both, "links": [link]}) == [], "either direction counts"
    assert missing_links_at(62.0, both) == missing_links_at(66.0, both) == []
    assert missing_links_at(67.0, both) == ["core to floor"]
    away = {"switches": [both["switches"][0], {**both["switches"][1], "connected": False}]}
    assert missing_links_at(68.0, away) == [], "the disconnected switch is reported instead"
    assert missing_links_at(69.0, None) == []
