"""From registrations to endpoints."""

from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

import pytest
from parts_site import publisher, site, subscriber

from firedex.service import site_plan
from firedex.service.errors import PortsExhausted
from firedex.service.site_plan import Gateway, make_configuration, site_scenario
from firedex.wire import (
    Configuration,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
)

GATEWAY = Gateway(address=IPv4Address("10.0.0.10"), port=1884)
TOPICS = {"smoke/1": 10.0, "heat/1": 40.0, "camera/1": 100.0}


def planned(
    subscribers: Sequence[SubscriberRegistration],
    publishers: Sequence[PublisherRegistration] = (publisher("p0", TOPICS),),
    **changes: Any,
) -> tuple[Scenario, Configuration]:
    scenario = site_scenario(site(**changes), publishers, subscribers)
    made = make_configuration(
        scenario,
        subscribers,
        GATEWAY,
        version=3,
        created_at=datetime(2025, 3, 1, tzinfo=UTC),
        reason="a test",
    )
    return scenario, made


def used_ports(configuration: Configuration) -> list[tuple[str, int]]:
    return [
        (str(flow.endpoints.subscriber_address), port)
        for flow in configuration.flows
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


# -- endpoints -------------------------------------------------------------------------------------


def test_every_flow_has_two_ports_and_the_gateway() -> None:
    _, made = planned([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
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
    _, made = planned([subscriber("crew", "smoke/#", "camera/#", "heat/#")])
    filters = [name for flow in made.flows for name in flow.filters]
    assert sorted(filters) == ["camera/#", "heat/#", "smoke/#"]
    assert made.flows[0].filters[0] == "smoke/#", "what is worth most comes first"


def test_several_subscribers_on_one_address_do_not_collide() -> None:
    _, made = planned([subscriber(f"crew{n}", "smoke/#", "camera/#") for n in range(5)])
    ports = used_ports(made)
    assert len(ports) == 5 * 2 * 2
    assert len(set(ports)) == len(ports)


def test_different_addresses_count_by_themselves() -> None:
    _, made = planned([subscriber(f"c{n}", "smoke/#", address=f"10.0.0.{n + 1}") for n in range(3)])
    assert {port for _, port in used_ports(made)} == {20_000, 20_001}


def test_running_out_of_ports_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_plan, "LAST_PORT", site_plan.FIRST_PORT + 3)
    planned([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    with pytest.raises(PortsExhausted, match=r"no local ports are left on 10\.0\.0\.101") as raised:
        planned([subscriber(f"c{n}", "smoke/#", address="10.0.0.101") for n in range(3)])
    assert raised.value.address == "10.0.0.101"


def test_a_flow_has_the_highest_quality_of_its_subscriptions() -> None:
    _, made = planned([subscriber("crew", "smoke/#", qos=2), subscriber("other", "smoke/#")])
    assert {flow.subscriber: flow.qos for flow in made.flows} == {"crew": 2, "other": 0}


def test_the_first_to_declare_a_topic_defines_it() -> None:
    first = publisher("p0", {"smoke/1": 1.0}, event_bytes=51)
    second = publisher("p1", {"smoke/1": 1.0}, event_bytes=999)
    scenario = site_scenario(site(), [first, second], [])
    assert [topic.event_bytes for topic in scenario.topics] == [51]
