"""The desired state of the switches for a configuration."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from firedex.service.planner.desired_network import desired_network
from firedex.wire import DesiredSwitch, SubscriberRegistration
from firedex.wire.packet_sizes import (
    MAX_SEGMENT_BYTES,
    STAMP_BYTES,
    mqtt_publish_bytes,
    wire_bytes,
)
from tests.service.test_site_plan import TOPICS, plan_registrations, switches
from tests.support.parts_site import publisher, subscriber


def core_of(*subscribers: SubscriberRegistration, **changes: Any) -> DesiredSwitch:
    (core,) = desired_network(plan_registrations(subscribers, **changes), 3).switches
    return core


def test_every_flow_has_a_rule_with_its_endpoints_and_class() -> None:
    plan = plan_registrations([subscriber("crew", "smoke/#", "camera/#", address="10.0.0.101")])
    network = desired_network(plan, 3)
    (core,) = network.switches
    assert (core.switch, network.configuration_version) == ("core", 3)
    assert [(r.flow, r.priority, r.endpoints) for r in core.flows] == [
        (flow.flow, flow.priority, flow.endpoints) for flow in plan.flows
    ]


def test_unmanaged_switches_have_no_desired_state() -> None:
    network = desired_network(plan_registrations([subscriber("crew", "smoke/#")]), 3)
    assert [switch.switch for switch in network.switches] == ["core"]


def test_port_has_the_classes_of_its_flows_and_the_highest() -> None:
    (port,) = core_of(subscriber("crew", "smoke/#", "camera/#")).ports
    assert (port.towards, port.bandwidth_bits_per_second) == (None, 5e6)
    assert [queue.priority for queue in port.classes] == [0, 1]


def test_guaranteed_rates_are_at_most_two_percent_of_the_port() -> None:
    for bandwidth in (4e5, 5e6, 1e9):
        (port,) = core_of(
            subscriber("crew", "smoke/#", "camera/#"), bandwidth_bits_per_second=bandwidth
        ).ports
        guaranteed = sum(queue.guaranteed_bits_per_second for queue in port.classes)
        assert guaranteed <= 0.02 * bandwidth


def test_buffer_and_guarantee_of_the_site_are_used() -> None:
    network = switches(
        buffer={"kind": "per-class-head-drop", "packets": 77}, guaranteed_bits_per_second=5000.0
    )
    (port,) = core_of(subscriber("crew", "smoke/#"), network=network).ports
    assert {queue.limit_packets for queue in port.classes} == {77}
    assert {queue.guaranteed_bits_per_second for queue in port.classes} == {5000.0}


def test_backstop_meter_has_headroom() -> None:
    rates = {name: rate * 20 for name, rate in TOPICS.items()}
    core = core_of(
        subscriber("crew", "smoke/#", "camera/#"),
        publishers=[publisher("p0", rates)],
        bandwidth_bits_per_second=1e8,
    )
    largest = max(rule.limit.packets_per_second for rule in core.flows)
    assert largest >= 2 * rates["camera/1"]
    assert all(rule.limit.burst_packets >= 10 for rule in core.flows)


def test_only_the_first_switch_enforces_the_drop_rate() -> None:
    network = switches(
        {"id": "floor", "bandwidth_bits_per_second": 5e6},
    ) | {"links": [{"from": "core", "to": "floor"}], "broker": {"id": "edge", "switch": "core"}}
    plan = plan_registrations(
        [subscriber("crew", "camera/1", switch="floor", address="10.0.0.101")],
        [publisher("p0", {"camera/1": 100.0})],
        network=network,
    )
    metered = replace(plan.flows[0], drop_rate=0.4, enforced_at="meter")
    desired = desired_network(replace(plan, flows=(metered,)), 3)
    limits = {switch.switch: switch.flows[0].limit for switch in desired.switches}
    assert limits["core"].packets_per_second == 60.0
    assert limits["core"].burst_packets >= 10
    assert limits["floor"].packets_per_second > 100.0
    towards = {
        switch.switch: [port.towards for port in switch.ports] for switch in desired.switches
    }
    assert towards == {"core": ["floor"], "floor": [None]}


def test_meter_admits_all_segments_of_large_events() -> None:
    event_bytes, rate = 9000, 200.0
    core = core_of(
        subscriber("crew", "camera/1"),
        publishers=[publisher("p0", {"camera/1": rate}, event_bytes=event_bytes)],
        bandwidth_bits_per_second=1e9,
    )
    message = mqtt_publish_bytes(event_bytes, "camera/1", 0, STAMP_BYTES["tcp"])
    packets_per_second = rate * ceil(message / MAX_SEGMENT_BYTES)
    assert core.flows[0].limit.packets_per_second > packets_per_second


def test_switch_gets_at_most_the_classes_it_supports() -> None:
    names = {f"t/{n}": 1.0 for n in range(8)}
    network = desired_network(
        plan_registrations(
            [
                subscriber("near", *names),
                subscriber("far", *names, switch="small", address="10.0.0.2"),
            ],
            [publisher("p0", names)],
            network=switches(
                {"id": "small", "bandwidth_bits_per_second": 5e6, "priorities": 2}, priorities=8
            ),
            planning={"drop_policy": "flat", "flows_per_subscriber": 8, "priorities": 8},
        ),
        3,
    )
    small = next(switch for switch in network.switches if switch.switch == "small")
    assert max(q.priority for port in small.ports for q in port.classes) < 2


def test_backstop_meter_follows_the_plan_and_is_at_most_the_port() -> None:
    packet_bits = 8 * wire_bytes(payload_bytes=100, transport="tcp", topic="alarm/a", stamped=True)

    def limit(rate: float, bandwidth: float) -> float:
        core = core_of(
            subscriber("crew", "alarm/#"),
            publishers=[publisher("p0", {"alarm/a": rate})],
            bandwidth_bits_per_second=bandwidth,
            planning={"drop_policy": "optimized", "priorities": 2, "flows_per_subscriber": 2},
        )
        (rule,) = core.flows
        return rule.limit.packets_per_second

    assert limit(2.0, 1e5) == 20.0
    assert limit(50.0, 5e6) == pytest.approx(150.0)
    assert limit(1e5, 1e5) * packet_bits <= 1e5 + 1


def test_backstop_meter_admits_the_planned_rate_of_events_of_different_sizes() -> None:
    topics = [
        publisher("small", {"any/alarm": 100.0}, event_bytes=50),
        publisher("large", {"any/camera": 1.0}, event_bytes=9000),
    ]
    core = core_of(subscriber("crew", "any/#"), publishers=topics, bandwidth_bits_per_second=1e6)
    assert core.flows[0].limit.packets_per_second >= 2 * (100 + 7)
