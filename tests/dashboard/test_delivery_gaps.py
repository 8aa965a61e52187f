"""Deliveries compared with predictions: silence, loss, and clients without heartbeats. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firedex.dashboard.delivery_gaps import LastDeliveries, lossy_flows, silent_deliveries
from firedex.dashboard.flow_measurements import FlowForecast, FlowMeasurement
from firedex.dashboard.overview import ServiceReports, overview
from firedex.dashboard.site_view import SiteView, meets_deadline
from firedex.planning import plan_scenario
from firedex.wire import Configuration, Heartbeat, Scenario, Statistics, from_plain
from firedex.wire.overview import DeadlineStatus, Overview
from firedex.wire.service_api import HeartbeatRecord, ServiceStatus
from tests.support.service_site import publisher, subscriber

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
NOW = WHEN.timestamp()
FORECASTS = {
    ("crew-1", 0): FlowForecast(priority=0, offered_per_second=5.0, delivered_per_second=5.0),
    ("crew-1", 1): FlowForecast(priority=1, offered_per_second=40.0, delivered_per_second=20.0),
    ("crew-2", 0): FlowForecast(priority=1, offered_per_second=0.1, delivered_per_second=0.1),
}
RATES = {"smoke/1": 10.0, "heat/1": 0.1}


def measurement(delivered: int, missing: int = 0, seconds: float = 5.0) -> FlowMeasurement:
    return FlowMeasurement(
        delivered=delivered,
        numbered=delivered,
        missing=missing,
        window_seconds=seconds,
        delay_mean_seconds=None,
        delay_p95_seconds=None,
    )


def silent_subscriptions(
    measured: dict[Any, FlowMeasurement],
    seconds: float = 60.0,
    offline: frozenset[str] = frozenset(),
) -> list[tuple[str, str]]:
    view = site_view("crew-1", "crew-2")
    found = silent_deliveries(
        view.prediction.subscriptions,
        {flow_of(view, *key): flow for key, flow in measured.items()},
        view.topics_of,
        lambda *_: seconds,
        least_seconds=30.0,
        offline=offline,
    )
    return [(one.subscriber, one.filter) for one in found]


def test_silence_is_reported_after_ten_expected_events() -> None:
    smoke, heat = ("crew-1", "smoke/#"), ("crew-1", "heat/#")
    both = [smoke, ("crew-2", "smoke/#")]
    assert silent_subscriptions({}) == both, "with 6 expected events of heat, silence can be chance"
    assert silent_subscriptions({}, seconds=29.0) == [], "the silence is too short"
    assert heat in silent_subscriptions({}, seconds=120.0), "a slow topic needs more time"
    assert silent_subscriptions({}, offline=frozenset({"crew-1"})) == both[1:], (
        "a client without heartbeats is skipped"
    )
    measured = {heat: measurement(3), smoke: measurement(0, 70)}
    assert silent_subscriptions(measured, seconds=0.0) == [smoke], (
        "the report counts zero deliveries"
    )
    measured = {heat: measurement(3), smoke: measurement(0, 1, seconds=0.2)}
    assert silent_subscriptions(measured, seconds=0.0) == [], (
        "with 2 expected events, silence can be chance"
    )


@pytest.mark.parametrize(
    ("delivered", "missing", "flow", "short"),
    [
        (99, 1, 0, False),
        (95, 5, 0, False),  # the difference is within the error of the model
        (1, 1, 0, False),  # two events are too few
        (45, 55, 1, False),  # one half was predicted
        (20, 80, 0, True),
        (10, 90, 1, True),
    ],
)
def test_flow_with_success_far_below_the_prediction_is_found(
    delivered: int, missing: int, flow: int, short: bool
) -> None:
    found = lossy_flows(FORECASTS, {("crew-1", flow): measurement(delivered, missing)})
    assert [one.success_rate for one in found] == ([delivered / 100] if short else [])


def site_view(
    *names: str,
    rates: dict[str, float] = RATES,
    filters: Sequence[str] = ("smoke/#", "heat/#"),
    flows: int = 8,
) -> SiteView:
    """Return a view whose subscribers have a deadline for the first filter only."""
    subscribers = []
    for name in names:
        one = subscriber(name, dict.fromkeys(filters, 1.0), switch="core")["subscriber"]
        one["subscriptions"][0]["deadline_seconds"] = 5.0
        subscribers.append(one)
    scenario = from_plain(
        Scenario,
        {
            "name": "silence",
            "topics": [{"name": name, "event_bytes": 100} for name in rates],
            "network": {
                "switches": [{"id": "core", "bandwidth_bits_per_second": 10e6}],
                "broker": {"id": "edge", "switch": "core"},
            },
            "publishers": [publisher("p0", rates)["publisher"] | {"switch": "core"}],
            "subscribers": subscribers,
            "planning": {"flows_per_subscriber": flows},
        },
    )
    prediction = plan_scenario(scenario).table.to_prediction()
    configuration = Configuration(
        version=1,
        created_at=WHEN,
        broker="edge",
        reason="test",
        flows=(),
        prediction=prediction,
    )
    return SiteView(configuration=configuration, prediction=prediction, scenario=scenario)


def flow_of(view: SiteView, subscriber_id: str, name: str) -> tuple[str, int]:
    (found,) = [
        (row.subscriber, row.flow)
        for row in view.prediction.subscriptions
        if (row.subscriber, row.filter) == (subscriber_id, name)
    ]
    return found


def report(
    subscriber_id: str, flow: int, topic: str, p95: float = 0.2, version: int = 1
) -> Statistics:
    return from_plain(
        Statistics,
        {
            "reporter": subscriber_id,
            "subscriber": subscriber_id,
            "flow": flow,
            "configuration_version": version,
            "window_start": WHEN.isoformat(),
            "window_seconds": 5.0,
            "topics": [{"topic": topic, "delivered_events": 50, "missing_events": 0}],
            "delay_mean_seconds": 0.1,
            "delay_p95_seconds": p95,
        },
    )


def test_silent_subscription_is_late_and_has_no_utility() -> None:
    view = site_view("crew")
    smoke, heat = flow_of(view, "crew", "smoke/#"), flow_of(view, "crew", "heat/#")
    assert smoke != heat
    good = replace(measurement(50), delay_mean_seconds=0.1, delay_p95_seconds=0.2)
    measured = {heat: good}
    utility = view.utility(measured)
    assert utility.measured == pytest.approx(1.0)
    assert (utility.measured_subscriptions, utility.subscriptions) == (1, 2)
    assert view.late_subscriptions(measured) == []
    gone = {("crew", "smoke/#"): 1.0}
    assert view.utility(measured, gone).measured == pytest.approx(0.5)
    assert view.utility(measured, gone).measured_subscriptions == 2
    (never,) = view.late_subscriptions(measured, gone)
    assert (never.filter, never.late_by_seconds) == ("smoke/#", None)
    assert view.forecasts[smoke].delivered_per_second == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("p95", "percentile", "met"),
    [
        (None, 0.95, None),
        (0.4, 0.95, True),
        (0.6, 0.95, False),
        (0.4, 0.5, True),
        (0.6, 0.5, None),
        (0.4, 0.99, None),
        (0.6, 0.99, False),
    ],
)
def test_measured_percentile_decides_some_deadlines_of_other_percentiles(
    p95: float | None, percentile: float, met: bool | None
) -> None:
    assert meets_deadline(p95, 0.5, percentile) is met


def test_prediction_decides_if_the_measured_percentile_is_inconclusive() -> None:
    view = site_view("crew")
    crew = view.scenario.subscribers[0]
    first, *others = crew.subscriptions
    median = replace(first, deadline_percentile=0.5)
    crew = replace(crew, subscriptions=(median, *others))
    view = replace(view, scenario=replace(view.scenario, subscribers=(crew,)))
    smoke = flow_of(view, "crew", "smoke/#")
    measured = {smoke: replace(measurement(50), delay_mean_seconds=0.1, delay_p95_seconds=6.0)}
    assert view.late_subscriptions(measured) == [], "the predicted median meets the deadline"
    assert view.deadlines(measured).measured_subscriptions == 0
    assert view.utility(measured).measured_timely == pytest.approx(1.0)
    rows = tuple(
        replace(row, deadline_met=False, delay_p50_seconds=5.5) if row.filter == "smoke/#" else row
        for row in view.prediction.subscriptions
    )
    late = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    (one,) = late.late_subscriptions(measured)
    assert (one.predicted, one.late_by_seconds) == (True, 0.5)
    assert one.reason == "the deadline applies to another percentile than the measured 95th"


def test_late_subscriptions_are_sorted_by_utility_before_lateness() -> None:
    view = site_view("crew", "evil")
    rows = tuple(
        replace(row, maximum_utility=0.001 if row.subscriber == "evil" else 10.0)
        for row in view.prediction.subscriptions
    )
    view = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    measured = {
        flow_of(view, subscriber_id, "smoke/#"): replace(measurement(50), delay_p95_seconds=p95)
        for subscriber_id, p95 in (("crew", 6.0), ("evil", 1e6))
    }
    assert [one.subscriber for one in view.late_subscriptions(measured)] == ["crew", "evil"]


def test_timely_utility_counts_only_met_deadlines() -> None:
    """A subscription with a missed deadline has a timely utility of zero."""
    view = site_view("crew")
    smoke, heat = flow_of(view, "crew", "smoke/#"), flow_of(view, "crew", "heat/#")
    slow = replace(measurement(50), delay_mean_seconds=4.0, delay_p95_seconds=6.0)
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


def plan(last_deliveries: LastDeliveries, view: SiteView, since: float) -> None:
    last_deliveries.plan(view.prediction.subscriptions, view.topic_rates, since)


def expected(last_deliveries: LastDeliveries, view: SiteView, name: str, now: float) -> float:
    """Return the expected events of a filter with one topic, after 30 s of silence or more."""
    (row,) = [row for row in view.prediction.subscriptions if row.filter == name]
    ((topic, _),) = view.topics_of(name)
    silent = last_deliveries.silent_seconds(row.subscriber, name, topic, now)
    return row.offered_events_per_second * silent if silent >= 30.0 else 0.0


def test_new_plan_does_not_reset_the_silence_of_a_slow_flow() -> None:
    view, last_deliveries = site_view("crew"), LastDeliveries()
    flow = flow_of(view, "crew", "heat/#")[1]
    plan(last_deliveries, view, NOW)
    assert expected(last_deliveries, view, "heat/#", NOW + 29) == 0
    assert expected(last_deliveries, view, "heat/#", NOW + 60) == pytest.approx(6.0)
    for version in range(2, 12):  # a plan every ten seconds
        plan(last_deliveries, view, NOW + 10.0 * version)
    assert expected(last_deliveries, view, "heat/#", NOW + 120) == pytest.approx(12.0)
    last_deliveries.report([(NOW + 110, report("crew", flow, "heat/1", version=3))])
    assert expected(last_deliveries, view, "heat/#", NOW + 139) == 0, (
        "a delivery under an older configuration counts"
    )
    assert expected(last_deliveries, view, "heat/#", NOW + 310) == pytest.approx(20.0)


def test_silence_restarts_when_the_expected_rate_grows() -> None:
    view, last_deliveries = site_view("crew"), LastDeliveries()
    little = [
        replace(row, offered_events_per_second=row.offered_events_per_second / 1000)
        for row in view.prediction.subscriptions
    ]
    last_deliveries.plan(little, view.topic_rates, NOW)
    plan(last_deliveries, view, NOW + 1000)
    assert expected(last_deliveries, view, "smoke/#", NOW + 1020) == 0
    assert expected(last_deliveries, view, "smoke/#", NOW + 1040) == pytest.approx(400.0)


STATUS = ServiceStatus(
    name="silence",
    publishers=1,
    subscribers=2,
    subscriptions=4,
    last_change=1,
    active_version=1,
    active_change=1,
    pending_changes=0,
    active_since=WHEN,
    event_streams=0,
)


def overview_of(
    view: SiteView,
    beats: dict[str, float],
    reports: Sequence[Statistics],
    status: ServiceStatus = STATUS,
    **more: Any,
) -> Overview:
    """Return the overview two minutes after activation.

    ``beats``: seconds since the last heartbeat of each client.
    """
    last_deliveries = LastDeliveries()
    plan(last_deliveries, view, NOW)
    last_deliveries.report([(NOW + 119, each) for each in reports])
    heartbeats = [
        HeartbeatRecord(
            heartbeat=Heartbeat(
                part=name, kind="client", started_at=WHEN, sent_at=WHEN, every_seconds=1.0
            ),
            seconds_ago=ago,
        )
        for name, ago in beats.items()
    ]
    service_reports = ServiceReports(
        network=view.scenario.network,
        reports=reports,
        heartbeats=heartbeats,
        last_deliveries=last_deliveries,
        **more,
    )
    return overview(status, view, view.scenario.network, service_reports, NOW + 120)


def test_client_without_heartbeats_has_unknown_deliveries() -> None:
    view = site_view("engine-7", "crew")
    mine = [
        report("crew", flow_of(view, "crew", f"{name}/#")[1], f"{name}/1")
        for name in ("smoke", "heat")
    ]
    late = report("engine-7", flow_of(view, "engine-7", "smoke/#")[1], "smoke/1", p95=9.0)
    seen = overview_of(view, {"engine-7": 20.0, "crew": 0.5}, [*mine, late])
    texts = [alert.text for alert in seen.alerts]
    assert "engine-7 has stopped sending heartbeats: its deliveries are unknown" in texts
    assert not any("engine-7 receives" in text or "for engine-7" in text for text in texts)
    assert seen.late == seen.silent == ()
    assert seen.utility is not None
    assert (seen.utility.measured_subscriptions, seen.utility.subscriptions) == (2, 4)
    assert seen.deadlines == DeadlineStatus(subscriptions=2, measured_subscriptions=1)
    none = overview_of(view, {"engine-7": 20.0, "crew": 20.0}, mine)
    assert none.utility is not None
    assert none.utility.measured is None
    assert none.deadlines == DeadlineStatus(subscriptions=2, measured_subscriptions=0)
    assert none.alerts[0].severity == "urgent", "no client sends heartbeats"
    never = overview_of(view, {"crew": 0.5}, mine)
    assert never.silent == ()
    assert "engine-7 has never sent a heartbeat: its deliveries are unknown" in [
        alert.text for alert in never.alerts
    ]
    on = overview_of(view, {"engine-7": 0.5, "crew": 0.5}, mine)
    assert {(one.subscriber, one.filter) for one in on.silent} == {
        ("engine-7", "smoke/#"),
        ("engine-7", "heat/#"),
    }, "a client with heartbeats and without deliveries is reported"
    assert [one.subscriber for one in on.late] == ["engine-7"]


def test_subscriber_missing_in_the_active_configuration_is_named() -> None:
    view = site_view("crew")

    def active_alerts(registered: list[str], **changes: Any) -> list[str]:
        seen = overview_of(
            view, {"crew": 0.5}, [], replace(STATUS, **changes), registered=registered
        )
        return [alert.text for alert in seen.alerts if "active" in alert.text]

    pending = {"pending_changes": 1, "pending_since": WHEN + timedelta(seconds=100)}
    before = active_alerts(["crew"])
    assert active_alerts(["crew"], **pending)[0] == "a change is not active yet"
    assert (
        active_alerts(["crew", "late"], **pending)[0]
        == "a change is not active yet; no configuration includes late"
    )
    recent = {**pending, "pending_since": WHEN + timedelta(seconds=115)}
    assert active_alerts(["crew", "late"], **recent) == before, "planning takes some seconds"
    assert active_alerts(["crew", "late"])[0] == "late is missing from the active configuration"
    assert active_alerts(["crew", "late"], active_version=2) == before, (
        "the view belongs to an older configuration"
    )
