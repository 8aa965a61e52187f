"""From desired flows to what a switch classifies."""

from ipaddress import IPv4Address

from desired_examples import flow_rule, network, shaped_port
from hypothesis import given
from hypothesis import strategies as st

from firedex.wire import ControlEndpoint, DesiredNetwork
from firedex_controller.classification import (
    UNCONFIGURED,
    classification,
    version_cookie,
    version_of_cookie,
)
from firedex_controller.marks import CLASSES, dscp_of_class
from firedex_controller.switch_entries import CLASSIFY, FORWARD, FlowEntry, SwitchState


def compiled(desired: DesiredNetwork, installed: SwitchState | None = None) -> SwitchState:
    return classification(desired, desired.switches[0], installed or SwitchState())


def matching(state: SwitchState, **fields: object) -> list[FlowEntry]:
    wanted = set(fields.items())
    return [flow for flow in state.flows.values() if wanted <= set(flow.match)]


def test_a_flow_is_recognised_at_both_of_its_ports_and_shares_one_meter() -> None:
    state = compiled(network(flow_rule(flow=2, priority=3)))
    entries = matching(state, ipv4_dst="10.0.0.101")
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
    (entry, _) = matching(compiled(network(flow_rule(transport="tcp"))), tcp_src=1884)
    assert dict(entry.match)["ip_proto"] == 6


def test_cookies_carry_the_version() -> None:
    (entry, *_) = matching(compiled(network(flow_rule(), version=42)), udp_src=1884)
    assert version_of_cookie(entry.cookie) == 42
    assert version_of_cookie(42) is None, "somebody else's entry"
    assert version_of_cookie(version_cookie(0)) == 0


def test_unmanaged_traffic_shares_the_lowest_planned_class_unmetered_and_newly_marked() -> None:
    state = compiled(
        network(
            flow_rule(flow=0, priority=0), flow_rule(flow=1, priority=2), ports=(shaped_port(8),)
        )
    )
    (unmanaged,) = [flow for flow in state.flows.values() if flow.match == (("eth_type", 0x0800),)]
    assert (unmanaged.queue, unmanaged.dscp, unmanaged.meter) == (2, dscp_of_class(2), None)


def test_arp_rides_high_and_is_limited() -> None:
    for state in (UNCONFIGURED, compiled(network(flow_rule()))):
        (arp,) = matching(state, eth_type=0x0806)
        assert arp.queue == 0
        assert arp.meter in state.meters


def test_control_traffic_rides_high_both_ways_and_is_limited() -> None:
    service = ControlEndpoint(address=IPv4Address("10.0.0.10"), port=8088)
    state = compiled(network(flow_rule(), control=(service,)))
    entries = [*matching(state, tcp_dst=8088), *matching(state, tcp_src=8088)]
    assert len(entries) == 2
    flow = matching(state, udp_src=1884)[0]
    for entry in entries:
        assert (entry.queue, entry.dscp) == (0, dscp_of_class(0))
        assert entry.priority > flow.priority
        assert entry.meter is not None
        assert state.meters[entry.meter].unit == "kilobits"


def test_only_what_is_ip_is_marked() -> None:
    for flow in compiled(network(flow_rule())).flows.values():
        assert flow.dscp is None or dict(flow.match)["eth_type"] == 0x0800


def test_a_flow_keeps_its_meter_whoever_comes_and_goes() -> None:
    first = compiled(network(flow_rule(flow=0), flow_rule(flow=1), flow_rule(flow=2)))
    later = compiled(network(flow_rule(flow=3), flow_rule(flow=2), flow_rule(flow=1)), first)
    for flow in (1, 2):
        port = 20_000 + 2 * flow
        (before,) = matching(first, udp_dst=port)
        (after,) = matching(later, udp_dst=port)
        assert before.meter == after.meter


def test_a_meter_that_is_still_in_use_is_not_handed_to_another_flow() -> None:
    first = compiled(network(flow_rule(flow=0)))
    later = compiled(network(flow_rule(flow=1)), first)
    assert matching(first, udp_dst=20_000)[0].meter != matching(later, udp_dst=20_002)[0].meter


@given(st.lists(st.integers(0, 60), unique=True), st.lists(st.integers(0, 60), unique=True))
def test_no_two_flows_ever_share_a_meter(before: list[int], after: list[int]) -> None:
    first = compiled(network(*(flow_rule(flow=number) for number in before)))
    second = compiled(network(*(flow_rule(flow=number) for number in after)), first)
    meters = [matching(second, udp_dst=20_000 + 2 * number)[0].meter for number in after]
    assert len(set(meters)) == len(after)
    assert all(meter in second.meters for meter in meters)


def test_meters_are_whole_packets_per_second_and_never_none() -> None:
    state = compiled(network(flow_rule(packets_per_second=0.2), flow_rule(flow=1)))
    assert min(meter.rate for meter in state.meters.values()) == 1


def test_classes_never_share_a_mark() -> None:
    assert {dscp_of_class(priority) for priority in range(CLASSES)} == set(range(64))


def test_numbers_that_openflow_cannot_say_become_the_largest_that_it_can() -> None:
    state = compiled(network(flow_rule(packets_per_second=1e15)))
    assert max(meter.rate for meter in state.meters.values()) == 2**32 - 1
