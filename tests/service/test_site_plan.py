"""Flows, endpoints and the stored document of a plan."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

import pytest

from firedex.scenario import built_in_scenarios, read_scenario
from firedex.service.errors import PortsExhausted
from firedex.service.planner import site_plan
from firedex.service.planner.planning_scenario import planning_scenario
from firedex.service.planner.site_plan import Gateway, PlannedSite, plan_site
from firedex.service.state.configuration_document import ConfigurationDocument
from firedex.service.state.offered_rates import RateSnapshot
from firedex.service.state.site_state import FIRST_PORT, DeclaredTopic, SiteState
from firedex.wire import Flow, PublisherRegistration, SubscriberRegistration
from tests.support.parts_site import publisher, site, subscriber

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


def plan_registrations(
    subscribers: Sequence[SubscriberRegistration],
    publishers: Sequence[PublisherRegistration] = (publisher("p0", TOPICS),),
    before: tuple[Flow, ...] = (),
    **changes: Any,
) -> PlannedSite:
    scenario = planning_scenario(
        site(**changes), state_of(subscribers, publishers), RateSnapshot({})
    )
    addresses = {r.subscriber.id: r.address for r in subscribers}
    return plan_site(scenario, addresses, GATEWAY, before)


def used_ports(plan_registrations: PlannedSite) -> list[tuple[str, int]]:
    return [
        (str(flow.endpoints.subscriber_address), port)
        for flow in plan_registrations.flows
        if flow.endpoints is not None
        for port in flow.endpoints.subscriber_ports
    ]


def switches(*more: dict[str, Any], **core_options: Any) -> dict[str, Any]:
    return {
        "switches": [
            {"id": "lan", "managed": False, "bandwidth_bits_per_second": 1e9},
            {"id": "core", "bandwidth_bits_per_second": 5e6, **core_options},
            *more,
        ],
        "broker": {"id": "edge"},
    }


def test_every_built_in_scenario_can_be_planned() -> None:
    """Subscribers in its phases and its timeline are not registered yet."""
    for name in built_in_scenarios():
        scenario = planning_scenario(
            read_scenario(f"builtin:{name}"), SiteState(), RateSnapshot({})
        )
        assert scenario.subscribers == ()


# -- endpoints -------------------------------------------------------------------------------------


def test_every_flow_has_two_ports_and_the_gateway() -> None:
    plan = plan_registrations([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    assert [flow.flow for flow in plan.flows] == [0, 1]
    for flow in plan.flows:
        assert flow.endpoints is not None
        assert len(set(flow.endpoints.subscriber_ports)) == 2
        assert str(flow.endpoints.subscriber_address) == "10.0.0.101"
        assert (flow.endpoints.gateway_address, flow.endpoints.gateway_port) == (
            GATEWAY.address,
            1884,
        )
        assert flow.endpoints.transport == "tcp"


def test_every_subscription_is_in_exactly_one_flow() -> None:
    plan = plan_registrations([subscriber("crew", "smoke/#", "camera/#", "heat/#")])
    filters = [name for flow in plan.flows for name in flow.filters]
    assert sorted(filters) == ["camera/#", "heat/#", "smoke/#"]
    assert plan.flows[0].filters[0] == "smoke/#", "the highest utility comes first"


def test_subscribers_on_one_address_have_different_ports() -> None:
    plan = plan_registrations([subscriber(f"crew{n}", "smoke/#", "camera/#") for n in range(5)])
    ports = used_ports(plan)
    assert len(ports) == 5 * 2 * 2
    assert len(set(ports)) == len(ports)


def test_ports_are_assigned_per_address() -> None:
    plan = plan_registrations(
        [subscriber(f"c{n}", "smoke/#", address=f"10.0.0.{n + 1}") for n in range(3)]
    )
    assert {port for _, port in used_ports(plan)} == {20_000, 20_001}


def test_exhausted_ports_are_reported_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_plan, "LAST_PORT", FIRST_PORT + 3)
    plan_registrations([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    with pytest.raises(PortsExhausted, match=r"10\.0\.0\.101 has no free local ports") as raised:
        plan_registrations([subscriber(f"c{n}", "smoke/#", address="10.0.0.101") for n in range(3)])
    assert raised.value.address == "10.0.0.101"


def test_flow_has_the_highest_qos_of_its_subscriptions() -> None:
    plan = plan_registrations(
        [subscriber("crew", "smoke/#", qos=2), subscriber("other", "smoke/#")]
    )
    assert {flow.subscriber: flow.qos for flow in plan.flows} == {"crew": 2, "other": 0}


def test_new_subscriber_does_not_move_ports_of_others() -> None:
    second = subscriber("engine2", "smoke/#", "camera/#", address="10.0.0.101")
    before = plan_registrations([second])
    first = subscriber("engine1", "smoke/#", "camera/#", address="10.0.0.101")
    after = plan_registrations([first, second], before=before.flows)
    previous = [flow for flow in after.flows if flow.subscriber == "engine2"]
    assert used_ports(before) == used_ports(replace(after, flows=tuple(previous)))
    assert len(set(used_ports(after))) == len(used_ports(after))


def test_subscriber_with_a_new_address_gets_ports_there() -> None:
    before = plan_registrations([subscriber("crew", "smoke/#", address="10.0.0.1")])
    after = plan_registrations(
        [subscriber("crew", "smoke/#", address="10.0.0.2")], before=before.flows
    )
    assert {address for address, _ in used_ports(after)} == {"10.0.0.2"}


def test_document_equals_the_values() -> None:
    """The document is assembled from text for speed, so it is compared with the values."""
    many = [
        subscriber("crew", "smoke/#", "camera/#", "attic/#", qos=1),
        subscriber("other", "smoke/1", "heat/1", address="10.0.0.2"),
        subscriber("none", address="10.0.0.3"),
    ]
    plan = plan_registrations(many, bandwidth_bits_per_second=4e4, planning={"drop_policy": "none"})
    document = plan.document(7, datetime(2025, 3, 1, tzinfo=UTC), 'with "flows":[] in it')
    whole = document.value()
    assert whole.flows == plan.flows
    assert whole.prediction == plan.plan.table.to_prediction()
    assert (whole.version, whole.reason) == (7, 'with "flows":[] in it')
    again = ConfigurationDocument.from_bytes(document.to_bytes())
    assert again == document
    mine = tuple(flow for flow in plan.flows if flow.subscriber == "other")
    assert again.flows_of("other") == mine
    assert {row.subscriber for row in again.predictions_of("other")} == {"other"}
    assert again.flows_of("none") == again.flows_of("nobody") == ()
