"""Utility is a claim on shared bandwidth: asking for more does not buy it. Shown by the plan."""

from pathlib import Path
from typing import Any

import pytest
from service_site import GATEWAY, Client, publisher, site, subscriber

from firedex.service import state_reader
from firedex.service.core import ConfigurationService, ServiceOptions
from firedex.service.database import Database
from firedex.service.planner import SiteSettings
from firedex.service.planning_scenario import Basis, planning_scenario
from firedex.service.site_plan import PlannedSite, plan_site
from firedex.service.site_state import DeclaredTopic, SiteState
from firedex.service.state_reader import StateReader
from firedex.service.utility_budgets import claim
from firedex.service.web import create_app
from firedex.wire import PublisherRegistration, SubscriberRegistration, from_json, from_plain
from firedex.wire.incident import Budgets

NARROW = site(bandwidth_bits_per_second=60_000, ranking="global")
WEIGHTS = {"smoke/1": 4.0, "camera/1": 2.0, "heat/1": 1.0}
SENSORS = publisher("p0", {"smoke/1": 20.0, "camera/1": 60.0, "heat/1": 30.0})


def planned(budgets: dict[str, Any], *subscribers: dict[str, Any]) -> PlannedSite:
    made = [from_plain(SubscriberRegistration, body) for body in subscribers]
    sensors = from_plain(PublisherRegistration, SENSORS)
    state = SiteState(
        publishers={"p0": sensors},
        topics={t.name: DeclaredTopic(topic=t, declared_by="p0") for t in sensors.topics},
        subscribers={r.subscriber.id: r for r in made},
        budgets=from_plain(Budgets, budgets),
    )
    scenario = planning_scenario(NARROW, state, Basis({}))
    return plan_site(scenario, {r.subscriber.id: r.address for r in made}, GATEWAY)


def got(plan: PlannedSite, who: str) -> dict[str, tuple[int, float]]:
    """What the plan gives somebody: class and success rate of each subscription."""
    rows = plan.plan.table.rows()
    return {r.filter: (r.priority, round(r.success_rate, 9)) for r in rows if r.subscriber == who}


def success(plan: PlannedSite, who: str) -> float:
    return sum(rate for _, rate in got(plan, who).values())


def crew(name: str, factor: float = 1.0, qos: int = 0, weights: Any = None) -> dict[str, Any]:
    wanted = {name: weight * factor for name, weight in (weights or WEIGHTS).items()}
    return subscriber(name, wanted, address=f"10.0.0.{len(name)}", qos=qos)


BUDGET = {"roles": [{"role": "crew", "utility": 3.0}]}


def test_a_thousand_times_the_utility_gains_nothing_over_the_budget() -> None:
    honest = planned(BUDGET, crew("me"), crew("you2"))
    greedy = planned(BUDGET, crew("me", 1000.0), crew("you2"))
    assert got(greedy, "me") == got(honest, "me")
    assert got(greedy, "you2") == got(honest, "you2")
    # Without a budget it would have paid, so the plan is one where there is something to gain.
    free = planned({}, crew("me", 1000.0), crew("you2"))
    assert success(free, "me") > success(honest, "me") + 0.1
    assert success(free, "you2") < success(honest, "you2") - 0.1


def test_what_is_under_budget_is_left_as_it_is() -> None:
    roomy = {"roles": [{"role": "anybody", "utility": 1e6}]}
    assert got(planned(roomy, crew("me")), "me") == got(planned({}, crew("me")), "me")
    asked = from_plain(SubscriberRegistration, crew("me")).subscriber
    scenario = planned(roomy, crew("me")).scenario
    assert claim(scenario.subscribers[0]) == pytest.approx(claim(asked))
    assert claim(planned(BUDGET, crew("me")).scenario.subscribers[0]) == pytest.approx(3.0)


def test_a_role_has_its_own_budget_or_anybodys() -> None:
    budgets = {"roles": [{"role": "chief", "utility": 50.0}, {"role": "anybody", "utility": 1.0}]}
    chief = subscriber("boss", dict.fromkeys(WEIGHTS, 100.0), role="chief", address="10.0.0.9")
    plan = planned(budgets, chief, crew("me", 1000.0))
    claims = {s.id: claim(s) for s in plan.scenario.subscribers}
    assert claims == {"boss": pytest.approx(50.0), "me": pytest.approx(1.0)}
    assert success(plan, "boss") > success(plan, "me")


def test_asking_for_qos_1_everywhere_gains_nothing_over_the_reserved_budget() -> None:
    budgets = {"roles": [{"role": "crew", "utility": 3.0, "reserved_share": 0.0}]}
    honest = planned(budgets, crew("me"), crew("you2"))
    insisting = planned(budgets, crew("me", qos=1), crew("you2"))
    # Served last: never above anything that did not insist, and the excess is named.
    others = max(priority for priority, _ in got(insisting, "you2").values())
    assert min(priority for priority, _ in got(insisting, "me").values()) >= others
    assert got(insisting, "you2") != {}
    named = insisting.plan.report.overcommitted
    assert any(over.role == "crew" and over.excess > 0 for over in named)
    top = min(priority for priority, _ in got(honest, "me").values())
    assert min(priority for priority, _ in got(insisting, "me").values()) > top
    # Without a budget it would have bought the highest class.
    free = planned({}, crew("me", qos=1), crew("you2"))
    assert min(priority for priority, _ in got(free, "me").values()) <= top


def test_budgets_hold_in_the_service(client: Client) -> None:
    client.register(SENSORS)
    client.register(crew("me"))
    assert client.ask("PUT", "/v1/budgets?wait_seconds=20", BUDGET).status == 200
    before = client.get("/v1/configuration").json
    greedy = client.register(crew("me", 1000.0)).json
    assert [f["drop_rate"] for f in greedy["flows"]] == [f["drop_rate"] for f in before["flows"]]
    (claimed,) = client.get("/v1/claims").json
    assert claimed["asked"] == pytest.approx(7000 * 0.6931, rel=1e-3)
    assert claimed["granted_share"] * claimed["asked"] == pytest.approx(3.0)


def test_claims_are_those_of_the_phase(client: Client) -> None:
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


def test_a_part_of_the_state_is_read_without_the_rest(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(_: object, __: object) -> None:
        raise AssertionError("the whole state was read")

    monkeypatch.setattr(StateReader, "_parties", whole)
    for path in ("/v1/budgets", "/v1/profiles", "/metrics"):
        assert client.get(path).status == 200, path


def test_topics_are_read_without_subscribers_and_publishers_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(str(tmp_path / "s.sqlite"))
    settings = SiteSettings(site=NARROW, gateway=GATEWAY)
    service = ConfigurationService(ServiceOptions(settings=settings, open_to_all=True), database)
    web = create_app(service).test_client()
    web.put("/v1/publishers/p0", json=SENSORS)
    web.put("/v1/subscribers/crew", json=subscriber("crew", WEIGHTS))
    parsed = []

    def counted(of: Any, body: str, *, tolerant: bool) -> Any:
        parsed.append(of)
        return from_json(of, body, tolerant=tolerant)

    monkeypatch.setattr(state_reader, "from_json", counted)
    for _ in range(2):
        assert {t["name"] for t in web.get("/v1/topics").json} == set(WEIGHTS)
    assert (parsed.count(PublisherRegistration), parsed.count(SubscriberRegistration)) == (1, 0)
    database.close()
