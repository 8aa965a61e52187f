"""From registrations to flows, endpoints and the document that is kept."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

import pytest
from parts_site import publisher, site, subscriber

from firedex.built_in_scenarios import built_in_scenarios
from firedex.scenario_file import read_scenario
from firedex.service import site_plan
from firedex.service.configuration_document import ConfigurationDocument
from firedex.service.errors import PortsExhausted
from firedex.service.planning_scenario import Basis, planning_scenario
from firedex.service.site_plan import Gateway, PlannedSite, plan_site
from firedex.service.site_state import DeclaredTopic, SiteState
from firedex.wire import Flow, PublisherRegistration, SubscriberRegistration

GATEWAY = Gateway(address=IPv4Address("10.0.0.10"), port=1884)
TOPICS = {"smoke/1": 10.0, "heat/1": 40.0, "camera/1": 100.0}


def state_of(
    subscribers: Sequence[SubscriberRegistration], publishers: Sequence[PublisherRegistration]
) -> SiteState:
    topics: dict[str, DeclaredTopic] = {}
    for registration in publishers:
        for topic in registration.topics:
            by = registration.publisher.id
            topics.setdefault(topic.name, DeclaredTopic(topic=topic, declared_by=by))
    return SiteState(
        subscribers={r.subscriber.id: r for r in subscribers},
        publishers={r.publisher.id: r for r in publishers},
        topics=topics,
    )


def planned(
    subscribers: Sequence[SubscriberRegistration],
    publishers: Sequence[PublisherRegistration] = (publisher("p0", TOPICS),),
    before: tuple[Flow, ...] = (),
    **changes: Any,
) -> PlannedSite:
    scenario = planning_scenario(site(**changes), state_of(subscribers, publishers), Basis({}))
    addresses = {r.subscriber.id: r.address for r in subscribers}
    return plan_site(scenario, addresses, GATEWAY, before)


def used_ports(planned: PlannedSite) -> list[tuple[str, int]]:
    return [
        (str(flow.endpoints.subscriber_address), port)
        for flow in planned.flows
        if flow.endpoints is not None
        for port in flow.endpoints.subscriber_ports
    ]


def switches(*more: dict[str, Any], **of_core: Any) -> dict[str, Any]:
    return {
        "switches": [
            {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
            {"id": "core", "bandwidth_bits_per_second": 5e6, **of_core},
            *more,
        ],
        "broker": {"id": "edge"},
    }


def test_every_built_in_scenario_can_be_served() -> None:
    """Whoever its phases and its timeline name is not there yet, and may never come."""
    for name in built_in_scenarios():
        scenario = planning_scenario(read_scenario(f"builtin:{name}"), SiteState(), Basis({}))
        assert scenario.subscribers == ()


# -- endpoints -------------------------------------------------------------------------------------


def test_every_flow_has_two_ports_and_the_gateway() -> None:
    made = planned([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    assert [flow.flow for flow in made.flows] == [0, 1]
    for flow in made.flows:
        assert flow.endpoints is not None
        assert len(set(flow.endpoints.subscriber_ports)) == 2
        assert str(flow.endpoints.subscriber_address) == "10.0.0.101"
        assert (flow.endpoints.gateway_address, flow.endpoints.gateway_port) == (
            GATEWAY.address,
            1884,
        )
        assert flow.endpoints.transport == "tcp"


def test_every_subscription_is_in_exactly_one_flow() -> None:
    made = planned([subscriber("crew", "smoke/#", "camera/#", "heat/#")])
    filters = [name for flow in made.flows for name in flow.filters]
    assert sorted(filters) == ["camera/#", "heat/#", "smoke/#"]
    assert made.flows[0].filters[0] == "smoke/#", "what is worth most comes first"


def test_several_subscribers_on_one_address_do_not_collide() -> None:
    made = planned([subscriber(f"crew{n}", "smoke/#", "camera/#") for n in range(5)])
    ports = used_ports(made)
    assert len(ports) == 5 * 2 * 2
    assert len(set(ports)) == len(ports)


def test_different_addresses_count_by_themselves() -> None:
    made = planned([subscriber(f"c{n}", "smoke/#", address=f"10.0.0.{n + 1}") for n in range(3)])
    assert {port for _, port in used_ports(made)} == {20_000, 20_001}


def test_running_out_of_ports_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_plan, "LAST_PORT", site_plan.FIRST_PORT + 3)
    planned([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    with pytest.raises(PortsExhausted, match=r"no local ports are left on 10\.0\.0\.101") as raised:
        planned([subscriber(f"c{n}", "smoke/#", address="10.0.0.101") for n in range(3)])
    assert raised.value.address == "10.0.0.101"


def test_a_flow_has_the_highest_quality_of_its_subscriptions() -> None:
    made = planned([subscriber("crew", "smoke/#", qos=2), subscriber("other", "smoke/#")])
    assert {flow.subscriber: flow.qos for flow in made.flows} == {"crew": 2, "other": 0}


def test_who_comes_later_does_not_move_the_ports_of_others() -> None:
    second = subscriber("engine2", "smoke/#", "camera/#", address="10.0.0.101")
    before = planned([second])
    first = subscriber("engine1", "smoke/#", "camera/#", address="10.0.0.101")
    after = planned([first, second], before=before.flows)
    kept = [flow for flow in after.flows if flow.subscriber == "engine2"]
    assert used_ports(before) == used_ports(replace(after, flows=tuple(kept)))
    assert len(set(used_ports(after))) == len(used_ports(after))


def test_who_moves_to_another_address_gets_ports_there() -> None:
    before = planned([subscriber("crew", "smoke/#", address="10.0.0.1")])
    after = planned([subscriber("crew", "smoke/#", address="10.0.0.2")], before=before.flows)
    assert {address for address, _ in used_ports(after)} == {"10.0.0.2"}


def test_the_document_says_what_the_values_say() -> None:
    """It is written by hand for speed: every key, every value, as the contract has them."""
    many = [
        subscriber("crew", "smoke/#", "camera/#", "attic/#", qos=1),
        subscriber("other", "smoke/1", "heat/1", address="10.0.0.2"),
        subscriber("none", address="10.0.0.3"),
    ]
    made = planned(many, bandwidth_bits_per_second=4e4, planning={"drop_policy": "none"})
    document = made.document(7, datetime(2025, 3, 1, tzinfo=UTC), 'with "flows":[] in it')
    whole = document.value()
    assert whole.flows == made.flows
    assert whole.prediction == made.plan.table.to_prediction()
    assert (whole.version, whole.reason) == (7, 'with "flows":[] in it')
    again = ConfigurationDocument.from_bytes(document.to_bytes())
    assert again == document
    mine = again.value_of("other")
    assert mine.flows == tuple(flow for flow in made.flows if flow.subscriber == "other")
    assert mine.prediction is not None
    assert {row.subscriber for row in mine.prediction.subscriptions} == {"other"}
    assert again.value_of("none").flows == again.value_of("nobody").flows == ()
