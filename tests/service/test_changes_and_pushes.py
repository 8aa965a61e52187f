"""From a change to the network: kept, coalesced, pushed, retried; the same on both databases."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_controller import FakeController, running_controller
from service_site import QUICK, Client, publisher, serving, site, subscriber, wait_until

from firedex.planning import PlanningError
from firedex.service.planner_pace import Pace, PaceSettings
from firedex.wire import Configuration, from_json

SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", {"smoke/#": 10.0, "camera/#": 1.0})


# -- registering -------------------------------------------------------------------------------


def test_a_change_is_answered_at_once_and_in_force_soon(
    state: str, controller: FakeController, controller_url: str
) -> None:
    with serving(state, controller=controller_url) as running:
        client = Client(running.url)
        client.register(SMOKE)
        answer = client.register(CREW, wait=0)
        assert (answer.status, answer.json) == (202, {"change": 2})
        wait_until(lambda: client.get("/v1/status").json["in_force_change"] == 2, "in force")
        assert controller.version == client.get("/v1/configuration").json["version"]


def test_who_waits_gets_its_own_flows(client: Client) -> None:
    client.register(SMOKE)
    client.register(subscriber("other", {"smoke/1": 1.0}, address="10.0.0.2"))
    answer = client.register(CREW)
    made = from_json(Configuration, answer.body)
    assert answer.status == 200
    assert {flow.subscriber for flow in made.flows} == {"crew"}
    assert made.prediction is not None
    assert {row.filter for row in made.prediction.subscriptions} == {"smoke/#", "camera/#"}
    whole = from_json(Configuration, client.get("/v1/configuration").body)
    assert {flow.subscriber for flow in whole.flows} == {"crew", "other"}
    assert from_json(Configuration, client.register(SMOKE).body).flows == ()


def test_what_is_registered_is_there_after_a_restart(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(SMOKE)
        before = from_json(Configuration, client.register(CREW).body)
    with serving(state) as running:
        after = Client(running.url).get("/v1/subscribers/crew/configuration")
        assert from_json(Configuration, after.body) == before


def test_a_topic_may_be_subscribed_to_before_it_is_published(client: Client) -> None:
    made = from_json(Configuration, client.register(subscriber("crew", {"attic/1": 1.0})).body)
    assert made.prediction is not None
    assert made.prediction.subscriptions[0].method == "nothing-offered"
    client.register(publisher("p0", {"attic/1": 3.0}))
    row = client.get("/v1/predictions").json["subscriptions"][0]
    assert row["offered_events_per_second"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("subscribers/crew", {**CREW, "extra": 1}, 400, "unknown key 'extra'"),
        ("subscribers/other", CREW, 400, "the path says 'other'"),
        ("subscribers/crew", subscriber("crew", {"a": 1.0}, switch="attic"), 409, "attic"),
        ("publishers/p9", {"publisher": SMOKE["publisher"] | {"id": "p9"}}, 409, "smoke/1"),
        ("subscribers/-", CREW, 400, "not an identifier"),
        ("subscribers/crew?wait_seconds=31", CREW, 400, "wait_seconds"),
        ("subscribers/crew?wait=1", CREW, 400, "unknown parameter 'wait'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_not_kept(
    client: Client, path: str, body: object, status: int, said: str
) -> None:
    answer = client.ask("PUT", f"/v1/{path}", body)
    assert (answer.status, said in answer.json["error"]) == (status, True), answer.body
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


def test_ports_run_out_by_name_before_anything_is_kept(tmp_path: Path) -> None:
    with serving(tmp_path / "s.sqlite", of=site(flows_per_subscriber=8)) as running:
        client = Client(running.url)
        many = {f"t/{n}": 1.0 for n in range(8)}
        connection_limit = (32_767 - 20_000 + 1) // 2 // 8
        with running.service.database.writing() as connection:
            from sqlalchemy import insert

            from firedex.service import tables

            for n in range(connection_limit):
                connection.execute(
                    insert(tables.registration).values(
                        kind="subscriber",
                        id=f"s{n}",
                        body=json.dumps(subscriber(f"s{n}", {})),
                        change=1,
                        first_change=1,
                        address="10.0.0.1",
                        wants=8,
                    )
                )
        answer = client.register(subscriber("late", many), wait=0)
        assert answer.status == 409
        assert "no local ports are left on 10.0.0.1" in answer.json["error"]
        assert client.register(subscriber("late", many, address="10.0.0.2"), wait=0).status == 202


# -- under conditions --------------------------------------------------------------------------


def test_a_stale_revision_is_refused(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(CREW)
        tag = client.get("/v1/subscribers/crew").headers["ETag"]
        mine = {"If-Match": tag}
        changed = subscriber("crew", {"heat/1": 1.0})
        assert client.ask("PUT", "/v1/subscribers/crew", changed, mine).status == 202
        assert client.ask("PUT", "/v1/subscribers/crew", CREW, mine).status == 412
        assert client.ask("DELETE", "/v1/subscribers/crew", None, mine).status == 412
        new = {"If-None-Match": "*"}
        assert client.ask("PUT", "/v1/subscribers/crew", CREW, new).status == 412
        other = subscriber("other", {"smoke/1": 1.0})
        there = {"If-Match": "*"}
        assert client.ask("PUT", "/v1/subscribers/other", other, there).status == 412
        assert client.ask("DELETE", "/v1/subscribers/other", None, there).status == 412
        more = {"subscriptions": other["subscriber"]["subscriptions"]}
        path = "/v1/subscribers/other/subscriptions"
        assert client.ask("POST", path, more, there).status == 412
        assert client.ask("PUT", "/v1/subscribers/other", other, new).status == 202
        assert client.ask("PUT", "/v1/subscribers/other", other, there).status == 202


def test_of_two_who_saw_the_same_revision_one_wins(state: str) -> None:
    with serving(state) as running:
        client = Client(running.url)
        client.register(CREW)
        mine = {"If-Match": client.get("/v1/subscribers/crew").headers["ETag"]}

        def change(number: int) -> int:
            body = subscriber("crew", {f"heat/{number}": 1.0})
            return client.ask("PUT", "/v1/subscribers/crew", body, mine).status

        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(change, range(6)))
        assert sorted(answers) == [202] + [412] * 5


def test_who_registers_the_same_again_changes_nothing(client: Client) -> None:
    client.register(SMOKE)
    first = client.register(CREW)
    for registration in (SMOKE, CREW):
        assert client.register(registration).json["version"] == first.json["version"]
    path = "/v1/subscribers/crew/subscriptions"
    again = {"subscriptions": CREW["subscriber"]["subscriptions"]}
    assert client.ask("POST", path, again).json == {"change": 2}
    assert client.get("/v1/status").json["last_change"] == 2
    assert [r["version"] for r in client.get("/v1/configurations").json] == [2, 1]


def test_the_same_key_is_done_once(state: str) -> None:
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


def test_many_at_once_lose_nothing(state: str) -> None:
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


def test_a_burst_makes_few_plans(client: Client, controller: FakeController) -> None:
    """Whatever comes while the network is being told is one plan, or two."""
    controller.ready.clear()
    client.register(SMOKE, wait=0)
    for number in range(30):
        body = subscriber(f"s{number}", {"smoke/1": 1.0}, address=f"10.0.1.{number + 1}")
        client.register(body, wait=0)
    controller.ready.set()
    wait_until(lambda: client.get("/v1/status").json["pending_changes"] == 0, "in force")
    assert len(controller.pushes) <= 3
    reasons = [record["reason"] for record in client.get("/v1/configurations").json]
    assert any("changes: register" in reason for reason in reasons)


@pytest.mark.parametrize("mood", ["refuses", "away", "hangs up", "takes it and hangs up"])
def test_after_a_failed_push_the_previous_stands_and_it_is_tried_again(
    client: Client, controller: FakeController, mood: str
) -> None:
    client.register(SMOKE)
    before = client.get("/v1/configuration").json
    controller.mood = mood  # type: ignore[assignment]
    assert client.register(CREW, wait=0.5).status == 202
    wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "trouble is shown")
    assert client.get("/v1/configuration").json == before
    ready = client.get("/v1/ready")
    assert ready.status == 503
    assert ready.json["reasons"]
    attempts = client.get("/v1/status").json["trouble"]["attempts"]
    wait_until(lambda: client.get("/v1/status").json["trouble"]["attempts"] > attempts, "retries")
    controller.mood = "willing"
    wait_until(lambda: client.get("/v1/status").json["pending_changes"] == 0, "in force at last")
    status = client.get("/v1/status").json
    assert status["trouble"] is None
    assert controller.version == status["in_force_version"]
    states = [record["state"] for record in client.get("/v1/configurations").json]
    assert states[0] == "in-force"
    assert states.count("in-force") == 1
    assert "failed" in states


def test_a_version_once_pushed_is_never_used_for_other_rules(
    client: Client, controller: FakeController
) -> None:
    client.register(SMOKE)
    controller.mood = "takes it and hangs up"
    client.register(CREW, wait=0.3)
    controller.mood = "willing"
    client.register(subscriber("crew", {"smoke/1": 1.0}))
    assert len(set(controller.pushes)) == len(controller.pushes)


def test_a_controller_that_forgot_is_told_anew(client: Client, controller: FakeController) -> None:
    client.register(SMOKE)
    client.register(CREW)
    controller.plain = None
    wait_until(lambda: controller.version > 0, "the controller is told")
    wait_until(
        lambda: client.get("/v1/configuration").json["version"] == controller.version, "they agree"
    )


def test_waiting_occupies_no_thread(tmp_path: Path, controller: FakeController) -> None:
    """Forty wait for a network that does not follow; others are answered all the same."""
    controller.mood = "away"
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
        wait_until(lambda: client.get("/v1/status").json["last_change"] == 40, "all are kept")
        assert client.get("/v1/health").status == 200
        assert answers == [], "all of them are still waiting"
        controller.mood = "willing"
        for thread in threads:
            thread.join(30)
        assert answers == [200] * 40


def test_failures_wait_longer_each_time_up_to_a_bound() -> None:
    pace = Pace(PaceSettings(first_retry_seconds=1.0, longest_retry_seconds=10.0))
    waits = [pace.failed(0.0, wait_out=True) for _ in range(8)]
    for expected, wait in zip([1, 2, 4, 8, 10, 10, 10, 10], waits, strict=True):
        assert 0.8 * expected <= wait <= 1.2 * expected
    pace.changed(1.0)
    assert pace.due_at() == pytest.approx(waits[-1])  # what comes meanwhile waits for it
    pace.succeeded()
    assert pace.due_at() == pytest.approx(1.0 + PaceSettings().quiet_seconds)


def test_a_change_may_put_a_failed_plan_right_and_waits_for_nothing() -> None:
    pace = Pace(PaceSettings(first_retry_seconds=100.0, longest_retry_seconds=100.0))
    pace.changed(0.0)
    pace.began()
    pace.failed(1.0, wait_out=False)
    assert (pace.due_at() or 0.0) > 50.0
    pace.changed(2.0)
    assert pace.due_at() == pytest.approx(2.0 + PaceSettings().quiet_seconds)


def test_after_a_plan_that_cannot_be_made_the_correcting_change_is_planned_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firedex.service import planner

    plan = planner.plan_site

    def fails_with_two(scenario: Any, *rest: Any) -> Any:
        if len(scenario.subscribers) == 2:
            raise PlanningError("two are too many")
        return plan(scenario, *rest)

    monkeypatch.setattr(planner, "plan_site", fails_with_two)
    patient = replace(QUICK, first_retry_seconds=1000.0, longest_retry_seconds=1000.0)
    with serving(tmp_path / "s.sqlite", pace=patient) as running:
        client = Client(running.url)
        client.register(CREW)
        client.register(subscriber("other", {}, address="10.0.0.2"), wait=0)
        wait_until(lambda: client.get("/v1/status").json["trouble"] is not None, "trouble")
        assert client.ask("DELETE", "/v1/subscribers/other?wait_seconds=20").status == 200
        assert client.get("/v1/status").json["trouble"] is None


def test_a_burst_is_not_waited_for_for_ever() -> None:
    pace = Pace(PaceSettings(quiet_seconds=0.1, longest_wait_seconds=1.0))
    for moment in range(30):
        pace.changed(moment * 0.05)
    assert pace.due_at() == pytest.approx(1.0)


def test_a_policy_that_cannot_be_met_gives_way(tmp_path: Path) -> None:
    narrow = site(bandwidth_bits_per_second=1e4, drop_policy="linear")
    with serving(tmp_path / "s.sqlite", of=narrow) as running:
        client = Client(running.url)
        client.register(SMOKE)
        assert client.register(CREW).status == 200


# -- what is asked -----------------------------------------------------------------------------


def test_what_the_caller_has_is_not_sent_again(client: Client) -> None:
    client.register(SMOKE)
    client.register(CREW)
    for path in ("/v1/configuration", "/v1/subscribers/crew/configuration"):
        first = client.get(path)
        tag = first.headers["ETag"]
        assert tag == f'"{first.json["version"]}"'
        again = client.ask("GET", path, headers={"If-None-Match": tag})
        assert (again.status, again.body) == (304, b"")
    assert client.get("/v1/subscribers/nobody/configuration").status == 404


def test_every_configuration_is_kept_and_compared(client: Client) -> None:
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


def test_a_state_that_is_away_is_said_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    from firedex.service.database import Database

    with serving(tmp_path / "s.sqlite") as running:
        client = Client(running.url)

        def away(_: object) -> None:
            raise OperationalError("BEGIN", {}, Exception("the server went away"))

        with monkeypatch.context() as broken:
            broken.setattr(Database, "writing", away)
            answer = client.register(CREW, wait=0)
        assert (answer.status, answer.json["problems"]) == (503, [])
        assert client.register(CREW).status == 200
