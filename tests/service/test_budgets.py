"""Budgets: claiming more utility or QoS 1 gains nothing over the budget."""

from pathlib import Path
from typing import Any

import pytest

from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.planner.site_plan import PlannedSite, plan_site
from firedex.service.planner.utility_policy import claim
from firedex.service.state import state_reader
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import RateSnapshot
from firedex.service.state.site_state import DeclaredTopic, SiteState
from firedex.service.state.state_reader import StateReader
from firedex.service.web.app import create_app
from firedex.wire import PublisherRegistration, SubscriberRegistration, from_json, from_plain
from firedex.wire.incident import Budgets
from tests.support.service_site import GATEWAY, Client, publisher, site, subscriber

NARROW = site(bandwidth_bits_per_second=60_000, ranking="global")
WEIGHTS = {"smoke/1": 4.0, "camera/1": 2.0, "heat/1": 1.0}
SENSORS = publisher("p0", {"smoke/1": 20.0, "camera/1": 60.0, "heat/1": 30.0})


def plan_subscribers(budgets: dict[str, Any], *subscribers: dict[str, Any]) -> PlannedSite:
    registrations = [from_plain(SubscriberRegistration, body) for body in subscribers]
    sensors = from_plain(PublisherRegistration, SENSORS)
    state = SiteState(
        publishers={"p0": sensors},
        topics={t.name: DeclaredTopic(topic=t, declared_by="p0") for t in sensors.topics},
        subscribers={r.subscriber.id: r for r in registrations},
        budgets=from_plain(Budgets, budgets),
    )
    scenario = planning_scenario(NARROW, state, RateSnapshot({}))
    return plan_site(scenario, {r.subscriber.id: r.address for r in registrations}, GATEWAY)


def classes_and_success(plan: PlannedSite, subscriber_id: str) -> dict[str, tuple[int, float]]:
    """Return class and success rate of each subscription of a subscriber."""
    rows = plan.plan.table.rows()
    return {
        r.filter: (r.priority, round(r.success_rate, 9))
        for r in rows
        if r.subscriber == subscriber_id
    }


def success(plan: PlannedSite, subscriber_id: str) -> float:
    return sum(rate for _, rate in classes_and_success(plan, subscriber_id).values())


def crew(name: str, factor: float = 1.0, qos: int = 0, weights: Any = None) -> dict[str, Any]:
    wanted = {name: weight * factor for name, weight in (weights or WEIGHTS).items()}
    return subscriber(name, wanted, address=f"10.0.0.{len(name)}", qos=qos)


BUDGET = {"roles": [{"role": "crew", "utility": 3.0}]}


def test_claiming_1000_times_the_utility_gains_nothing_over_the_budget() -> None:
    honest = plan_subscribers(BUDGET, crew("me"), crew("you2"))
    greedy = plan_subscribers(BUDGET, crew("me", 1000.0), crew("you2"))
    assert classes_and_success(greedy, "me") == classes_and_success(honest, "me")
    assert classes_and_success(greedy, "you2") == classes_and_success(honest, "you2")
    # Without a budget the larger claim has an advantage, so the comparison above is meaningful.
    without_budget = plan_subscribers({}, crew("me", 1000.0), crew("you2"))
    assert success(without_budget, "me") > success(honest, "me") + 0.1
    assert success(without_budget, "you2") < success(honest, "you2") - 0.1


def test_claim_within_the_budget_is_unchanged() -> None:
    large_budget = {"roles": [{"role": "anybody", "utility": 1e6}]}
    assert classes_and_success(
        plan_subscribers(large_budget, crew("me")), "me"
    ) == classes_and_success(plan_subscribers({}, crew("me")), "me")
    asked = from_plain(SubscriberRegistration, crew("me")).subscriber
    scenario = plan_subscribers(large_budget, crew("me")).scenario
    assert claim(scenario.subscribers[0]) == pytest.approx(claim(asked))
    assert claim(plan_subscribers(BUDGET, crew("me")).scenario.subscribers[0]) == pytest.approx(3.0)


def test_role_has_its_own_budget_or_the_default_one() -> None:
    budgets = {"roles": [{"role": "chief", "utility": 50.0}, {"role": "anybody", "utility": 1.0}]}
    chief = subscriber("boss", dict.fromkeys(WEIGHTS, 100.0), role="chief", address="10.0.0.9")
    plan = plan_subscribers(budgets, chief, crew("me", 1000.0))
    claims = {s.id: claim(s) for s in plan.scenario.subscribers}
    assert claims == {"boss": pytest.approx(50.0), "me": pytest.approx(1.0)}
    assert success(plan, "boss") > success(plan, "me")


def test_claiming_qos_1_gains_nothing_over_the_reserved_budget() -> None:
    budgets = {"roles": [{"role": "crew", "utility": 3.0, "reserved_share": 0.0}]}
    honest = plan_subscribers(budgets, crew("me"), crew("you2"))
    with_qos_1 = plan_subscribers(budgets, crew("me", qos=1), crew("you2"))
    # Its class is never higher than that of the other subscriber, and the excess is reported.
    others = max(priority for priority, _ in classes_and_success(with_qos_1, "you2").values())
    assert min(priority for priority, _ in classes_and_success(with_qos_1, "me").values()) >= others
    assert classes_and_success(with_qos_1, "you2") != {}
    excesses = with_qos_1.plan.report.overcommitted
    assert any(over.role == "crew" and over.excess > 0 for over in excesses)
    top = min(priority for priority, _ in classes_and_success(honest, "me").values())
    assert min(priority for priority, _ in classes_and_success(with_qos_1, "me").values()) > top
    # Without a budget it gets the highest class.
    without_budget = plan_subscribers({}, crew("me", qos=1), crew("you2"))
    assert (
        min(priority for priority, _ in classes_and_success(without_budget, "me").values()) <= top
    )


def test_service_applies_budgets(client: Client) -> None:
    client.register(SENSORS)
    client.register(crew("me"))
    assert client.ask("PUT", "/v1/budgets?wait_seconds=20", BUDGET).status == 200
    before = client.get("/v1/configuration").json
    greedy = client.register(crew("me", 1000.0)).json
    assert [f["drop_rate"] for f in greedy["flows"]] == [f["drop_rate"] for f in before["flows"]]
    (claimed,) = client.get("/v1/claims").json
    assert claimed["asked"] == pytest.approx(7000 * 0.6931, rel=1e-3)
    assert claimed["granted_share"] * claimed["asked"] == pytest.approx(3.0)


def test_claims_use_the_utilities_of_the_phase(client: Client) -> None:
    client.register(subscriber("crew", WEIGHTS))
    (own,) = client.get("/v1/claims").json
    client.ask("PUT", "/v1/profiles/overhaul", {"rules": [{"filter": "#", "factor": 10.0}]})
    client.ask("PUT", "/v1/budgets", {"roles": [{"role": "crew", "utility": own["asked"]}]})
    client.ask("POST", "/v1/incident", {"title": "fire", "phase": "overhaul"})
    (claim_now,) = client.get("/v1/claims").json
    assert claim_now["asked"] == pytest.approx(10 * own["asked"])
    assert claim_now["granted_share"] == pytest.approx(0.1)
    client.ask("DELETE", "/v1/incident")
    assert client.get("/v1/claims").json == [own]


def test_budgets_and_profiles_are_read_without_registrations(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_everything(_: object, __: object) -> None:
        raise AssertionError("the whole state was read")

    monkeypatch.setattr(StateReader, "_clients", read_everything)
    for path in ("/v1/budgets", "/v1/profiles", "/metrics"):
        assert client.get(path).status == 200, path


def test_topics_are_read_without_subscribers_and_publishers_are_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(str(tmp_path / "s.sqlite"))
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    service = ConfigurationService(ServiceOptions(settings=settings, open_to_all=True), database)
    web = create_app(service).test_client()
    web.put("/v1/publishers/p0", json=SENSORS)
    web.put("/v1/subscribers/crew", json=subscriber("crew", WEIGHTS))
    parsed = []

    def recording_from_json(kind: Any, body: str, *, tolerant: bool) -> Any:
        parsed.append(kind)
        return from_json(kind, body, tolerant=tolerant)

    monkeypatch.setattr(state_reader, "from_json", recording_from_json)
    for _ in range(2):
        listed: Any = web.get("/v1/topics").json
        assert {topic["name"] for topic in listed} == set(WEIGHTS)
    assert (parsed.count(PublisherRegistration), parsed.count(SubscriberRegistration)) == (1, 0)
    database.close()
