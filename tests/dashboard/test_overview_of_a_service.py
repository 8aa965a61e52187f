"""The first page through the service's interface: what is planned, reported and looked at."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_controller import FakeController, running_controller
from service_site import (
    TOKENS_WITHOUT_LIMITS,
    Client,
    publisher,
    serving,
    subscriber,
    wait_until,
)
from test_overview import report

from firedex.service import site_overview, state_reader
from firedex.service.class_history import ReportedFlow, count_in, step_seconds
from firedex.service.configuration_difference import difference
from firedex.service.running import RunningService
from firedex.wire import Flow, Statistics, SubscriberRegistration, from_plain


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def running(tmp_path: Path, controller: FakeController) -> Iterator[RunningService]:
    with (
        running_controller(controller) as url,
        serving(tmp_path / "s.sqlite", controller=url, **TOKENS_WITHOUT_LIMITS) as service,
    ):
        yield service


@pytest.fixture
def chief(running: RunningService) -> Client:
    made = Client(running.url, running.service.tokens.create("chief", "command"))
    made.register(publisher("p0", {"smoke/1": 5.0, "video/1": 50.0}), wait=0)
    wanted = subscriber("crew", {"smoke/#": 10.0, "video/#": 1.0})
    wanted["subscriber"]["subscriptions"][0]["deadline_seconds"] = 1e-5
    made.register(wanted)
    made.register(subscriber("other", {"video/#": 1.0}, address="10.0.0.2"))
    return made


def test_the_overview_puts_it_all_together(chief: Client) -> None:
    network = chief.get("/v1/network").json["network"]
    for rate in (2.5e6, 2e6):
        network["switches"][1]["bandwidth_bits_per_second"] = rate
        assert chief.ask("PUT", "/v1/network?wait_seconds=30", network).status == 200
    mine = chief.get("/v1/subscribers/crew/configuration").json
    told = report(mine["flows"][0]["flow"], 90, 10, 0.25, mine["version"])
    before = {**told, "configuration_version": mine["version"] - 1, "flow": 1}
    chief.ask("POST", "/v1/statistics", [told, before])
    seen = chief.get("/v1/overview").json
    assert seen["measured_within_seconds"] == 30.0
    counted = [each for each in seen["classes"] if each["success_rate"] is not None]
    assert [each["success_rate"] for each in counted] == [0.9], "of the plan in force alone"
    assert seen["late"][0]["filter"] == "smoke/#"
    assert seen["late"][0]["delay_p95_seconds"] == 0.5
    assert seen["late"][0]["reason"] == "link core has lost 60 % of its bandwidth"
    assert seen["alerts"][0]["text"].startswith("smoke all is 0.5 s late for crew: link core")
    texts = [alert["text"] for alert in seen["alerts"]]
    assert "broker has never been heard of" in texts
    assert "gateway has never been heard of" in texts
    assert 0 < seen["utility"]["measured"] < 1
    assert seen["utility"]["measured_timely"] < seen["utility"]["measured"]
    first = [e for e in chief.get("/v1/audit").json if e["action"] == "network"][-1]
    (core,) = [each for each in seen["links"] if each["switch"] == "core"]
    assert core["reduced_since"] == first["at"], "since the first of the two, without a break"
    assert seen["late"][0]["reason_since"] == seen["alerts"][0]["since"] == first["at"]
    (newest, *_) = chief.get("/v1/configurations").json
    assert newest["reason"] == "network 3 switches, less bandwidth than built at core"
    history = chief.get("/v1/history").json
    assert [(step["delivered_events"], step["missing_events"]) for step in history] == [(90, 10)]
    assert chief.get("/v1/history?to_seconds=5").json == []


def test_a_declared_topic_that_the_gateway_does_not_see_is_told(chief: Client) -> None:
    mine = chief.get("/v1/subscribers/crew/configuration").json
    (smoke,) = [each["flow"] for each in mine["flows"] if "smoke/#" in each["filters"]]
    nothing = {**report(smoke, 0, 0, None, mine["version"]), "reporter": "gateway"}
    nothing |= {"topics": [], "window_seconds": 600.0}
    chief.ask("POST", "/v1/statistics", [nothing])
    chief.register(subscriber("third", {"video/#": 1.0}, address="10.0.0.3"))  # plans anew
    texts = {each["text"]: each["severity"] for each in chief.get("/v1/overview").json["alerts"]}
    assert texts["smoke 1 is no longer published: 5 events a second are declared"] == "urgent"


def test_since_when_changes_wait_is_known(chief: Client, controller: FakeController) -> None:
    assert chief.get("/v1/status").json["pending_since"] is None
    controller.ready.clear()
    chief.register(subscriber("third", {"video/#": 1.0}, address="10.0.0.3"), wait=0)
    (made, *_) = chief.get("/v1/audit").json
    assert chief.get("/v1/status").json["pending_since"] == made["at"]
    controller.ready.set()
    wait_until(lambda: chief.get("/v1/status").json["pending_since"] is None, "a plan")
    assert not [a for a in chief.get("/v1/overview").json["alerts"] if "no plan" in a["text"]]


def test_a_loss_is_shown_before_a_plan_with_it_is_in_force(
    chief: Client, controller: FakeController
) -> None:
    assert not [each for each in chief.get("/v1/overview").json["links"] if each["reduced_since"]]
    controller.mood = "refuses"
    network = chief.get("/v1/network").json["network"]
    network["switches"][1]["bandwidth_bits_per_second"] = 2.5e6
    assert chief.ask("PUT", "/v1/network", network).status == 202
    wait_until(lambda: bool(chief.get("/v1/overview").json["trouble"]), "a plan that is refused")
    seen = chief.get("/v1/overview").json
    (core,) = [each for each in seen["links"] if each["switch"] == "core"]
    assert core["bandwidth_bits_per_second"] == 2.5e6
    assert any("link core has lost half its bandwidth" in a["text"] for a in seen["alerts"])


def test_looking_again_reads_no_registration_again(
    chief: Client, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    chief.get("/v1/network")
    read: list[Any] = []
    real = state_reader.from_json

    def noted(of: Any, body: Any, **more: Any) -> Any:
        read.append(of)
        return real(of, body, **more)

    monkeypatch.setattr(state_reader, "from_json", noted)
    assert len(chief.get("/v1/network").json["places"]) == 2
    assert SubscriberRegistration not in read
    crew = Client(running.url, running.service.tokens.create("crew", "subscriber", "crew"))
    own = crew.get("/v1/subscriptions")
    tag = own.headers["ETag"]
    assert tag != chief.get("/v1/subscriptions").headers["ETag"]
    assert crew.get("/v1/subscriptions", **{"If-None-Match": tag}).status == 304
    chief.register(subscriber("crew", {"smoke/#": 9.0}))
    assert crew.get("/v1/subscriptions", **{"If-None-Match": tag}).status == 200


def test_what_one_client_claims_stops_nobody_s_history(chief: Client) -> None:
    mine = chief.get("/v1/subscribers/crew/configuration").json
    flow = mine["flows"][0]["flow"]
    for _ in range(3):
        claimed = [report(flow, 2**53, 2**53, 0.25, mine["version"])] * 2
        assert chief.ask("POST", "/v1/statistics", claimed).status == 202
    answer = chief.get("/v1/history")
    assert answer.status == 200
    assert answer.json
    assert all(step["delivered_events"] < 1000 for step in answer.json), "5 a second are offered"


def test_who_gets_nothing_counts_in_classes_now_and_later(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_overview, "STEP_SECONDS", 0.2)
    chief.register(subscriber("third", {"video/#": 1.0}, address="10.0.0.3"))
    chief.ask("POST", "/v1/statistics", [])
    told = []
    for who, delivered in (("third", 1000), ("other", 0)):
        mine = chief.get(f"/v1/subscribers/{who}/configuration").json
        (flow,) = mine["flows"]
        one = report(flow["flow"], delivered, 0, 0.1 if delivered else None, mine["version"])
        one["topics"][0]["topic"] = "video/1"
        told.append({**one, "reporter": who, "subscriber": who})
    chief.ask("POST", "/v1/statistics", told)
    seen = chief.get("/v1/overview").json
    assert [each["subscriber"] for each in seen["silent"]] == ["other"]
    priority = flow["priority"]
    (now,) = [each for each in seen["classes"] if each["priority"] == priority]
    assert now["success_rate"] == pytest.approx(0.5, abs=0.05)

    def missing() -> int:
        chief.ask("POST", "/v1/statistics", told[1:])
        steps = [e for e in chief.get("/v1/history").json if e["priority"] == priority]
        return sum(step["missing_events"] or 0 for step in steps)

    wait_until(lambda: missing() > 20, "the silence in the history")


def test_now_and_history_agree_on_success(chief: Client) -> None:
    mine = chief.get("/v1/subscribers/crew/configuration").json
    told = report(mine["flows"][0]["flow"], 25, 25, 0.25, mine["version"])
    told["topics"].append({"topic": "smoke/foreign", "delivered_events": 200})
    chief.ask("POST", "/v1/statistics", [told])
    (now,) = [
        each["success_rate"]
        for each in chief.get("/v1/overview").json["classes"]
        if each["success_rate"] is not None
    ]
    (step,) = chief.get("/v1/history").json
    assert (step["delivered_events"], step["missing_events"]) == (225, 25)
    assert step["success_rate"] == now == 0.5, "of numbered events alone"
    told["topics"] = told["topics"][1:]
    other = {**told, "flow": mine["flows"][1]["flow"]}
    chief.ask("POST", "/v1/statistics", [other])
    unknown = chief.get("/v1/history").json[-1]
    assert (unknown["missing_events"], unknown["success_rate"]) == (None, None)


def test_a_long_history_comes_in_longer_steps(chief: Client, running: RunningService) -> None:
    assert [step_seconds(s, 300) for s in (600, 3000, 3600, 86400)] == [10, 10, 20, 290]
    told = from_plain(Statistics, report(0, 90, 10, 0.1))
    slow = from_plain(Statistics, report(0, 10, 0, 0.5))
    day = [60_000.0 + 10 * n for n in range(1000)]
    with running.service.database.writing() as connection:
        for at in day:
            count_in(
                connection, [slow if at == day[7] else told], lambda _: ReportedFlow(3, 100.0), at
            )
    path = f"/v1/history?from_seconds={day[0]}&to_seconds={day[-1]}"
    thin = chief.get(f"{path}&most_steps=10").json
    assert len(thin) <= 11, "the first and the last may be cut"
    assert {step["seconds"] for step in thin} == {1000.0}
    assert sum(step["delivered_events"] for step in thin) == 999 * 90 + 10
    assert thin[0]["delay_p95_seconds"] == 1.0, "the worst of them"
    assert 0.1 < thin[0]["delay_mean_seconds"] < 0.11
    assert len(chief.get(f"{path}&most_steps=8640").json) == 1000
    assert len(chief.get(path).json) <= 361, "thin also for those who do not ask"


def test_what_one_measured_is_one_s_own_and_as_late_as_asked(
    chief: Client, running: RunningService
) -> None:
    mine = chief.get("/v1/subscribers/crew/configuration").json
    chief.ask("POST", "/v1/statistics", [report(0, 9, 1, 0.1, mine["version"])])
    crew = Client(running.url, running.service.tokens.create("crew", "subscriber", "crew"))
    other = Client(running.url, running.service.tokens.create("other", "subscriber", "other"))
    (own,) = crew.get("/v1/deviations?within_seconds=30").json
    assert (own["subscriber"], own["comparable"], own["success_rate"]) == ("crew", True, 0.9)
    assert other.get("/v1/deviations").json == []
    assert other.get("/v1/deviations?subscriber=crew").status == 403
    assert len(chief.get("/v1/deviations").json) == 1
    assert chief.get("/v1/deviations?within_seconds=0").json == []


def flow(drop_rate: float, priority: int = 1) -> Flow:
    return Flow(
        subscriber="crew", flow=0, priority=priority, drop_rate=drop_rate, filters=("smoke/#",)
    )


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (flow(0.0), flow(0.0004), 0),
        (flow(0.0), flow(0.002), 1),
        (flow(0.3), flow(0.3), 0),
        (flow(0.3), flow(0.3, priority=2), 1),
    ],
)
def test_what_nobody_could_tell_apart_is_no_move(before: Flow, after: Flow, moves: int) -> None:
    assert len(difference(1, [before], 2, [after]).subscriptions) == moves


def test_subscriptions_are_everybody_s_for_staff_and_one_s_own_otherwise(
    chief: Client, running: RunningService
) -> None:
    everything = chief.get("/v1/subscriptions")
    assert {(row["subscriber"], row["filter"]) for row in everything.json} == {
        ("crew", "smoke/#"),
        ("crew", "video/#"),
        ("other", "video/#"),
    }
    assert all(row["priority"] is not None for row in everything.json)
    tag = everything.headers["ETag"]
    assert chief.get("/v1/subscriptions", **{"If-None-Match": tag}).status == 304
    crew = Client(running.url, running.service.tokens.create("crew", "subscriber", "crew"))
    assert {row["subscriber"] for row in crew.get("/v1/subscriptions").json} == {"crew"}
    assert crew.get("/v1/subscriptions?subscriber=other").status == 403
    assert crew.get("/v1/visitor").json == {"name": "crew", "role": "subscriber", "party": "crew"}
    for path in ("/v1/overview", "/v1/history", "/v1/switches/core", "/v1/validation-report"):
        assert crew.get(path).status == 403


def test_a_switch_shows_what_is_desired_of_it(chief: Client) -> None:
    found = chief.get("/v1/switches/core").json
    assert {rule["subscriber"] for rule in found["desired"]["flows"]} == {"crew", "other"}
    assert chief.get("/v1/switches/nowhere").status == 404


def test_the_frame_is_the_same_for_everybody_and_names_no_other_machine(
    running: RunningService,
) -> None:
    anybody = Client(running.url)
    for path in ("/", "/dashboard"):
        answer = anybody.get(path)
        assert (answer.status, answer.headers["Location"]) == (303, "/dashboard/")
    assert anybody.ask("POST", "/dashboard/_dash-update-component", {"output": "x"}).status == 405
    page = anybody.get("/dashboard/subscriptions")
    assert page.status == 200
    text = page.body.decode()
    assert 'src="http' not in text
    assert 'href="http' not in text
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    script = anybody.get("/dashboard/assets/4-live.js", **{"Accept-Encoding": "gzip"})
    assert script.headers["Content-Encoding"] == "gzip"


def test_a_validation_report_comes_with_its_pictures(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<h1>measured</h1><img src='classes.png' alt='x'><img src='gone.png'>")
    (tmp_path / "classes.png").write_bytes(b"a picture")
    with serving(tmp_path / "s.sqlite", validation_report=page) as running:
        text = Client(running.url).get("/v1/validation-report").body.decode()
    assert "src='data:image/png;base64,YSBwaWN0dXJl'" in text
    assert "src='gone.png'" in text
