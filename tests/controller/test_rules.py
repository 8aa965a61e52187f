"""The rules of a switch that are compiled from its desired flows."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex.wire import ControlEndpoint, DesiredNetwork
from firedex_controller.errors import InvalidNetwork
from firedex_controller.rules import (
    BASE_CLASSIFICATION,
    check_network,
    classification,
    dscp_of_class,
    version_cookie,
    version_of_cookie,
)
from firedex_controller.switch_state import CLASSIFY, FORWARD, FlowEntry, SwitchState
from tests.support.desired_examples import flow_rule, network, shaped_port


def compile_rules(desired: DesiredNetwork, installed: SwitchState | None = None) -> SwitchState:
    return classification(desired, desired.switches[0], installed or SwitchState())


def matching_entries(state: SwitchState, **fields: object) -> list[FlowEntry]:
    expected_fields = set(fields.items())
    return [flow for flow in state.flows.values() if expected_fields <= set(flow.match)]


def test_both_ports_of_a_flow_match_and_share_one_meter() -> None:
    state = compile_rules(network(flow_rule(flow=2, priority=3)))
    entries = matching_entries(state, ipv4_dst="10.0.0.101")
    assert sorted(dict(entry.match)["udp_dst"] for entry in entries) == [20_004, 20_005]  # type: ignore[type-var]
    (meter,) = {entry.meter for entry in entries}
    assert meter is not None
    assert (state.meters[meter].rate, state.meters[meter].burst) == (200, 200)
    for entry in entries:
        assert (entry.table, entry.next_table) == (CLASSIFY, FORWARD)
        assert (entry.queue, entry.dscp) == (3, dscp_of_class(3))
        assert dict(entry.match)["ipv4_src"] == "10.0.0.10"
        assert dict(entry.match)["udp_src"] == 1884
        assert dict(entry.match)["ip_proto"] == 17


def test_tcp_flows_match_tcp() -> None:
    (entry, _) = matching_entries(compile_rules(network(flow_rule(transport="tcp"))), tcp_src=1884)
    assert dict(entry.match)["ip_proto"] == 6


def test_cookies_contain_the_configuration_version() -> None:
    (entry, *_) = matching_entries(compile_rules(network(flow_rule(), version=42)), udp_src=1884)
    assert version_of_cookie(entry.cookie) == 42
    assert version_of_cookie(42) is None, "an entry of another program"
    assert version_of_cookie(version_cookie(0)) == 0


def test_unmanaged_traffic_gets_the_lowest_planned_class_and_no_meter() -> None:
    state = compile_rules(
        network(
            flow_rule(flow=0, priority=0), flow_rule(flow=1, priority=2), ports=(shaped_port(8),)
        )
    )
    (unmanaged,) = [flow for flow in state.flows.values() if flow.match == (("eth_type", 0x0800),)]
    assert (unmanaged.queue, unmanaged.dscp, unmanaged.meter) == (2, dscp_of_class(2), None)


def test_arp_uses_the_highest_class_and_a_meter() -> None:
    for state in (BASE_CLASSIFICATION, compile_rules(network(flow_rule()))):
        (arp,) = matching_entries(state, eth_type=0x0806)
        assert arp.queue == 0
        assert arp.meter in state.meters


def test_control_traffic_uses_the_highest_class_and_a_meter() -> None:
    service = ControlEndpoint(address=IPv4Address("10.0.0.10"), port=8088)
    state = compile_rules(network(flow_rule(), control=(service,)))
    entries = [*matching_entries(state, tcp_dst=8088), *matching_entries(state, tcp_src=8088)]
    assert len(entries) == 2
    flow = matching_entries(state, udp_src=1884)[0]
    for entry in entries:
        assert (entry.queue, entry.dscp) == (0, dscp_of_class(0))
        assert entry.priority > flow.priority
        assert entry.meter is not None
        assert state.meters[entry.meter].unit == "kilobits"


def test_only_ip_packets_are_marked() -> None:
    for flow in compile_rules(network(flow_rule())).flows.values():
        assert flow.dscp is None or dict(flow.match)["eth_type"] == 0x0800


def test_flow_keeps_its_meter_when_others_change() -> None:
    first = compile_rules(network(flow_rule(flow=0), flow_rule(flow=1), flow_rule(flow=2)))
    later = compile_rules(network(flow_rule(flow=3), flow_rule(flow=2), flow_rule(flow=1)), first)
    for flow in (1, 2):
        port = 20_000 + 2 * flow
        (before,) = matching_entries(first, udp_dst=port)
        (after,) = matching_entries(later, udp_dst=port)
        assert before.meter == after.meter


def test_meter_in_use_is_not_given_to_another_flow() -> None:
    first = compile_rules(network(flow_rule(flow=0)))
    later = compile_rules(network(flow_rule(flow=1)), first)
    assert (
        matching_entries(first, udp_dst=20_000)[0].meter
        != matching_entries(later, udp_dst=20_002)[0].meter
    )


@given(st.lists(st.integers(0, 60), unique=True), st.lists(st.integers(0, 60), unique=True))
def test_flows_never_share_a_meter(before: list[int], after: list[int]) -> None:
    first = compile_rules(network(*(flow_rule(flow=number) for number in before)))
    second = compile_rules(network(*(flow_rule(flow=number) for number in after)), first)
    meters = [matching_entries(second, udp_dst=20_000 + 2 * number)[0].meter for number in after]
    assert len(set(meters)) == len(after)
    assert all(meter in second.meters for meter in meters)


def test_meter_rates_are_whole_and_at_least_one() -> None:
    state = compile_rules(network(flow_rule(packets_per_second=0.2), flow_rule(flow=1)))
    assert min(meter.rate for meter in state.meters.values()) == 1


def test_meter_rates_are_limited_to_32_bits() -> None:
    state = compile_rules(network(flow_rule(packets_per_second=1e15)))
    assert max(meter.rate for meter in state.meters.values()) == 2**32 - 1


GOOD = network(flow_rule(flow=0), flow_rule(flow=1, priority=1), ports=(shaped_port(2),))


def test_valid_network_is_accepted() -> None:
    check_network(GOOD)


@pytest.mark.parametrize(
    ("invalid", "expected"),
    [
        (replace(GOOD, switches=GOOD.switches * 2), "switches: 'core' is listed twice"),
        (network(ports=(shaped_port(2), shaped_port(3))), "core: ports: two ports lead to hosts"),
        (
            network(ports=(shaped_port(2, towards="s2"), shaped_port(3, towards="s2"))),
            "core: ports: two ports lead to 's2'",
        ),
        (
            network(flow_rule(flow=1), flow_rule(flow=1, first_port=30_000)),
            "flow 1 of crew is listed twice",
        ),
        (
            network(flow_rule("crew"), flow_rule("command")),
            "flow 0 of crew and flow 0 of command have the same endpoints",
        ),
        (
            network(flow_rule(priority=5), ports=(shaped_port(2),)),
            "flow 0 of crew is in class 5, which no port of the switch has",
        ),
        (replace(GOOD, configuration_version=2**48), "configuration_version"),
    ],
)
def test_error_describes_the_contradiction(invalid: DesiredNetwork, expected: str) -> None:
    with pytest.raises(InvalidNetwork, match=expected):
        check_network(invalid)


def test_every_class_has_its_own_dscp_mark() -> None:
    marks = [dscp_of_class(priority) for priority in range(64)]
    assert sorted(marks) == list(range(64))


def test_highest_class_is_expedited_forwarding_and_last_is_unmarked() -> None:
    assert dscp_of_class(0) == 46
    assert [dscp_of_class(p) for p in (45, 46, 62, 63)] == [1, 47, 63, 0]


@pytest.mark.parametrize("priority", [-1, 64])
def test_invalid_class_raises(priority: int) -> None:
    with pytest.raises(ValueError, match=str(priority)):
        dscp_of_class(priority)
