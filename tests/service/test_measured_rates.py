"""Estimates of offered rates: accuracy, confidence, and stability of planning with them."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.errors import Conflict
from firedex.service.planner import what_if
from firedex.service.planner.planned_rates import drifted_topics
from firedex.service.planner.planner import Planner, SiteSettings
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import (
    STALE_SECONDS,
    OfferedRate,
    RateSnapshot,
    SnapshotRate,
    Window,
    confidence,
    half_width,
    has_drifted,
    observe,
    spread,
)
from firedex.service.state.report_store import offered_windows
from firedex.service.state.site_state import SiteState
from firedex.service.web.app import create_app
from firedex.wire import Statistics, SubscriberRegistration, from_plain, to_plain
from firedex.wire.service_api import WhatIfRequest
from tests.support.service_site import (
    GATEWAY,
    Client,
    publisher,
    serving,
    site,
    subscriber,
    wait_until,
)

pytestmark = pytest.mark.slow

NARROW = site(bandwidth_bits_per_second=80_000)
RATES = {"smoke/1": 12.0, "camera/1": 60.0, "heat/1": 30.0}


def poisson(generator: random.Random, mean: float) -> int:
    """Return a Poisson number by Knuth's algorithm, in steps that do not underflow."""
    count, left = 0, mean
    while left > 0:
        step = min(left, 50.0)
        left -= step
        limit, product = math.exp(-step), generator.random()
        while product > limit:
            product *= generator.random()
            count += 1
    return count


def estimate_after(rate: float, windows: int, seconds: float = 10.0, seed: int = 1) -> OfferedRate:
    generator = random.Random(seed)  # noqa: S311  # not used for secrets
    estimate = None
    for number in range(windows):
        events = poisson(generator, rate * seconds)
        window = Window(
            events=events, payload_bytes=100 * events, seconds=seconds, at_seconds=number * seconds
        )
        estimate = observe(estimate, window)
    assert estimate is not None
    return estimate


def report(flow: int, topics: dict[str, tuple[int, int]], **more: Any) -> dict[str, Any]:
    return {
        "reporter": "gateway",
        "subscriber": "crew",
        "flow": flow,
        "configuration_version": 1,
        "window_start": "2026-01-01T00:00:00Z",
        "window_seconds": 10.0,
        "topics": [
            {"topic": name, "offered_events": events, "payload_bytes": size}
            for name, (events, size) in topics.items()
        ],
        **more,
    }


# -- estimating --------------------------------------------------------------------------------


def test_confidence_interval_contains_the_true_rate() -> None:
    """About 95 % of 200 intervals contain the true rate."""
    inside = sum(
        abs(estimate.rate_per_second - 20.0) <= half_width(estimate)
        for estimate in (estimate_after(20.0, 30, seed=seed) for seed in range(200))
    )
    assert 180 <= inside <= 200
    estimate = estimate_after(20.0, 30)
    assert estimate.event_bytes == pytest.approx(100.0)
    assert confidence(estimate) > 0.85
    assert confidence(estimate_after(0.02, 2)) < 0.5


def test_estimate_follows_a_changed_rate() -> None:
    estimate = estimate_after(10.0, 30)
    for number in range(24):
        window = Window(events=400, payload_bytes=0, seconds=10.0, at_seconds=300 + 10 * number)
        estimate = observe(estimate, window)
    assert estimate.rate_per_second == pytest.approx(40.0, rel=0.03)
    assert has_drifted(estimate, 10.0, 0.0)


def test_drift_is_detected_but_noise_is_not() -> None:
    snapshot = estimate_after(10.0, 6, seed=3)
    false_alarms = sum(
        has_drifted(
            estimate_after(10.0, 200, seed=seed), snapshot.rate_per_second, spread(snapshot)
        )
        for seed in range(50)
    )
    assert false_alarms == 0
    assert has_drifted(estimate_after(14.0, 30), 10.0, 0.0)
    assert not has_drifted(estimate_after(14.0, 1, seconds=1.0), 10.0, 0.0), (
        "the window is too short"
    )


def test_higher_rate_is_used_sooner_than_a_lower_one() -> None:
    assert has_drifted(estimate_after(20.0, 2), 10.0, 0.0)
    assert not has_drifted(estimate_after(5.0, 5), 10.0, 0.0), (
        "the publisher may not have started yet"
    )
    assert has_drifted(estimate_after(5.0, 12), 10.0, 0.0)


def test_only_offered_counts_of_the_gateway_are_used() -> None:
    first = from_plain(Statistics, report(0, {"a": (100, 1000)}))
    late = from_plain(Statistics, report(1, {"a": (40, 400)}))  # connected for a part of the window
    client = from_plain(Statistics, report(0, {"b": (5, 5)}, reporter="crew"))
    delivered = from_plain(
        Statistics, {**report(2, {}), "topics": [{"topic": "c", "delivered_events": 9}]}
    )
    windows = offered_windows([first, late, client, delivered], 0.0)
    assert {name: window.events for name, window in windows.items()} == {"a": 100}


def test_matching_topic_without_events_counts_as_silent() -> None:
    heard = from_plain(Statistics, report(0, {"a/1": (7, 70)}))
    windows = offered_windows([heard], 0.0, ["a/1", "a/2", "b/1"], lambda _who, _flow: ("a/#",))
    assert {name: window.events for name, window in windows.items()} == {"a/1": 7, "a/2": 0}


# -- feedback ----------------------------------------------------------------------------------


def feedback_rounds(
    tmp_path: Path, rounds: int, declared: dict[str, float], true: dict[str, float], seed: int
) -> list[str]:
    """Report statistics every ten seconds; return the reasons of all new configurations."""
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    database = Database(str(tmp_path / f"{seed}.sqlite"))
    options = ServiceOptions(settings=settings, open_to_all=True)
    service = ConfigurationService(options, database)
    planner = Planner(settings, database, None, service.handle_notice)
    planner.restore()
    web = create_app(service).test_client()
    web.put("/v1/publishers/p0", json=publisher("p0", declared))
    web.put("/v1/subscribers/crew", json=subscriber("crew", {"+/1": 9.0, "smoke/1": 20.0}))
    planner.step()
    generator = random.Random(seed)  # noqa: S311  # not used for secrets
    reasons = []
    for _ in range(rounds):
        counts = {name: poisson(generator, rate * 10.0) for name, rate in true.items()}
        flow = report(0, {name: (count, 100 * count) for name, count in counts.items()})
        assert web.post("/v1/statistics", json=[flow]).status_code == 202
        if planner.step():
            configurations: Any = web.get("/v1/configurations").json
            reasons.append(configurations[0]["reason"])
    database.close()
    return reasons


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_constant_load_for_200_rounds_causes_one_new_plan(tmp_path: Path, seed: int) -> None:
    true = {name: 1.6 * rate for name, rate in RATES.items()}
    reasons = feedback_rounds(tmp_path, 200, RATES, true, seed)
    assert len(reasons) == 1
    assert reasons[0].startswith("measured rates drifted: ")


def test_declared_rates_cause_no_new_plan(tmp_path: Path) -> None:
    assert feedback_rounds(tmp_path, 200, RATES, RATES, 5) == []


def test_false_declared_rate_is_corrected_after_a_minute(tmp_path: Path) -> None:
    """The gateway counts no events of the topic, so its rate becomes zero."""
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    database = Database(str(tmp_path / "s.sqlite"))
    service = ConfigurationService(ServiceOptions(settings=settings, open_to_all=True), database)
    planner = Planner(settings, database, None, service.handle_notice)
    planner.restore()
    web = create_app(service).test_client()
    web.put("/v1/publishers/p0", json=publisher("p0", {"smoke/1": 5.0}))
    web.put("/v1/publishers/false", json=publisher("false", {"evil/x": 1e5}))
    web.put("/v1/subscribers/crew", json=subscriber("crew", {"#": 1.0}))
    planner.step()
    drop_rate_before = drop_rates(web.get("/v1/configuration").json)["#"]
    for _ in range(3):
        web.post("/v1/statistics", json=[report(0, {"smoke/1": (50, 5000)})])
        planner.step()
    assert drop_rates(web.get("/v1/configuration").json)["#"] == drop_rate_before, (
        "the publisher may not have started yet"
    )
    for _ in range(4):
        web.post("/v1/statistics", json=[report(0, {"smoke/1": (50, 5000)})])
        planner.step()
    assert drop_rate_before > 0.5
    assert drop_rates(web.get("/v1/configuration").json)["#"] == 0.0
    database.close()


def test_measured_rates_are_shown_and_used_for_planning(client: Client) -> None:
    client.register(publisher("p0", {"smoke/1": 1.0}))
    client.register(subscriber("crew", {"smoke/1": 1.0, "stray/1": 1.0}))
    for _ in range(3):
        counts = {"smoke/1": (500, 100_000), "stray/1": (300, 3_000)}
        assert client.ask("POST", "/v1/statistics", [report(0, counts)]).status == 202
    topics = {topic["name"]: topic for topic in client.get("/v1/topics").json}
    assert topics["smoke/1"]["declared_rate_per_second"] == 1.0
    assert topics["smoke/1"]["measured"]["rate_per_second"] == pytest.approx(50.0)
    assert topics["smoke/1"]["measured"]["event_bytes"] == pytest.approx(200.0)
    assert topics["smoke/1"]["measured"]["confidence"] > 0.8
    # the next plan uses the measured rates, also of topics that are not declared
    client.register(subscriber("other", {"smoke/1": 1.0}, address="10.0.0.2"))
    rows = {r["filter"]: r for r in client.get("/v1/predictions").json["subscriptions"]}
    assert rows["smoke/1"]["offered_events_per_second"] == pytest.approx(50.0, rel=0.01)
    assert rows["stray/1"]["offered_events_per_second"] == pytest.approx(30.0, rel=0.01)


def test_what_if_separates_rate_changes_from_its_own_effect(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite", of=NARROW) as running:
        client = Client(running.url)
        client.register(publisher("p0", {"smoke/1": 40.0}))
        client.register(subscriber("crew", {"smoke/1": 1.0}))
        same = client.ask("POST", "/v1/what-if", {}).json
        for _ in range(3):  # more than planned, but not enough to trigger a new plan
            counts = {"smoke/1": (430, 43_000)}
            assert client.ask("POST", "/v1/statistics", [report(0, counts)]).status == 202
        moved = client.ask("POST", "/v1/what-if", {}).json
    assert same["present"] == same["prediction"]
    assert same["present_is_active"] is True
    (row,) = moved["present"]["subscriptions"]
    assert row["offered_events_per_second"] == pytest.approx(43.0, rel=0.01)
    assert moved["present"] == moved["prediction"], "the request contains no change"
    assert moved["difference"]["subscriptions"] == moved["difference"]["flows"] == []
    assert moved["present_is_active"] is False


def test_what_if_compares_with_the_active_configuration_if_the_present_cannot_be_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def fail_with_crew(site: Any, state: SiteState, snapshot: RateSnapshot) -> Any:
        if "crew" in state.subscribers:
            raise ValueError("there is no path")
        return planning_scenario(site, state, snapshot)

    monkeypatch.setattr(what_if, "planning_scenario", fail_with_crew)
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    crew = from_plain(SubscriberRegistration, subscriber("crew", {"smoke/1": 1.0}))
    state = SiteState(subscribers={"crew": crew})
    with pytest.raises(Conflict):
        what_if.answer_what_if(settings, state, None, WhatIfRequest())
    answer = what_if.answer_what_if(
        settings, state, None, WhatIfRequest(without_subscribers=("crew",))
    )
    assert (answer.present, answer.present_is_active) == (None, False)


def test_offered_counts_of_a_subscriber_are_ignored(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite", open_to_all=False) as running:
        token = running.service.tokens.create("crew", "subscriber", "crew", "crew")
        crew_client = Client(running.url, token)
        false_report = report(0, {"smoke/1": (9999, 9999)}, reporter="crew")
        assert crew_client.ask("POST", "/v1/statistics", [false_report]).status == 202
        assert crew_client.get("/v1/topics").json == []


def test_number_of_statistics_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firedex.service.state.report_store.MAX_STATISTICS", 50)
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        for _ in range(12):
            client.ask("POST", "/v1/statistics", [report(n, {}) for n in range(10)])
        assert len(client.get("/v1/statistics?limit=1000").json) == 50


def test_deviations_compare_reports_with_predictions(client: Client) -> None:
    client.register(publisher("p0", {"smoke/1": 10.0}))
    configuration = client.register(subscriber("crew", {"smoke/1": 1.0})).json
    predicted = configuration["prediction"]["subscriptions"][0]["delay_mean_seconds"]
    own = {
        **report(0, {}, reporter="crew", configuration_version=configuration["version"]),
        "delay_mean_seconds": 3 * predicted,
        "topics": [{"topic": "smoke/1", "delivered_events": 90, "missing_events": 10}],
    }
    client.ask("POST", "/v1/statistics", [own])
    (found,) = client.get("/v1/deviations").json
    assert found["comparable"] is True
    assert found["predicted_delay_mean_seconds"] == pytest.approx(predicted)
    assert found["success_rate"] == pytest.approx(0.9)
    metrics = client.get("/metrics").body.decode()
    line = next(
        text
        for text in metrics.splitlines()
        if text.startswith('firedex_delay_measured_over_predicted{quantile="0.5"}')
    )
    assert float(line.split()[-1]) == pytest.approx(3.0)


def test_drift_triggers_a_new_plan(client: Client) -> None:
    client.ask(
        "PUT",
        "/v1/network?wait_seconds=20",
        {
            "switches": [
                {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
                {"id": "core", "bandwidth_bits_per_second": 40_000.0},
            ],
            "broker": {"id": "edge"},
        },
    )
    client.register(publisher("p0", {"smoke/1": 5.0, "camera/1": 5.0}))
    before = client.register(subscriber("crew", {"smoke/1": 9.0, "camera/1": 1.0})).json
    client.ask("POST", "/v1/statistics", [report(0, {"camera/1": (5000, 500_000)})])
    wait_until(
        lambda: client.get("/v1/configuration").json["version"] > before["version"], "a new plan"
    )
    assert "camera/1" in client.get("/v1/configurations").json[0]["reason"]


def test_stale_measurement_falls_back_to_the_declared_rate(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declared rates are used again after some time, without any report or change."""
    client.ask("PUT", "/v1/network?wait_seconds=20", to_plain(NARROW.network))
    client.register(publisher("p0", RATES))
    first = client.register(subscriber("crew", {"+/1": 9.0, "smoke/1": 20.0})).json
    client.ask("POST", "/v1/statistics", [report(0, {"camera/1": (5000, 500_000)})])
    wait_until(lambda: active_version(client) > first["version"], "a plan with the measured rate")
    monkeypatch.setattr("firedex.service.state.offered_rates.STALE_SECONDS", 0.0)
    measured = active_version(client)
    wait_until(lambda: active_version(client) > measured, "a plan with the declared rate")
    assert drop_rates(client.get("/v1/configuration").json) == drop_rates(first)


def active_version(client: Client) -> int:
    return int(client.get("/v1/status").json["active_version"])


def drop_rates(configuration: Any) -> dict[str, Any]:
    return {n: f["drop_rate"] for f in configuration["flows"] for n in f["filters"]}


def test_stale_measurement_causes_drift_only_once() -> None:
    state = SiteState(measured={"a": estimate_after(20.0, 30)})
    measured = RateSnapshot({"a": SnapshotRate(rate_per_second=20.0)})
    now = 300.0
    assert drifted_topics(NARROW, state, RateSnapshot({}), now) == ["a"]
    assert drifted_topics(NARROW, state, measured, now) == []
    late = now + STALE_SECONDS
    assert drifted_topics(NARROW, state, measured, late) == ["a"], (
        "the rate falls back to the declared one"
    )
    assert drifted_topics(NARROW, state, RateSnapshot({}), late) == [], "there is no further drift"
    assert drifted_topics(NARROW, SiteState(), measured, late) == ["a"], (
        "the same for a deleted measurement"
    )
