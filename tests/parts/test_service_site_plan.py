"""From registrations to endpoints and rules."""

from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address
from math import ceil
from typing import Any

import pytest
from parts_site import publisher, site, subscriber

from firedex.service import site_plan
from firedex.service.errors import PortsExhausted
from firedex.service.site_plan import Gateway, make_configuration, site_scenario, switch_rules
from firedex.wire import (
    Configuration,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    SwitchRules,
)
from firedex.wire.packet_sizes import LARGEST_SEGMENT_BYTES, STAMP_BYTES, mqtt_publish_bytes

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


def rules_of(*subscribers: SubscriberRegistration, **changes: Any) -> SwitchRules:
    (rules,) = switch_rules(*planned(subscribers, **changes))
    return rules


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


# -- rules -----------------------------------------------------------------------------------------


def test_two_rules_for_every_flow_from_the_gateway_to_its_ports() -> None:
    scenario, made = planned([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    (rules,) = switch_rules(scenario, made)
    assert (rules.switch, rules.configuration_version) == ("core", 3)
    assert rules.bandwidth_bits_per_second == 5e6
    for flow in made.flows:
        assert flow.endpoints is not None
        of_flow = [r for r in rules.rules if r.destination_port in flow.endpoints.subscriber_ports]
        assert sorted(r.destination_port for r in of_flow) == sorted(
            flow.endpoints.subscriber_ports
        )
        assert {(str(r.source_address), r.source_port) for r in of_flow} == {("10.0.0.10", 1884)}
        assert {r.priority for r in of_flow} == {flow.priority}
        assert len({r.meter for r in of_flow}) == 1
    assert len(rules.rules) == 2 * len(made.flows)


def test_unmanaged_switches_get_no_rules() -> None:
    found = switch_rules(*planned([subscriber("crew", "smoke/#")]))
    assert [rules.switch for rules in found] == ["core"]


def test_a_class_has_one_mark_in_queues_and_rules() -> None:
    rules = rules_of(subscriber("crew", "smoke/#", "camera/#"))
    marks = {queue.priority: queue.dscp for queue in rules.queues}
    assert marks == {0: 46, 1: 45}
    assert all(rule.dscp == marks[rule.priority] for rule in rules.rules)


def test_there_is_a_queue_for_class_0_even_without_flows() -> None:
    rules = rules_of()
    assert [queue.priority for queue in rules.queues] == [0]
    assert (rules.rules, rules.meters) == ((), ())


def test_meters_are_known_distinct_and_have_headroom() -> None:
    rates = {name: rate * 20 for name, rate in TOPICS.items()}
    scenario, made = planned(
        [subscriber("crew", "smoke/#", "camera/#")],
        [publisher("p0", rates)],
        bandwidth_bits_per_second=1e8,
    )
    (rules,) = switch_rules(scenario, made)
    meters = {meter.id: meter for meter in rules.meters}
    assert len(meters) == len(rules.meters)
    assert {rule.meter for rule in rules.rules} == set(meters)
    camera = next(flow for flow in made.flows if "camera/#" in flow.filters)
    assert camera.endpoints is not None
    number = next(
        rule.meter
        for rule in rules.rules
        if rule.destination_port == camera.endpoints.subscriber_ports[0]
    )
    assert number is not None
    assert meters[number].packets_per_second >= 2 * rates["camera/1"]
    assert all(meter.burst_packets >= 10 for meter in rules.meters)


def test_a_meter_admits_every_segment_of_large_events() -> None:
    event_bytes, rate = 9000, 200.0
    rules = rules_of(
        subscriber("crew", "camera/1"),
        publishers=[publisher("p0", {"camera/1": rate}, event_bytes=event_bytes)],
        bandwidth_bits_per_second=1e9,
    )
    message = mqtt_publish_bytes(event_bytes, "camera/1", 0, STAMP_BYTES["tcp"])
    packets_per_second = rate * ceil(message / LARGEST_SEGMENT_BYTES)
    assert rules.meters[0].packets_per_second > packets_per_second


def test_classes_never_share_a_mark() -> None:
    classes = 30
    names = {f"t/{n}": 1.0 for n in range(classes)}
    rules = rules_of(
        subscriber("crew", *names),
        publishers=[publisher("p0", names)],
        network=switches(priorities=classes),
        planning={"drop_policy": "flat", "flows_per_subscriber": classes, "priorities": classes},
    )
    marks = [queue.dscp for queue in rules.queues]
    assert len(marks) == classes
    assert len(set(marks)) == classes


def test_no_switch_is_asked_for_more_classes_than_it_offers() -> None:
    names = {f"t/{n}": 1.0 for n in range(8)}
    scenario, made = planned(
        [subscriber("near", *names), subscriber("far", *names, switch="small", address="10.0.0.2")],
        [publisher("p0", names)],
        network=switches(
            {"id": "small", "bandwidth_bits_per_second": 5e6, "priorities": 2}, priorities=8
        ),
        planning={"drop_policy": "flat", "flows_per_subscriber": 8, "priorities": 8},
    )
    small = next(rules for rules in switch_rules(scenario, made) if rules.switch == "small")
    assert max(queue.priority for queue in small.queues) < 2
