"""The service's REST interface: by Flask's own client, and once behind waitress."""

import json
import urllib.request
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from desired_examples import network
from flask.testing import FlaskClient
from loopback_parts import FakeController, served
from parts_site import publisher, site, subscriber

from firedex.service import site_plan
from firedex.service.configurator import Configurator
from firedex.service.controller_client import ControllerClient
from firedex.service.errors import PushFailed
from firedex.service.registry import Registry
from firedex.service.site_plan import Gateway
from firedex.service.web import create_app
from firedex.wire import (
    Configuration,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    from_json,
    to_json,
    to_plain,
)

GATEWAY = Gateway(address=IPv4Address("127.0.0.1"), port=1884)
SMOKE = publisher("p0", {"smoke/1": 10.0, "camera/1": 100.0})
CREW = subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")
TWO_SWITCHES = site(
    network={
        "switches": [
            {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
            {"id": "core", "bandwidth_bits_per_second": 5e6},
            {"id": "roof", "bandwidth_bits_per_second": 5e6},
        ],
        "broker": {"id": "edge"},
    }
)


def web(
    registry: Registry, controller_url: str | None = None, of: Scenario | None = None
) -> FlaskClient:
    controller = ControllerClient(controller_url) if controller_url else None
    return create_app(Configurator(of or site(), registry, GATEWAY, controller)).test_client()


@pytest.fixture
def client(registry: Registry) -> FlaskClient:
    """The service without a controller."""
    return web(registry)


def put(client: FlaskClient, registration: PublisherRegistration | SubscriberRegistration) -> Any:
    if isinstance(registration, PublisherRegistration):
        return client.put(f"/v1/publishers/{registration.publisher.id}", data=to_json(registration))
    return client.put(f"/v1/subscribers/{registration.subscriber.id}", data=to_json(registration))


def accepted(
    client: FlaskClient, registration: PublisherRegistration | SubscriberRegistration
) -> Configuration:
    answer = put(client, registration)
    assert answer.status_code == 200, answer.text
    return from_json(Configuration, answer.data)


def in_force(client: FlaskClient) -> Configuration:
    answer = client.get("/v1/configuration")
    assert answer.status_code == 200, answer.text
    return from_json(Configuration, answer.data)


def ports_of(configuration: Configuration, name: str) -> list[tuple[int, int]]:
    return [
        flow.endpoints.subscriber_ports
        for flow in configuration.flows
        if flow.subscriber == name and flow.endpoints is not None
    ]


# -- what is accepted ------------------------------------------------------------------------------


def test_health(client: FlaskClient) -> None:
    answer = client.get("/v1/health")
    assert (answer.status_code, answer.json) == (200, {"status": "ok"})


def test_nothing_is_configured_at_first(client: FlaskClient) -> None:
    answer = client.get("/v1/configuration")
    assert (answer.status_code, answer.json) == (404, {"error": "nothing is configured yet"})


def test_a_publisher_then_a_subscriber_make_a_configuration(client: FlaskClient) -> None:
    assert accepted(client, SMOKE).version == 1
    made = accepted(client, CREW)
    assert made.version == 2
    assert [(flow.subscriber, flow.priority) for flow in made.flows] == [("crew", 0), ("crew", 1)]
    assert made.prediction is not None
    assert {row.filter for row in made.prediction.subscriptions} == {"smoke/#", "camera/#"}
    assert all(row.delay_mean_seconds is not None for row in made.prediction.subscriptions)
    assert in_force(client) == made


def test_registering_again_replaces(client: FlaskClient) -> None:
    accepted(client, SMOKE)
    accepted(client, CREW)
    made = accepted(client, subscriber("crew", "camera/1", address="10.0.0.101"))
    assert made.version == 3
    assert [flow.filters for flow in made.flows] == [("camera/1",)]


def test_the_whole_behind_waitress(registry: Registry) -> None:
    app = create_app(Configurator(site(), registry, GATEWAY, None))
    with served(app) as url:
        for path, registration in (("publishers/p0", SMOKE), ("subscribers/crew", CREW)):
            request = urllib.request.Request(  # noqa: S310  # our own loopback address
                f"{url}/v1/{path}", to_json(registration).encode(), method="PUT"
            )
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  # likewise
                made = from_json(Configuration, answer.read())
        with urllib.request.urlopen(f"{url}/v1/health", timeout=20) as answer:  # noqa: S310  # likewise
            assert json.load(answer) == {"status": "ok"}
    assert len(made.flows) == 2


# -- what is refused -------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_by_name(client: FlaskClient, registry: Registry) -> None:
    document = to_plain(SMOKE)
    document["publisher"]["swich"] = "lan"
    answer = client.put("/v1/publishers/p0", json=document)
    assert answer.status_code == 400
    assert "unknown key 'swich'; did you mean 'switch'?" in answer.json["error"]
    assert registry.publishers() == []


@pytest.mark.parametrize("body", ["", "{", "[]", "null", "12", '{"publisher": 3}'])
def test_a_body_that_is_no_registration_is_refused(client: FlaskClient, body: str) -> None:
    answer = client.put("/v1/publishers/p0", data=body)
    assert answer.status_code == 400
    assert answer.json["error"]


@pytest.mark.parametrize(("kind", "of"), [("publishers", SMOKE), ("subscribers", CREW)])
def test_path_and_id_must_agree(
    client: FlaskClient, registry: Registry, kind: str, of: Any
) -> None:
    answer = client.put(f"/v1/{kind}/somebody", data=to_json(of))
    assert answer.status_code == 400
    assert "'somebody'" in answer.json["error"]
    assert (registry.publishers(), registry.subscribers()) == ([], [])


def test_ipv6_is_refused(client: FlaskClient) -> None:
    document = to_plain(CREW)
    document["address"] = "::1"
    answer = client.put("/v1/subscribers/crew", json=document)
    assert answer.status_code == 400
    assert "address" in answer.json["error"]


def test_a_subscription_to_an_unknown_topic_is_refused_and_not_kept(
    client: FlaskClient, registry: Registry
) -> None:
    before = accepted(client, SMOKE)
    answer = put(client, subscriber("crew", "attic/1"))
    assert answer.status_code == 400
    assert "attic/1" in answer.json["error"]
    assert registry.subscribers() == []
    assert in_force(client) == before
    accepted(client, CREW)


def test_a_wildcard_may_wait_for_its_topics(client: FlaskClient) -> None:
    made = accepted(client, subscriber("crew", "attic/#"))
    assert made.prediction is not None
    assert [row.method for row in made.prediction.subscriptions] == ["nothing-offered"]


def test_a_refusal_is_in_our_words(client: FlaskClient) -> None:
    accepted(client, SMOKE)
    error = put(client, subscriber("crew", "attic/1")).json["error"]
    assert "pydantic" not in error
    assert "input_value" not in error


def test_an_unknown_switch_is_refused_and_not_kept(client: FlaskClient, registry: Registry) -> None:
    accepted(client, SMOKE)
    answer = put(client, subscriber("crew", "smoke/#", switch="attic"))
    assert answer.status_code == 400
    assert "unknown switch 'attic'" in answer.json["error"]
    assert registry.subscribers() == []


def test_a_publisher_may_not_take_away_a_topic_in_use(
    client: FlaskClient, registry: Registry
) -> None:
    accepted(client, SMOKE)
    accepted(client, subscriber("crew", "camera/1"))
    answer = put(client, publisher("p0", {"smoke/1": 10.0}))
    assert answer.status_code == 400
    assert registry.publishers() == [SMOKE]


def test_what_cannot_be_planned_is_not_kept(registry: Registry) -> None:
    # The policy drops nothing of class 0, and 100 × 100 bytes a second do not fit 10 kbit/s.
    planning = {"priorities": 1, "drop_policy": "exponential"}
    client = web(registry, of=site(bandwidth_bits_per_second=1e4, planning=planning))
    accepted(client, SMOKE)
    answer = put(client, subscriber("crew", "camera/1"))
    assert answer.status_code == 400
    assert registry.subscribers() == [], "it was refused, and would be in every later plan"


def test_what_asks_for_more_than_there_is_does_not_bar_others(registry: Registry) -> None:
    # QoS 1 is never dropped: the plan degrades, and still comes out.
    client = web(registry, of=site(bandwidth_bits_per_second=1e4))
    accepted(client, SMOKE)
    accepted(client, subscriber("greedy", "camera/1", qos=1))
    accepted(client, subscriber("modest", "camera/1"))


def test_who_finds_no_ports_is_not_kept(
    client: FlaskClient, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_plan, "LAST_PORT", site_plan.FIRST_PORT + 3)
    accepted(client, SMOKE)
    accepted(client, CREW)
    answer = put(client, subscriber("other", "smoke/1", address="10.0.0.101"))
    assert answer.status_code == 409
    assert "no local ports are left on 10.0.0.101" in answer.json["error"]
    assert registry.subscribers() == [CREW]


# -- the controller --------------------------------------------------------------------------------


def test_rules_are_pushed_before_the_answer(
    registry: Registry, controller: FakeController, controller_url: str
) -> None:
    client = web(registry, controller_url)
    accepted(client, SMOKE)
    made = accepted(client, CREW)
    assert [asked.configuration_version for asked in controller.put] == [1, 2]
    assert len(controller.put[-1].switches[0].flows) == len(made.flows)


def test_after_a_failed_push_the_previous_configuration_stands(
    registry: Registry, controller: FakeController, controller_url: str
) -> None:
    client = web(registry, controller_url)
    before = accepted(client, SMOKE)
    controller.refusing.add("core")
    answer = put(client, CREW)
    assert answer.status_code == 503
    assert "switch 'core' is not connected" in answer.json["error"]
    assert in_force(client) == before


def test_a_registration_is_kept_though_the_push_failed(
    registry: Registry, controller: FakeController, controller_url: str
) -> None:
    """As it is: 503 says "not yet", and whoever registers next brings both into force."""
    client = web(registry, controller_url)
    accepted(client, SMOKE)
    controller.refusing.add("core")
    assert put(client, CREW).status_code == 503
    assert registry.subscribers() == [CREW]
    controller.refusing.clear()
    made = accepted(client, subscriber("other", "smoke/1", address="10.0.0.102"))
    assert {flow.subscriber for flow in made.flows} == {"crew", "other"}


def test_the_same_registration_again_succeeds_when_the_controller_is_back(
    registry: Registry, controller: FakeController, controller_url: str
) -> None:
    client = web(registry, controller_url)
    controller.refusing.add("core")
    assert put(client, SMOKE).status_code == 503
    controller.refusing.clear()
    assert accepted(client, SMOKE).version >= 1


def test_a_version_once_pushed_is_never_used_for_other_rules(
    registry: Registry, controller: FakeController, controller_url: str
) -> None:
    # Stale rules are found by cookie = version: the same number twice leaves them on the switch.
    client = web(registry, controller_url, of=TWO_SWITCHES)
    accepted(client, SMOKE)
    controller.refusing.add("roof")
    assert put(client, CREW).status_code == 503
    controller.refusing.clear()
    accepted(client, subscriber("crew", "smoke/1", address="10.0.0.101"))
    asked_for = {}
    for asked in controller.put:
        known = asked_for.setdefault(asked.configuration_version, asked)
        assert known == asked, f"version {asked.configuration_version} has been other rules"


def test_a_controller_that_is_away_is_a_failed_push() -> None:
    with pytest.raises(PushFailed, match=r"127\.0\.0\.1:1: .*refused"):
        ControllerClient("http://127.0.0.1:1").push(network())


def test_an_answer_that_makes_no_sense_is_a_failed_push(client: FlaskClient) -> None:
    # Another server at that address: the service itself, which knows no such path.
    with served(client.application) as url, pytest.raises(PushFailed):
        ControllerClient(url).push(network())


# -- what lasts ------------------------------------------------------------------------------------


def test_a_restarted_service_serves_what_it_had(tmp_path: Path) -> None:
    file = tmp_path / "kept.sqlite"
    client = web(Registry(file))
    accepted(client, SMOKE)
    before = accepted(client, CREW)
    restarted = Configurator(site(), Registry(file), GATEWAY, None)
    restarted.restore()
    again = in_force(create_app(restarted).test_client())
    assert [flow.subscriber for flow in again.flows] == [flow.subscriber for flow in before.flows]


def test_a_service_starts_again_whatever_it_has_kept(tmp_path: Path) -> None:
    file = tmp_path / "kept.sqlite"
    client = web(Registry(file))
    accepted(client, SMOKE)
    accepted(client, subscriber("crew", "camera/1", address="10.0.0.101"))
    narrower = site(bandwidth_bits_per_second=1e4, planning={"drop_policy": "linear"})
    restarted = Configurator(narrower, Registry(file), GATEWAY, None)
    restarted.restore()
    assert create_app(restarted).test_client().get("/v1/health").status_code == 200


def test_a_service_starts_while_its_controller_is_away(tmp_path: Path) -> None:
    file = tmp_path / "kept.sqlite"
    client = web(Registry(file))
    accepted(client, SMOKE)
    accepted(client, CREW)
    away = ControllerClient("http://127.0.0.1:1")
    restarted = Configurator(site(), Registry(file), GATEWAY, away)
    restarted.restore()
    assert create_app(restarted).test_client().get("/v1/health").status_code == 200


def test_versions_go_on_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "kept.sqlite"
    client = web(Registry(file))
    accepted(client, SMOKE)
    before = accepted(client, CREW)
    after = accepted(web(Registry(file)), subscriber("other", "smoke/1", address="10.0.0.102"))
    assert after.version > before.version


def test_who_comes_later_does_not_move_the_ports_of_others(client: FlaskClient) -> None:
    accepted(client, SMOKE)
    before = accepted(client, subscriber("engine2", "smoke/#", "camera/#", address="10.0.0.101"))
    after = accepted(client, subscriber("engine1", "smoke/#", "camera/#", address="10.0.0.101"))
    assert ports_of(after, "engine2") == ports_of(before, "engine2")


def test_whoever_declared_a_topic_first_still_defines_it(client: FlaskClient) -> None:
    accepted(client, publisher("p9", {"smoke/1": 10.0}, event_bytes=51))
    before = accepted(client, subscriber("crew", "smoke/#"))
    after = accepted(client, publisher("p1", {"smoke/1": 1e-9}, event_bytes=1200))
    assert before.prediction is not None
    assert after.prediction is not None
    assert after.prediction.switches[-1].utilization == pytest.approx(
        before.prediction.switches[-1].utilization, rel=1e-3
    )
