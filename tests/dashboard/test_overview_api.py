"""Overview, history and related endpoints of the API, with a running service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firedex.service.insight import site_overview
from firedex.service.planner.configuration_difference import difference
from firedex.service.running import RunningService
from firedex.service.state import state_reader
from firedex.service.state.class_history import ReportedFlow, add_reports, step_seconds
from firedex.wire import Flow, Statistics, SubscriberRegistration, from_json, from_plain
from tests.dashboard.test_overview import report
from tests.support.fake_controller import FakeController, running_controller
from tests.support.service_site import (
    TOKENS_WITHOUT_LIMITS,
    Client,
    publisher,
    serving,
    subscriber,
    wait_until,
)

pytestmark = pytest.mark.slow


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


def test_overview_combines_plans_reports_and_network(chief: Client) -> None:
    network = chief.get("/v1/network").json["network"]
    for rate in (2.5e6, 2e6):
        network["switches"][1]["bandwidth_bits_per_second"] = rate
        assert chief.ask("PUT", "/v1/network?wait_seconds=30", network).status == 200
    configuration = chief.get("/v1/subscribers/crew/configuration").json
    reported = report(configuration["flows"][0]["flow"], 90, 10, 0.25, configuration["version"])
    before = {**reported, "configuration_version": configuration["version"] - 1, "flow": 1}
    chief.ask("POST", "/v1/statistics", [reported, before])
    seen = chief.get("/v1/overview").json
    assert seen["measured_within_seconds"] == 30.0
    counted = [each for each in seen["classes"] if each["success_rate"] is not None]
    assert [each["success_rate"] for each in counted] == [0.9], (
        "only reports under the active configuration count"
    )
    assert seen["late"][0]["filter"] == "smoke/#"
    assert seen["late"][0]["delay_p95_seconds"] == 0.5
    assert seen["late"][0]["reason"] == "link core has lost 60 % of its bandwidth"
    assert seen["alerts"][0]["text"].startswith("smoke all is 0.5 s late for crew: link core")
    texts = [alert["text"] for alert in seen["alerts"]]
    assert "broker has never sent a heartbeat" in texts
    assert "gateway has never sent a heartbeat" in texts
    assert 0 < seen["utility"]["measured"] < 1
    assert seen["utility"]["measured_timely"] < seen["utility"]["measured"]
    first = [e for e in chief.get("/v1/audit").json if e["action"] == "network"][-1]
    (core,) = [each for each in seen["links"] if each["switch"] == "core"]
    assert core["reduced_since"] == first["at"], "since the first of the two reductions"
    assert seen["late"][0]["reason_since"] == seen["alerts"][0]["since"] == first["at"]
    (newest, *_) = chief.get("/v1/configurations").json
    assert newest["reason"] == "network 3 switches, reduced bandwidth at core"
    history = chief.get("/v1/history").json
    assert [(step["delivered_events"], step["missing_events"]) for step in history] == [(90, 10)]
    assert chief.get("/v1/history?to_seconds=5").json == []


def test_declared_topic_without_events_at_the_gateway_is_reported(chief: Client) -> None:
    configuration = chief.get("/v1/subscribers/crew/configuration").json
    (smoke,) = [each["flow"] for each in configuration["flows"] if "smoke/#" in each["filters"]]
    nothing = {**report(smoke, 0, 0, None, configuration["version"]), "reporter": "gateway"}
    nothing |= {"topics": [], "window_seconds": 600.0}
    chief.ask("POST", "/v1/statistics", [nothing])
    chief.register(subscriber("third", {"video/#": 1.0}, address="10.0.0.3"))  # triggers a new plan
    texts = {each["text"]: each["severity"] for each in chief.get("/v1/overview").json["alerts"]}
    assert texts["smoke 1 is no longer published: 5 events per second are declared"] == "urgent"


def test_status_shows_since_when_changes_are_pending(
    chief: Client, controller: FakeController
) -> None:
    assert chief.get("/v1/status").json["pending_since"] is None
    controller.ready.clear()
    chief.register(subscriber("third", {"video/#": 1.0}, address="10.0.0.3"), wait=0)
    (made, *_) = chief.get("/v1/audit").json
    assert chief.get("/v1/status").json["pending_since"] == made["at"]
    controller.ready.set()
    wait_until(
        lambda: chief.get("/v1/status").json["pending_since"] is None, "an active configuration"
    )
    assert not [
        a for a in chief.get("/v1/overview").json["alerts"] if "not active yet" in a["text"]
    ]


def test_bandwidth_loss_is_shown_before_a_new_configuration_is_active(
    chief: Client, controller: FakeController
) -> None:
    assert not [each for each in chief.get("/v1/overview").json["links"] if each["reduced_since"]]
    controller.behaviour = "rejects"
    network = chief.get("/v1/network").json["network"]
    network["switches"][1]["bandwidth_bits_per_second"] = 2.5e6
    assert chief.ask("PUT", "/v1/network", network).status == 202
    wait_until(lambda: bool(chief.get("/v1/overview").json["trouble"]), "a rejected push")
    seen = chief.get("/v1/overview").json
    (core,) = [each for each in seen["links"] if each["switch"] == "core"]
    assert core["bandwidth_bits_per_second"] == 2.5e6
    assert any("link core has lost half its bandwidth" in a["text"] for a in seen["alerts"])


def test_repeated_requests_do_not_parse_registrations_again(
    chief: Client, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    chief.get("/v1/network")
    parsed: list[Any] = []

    def recording_from_json(kind: Any, body: Any, **more: Any) -> Any:
        parsed.append(kind)
        return from_json(kind, body, **more)

    monkeypatch.setattr(state_reader, "from_json", recording_from_json)
    assert len(chief.get("/v1/network").json["places"]) == 2
    assert SubscriberRegistration not in parsed
    crew = Client(running.url, running.service.tokens.create("crew", "subscriber", "crew"))
    own = crew.get("/v1/subscriptions")
    tag = own.headers["ETag"]
    assert tag != chief.get("/v1/subscriptions").headers["ETag"]
    assert crew.get("/v1/subscriptions", **{"If-None-Match": tag}).status == 304
    chief.register(subscriber("crew", {"smoke/#": 9.0}))
    assert crew.get("/v1/subscriptions", **{"If-None-Match": tag}).status == 200


def test_absurd_report_does_not_distort_the_history(chief: Client) -> None:
    configuration = chief.get("/v1/subscribers/crew/configuration").json
    flow = configuration["flows"][0]["flow"]
    for _ in range(3):
        claimed = [report(flow, 2**53, 2**53, 0.25, configuration["version"])] * 2
        assert chief.ask("POST", "/v1/statistics", claimed).status == 202
    answer = chief.get("/v1/history")
    assert answer.status == 200
    assert answer.json
    assert all(step["delivered_events"] < 1000 for step in answer.json), (
        "only 5 events per second are offered"
    )


def test_silent_subscriber_lowers_the_success_of_its_class(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_overview, "STEP_SECONDS", 0.2)
    chief.register(subscriber("third", {"video/#": 1.0}, address="10.0.0.3"))
    chief.ask("POST", "/v1/statistics", [])
    reported = []
    for subscriber_id, delivered in (("third", 1000), ("other", 0)):
        configuration = chief.get(f"/v1/subscribers/{subscriber_id}/configuration").json
        (flow,) = configuration["flows"]
        one = report(
            flow["flow"], delivered, 0, 0.1 if delivered else None, configuration["version"]
        )
        one["topics"][0]["topic"] = "video/1"
        reported.append({**one, "reporter": subscriber_id, "subscriber": subscriber_id})
    chief.ask("POST", "/v1/statistics", reported)
    seen = chief.get("/v1/overview").json
    assert [each["subscriber"] for each in seen["silent"]] == ["other"]
    priority = flow["priority"]
    (now,) = [each for each in seen["classes"] if each["priority"] == priority]
    assert now["success_rate"] == pytest.approx(0.5, abs=0.05)

    def missing() -> int:
        chief.ask("POST", "/v1/statistics", reported[1:])
        steps = [e for e in chief.get("/v1/history").json if e["priority"] == priority]
        return sum(step["missing_events"] or 0 for step in steps)

    wait_until(lambda: missing() > 20, "missing events in the history")


def test_overview_and_history_agree_on_success(chief: Client) -> None:
    configuration = chief.get("/v1/subscribers/crew/configuration").json
    reported = report(configuration["flows"][0]["flow"], 25, 25, 0.25, configuration["version"])
    reported["topics"].append({"topic": "smoke/foreign", "delivered_events": 200})
    chief.ask("POST", "/v1/statistics", [reported])
    (now,) = [
        each["success_rate"]
        for each in chief.get("/v1/overview").json["classes"]
        if each["success_rate"] is not None
    ]
    (step,) = chief.get("/v1/history").json
    assert (step["delivered_events"], step["missing_events"]) == (225, 25)
    assert step["success_rate"] == now == 0.5, "only events with sequence numbers count"
    reported["topics"] = reported["topics"][1:]
    other = {**reported, "flow": configuration["flows"][1]["flow"]}
    chief.ask("POST", "/v1/statistics", [other])
    unknown = chief.get("/v1/history").json[-1]
    assert (unknown["missing_events"], unknown["success_rate"]) == (None, None)


def test_long_history_has_longer_steps(chief: Client, running: RunningService) -> None:
    assert [step_seconds(s, 300) for s in (600, 3000, 3600, 86400)] == [10, 10, 20, 290]
    reported = from_plain(Statistics, report(0, 90, 10, 0.1))
    slow = from_plain(Statistics, report(0, 10, 0, 0.5))
    day = [60_000.0 + 10 * n for n in range(1000)]
    with running.service.database.writing() as connection:
        for at in day:
            add_reports(
                connection,
                [slow if at == day[7] else reported],
                lambda _: ReportedFlow(3, 100.0),
                at,
            )
    path = f"/v1/history?from_seconds={day[0]}&to_seconds={day[-1]}"
    coarse = chief.get(f"{path}&most_steps=10").json
    assert len(coarse) <= 11, "the first and the last step may be partial"
    assert {step["seconds"] for step in coarse} == {1000.0}
    assert sum(step["delivered_events"] for step in coarse) == 999 * 90 + 10
    assert coarse[0]["delay_p95_seconds"] == 1.0, "the worst step counts"
    assert 0.1 < coarse[0]["delay_mean_seconds"] < 0.11
    assert len(chief.get(f"{path}&most_steps=8640").json) == 1000
    assert len(chief.get(path).json) <= 361, "the default number of steps is limited"


def test_deviations_are_limited_to_the_own_subscriber_and_window(
    chief: Client, running: RunningService
) -> None:
    configuration = chief.get("/v1/subscribers/crew/configuration").json
    chief.ask("POST", "/v1/statistics", [report(0, 9, 1, 0.1, configuration["version"])])
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
def test_tiny_change_of_the_drop_rate_is_no_difference(
    before: Flow, after: Flow, moves: int
) -> None:
    assert len(difference(1, [before], 2, [after]).subscriptions) == moves


def test_operator_sees_all_subscriptions_and_a_subscriber_only_its_own(
    chief: Client, running: RunningService
) -> None:
    all_subscriptions = chief.get("/v1/subscriptions")
    assert {(row["subscriber"], row["filter"]) for row in all_subscriptions.json} == {
        ("crew", "smoke/#"),
        ("crew", "video/#"),
        ("other", "video/#"),
    }
    assert all(row["priority"] is not None for row in all_subscriptions.json)
    tag = all_subscriptions.headers["ETag"]
    assert chief.get("/v1/subscriptions", **{"If-None-Match": tag}).status == 304
    crew = Client(running.url, running.service.tokens.create("crew", "subscriber", "crew"))
    assert {row["subscriber"] for row in crew.get("/v1/subscriptions").json} == {"crew"}
    assert crew.get("/v1/subscriptions?subscriber=other").status == 403
    assert crew.get("/v1/visitor").json == {"name": "crew", "role": "subscriber", "client": "crew"}
    for path in ("/v1/overview", "/v1/history", "/v1/switches/core", "/v1/validation-report"):
        assert crew.get(path).status == 403


def test_switch_shows_its_desired_rules(chief: Client) -> None:
    found = chief.get("/v1/switches/core").json
    assert {rule["subscriber"] for rule in found["desired"]["flows"]} == {"crew", "other"}
    assert chief.get("/v1/switches/nowhere").status == 404


def test_pages_need_no_token_and_load_nothing_from_other_hosts(
    running: RunningService,
) -> None:
    client = Client(running.url)
    for path in ("/", "/dashboard"):
        answer = client.get(path)
        assert (answer.status, answer.headers["Location"]) == (303, "/dashboard/")
    assert client.ask("POST", "/dashboard/_dash-update-component", {"output": "x"}).status == 405
    page = client.get("/dashboard/subscriptions")
    assert page.status == 200
    text = page.body.decode()
    assert 'src="http' not in text
    assert 'href="http' not in text
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    script = client.get("/dashboard/assets/4-live.js", **{"Accept-Encoding": "gzip"})
    assert script.headers["Content-Encoding"] == "gzip"


def test_validation_report_embeds_its_images(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<h1>measured</h1><img src='classes.png' alt='x'><img src='gone.png'>")
    (tmp_path / "classes.png").write_bytes(b"a picture")
    with serving(tmp_path / "s.sqlite", validation_report=page) as running:
        text = Client(running.url).get("/v1/validation-report").body.decode()
    assert "src='data:image/png;base64,YSBwaWN0dXJl'" in text
    assert "src='gone.png'" in text
