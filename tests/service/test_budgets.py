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
from firedex.wire import (
    PublisherRegistration,
    Subscriber,
    SubscriberRegistration,
    from_json,
    from_plain,
)
from firedex.wire.incident import Budgets
from tests.support.service_site import (
    GATEWAY,
    TOKENS_WITHOUT_LIMITS,
    Client,
    publisher,
    serving,
    site,
    subscriber,
)

NARROW = site(bandwidth_bits_per_second=60_000, ranking="global")
WEIGHTS = {"smoke/1": 4.0, "camera/1": 2.0, "heat/1": 1.0}
SENSORS = publisher("p0", {"smoke/1": 20.0, "camera/1": 60.0, "heat/1": 30.0})


def plan_subscribers(
    budgets: dict[str, Any], *subscribers: dict[str, Any], owners: dict[str, str] | None = None
) -> PlannedSite:
    registrations = [from_plain(SubscriberRegistration, body) for body in subscribers]
    sensors = from_plain(PublisherRegistration, SENSORS)
    state = SiteState(
        publishers={"p0": sensors},
        topics={t.name: DeclaredTopic(topic=t, declared_by="p0") for t in sensors.topics},
        subscribers={r.subscriber.id: r for r in registrations},
        budgets=from_plain(Budgets, budgets),
        owners={("subscriber", name): owner for name, owner in (owners or {}).items()},
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


DEFAULT_BUDGET = {"roles": [{"role": "anybody", "utility": 100.0}]}


@pytest.mark.parametrize("claimed", [1.0, 0.001])
def test_claiming_1000_times_the_utility_gains_nothing_if_others_claim_little(
    claimed: float,
) -> None:
    others = [crew("you2", claimed), crew("them3", claimed)]
    honest = plan_subscribers(DEFAULT_BUDGET, crew("me", claimed), *others)
    greedy = plan_subscribers(DEFAULT_BUDGET, crew("me", 1000 * claimed), *others)
    for name in ("me", "you2", "them3"):
        assert classes_and_success(greedy, name) == classes_and_success(honest, name)
        assert claim(_planned_subscriber(greedy, name)) == pytest.approx(100.0)


def _planned_subscriber(plan: PlannedSite, name: str) -> Subscriber:
    (found,) = (each for each in plan.scenario.subscribers if each.id == name)
    return found


@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_ten_subscribers_of_one_owner_gain_nothing(factor: float) -> None:
    names = ["me"] + [f"me{'x' * number}" for number in range(1, 10)]
    one = plan_subscribers(DEFAULT_BUDGET, crew("me"), crew("honest-crew-1"))
    owners = dict.fromkeys(names, "greedy")
    ten = [crew(name, factor) for name in names]
    many = plan_subscribers(DEFAULT_BUDGET, *ten, crew("honest-crew-1"), owners=owners)
    # The honest subscriber is served at least as well as beside a single other subscriber.
    assert success(many, "honest-crew-1") >= success(one, "honest-crew-1") - 1e-6
    claims = {s.id: claim(s) for s in many.scenario.subscribers}
    assert sum(claims[name] for name in names) == pytest.approx(100.0)
    # Ten owners would displace it, so the comparison above is meaningful.
    without_owners = plan_subscribers(DEFAULT_BUDGET, *ten, crew("honest-crew-1"))
    assert success(without_owners, "honest-crew-1") < success(one, "honest-crew-1") - 0.1


def test_owners_share_the_total_budget_of_their_role() -> None:
    budgets = {"roles": [{"role": "crew", "utility": 100.0, "total_utility": 120.0}]}
    chief = subscriber("boss", WEIGHTS, role="chief", address="10.0.0.9")
    alone = plan_subscribers(budgets, crew("me"), chief)
    assert claim(_planned_subscriber(alone, "me")) == pytest.approx(100.0)
    three = plan_subscribers(budgets, crew("me"), crew("you2"), crew("them3"), chief)
    for name in ("me", "you2", "them3"):
        assert claim(_planned_subscriber(three, name)) == pytest.approx(40.0)


def test_an_owner_keeps_the_proportions_among_its_own_subscriptions() -> None:
    asked = from_plain(SubscriberRegistration, crew("me")).subscriber.subscriptions
    granted = _planned_subscriber(plan_subscribers(BUDGET, crew("me")), "me").subscriptions
    ratios = [g.utility.weight / a.utility.weight for a, g in zip(asked, granted, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))
    assert classes_and_success(
        plan_subscribers(DEFAULT_BUDGET, crew("me")), "me"
    ) == classes_and_success(plan_subscribers({}, crew("me")), "me")


@pytest.mark.slow
def test_ten_tokens_of_one_owner_gain_nothing_from_the_service(tmp_path: Path) -> None:
    budgets = from_plain(Budgets, DEFAULT_BUDGET)

    def honest_drop_rates(greedy_names: list[str], state: Path) -> list[float]:
        options = {**TOKENS_WITHOUT_LIMITS, "default_budgets": budgets}
        with serving(state, of=NARROW, **options) as running:
            create = running.service.tokens.create
            Client(running.url, create("sensors", "publisher", "p0")).register(SENSORS)
            honest = Client(running.url, create("honest", "subscriber", "honest-crew-1", "crew"))
            honest.register(crew("honest-crew-1"))
            for name in greedy_names:
                token = create(name, "subscriber", name, "crew", owner="greedy")
                Client(running.url, token).register(crew(name, 1000.0))
            flows = honest.get("/v1/subscribers/honest-crew-1/configuration").json["flows"]
            return [flow["drop_rate"] for flow in flows]

    alone = honest_drop_rates(["a"], tmp_path / "one.sqlite")
    names = ["a" * (number + 1) for number in range(10)]
    assert max(honest_drop_rates(names, tmp_path / "ten.sqlite")) <= max(alone) + 1e-6


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
    # Command multiplied the utilities, so the budget is multiplied too.
    assert claim_now["granted_share"] == pytest.approx(1.0)
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
