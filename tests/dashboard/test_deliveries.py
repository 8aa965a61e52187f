"""What comes beside what was predicted: silence, shortfalls, and clients that are off. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from service_site import publisher, subscriber

from firedex.dashboard.delivery_gaps import FlowForecast, short_flows, silent_flows
from firedex.dashboard.flow_measurements import FlowMeasurement
from firedex.dashboard.last_heard import LastHeard
from firedex.dashboard.overview import Told, overview
from firedex.dashboard.site_view import SiteView
from firedex.planning import plan_scenario
from firedex.wire import Configuration, Heartbeat, Scenario, Statistics, from_plain
from firedex.wire.overview import Overview
from firedex.wire.service_api import KeptHeartbeat, ServiceStatus

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
NOW = WHEN.timestamp()
FORECASTS = {
    ("crew-1", 0): FlowForecast(priority=0, offered_per_second=5.0, delivered_per_second=5.0),
    ("crew-1", 1): FlowForecast(priority=1, offered_per_second=40.0, delivered_per_second=20.0),
    ("crew-2", 0): FlowForecast(priority=1, offered_per_second=0.1, delivered_per_second=0.1),
}
RATES = {"smoke/1": 10.0, "heat/1": 0.1}


def came(delivered: int, missing: int = 0, seconds: float = 5.0) -> FlowMeasurement:
    return FlowMeasurement(
        delivered=delivered,
        numbered=delivered,
        missing=missing,
        window_seconds=seconds,
        delay_mean_seconds=None,
        delay_p95_seconds=None,
    )


def silent_ones(
    measured: dict[Any, FlowMeasurement], seconds: float = 60.0, off: frozenset[str] = frozenset()
) -> list[Any]:
    expected = lambda key: FORECASTS[key].delivered_per_second * seconds  # noqa: E731
    found = silent_flows(FORECASTS, measured, expected, off)
    return [(flow.subscriber, flow.priority) for flow in found]


def test_what_was_predicted_and_does_not_come() -> None:
    assert silent_ones({}) == [("crew-1", 0), ("crew-1", 1)], "6 expected events may be none"
    assert silent_ones({}, seconds=0.0) == [], "nobody can tell yet"
    assert ("crew-2", 1) in silent_ones({}, seconds=120.0), "slow ones are told later"
    assert silent_ones({}, off=frozenset({"crew-1"})) == [], "who is off says nothing"
    assert silent_ones({("crew-1", 0): came(3)}) == [("crew-1", 1)]
    told = {("crew-1", 0): came(3), ("crew-1", 1): came(0, 70)}
    assert silent_ones(told, seconds=0.0) == [("crew-1", 1)], "it was told that nothing came"
    told = {("crew-1", 0): came(3), ("crew-1", 1): came(0, 1, seconds=0.2)}
    assert silent_ones(told, seconds=0.0) == [], "4 expected events may be none"


@pytest.mark.parametrize(
    ("delivered", "missing", "flow", "short"),
    [
        (99, 1, 0, False),
        (95, 5, 0, False),  # a little less is within what models miss
        (1, 1, 0, False),  # two events say nothing
        (45, 55, 1, False),  # one half was predicted
        (20, 80, 0, True),
        (10, 90, 1, True),
    ],
)
def test_success_far_below_the_predicted(
    delivered: int, missing: int, flow: int, short: bool
) -> None:
    found = short_flows(FORECASTS, {("crew-1", flow): came(delivered, missing)})
    assert [one.success_rate for one in found] == ([delivered / 100] if short else [])


def site_view(*crews: str, version: int = 1) -> SiteView:
    """Each wants fast smoke within its deadline, and slow heat."""
    wanted = []
    for name in crews:
        one = subscriber(name, {"smoke/#": 1.0, "heat/#": 1.0}, switch="core")["subscriber"]
        one["subscriptions"][0]["deadline_seconds"] = 5.0
        wanted.append(one)
    scenario = from_plain(
        Scenario,
        {
            "name": "silence",
            "topics": [{"name": name, "event_bytes": 100} for name in RATES],
            "network": {
                "switches": [{"id": "core", "bandwidth_bits_per_second": 10e6}],
                "broker": {"id": "edge", "switch": "core"},
            },
            "publishers": [publisher("p0", RATES)["publisher"] | {"switch": "core"}],
            "subscribers": wanted,
        },
    )
    prediction = plan_scenario(scenario).table.to_prediction()
    configuration = Configuration(
        version=version,
        created_at=WHEN,
        broker="edge",
        reason="test",
        flows=(),
        prediction=prediction,
    )
    return SiteView(configuration=configuration, prediction=prediction, scenario=scenario)


def flow_of(view: SiteView, who: str, name: str) -> tuple[str, int]:
    (found,) = [
        (row.subscriber, row.flow)
        for row in view.prediction.subscriptions
        if (row.subscriber, row.filter) == (who, name)
    ]
    return found


def report(who: str, flow: int, topic: str, p95: float = 0.2, version: int = 1) -> Statistics:
    return from_plain(
        Statistics,
        {
            "reporter": who,
            "subscriber": who,
            "flow": flow,
            "configuration_version": version,
            "window_start": WHEN.isoformat(),
            "window_seconds": 5.0,
            "topics": [{"topic": topic, "delivered_events": 50, "missing_events": 0}],
            "delay_mean_seconds": 0.1,
            "delay_p95_seconds": p95,
        },
    )


def test_what_never_comes_is_late_and_worth_nothing() -> None:
    view = site_view("crew")
    smoke, heat = flow_of(view, "crew", "smoke/#"), flow_of(view, "crew", "heat/#")
    assert smoke != heat
    good = replace(came(50), delay_mean_seconds=0.1, delay_p95_seconds=0.2)
    measured = {heat: good}
    utility = view.utility(measured)
    assert utility.measured == pytest.approx(1.0)
    assert (utility.measured_subscriptions, utility.subscriptions) == (1, 2)
    assert view.late(measured) == []
    assert view.utility(measured, {smoke}).measured == pytest.approx(0.5)
    assert view.utility(measured, {smoke}).measured_subscriptions == 2
    (never,) = view.late(measured, {smoke})
    assert (never.filter, never.late_by_seconds) == ("smoke/#", None)
    assert view.forecasts[smoke].delivered_per_second == pytest.approx(10.0)


def test_utility_in_time_is_predicted_and_measured_by_one_rule() -> None:
    """All that a subscription is worth if its deadline is met, and nothing otherwise."""
    view = site_view("crew")
    smoke, heat = flow_of(view, "crew", "smoke/#"), flow_of(view, "crew", "heat/#")
    slow = replace(came(50), delay_mean_seconds=4.0, delay_p95_seconds=6.0)
    measured = {smoke: slow, heat: slow}
    assert view.utility(measured).measured == pytest.approx(1.0)
    assert view.utility(measured).measured_timely == pytest.approx(0.5), "heat has no deadline"
    assert view.utility(measured).predicted_timely == pytest.approx(1.0)
    rows = tuple(
        replace(row, deadline_met=False if row.filter == "smoke/#" else None, timely_fraction=0.9)
        for row in view.prediction.subscriptions
    )
    late = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    assert late.utility({}).predicted_timely == pytest.approx(0.5)


def expected(heard: LastHeard, view: SiteView, key: tuple[str, int], now: float) -> float:
    return heard.expected_events(view.rows_of(key), view.topics_of, now, 30.0)


def test_a_slow_flow_is_missed_in_time_and_a_new_plan_does_not_hide_it() -> None:
    view, heard = site_view("crew"), LastHeard()
    heat = flow_of(view, "crew", "heat/#")
    heard.plan(1, view.prediction.subscriptions, NOW)
    assert expected(heard, view, heat, NOW + 29) == 0
    assert expected(heard, view, heat, NOW + 60) == pytest.approx(6.0)
    for version in range(2, 12):  # a plan every ten seconds, as before
        heard.plan(version, view.prediction.subscriptions, NOW + 10.0 * version)
    assert expected(heard, view, heat, NOW + 120) == pytest.approx(12.0)
    heard.report([(NOW + 110, report("crew", heat[1], "heat/1", version=3))])
    assert expected(heard, view, heat, NOW + 139) == 0, "heard under whichever plan"
    assert expected(heard, view, heat, NOW + 310) == pytest.approx(20.0)


def test_waiting_begins_anew_for_what_was_not_expected_before() -> None:
    view, heard = site_view("crew"), LastHeard()
    smoke = flow_of(view, "crew", "smoke/#")
    little = [
        replace(row, offered_events_per_second=row.offered_events_per_second / 1000)
        for row in view.prediction.subscriptions
    ]
    heard.plan(1, little, NOW)
    heard.plan(2, view.prediction.subscriptions, NOW + 1000)
    assert expected(heard, view, smoke, NOW + 1020) == 0
    assert expected(heard, view, smoke, NOW + 1040) == pytest.approx(400.0)


STATUS = ServiceStatus(
    name="silence",
    publishers=1,
    subscribers=2,
    subscriptions=4,
    last_change=1,
    in_force_version=1,
    in_force_change=1,
    pending_changes=0,
    in_force_since=WHEN,
    event_streams=0,
)


def look(view: SiteView, beats: dict[str, float], reports: Sequence[Statistics]) -> Overview:
    """The site two minutes after the plan came into force; clients were heard so long ago."""
    heard = LastHeard()
    heard.plan(1, view.prediction.subscriptions, NOW)
    heard.report([(NOW + 119, each) for each in reports])
    heartbeats = [
        KeptHeartbeat(
            heartbeat=Heartbeat(
                part=name, kind="client", started_at=WHEN, sent_at=WHEN, every_seconds=1.0
            ),
            seconds_ago=ago,
        )
        for name, ago in beats.items()
    ]
    told = Told(
        network=view.scenario.network, reports=reports, heartbeats=heartbeats, last_heard=heard
    )
    return overview(STATUS, view, view.scenario.network, told, NOW + 120)


def test_who_is_off_makes_no_statement() -> None:
    view = site_view("engine-7", "crew")
    mine = [
        report("crew", flow_of(view, "crew", f"{name}/#")[1], f"{name}/1")
        for name in ("smoke", "heat")
    ]
    late = report("engine-7", flow_of(view, "engine-7", "smoke/#")[1], "smoke/1", p95=9.0)
    seen = look(view, {"engine-7": 20.0, "crew": 0.5}, [*mine, late])
    texts = [alert.text for alert in seen.alerts]
    assert "engine-7 is silent: it is not known what reaches it" in texts
    assert not any("reaches engine-7" in text or "for engine-7" in text for text in texts)
    assert seen.late == seen.silent == ()
    assert seen.utility is not None
    assert (seen.utility.measured_subscriptions, seen.utility.subscriptions) == (2, 4)
    never = look(view, {"crew": 0.5}, mine)
    assert never.silent == ()
    assert "engine-7 has never been heard of: it is not known what reaches it" in [
        alert.text for alert in never.alerts
    ]
    on = look(view, {"engine-7": 0.5, "crew": 0.5}, mine)
    assert {(flow.subscriber, flow.flow) for flow in on.silent} == {
        flow_of(view, "engine-7", "smoke/#"),
        flow_of(view, "engine-7", "heat/#"),
    }, "who is there and gets nothing is told, also of slow flows"
    assert [one.subscriber for one in on.late] == ["engine-7"]
