"""Changes are stored, planned together, pushed and retried, on both databases."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firedex.planning import PlanningError
from firedex.service.planner.schedule import PlanSchedule, ScheduleSettings
from firedex.service.planner.site_plan import plan_site
from firedex.wire import Configuration, from_json
from tests.support.fake_controller import FakeController, running_controller
from tests.support.service_site import (
    FAST_SCHEDULE,
    Client,
    publisher,
    serving,
    site,
    subscriber,
    wait_until,
)

pytestmark = pytest.mark.slow

SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", {"smoke/#": 10.0, "camera/#": 1.0})


# -- registering -------------------------------------------------------------------------------


def test_change_is_accepted_at_once_and_becomes_active(
    state: str, controller: FakeController, controller_url: str
) -> None:
    with serving(state, controller=controller_url) as running:
        client = Client(running.url)
        client.register(SMOKE)
        answer = client.register(CREW, wait=0)
        assert (answer.status, answer.json) == (202, {"change": 2})
        wait_until(
            lambda: client.get("/v1/status").json["active_change"] == 2, "an active configuration"
        )
        assert controller.version == client.get("/v1/configuration").json["version"]


def test_waiting_caller_gets_its_own_flows(client: Client) -> None:
    client.register(SMOKE)
    client.register(subscriber("other", {"smoke/1": 1.0}, address="10.0.0.2"))
    answer = client.register(CREW)
    configuration = from_json(Configuration, answer.body)
    assert answer.status == 200
    assert {flow.subscriber for flow in configuration.flows} == {"crew"}
    assert configuration.prediction is not None
    assert {row.filter for row in configuration.prediction.subscriptions} == {"smoke/#", "camera/#"}
    whole = from_json(Configuration, client.get("/v1/configuration").body)
    assert {flow.subscriber for flow in whole.flows} == {"crew", "other"}
    assert from_json(Configuration, client.register(SMOKE).body).flows == ()


def test_registrations_survive_a_restart(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(SMOKE)
        before = from_json(Configuration, client.register(CREW).body)
    with serving(state) as running:
        after = Client(running.url).get("/v1/subscribers/crew/configuration")
        assert from_json(Configuration, after.body) == before


def test_topic_can_be_subscribed_to_before_it_is_published(client: Client) -> None:
    configuration = from_json(
        Configuration, client.register(subscriber("crew", {"attic/1": 1.0})).body
    )
    assert configuration.prediction is not None
    assert configuration.prediction.subscriptions[0].method == "nothing-offered"
    client.register(publisher("p0", {"attic/1": 3.0}))
    row = client.get("/v1/predictions").json["subscriptions"][0]
    assert row["offered_events_per_second"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("subscribers/crew", {**CREW, "extra": 1}, 400, "unknown key 'extra'"),
        ("subscribers/other", CREW, 400, "the path names 'other'"),
        ("subscribers/crew", subscriber("crew", {"a": 1.0}, switch="attic"), 409, "attic"),
        ("publishers/p9", {"publisher": SMOKE["publisher"] | {"id": "p9"}}, 409, "smoke/1"),
        ("subscribers/-", CREW, 400, "not an identifier"),
        ("subscribers/crew?wait_seconds=31", CREW, 400, "wait_seconds"),
        ("subscribers/crew?wait=1", CREW, 400, "unknown parameter 'wait'"),
    ],
)
def test_invalid_registration_is_rejected_and_not_stored(
    client: Client, path: str, body: object, status: int, message: str
) -> None:
    answer = client.ask("PUT", f"/v1/{path}", body)
    assert (answer.status, message in answer.json["error"]) == (status, True), answer.body
    assert client.get("/v1/status").json["last_change"] == 0


def test_every_problem_is_named_with_its_path(client: Client) -> None:
    body = json.loads(json.dumps(CREW))
    body["subscriber"]["subscriptions"][1]["qos"] = 7
    body["address"] = "nowhere"
    answer = client.ask("PUT", "/v1/subscribers/crew", body)
    paths = {problem["path"] for problem in answer.json["problems"]}
    assert paths == {"subscriber.subscriptions[1].qos", "address"}


def test_subscriptions_are_added_changed_and_removed_in_bulk(client: Client) -> None:
    client.register(SMOKE)
    client.register(CREW)
    added = subscriber("crew", {"smoke/1": 3.0, "camera/#": 9.0})["subscriber"]["subscriptions"]
    path = "/v1/subscribers/crew/subscriptions"
    assert client.ask("POST", path, {"subscriptions": added}).status == 202
    kept = client.get(path).json["subscriptions"]
    assert {s["filter"]: s["utility"]["weight"] for s in kept} == {
        "smoke/#": 10.0,
        "camera/#": 9.0,
        "smoke/1": 3.0,
    }
    assert client.ask("DELETE", f"{path}?filter=smoke/1&filter=attic").status == 404
    assert client.ask("DELETE", f"{path}?filter=smoke/1&filter=camera/%23").status == 202
    assert [s["filter"] for s in client.get(path).json["subscriptions"]] == ["smoke/#"]


def test_registration_without_free_ports_is_rejected(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite", of=site(flows_per_subscriber=8)) as running:
        client = Client(running.url)
        many = {f"t/{n}": 1.0 for n in range(8)}
        connection_limit = (32_767 - 20_000 + 1) // 2 // 8
        with running.service.database.writing() as connection:
            from sqlalchemy import insert

            from firedex.service.state import tables

            for n in range(connection_limit):
                connection.execute(
                    insert(tables.registration).values(
                        kind="subscriber",
                        id=f"s{n}",
                        body=json.dumps(subscriber(f"s{n}", {})),
                        change=1,
                        first_change=1,
                        address="10.0.0.1",
                        subscriptions=8,
                    )
                )
        answer = client.register(subscriber("late", many), wait=0)
        assert answer.status == 409
        assert "10.0.0.1 has no free local ports" in answer.json["error"]
        assert client.register(subscriber("late", many, address="10.0.0.2"), wait=0).status == 202


# -- preconditions ------------------------------------------------------------------------------


def test_stale_revision_is_rejected(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(CREW)
        tag = client.get("/v1/subscribers/crew").headers["ETag"]
        expected_revision = {"If-Match": tag}
        changed = subscriber("crew", {"heat/1": 1.0})
        assert client.ask("PUT", "/v1/subscribers/crew", changed, expected_revision).status == 202
        assert client.ask("PUT", "/v1/subscribers/crew", CREW, expected_revision).status == 412
        assert client.ask("DELETE", "/v1/subscribers/crew", None, expected_revision).status == 412
        new = {"If-None-Match": "*"}
        assert client.ask("PUT", "/v1/subscribers/crew", CREW, new).status == 412
        other = subscriber("other", {"smoke/1": 1.0})
        must_exist = {"If-Match": "*"}
        assert client.ask("PUT", "/v1/subscribers/other", other, must_exist).status == 412
        assert client.ask("DELETE", "/v1/subscribers/other", None, must_exist).status == 412
        more = {"subscriptions": other["subscriber"]["subscriptions"]}
        path = "/v1/subscribers/other/subscriptions"
        assert client.ask("POST", path, more, must_exist).status == 412
        assert client.ask("PUT", "/v1/subscribers/other", other, new).status == 202
        assert client.ask("PUT", "/v1/subscribers/other", other, must_exist).status == 202


def test_one_of_several_changes_with_the_same_revision_succeeds(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(CREW)
        expected_revision = {"If-Match": client.get("/v1/subscribers/crew").headers["ETag"]}

        def change(number: int) -> int:
            body = subscriber("crew", {f"heat/{number}": 1.0})
            return client.ask("PUT", "/v1/subscribers/crew", body, expected_revision).status

        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(change, range(6)))
        assert sorted(answers) == [202] + [412] * 5


def test_identical_registration_changes_nothing(client: Client) -> None:
    client.register(SMOKE)
    first = client.register(CREW)
    for registration in (SMOKE, CREW):
        assert client.register(registration).json["version"] == first.json["version"]
    path = "/v1/subscribers/crew/subscriptions"
    again = {"subscriptions": CREW["subscriber"]["subscriptions"]}
    assert client.ask("POST", path, again).json == {"change": 2}
    assert client.get("/v1/status").json["last_change"] == 2
    assert [r["version"] for r in client.get("/v1/configurations").json] == [2, 1]


def test_request_with_the_same_idempotency_key_is_executed_once(state: str) -> None:
    key = {"Idempotency-Key": "abc"}
    with serving(state) as running:
        client = Client(running.url)
        first = client.ask("PUT", "/v1/subscribers/crew", CREW, key)
        again = client.ask("PUT", "/v1/subscribers/crew", CREW, key)
        assert first.json == again.json == {"change": 1}
        waiting = client.ask("PUT", "/v1/subscribers/crew?wait_seconds=20", CREW, key)
        assert (waiting.status, waiting.json["version"]) == (200, 1)
        other = subscriber("crew", {"heat/1": 1.0})
        assert client.ask("PUT", "/v1/subscribers/crew", other, key).status == 422
    with serving(state) as running:
        after = Client(running.url).ask("PUT", "/v1/subscribers/crew", CREW, key)
        assert after.json == {"change": 1}
        assert Client(running.url).get("/v1/status").json["last_change"] == 1


def test_concurrent_registrations_are_all_stored(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)

        def register(number: int) -> int:
            body = subscriber(f"s{number}", {"smoke/1": 1.0}, address=f"10.0.1.{number}")
            return client.register(body).status

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(register, range(1, 41))) == {200}
        assert len(client.get("/v1/subscribers").json) == 40
        numbers = [entry["change"] for entry in client.get("/v1/audit").json]
        assert numbers == list(range(40, 0, -1))


# -- pushing -----------------------------------------------------------------------------------


def test_burst_of_changes_is_planned_together(client: Client, controller: FakeController) -> None:
    """All changes during a push are planned together afterwards."""
    controller.ready.clear()
    client.register(SMOKE, wait=0)
    for number in range(30):
        body = subscriber(f"s{number}", {"smoke/1": 1.0}, address=f"10.0.1.{number + 1}")
        client.register(body, wait=0)
    controller.ready.set()
    wait_until(
        lambda: client.get("/v1/status").json["pending_changes"] == 0, "an active configuration"
    )
    assert len(controller.pushes) <= 3
    reasons = [record["reason"] for record in client.get("/v1/configurations").json]
    assert any("changes: register" in reason for reason in reasons)


@pytest.mark.parametrize(
    "behaviour", ["rejects", "switch missing", "disconnects", "accepts and disconnects"]
)
def test_failed_push_keeps_the_active_configuration_and_is_retried(
    client: Client, controller: FakeController, behaviour: str
) -> None:
    client.register(SMOKE)
    before = client.get("/v1/configuration").json
    controller.behaviour = behaviour  # type: ignore[assignment]
    assert client.register(CREW, wait=0.5).status == 202
    wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "trouble is shown")
    assert client.get("/v1/configuration").json == before
    ready = client.get("/v1/ready")
    assert ready.status == 503
    assert ready.json["reasons"]
    attempts = client.get("/v1/status").json["trouble"]["attempts"]
    wait_until(lambda: client.get("/v1/status").json["trouble"]["attempts"] > attempts, "retries")
    controller.behaviour = "accepts"
    wait_until(
        lambda: client.get("/v1/status").json["pending_changes"] == 0, "an active configuration"
    )
    status = client.get("/v1/status").json
    assert status["trouble"] is None
    assert controller.version == status["active_version"]
    states = [record["state"] for record in client.get("/v1/configurations").json]
    assert states[0] == "active"
    assert states.count("active") == 1
    assert "failed" in states


def test_pushed_version_is_never_reused(client: Client, controller: FakeController) -> None:
    client.register(SMOKE)
    controller.behaviour = "accepts and disconnects"
    client.register(CREW, wait=0.3)
    controller.behaviour = "accepts"
    client.register(subscriber("crew", {"smoke/1": 1.0}))
    assert len(set(controller.pushes)) == len(controller.pushes)


def test_configuration_is_pushed_again_after_the_controller_lost_it(
    client: Client, controller: FakeController
) -> None:
    client.register(SMOKE)
    client.register(CREW)
    controller.plain = None
    wait_until(lambda: controller.version > 0, "a push to the controller")
    wait_until(
        lambda: client.get("/v1/configuration").json["version"] == controller.version,
        "the same version in service and controller",
    )


def test_waiting_requests_occupy_no_thread(tmp_path: Path, controller: FakeController) -> None:
    """Other requests are answered while forty wait for an unreachable controller."""
    controller.behaviour = "switch missing"
    with (
        running_controller(controller) as url,
        serving(tmp_path / "s.sqlite", controller=url) as running,
    ):
        client = Client(running.url)
        answers: list[int] = []
        threads = [
            threading.Thread(
                target=lambda n=n: answers.append(
                    client.register(subscriber(f"s{n}", {}, address=f"10.0.1.{n + 1}")).status
                )
            )
            for n in range(40)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: client.get("/v1/status").json["last_change"] == 40, "40 stored changes")
        assert client.get("/v1/health").status == 200
        assert answers == [], "all of them are still waiting"
        controller.behaviour = "accepts"
        for thread in threads:
            thread.join(30)
        assert answers == [200] * 40


def test_retries_use_exponential_back_off_with_a_limit() -> None:
    schedule = PlanSchedule(ScheduleSettings(first_retry_seconds=1.0, longest_retry_seconds=10.0))
    waits = [schedule.record_failure(0.0, wait_out=True) for _ in range(8)]
    for expected, wait in zip([1, 2, 4, 8, 10, 10, 10, 10], waits, strict=True):
        assert 0.8 * expected <= wait <= 1.2 * expected
    schedule.record_change(1.0)
    assert schedule.due_at() == pytest.approx(waits[-1])  # changes during the back-off wait as well
    schedule.record_success()
    assert schedule.due_at() == pytest.approx(1.0 + ScheduleSettings().quiet_seconds)


def test_change_after_failed_plan_cancels_the_retry_delay() -> None:
    schedule = PlanSchedule(
        ScheduleSettings(first_retry_seconds=100.0, longest_retry_seconds=100.0)
    )
    schedule.record_change(0.0)
    schedule.record_start()
    schedule.record_failure(1.0, wait_out=False)
    assert (schedule.due_at() or 0.0) > 50.0
    schedule.record_change(2.0)
    assert schedule.due_at() == pytest.approx(2.0 + ScheduleSettings().quiet_seconds)


def test_change_that_fixes_a_failed_plan_is_planned_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail_with_two_subscribers(scenario: Any, *rest: Any) -> Any:
        if len(scenario.subscribers) == 2:
            raise PlanningError("two subscribers are too many")
        return plan_site(scenario, *rest)

    monkeypatch.setattr("firedex.service.planner.planner.plan_site", fail_with_two_subscribers)
    patient = replace(FAST_SCHEDULE, first_retry_seconds=1000.0, longest_retry_seconds=1000.0)
    with serving(tmp_path / "s.sqlite", schedule=patient) as running:
        client = Client(running.url)
        client.register(CREW)
        client.register(subscriber("other", {}, address="10.0.0.2"), wait=0)
        wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "trouble")
        assert client.ask("DELETE", "/v1/subscribers/other?wait_seconds=20").status == 200
        assert client.get("/v1/status").json["trouble"] is None


def test_long_burst_is_planned_after_the_longest_wait() -> None:
    schedule = PlanSchedule(ScheduleSettings(quiet_seconds=0.1, longest_wait_seconds=1.0))
    for moment in range(30):
        schedule.record_change(moment * 0.05)
    assert schedule.due_at() == pytest.approx(1.0)


def test_infeasible_drop_policy_is_replaced(tmp_path: Path) -> None:
    narrow = site(bandwidth_bits_per_second=1e4, drop_policy="linear")
    with serving(tmp_path / "s.sqlite", of=narrow) as running:
        client = Client(running.url)
        client.register(SMOKE)
        assert client.register(CREW).status == 200


# -- queries -----------------------------------------------------------------------------------


def test_unchanged_configuration_is_answered_with_304(client: Client) -> None:
    client.register(SMOKE)
    client.register(CREW)
    for path in ("/v1/configuration", "/v1/subscribers/crew/configuration"):
        first = client.get(path)
        tag = first.headers["ETag"]
        assert tag == f'"{first.json["version"]}"'
        again = client.ask("GET", path, headers={"If-None-Match": tag})
        assert (again.status, again.body) == (304, b"")
    assert client.get("/v1/subscribers/nobody/configuration").status == 404


def test_earlier_configurations_are_stored_and_can_be_compared(client: Client) -> None:
    client.register(SMOKE)
    first = client.register(CREW).json["version"]
    second = client.register(subscriber("crew", {"smoke/#": 1.0, "heat/1": 50.0})).json["version"]
    assert client.get(f"/v1/configurations/{first}").json["version"] == first
    moved = client.get(f"/v1/configurations/{first}/difference/{second}").json
    assert {change["filter"] for change in moved["subscriptions"]} >= {"camera/#", "heat/1"}
    record = next(r for r in client.get("/v1/configurations").json if r["version"] == second)
    assert record["reason"] == "register subscriber crew"
    assert record["planned_seconds"] > 0
    assert client.get("/v1/configurations/999").status == 404


def test_what_if_changes_nothing(client: Client, controller: FakeController) -> None:
    client.register(SMOKE)
    client.register(CREW)
    before = client.get("/v1/configuration").json
    pushes = len(controller.pushes)
    hypothetical = {"subscribers": [subscriber("new", {"camera/#": 99.0}, address="10.0.0.9")]}
    answer = client.ask("POST", "/v1/what-if", hypothetical)
    assert {flow["subscriber"] for flow in answer.json["flows"]} == {"crew", "new"}
    assert {m["subscriber"] for m in answer.json["difference"]["subscriptions"]} >= {"new"}
    assert client.get("/v1/configuration").json == before
    assert len(controller.pushes) == pushes
    wrong = {"subscribers": [subscriber("new", {"a": 1.0}, switch="attic")]}
    assert client.ask("POST", "/v1/what-if", wrong).status == 409


def test_unavailable_database_returns_503_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    from firedex.service.state.database import Database

    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)

        def unavailable(_: object) -> None:
            raise OperationalError("BEGIN", {}, Exception("the connection was lost"))

        with monkeypatch.context() as broken:
            broken.setattr(Database, "writing", unavailable)
            answer = client.register(CREW, wait=0)
        assert (answer.status, answer.json["problems"]) == (503, [])
        assert client.register(CREW).status == 200
