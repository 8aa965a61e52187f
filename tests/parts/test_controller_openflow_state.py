"""From a switch's rules to OpenFlow entries."""

from parts_site import switch_rules_of

from firedex_controller.openflow_state import BASELINE, desired_state


def test_the_cookie_is_the_version() -> None:
    assert desired_state(switch_rules_of(version=42)).cookie == 42


def test_a_rule_becomes_a_flow_with_its_mark_queue_and_meter() -> None:
    flow = desired_state(switch_rules_of()).flows[1]
    assert dict(flow.match) == {
        "eth_type": 0x0800,
        "ip_proto": 6,
        "ipv4_src": "10.0.0.10",
        "ipv4_dst": "10.0.0.101",
        "tcp_src": 1884,
        "tcp_dst": 20_001,
    }
    assert (flow.dscp, flow.queue, flow.meter) == (44, 1, 2)


def test_unmanaged_traffic_rides_in_the_lowest_planned_class_with_its_mark_overwritten() -> None:
    rules = switch_rules_of(priorities=(0, 3, 1))
    (unmanaged,) = [flow for flow in desired_state(rules).flows if len(flow.match) == 1]
    assert dict(unmanaged.match) == {"eth_type": 0x0800}
    assert (unmanaged.dscp, unmanaged.queue, unmanaged.meter) == (40, 3, None)


def test_without_queues_unmanaged_traffic_still_loses_its_mark() -> None:
    state = desired_state(switch_rules_of(priorities=()))
    (unmanaged,) = [flow for flow in state.flows if flow.match]
    assert (unmanaged.dscp, unmanaged.queue) == (0, 0)


def test_arp_and_all_else_is_forwarded_as_it_is() -> None:
    for state in (BASELINE, desired_state(switch_rules_of())):
        last = min(state.flows, key=lambda flow: flow.priority)
        assert last.match == ()
        assert (last.dscp, last.queue, last.meter) == (None, None, None)


def test_the_more_exact_rule_wins() -> None:
    managed, unmanaged, everything = (
        {flow.priority for flow in desired_state(switch_rules_of()).flows if len(flow.match) == n}
        for n in (6, 1, 0)
    )
    assert min(managed) > max(unmanaged) > max(everything) > 0


def test_meters_are_whole_packets_per_second_and_never_none() -> None:
    meters = desired_state(switch_rules_of()).meters
    assert [(meter.id, meter.packets_per_second, meter.burst_packets) for meter in meters] == [
        (1, 200, 200),
        (2, 200, 200),
    ]


def test_before_any_configuration_a_switch_forwards() -> None:
    assert BASELINE.cookie == 0
    assert len(BASELINE.flows) == 1
