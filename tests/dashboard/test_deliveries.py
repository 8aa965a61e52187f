"""What comes beside what was predicted: silence, shortfalls, and clients that are off. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from service_site import publisher, subscriber

from firedex.dashboard.deadline_verdict import meets_deadline
from firedex.dashboard.delivery_gaps import short_flows, silences
from firedex.dashboard.flow_measurements import FlowForecast, FlowMeasurement
from firedex.dashboard.last_heard import LastHeard
from firedex.dashboard.overview import Told, overview
from firedex.dashboard.site_view import SiteView
from firedex.planning import plan_scenario
from firedex.wire import Configuration, Heartbeat, Scenario, Statistics, from_plain
from firedex.wire.overview import DeadlinesNow, Overview
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
) -> list[tuple[str, str]]:
    view = site_view("crew-1", "crew-2")
    found = silences(
        view.prediction.subscriptions,
        {flow_of(view, *key): flow for key, flow in measured.items()},
        view.topics_of,
        lambda *_: seconds,
        least_seconds=30.0,
        off=off,
    )
    return [(one.subscriber, one.filter) for one in found]


def test_what_was_predicted_and_does_not_come() -> None:
    smoke, heat = ("crew-1", "smoke/#"), ("crew-1", "heat/#")
    both = [smoke, ("crew-2", "smoke/#")]
    assert silent_ones({}) == both, "6 expected events may be none"
    assert silent_ones({}, seconds=29.0) == [], "nobody can tell yet"
    assert heat in silent_ones({}, seconds=120.0), "slow ones are told later"
    assert silent_ones({}, off=frozenset({"crew-1"})) == both[1:], "who is off says nothing"
    told = {heat: came(3), smoke: came(0, 70)}
    assert silent_ones(told, seconds=0.0) == [smoke], "it was told that nothing came"
    told = {heat: came(3), smoke: came(0, 1, seconds=0.2)}
    assert silent_ones(told, seconds=0.0) == [], "2 expected events may be none"


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


def site_view(
    *crews: str,
    rates: dict[str, float] = RATES,
    wants: Sequence[str] = ("smoke/#", "heat/#"),
    flows: int = 8,
) -> SiteView:
    """Each wants fast smoke within its deadline, and slow heat."""
    wanted = []
    for name in crews:
        one = subscriber(name, dict.fromkeys(wants, 1.0), switch="core")["subscriber"]
        one["subscriptions"][0]["deadline_seconds"] = 5.0
        wanted.append(one)
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
            "subscribers": wanted,
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
    gone = {("crew", "smoke/#"): 1.0}
    assert view.utility(measured, gone).measured == pytest.approx(0.5)
    assert view.utility(measured, gone).measured_subscriptions == 2
    (never,) = view.late(measured, gone)
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
def test_a_95th_percentile_tells_of_others_only_so_much(
    p95: float | None, percentile: float, met: bool | None
) -> None:
    assert meets_deadline(p95, 0.5, percentile) is met


def test_where_the_95th_percentile_cannot_tell_the_prediction_does() -> None:
    view = site_view("crew")
    crew = view.scenario.subscribers[0]
    first, *others = crew.subscriptions
    median = replace(first, deadline_percentile=0.5)
    crew = replace(crew, subscriptions=(median, *others))
    view = replace(view, scenario=replace(view.scenario, subscribers=(crew,)))
    smoke = flow_of(view, "crew", "smoke/#")
    measured = {smoke: replace(came(50), delay_mean_seconds=0.1, delay_p95_seconds=6.0)}
    assert view.late(measured) == [], "its median is predicted to be in time"
    assert view.deadlines(measured).measured_subscriptions == 0
    assert view.utility(measured).measured_timely == pytest.approx(1.0)
    rows = tuple(
        replace(row, deadline_met=False, delay_p50_seconds=5.5) if row.filter == "smoke/#" else row
        for row in view.prediction.subscriptions
    )
    late = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    (one,) = late.late(measured)
    assert (one.predicted, one.late_by_seconds) == (True, 0.5)
    assert one.reason == "what is measured cannot be told from the 95th percentile"


def test_what_is_worth_more_comes_before_what_is_later() -> None:
    view = site_view("crew", "evil")
    rows = tuple(
        replace(row, maximum_utility=0.001 if row.subscriber == "evil" else 10.0)
        for row in view.prediction.subscriptions
    )
    view = replace(view, prediction=replace(view.prediction, subscriptions=rows))
    measured = {
        flow_of(view, who, "smoke/#"): replace(came(50), delay_p95_seconds=p95)
        for who, p95 in (("crew", 6.0), ("evil", 1e6))
    }
    assert [one.subscriber for one in view.late(measured)] == ["crew", "evil"]


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


def plan(heard: LastHeard, view: SiteView, since: float) -> None:
    heard.plan(view.prediction.subscriptions, view.published, since)


def expected(heard: LastHeard, view: SiteView, name: str, now: float) -> float:
    """Of the filter's one topic; as much as 30 s make, at least."""
    (row,) = [row for row in view.prediction.subscriptions if row.filter == name]
    ((topic, _),) = view.topics_of(name)
    silent = heard.silent_seconds(row.subscriber, name, topic, now)
    return row.offered_events_per_second * silent if silent >= 30.0 else 0.0


def test_a_slow_flow_is_missed_in_time_and_a_new_plan_does_not_hide_it() -> None:
    view, heard = site_view("crew"), LastHeard()
    flow = flow_of(view, "crew", "heat/#")[1]
    plan(heard, view, NOW)
    assert expected(heard, view, "heat/#", NOW + 29) == 0
    assert expected(heard, view, "heat/#", NOW + 60) == pytest.approx(6.0)
    for version in range(2, 12):  # a plan every ten seconds, as before
        plan(heard, view, NOW + 10.0 * version)
    assert expected(heard, view, "heat/#", NOW + 120) == pytest.approx(12.0)
    heard.report([(NOW + 110, report("crew", flow, "heat/1", version=3))])
    assert expected(heard, view, "heat/#", NOW + 139) == 0, "heard under whichever plan"
    assert expected(heard, view, "heat/#", NOW + 310) == pytest.approx(20.0)


def test_waiting_begins_anew_for_what_was_not_expected_before() -> None:
    view, heard = site_view("crew"), LastHeard()
    little = [
        replace(row, offered_events_per_second=row.offered_events_per_second / 1000)
        for row in view.prediction.subscriptions
    ]
    heard.plan(little, view.published, NOW)
    plan(heard, view, NOW + 1000)
    assert expected(heard, view, "smoke/#", NOW + 1020) == 0
    assert expected(heard, view, "smoke/#", NOW + 1040) == pytest.approx(400.0)


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


def look(
    view: SiteView,
    beats: dict[str, float],
    reports: Sequence[Statistics],
    status: ServiceStatus = STATUS,
    **more: Any,
) -> Overview:
    """The site two minutes after the plan came into force; clients were heard so long ago."""
    heard = LastHeard()
    plan(heard, view, NOW)
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
        network=view.scenario.network,
        reports=reports,
        heartbeats=heartbeats,
        last_heard=heard,
        **more,
    )
    return overview(status, view, view.scenario.network, told, NOW + 120)


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
    assert seen.deadlines == DeadlinesNow(subscriptions=2, measured_subscriptions=1)
    none = look(view, {"engine-7": 20.0, "crew": 20.0}, mine)
    assert none.utility is not None
    assert none.utility.measured is None
    assert none.deadlines == DeadlinesNow(subscriptions=2, measured_subscriptions=0)
    assert none.alerts[0].severity == "urgent", "nobody knows anything"
    never = look(view, {"crew": 0.5}, mine)
    assert never.silent == ()
    assert "engine-7 has never been heard of: it is not known what reaches it" in [
        alert.text for alert in never.alerts
    ]
    on = look(view, {"engine-7": 0.5, "crew": 0.5}, mine)
    assert {(one.subscriber, one.filter) for one in on.silent} == {
        ("engine-7", "smoke/#"),
        ("engine-7", "heat/#"),
    }, "who is there and gets nothing is told, also of slow flows"
    assert [one.subscriber for one in on.late] == ["engine-7"]


def test_who_waits_for_a_plan_is_named() -> None:
    view = site_view("crew")

    def said(registered: list[str], **changes: Any) -> list[str]:
        seen = look(view, {"crew": 0.5}, [], replace(STATUS, **changes), registered=registered)
        return [alert.text for alert in seen.alerts if "plan" in alert.text]

    made = {"pending_changes": 1, "pending_since": WHEN + timedelta(seconds=100)}
    before = said(["crew"])
    assert said(["crew"], **made)[0] == "a change is not planned yet"
    assert said(["crew", "late"], **made)[0] == "a change is not planned yet, nothing is for late"
    just = {**made, "pending_since": WHEN + timedelta(seconds=115)}
    assert said(["crew", "late"], **just) == before, "a plan takes a moment"
    assert said(["crew", "late"])[0] == "late is in no plan"
    assert said(["crew", "late"], in_force_version=2) == before, "another plan has come meanwhile"
