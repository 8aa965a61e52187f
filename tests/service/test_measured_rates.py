"""Offered rates from counts: right, sure of themselves, and stable as feedback."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
from service_site import GATEWAY, Client, publisher, serving, site, subscriber, wait_until

from firedex.service import what_if
from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.database import Database
from firedex.service.errors import Conflict
from firedex.service.offered_rates import (
    OfferedRate,
    Window,
    confidence,
    drifted,
    half_width,
    observe,
    spread,
)
from firedex.service.planner import Planner, SiteSettings
from firedex.service.planning_scenario import STALE_SECONDS, Basis, BasisRate
from firedex.service.rate_drift import drifted_topics
from firedex.service.report_store import offered_windows
from firedex.service.site_state import SiteState
from firedex.service.web import create_app
from firedex.wire import Statistics, from_plain, to_plain
from firedex.wire.service_api import SubscriberRegistration, WhatIf

NARROW = site(bandwidth_bits_per_second=80_000)
RATES = {"smoke/1": 12.0, "camera/1": 60.0, "heat/1": 30.0}


def poisson(coins: random.Random, mean: float) -> int:
    """Knuth's, in steps that do not underflow."""
    count, left = 0, mean
    while left > 0:
        step = min(left, 50.0)
        left -= step
        limit, product = math.exp(-step), coins.random()
        while product > limit:
            product *= coins.random()
            count += 1
    return count


def seen(rate: float, windows: int, seconds: float = 10.0, seed: int = 1) -> OfferedRate:
    coins = random.Random(seed)  # noqa: S311  # chance, no secret
    known = None
    for number in range(windows):
        events = poisson(coins, rate * seconds)
        window = Window(
            events=events, payload_bytes=100 * events, seconds=seconds, at_seconds=number * seconds
        )
        known = observe(known, window)
    assert known is not None
    return known


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


def test_the_rate_and_its_interval_are_right() -> None:
    """Of two hundred estimates, about 95 % have the true rate within their interval."""
    inside = sum(
        abs(known.rate_per_second - 20.0) <= half_width(known)
        for known in (seen(20.0, 30, seed=seed) for seed in range(200))
    )
    assert 180 <= inside <= 200
    known = seen(20.0, 30)
    assert known.event_bytes == pytest.approx(100.0)
    assert confidence(known) > 0.85
    assert confidence(seen(0.02, 2)) < 0.5


def test_a_new_rate_is_followed_within_a_few_memories() -> None:
    known = seen(10.0, 30)
    for number in range(24):
        window = Window(events=400, payload_bytes=0, seconds=10.0, at_seconds=300 + 10 * number)
        known = observe(known, window)
    assert known.rate_per_second == pytest.approx(40.0, rel=0.03)
    assert drifted(known, 10.0, 0.0)


def test_noise_is_no_drift_and_a_real_change_is() -> None:
    basis = seen(10.0, 6, seed=3)
    false_alarms = sum(
        drifted(seen(10.0, 200, seed=seed), basis.rate_per_second, spread(basis))
        for seed in range(50)
    )
    assert false_alarms == 0
    assert drifted(seen(14.0, 30), 10.0, 0.0)
    assert not drifted(seen(14.0, 1, seconds=1.0), 10.0, 0.0), "too little was seen"


def test_more_than_expected_is_believed_soon_and_less_only_after_a_while() -> None:
    assert drifted(seen(20.0, 2), 10.0, 0.0)
    assert not drifted(seen(5.0, 5), 10.0, 0.0), "it may not have begun yet"
    assert drifted(seen(5.0, 12), 10.0, 0.0)


def test_offered_counts_and_never_delivered_ones() -> None:
    first = from_plain(Statistics, report(0, {"a": (100, 1000)}))
    late = from_plain(Statistics, report(1, {"a": (40, 400)}))  # connected half way
    client = from_plain(Statistics, report(0, {"b": (5, 5)}, reporter="crew"))
    delivered = from_plain(
        Statistics, {**report(2, {}), "topics": [{"topic": "c", "delivered_events": 9}]}
    )
    windows = offered_windows([first, late, client, delivered], 0.0)
    assert {name: window.events for name, window in windows.items()} == {"a": 100}


def test_a_topic_that_falls_silent_is_counted_as_such() -> None:
    heard = from_plain(Statistics, report(0, {"a/1": (7, 70)}))
    windows = offered_windows([heard], 0.0, ["a/1", "a/2", "b/1"], lambda _who, _flow: ("a/#",))
    assert {name: window.events for name, window in windows.items()} == {"a/1": 7, "a/2": 0}


# -- feedback ----------------------------------------------------------------------------------


def feedback_rounds(
    tmp_path: Path, rounds: int, declared: dict[str, float], true: dict[str, float], seed: int
) -> list[str]:
    """The reasons of all configurations, with statistics every ten seconds of offered load."""
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    database = Database(str(tmp_path / f"{seed}.sqlite"))
    options = ServiceOptions(settings=settings, open_to_all=True)
    service = ConfigurationService(options, database)
    planner = Planner(settings, database, None, service.notice)
    planner.restore()
    web = create_app(service).test_client()
    web.put("/v1/publishers/p0", json=publisher("p0", declared))
    web.put("/v1/subscribers/crew", json=subscriber("crew", {"+/1": 9.0, "smoke/1": 20.0}))
    planner.step()
    coins = random.Random(seed)  # noqa: S311  # chance, no secret
    reasons = []
    for _ in range(rounds):
        counts = {name: poisson(coins, rate * 10.0) for name, rate in true.items()}
        flow = report(0, {name: (count, 100 * count) for name, count in counts.items()})
        assert web.post("/v1/statistics", json=[flow]).status_code == 202
        if planner.step():
            reasons.append(web.get("/v1/configurations").json[0]["reason"])
    database.close()
    return reasons


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_constant_load_for_200_rounds_leads_to_no_more_than_the_first_replan(
    tmp_path: Path, seed: int
) -> None:
    true = {name: 1.6 * rate for name, rate in RATES.items()}
    reasons = feedback_rounds(tmp_path, 200, RATES, true, seed)
    assert len(reasons) == 1
    assert reasons[0].startswith("measured rates drifted: ")


def test_rates_that_are_as_declared_lead_to_no_replan(tmp_path: Path) -> None:
    assert feedback_rounds(tmp_path, 200, RATES, RATES, 5) == []


def test_a_lie_about_what_nobody_publishes_is_not_believed_for_ever(tmp_path: Path) -> None:
    """The gateway's flow on # never names the topic: after a minute there is nothing of it."""
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    database = Database(str(tmp_path / "s.sqlite"))
    service = ConfigurationService(ServiceOptions(settings=settings, open_to_all=True), database)
    planner = Planner(settings, database, None, service.notice)
    planner.restore()
    web = create_app(service).test_client()
    web.put("/v1/publishers/p0", json=publisher("p0", {"smoke/1": 5.0}))
    web.put("/v1/publishers/liar", json=publisher("liar", {"evil/x": 1e5}))
    web.put("/v1/subscribers/crew", json=subscriber("crew", {"#": 1.0}))
    planner.step()
    lied = flows(web.get("/v1/configuration").json)["#"]
    for _ in range(3):
        web.post("/v1/statistics", json=[report(0, {"smoke/1": (50, 5000)})])
        planner.step()
    assert flows(web.get("/v1/configuration").json)["#"] == lied, "it may not have begun yet"
    for _ in range(4):
        web.post("/v1/statistics", json=[report(0, {"smoke/1": (50, 5000)})])
        planner.step()
    assert lied > 0.5
    assert flows(web.get("/v1/configuration").json)["#"] == 0.0
    database.close()


def test_what_is_measured_is_planned_with_and_shown(client: Client) -> None:
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
    # the measured rate counts from the next plan on, also of what nobody has declared
    client.register(subscriber("other", {"smoke/1": 1.0}, address="10.0.0.2"))
    rows = {r["filter"]: r for r in client.get("/v1/predictions").json["subscriptions"]}
    assert rows["smoke/1"]["offered_events_per_second"] == pytest.approx(50.0, rel=0.01)
    assert rows["stray/1"]["offered_events_per_second"] == pytest.approx(30.0, rel=0.01)


def test_what_rates_have_moved_is_no_effect_of_a_what_if(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite", of=NARROW) as running:
        client = Client(running.url)
        client.register(publisher("p0", {"smoke/1": 40.0}))
        client.register(subscriber("crew", {"smoke/1": 1.0}))
        same = client.ask("POST", "/v1/what-if", {}).json
        for _ in range(3):  # more than was planned with, and too little more for another plan
            counts = {"smoke/1": (430, 43_000)}
            assert client.ask("POST", "/v1/statistics", [report(0, counts)]).status == 202
        moved = client.ask("POST", "/v1/what-if", {}).json
    assert same["present"] == same["prediction"]
    assert same["present_is_in_force"] is True
    (row,) = moved["present"]["subscriptions"]
    assert row["offered_events_per_second"] == pytest.approx(43.0, rel=0.01)
    assert moved["present"] == moved["prediction"], "nothing is changed"
    assert moved["difference"]["subscriptions"] == moved["difference"]["flows"] == []
    assert moved["present_is_in_force"] is False


def test_a_change_is_compared_with_the_plan_in_force_where_the_present_has_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = what_if.planning_scenario

    def planned(site: Any, state: SiteState, basis: Basis) -> Any:
        if "crew" in state.subscribers:
            raise ValueError("no way there")
        return real(site, state, basis)

    monkeypatch.setattr(what_if, "planning_scenario", planned)
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    crew = from_plain(SubscriberRegistration, subscriber("crew", {"smoke/1": 1.0}))
    state = SiteState(subscribers={"crew": crew})
    with pytest.raises(Conflict):
        what_if.answer_what_if(settings, state, None, WhatIf())
    answer = what_if.answer_what_if(settings, state, None, WhatIf(without_subscribers=("crew",)))
    assert (answer.present, answer.present_is_in_force) == (None, False)


def test_lies_of_a_subscriber_do_not_count(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite", open_to_all=False) as running:
        token = running.service.tokens.create("crew", "subscriber", "crew", "crew")
        mine = Client(running.url, token)
        lie = report(0, {"smoke/1": (9999, 9999)}, reporter="crew")
        assert mine.ask("POST", "/v1/statistics", [lie]).status == 202
        assert mine.get("/v1/topics").json == []


def test_statistics_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firedex.service.report_store.MOST_STATISTICS", 50)
    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)
        for _ in range(12):
            client.ask("POST", "/v1/statistics", [report(n, {}) for n in range(10)])
        assert len(client.get("/v1/statistics?limit=1000").json) == 50


def test_predictions_are_compared_with_what_clients_report(client: Client) -> None:
    client.register(publisher("p0", {"smoke/1": 10.0}))
    made = client.register(subscriber("crew", {"smoke/1": 1.0})).json
    predicted = made["prediction"]["subscriptions"][0]["delay_mean_seconds"]
    own = {
        **report(0, {}, reporter="crew", configuration_version=made["version"]),
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


def test_a_drift_makes_a_plan_by_itself(client: Client) -> None:
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


def test_what_is_no_longer_measured_falls_back_once_and_by_itself(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reports, nobody changes anything: the clock alone brings the declared rates back."""
    client.ask("PUT", "/v1/network?wait_seconds=20", to_plain(NARROW.network))
    client.register(publisher("p0", RATES))
    first = client.register(subscriber("crew", {"+/1": 9.0, "smoke/1": 20.0})).json
    client.ask("POST", "/v1/statistics", [report(0, {"camera/1": (5000, 500_000)})])
    wait_until(lambda: version(client) > first["version"], "the measured rate is planned with")
    monkeypatch.setattr("firedex.service.planning_scenario.STALE_SECONDS", 0.0)
    measured = version(client)
    wait_until(lambda: version(client) > measured, "the declared one is")
    assert flows(client.get("/v1/configuration").json) == flows(first)


def version(client: Client) -> int:
    return int(client.get("/v1/status").json["in_force_version"])


def flows(configuration: Any) -> dict[str, Any]:
    return {n: f["drop_rate"] for f in configuration["flows"] for n in f["filters"]}


def test_stale_measurements_are_no_drift_over_and_over() -> None:
    state = SiteState(measured={"a": seen(20.0, 30)})
    measured = Basis({"a": BasisRate(rate_per_second=20.0)})
    now = 300.0
    assert drifted_topics(NARROW, state, Basis({}), now) == ["a"]
    assert drifted_topics(NARROW, state, measured, now) == []
    late = now + STALE_SECONDS
    assert drifted_topics(NARROW, state, measured, late) == ["a"], "it falls back"
    assert drifted_topics(NARROW, state, Basis({}), late) == [], "and that was that"
    assert drifted_topics(NARROW, SiteState(), measured, late) == ["a"], "also when forgotten"
