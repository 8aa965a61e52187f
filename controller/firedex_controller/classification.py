"""From a switch's desired rules to its CLASSIFY table and meters. Pure.

Each flow's packets get their class's mark and queue and pass its meter. Whatever else is IP shares
the lowest class that a flow was planned into, its own mark overwritten, and is dropped by no rule.
ARP and FireDeX's own control traffic ride in the highest class, each behind a limit.
"""

from collections.abc import Iterable, Iterator, Mapping

from firedex.wire import ControlEndpoint, DesiredNetwork, DesiredSwitch, FlowRule
from firedex_controller.marks import dscp_of_class
from firedex_controller.switch_entries import (
    CLASSIFY,
    FORWARD,
    FlowEntry,
    Match,
    MeterEntry,
    SwitchState,
    match_of,
)

__all__ = [
    "UNCONFIGURED",
    "classification",
    "flow_matches",
    "version_cookie",
    "version_of_cookie",
]

ARP_METER, CONTROL_METER, FIRST_FLOW_METER = 1, 2, 16
ARP_PACKETS_PER_SECOND, ARP_BURST_PACKETS = 200, 100
CONTROL_BURST_SECONDS = 1.0
ARP_PRIORITY, CONTROL_PRIORITY, FLOW_PRIORITY, UNMANAGED_PRIORITY = 300, 250, 200, 100
ARP, IPV4 = 0x0806, 0x0800
IP_PROTOCOL = {"tcp": 6, "udp": 17}
HIGHEST_CLASS = 0
LARGEST = 2**32 - 1
COOKIE_TAG = 0xF17E << 48
COOKIE_TAG_MASK = 0xFFFF << 48


def version_cookie(version: int) -> int:
    """The cookie of what a configuration wrote; version 0 is what needs none."""
    return COOKIE_TAG | version


def version_of_cookie(cookie: int) -> int | None:
    """Which configuration wrote an entry, or None when it is not FireDeX's."""
    return cookie & ~COOKIE_TAG_MASK if cookie & COOKIE_TAG_MASK == COOKIE_TAG else None


def classification(
    network: DesiredNetwork, switch: DesiredSwitch, installed: SwitchState
) -> SwitchState:
    """Compile one switch's part; flows keep the meters that they have where ``installed``."""
    cookie = version_cookie(network.configuration_version)
    meters = _meter_ids(switch.flows, installed)
    lowest = _lowest_class(switch)
    flows = [
        FlowEntry(
            table=CLASSIFY,
            priority=FLOW_PRIORITY,
            match=match,
            meter=meters[rule.subscriber, rule.flow],
            dscp=dscp_of_class(rule.priority),
            queue=rule.priority,
            next_table=FORWARD,
            cookie=cookie,
            label=_label(rule),
        )
        for rule in switch.flows
        for match in flow_matches(rule)
    ]
    flows += [_control_entry(match, cookie) for match in _control_matches(network.control)]
    flows.append(
        FlowEntry(
            table=CLASSIFY,
            priority=UNMANAGED_PRIORITY,
            match=match_of(eth_type=IPV4),
            dscp=dscp_of_class(lowest),
            queue=lowest,
            next_table=FORWARD,
            cookie=cookie,
        )
    )
    limits = [_meter(meters[rule.subscriber, rule.flow], rule) for rule in switch.flows]
    if network.control:
        limits.append(_control_meter(network.control_bits_per_second))
    return UNCONFIGURED.with_state(SwitchState.of(flows, limits))


def flow_matches(rule: FlowRule) -> Iterator[Match]:
    """The packets of a flow: from the gateway to each of its ports."""
    ends = rule.endpoints
    for port in ends.subscriber_ports:
        yield match_of(
            **{
                "eth_type": IPV4,
                "ip_proto": IP_PROTOCOL[ends.transport],
                "ipv4_src": str(ends.gateway_address),
                "ipv4_dst": str(ends.subscriber_address),
                f"{ends.transport}_src": ends.gateway_port,
                f"{ends.transport}_dst": port,
            }
        )


def _lowest_class(switch: DesiredSwitch) -> int:
    planned = {rule.priority for rule in switch.flows}
    offered = {queue.priority for port in switch.ports for queue in port.classes}
    return max(planned or offered or {HIGHEST_CLASS})


def _meter_ids(rules: Iterable[FlowRule], installed: SwitchState) -> Mapping[tuple[str, int], int]:
    """A meter for each flow: the one that its packets pass already, or a free one."""
    rules = list(rules)
    present = {
        flow.match: flow.meter for flow in installed.flows.values() if flow.table == CLASSIFY
    }
    ids: dict[tuple[str, int], int] = {}
    taken: set[int] = set()
    for rule in rules:
        for match in flow_matches(rule):
            meter = present.get(match)
            if meter is not None and meter not in taken:
                ids[rule.subscriber, rule.flow] = meter
                taken.add(meter)
                break
    # An id that is still on the switch for another flow is not handed on: that flow may yet use it.
    free = _free_ids(taken | set(installed.meters))
    for rule in rules:
        if (rule.subscriber, rule.flow) not in ids:
            ids[rule.subscriber, rule.flow] = next(free)
    return ids


def _free_ids(taken: set[int]) -> Iterator[int]:
    number = FIRST_FLOW_METER
    while True:
        if number not in taken:
            yield number
        number += 1


def _meter(number: int, rule: FlowRule) -> MeterEntry:
    return MeterEntry(
        id=number,
        rate=_within(rule.limit.packets_per_second),
        burst=_within(rule.limit.burst_packets),
        label=f"the meter of {_label(rule)}",
    )


def _within(number: float) -> int:
    """As OpenFlow can say it: whole, and 32 bits."""
    return min(max(round(number), 1), LARGEST)


def _label(rule: FlowRule) -> str:
    return f"flow {rule.flow} of {rule.subscriber}"


def _control_meter(bits_per_second: float) -> MeterEntry:
    kilobits = _within(bits_per_second / 1000)
    burst = _within(kilobits * CONTROL_BURST_SECONDS)
    return MeterEntry(id=CONTROL_METER, unit="kilobits", rate=kilobits, burst=burst)


def _control_matches(endpoints: Iterable[ControlEndpoint]) -> Iterator[Match]:
    for endpoint in endpoints:
        common = {"eth_type": IPV4, "ip_proto": IP_PROTOCOL["tcp"]}
        yield match_of(**common, ipv4_dst=str(endpoint.address), tcp_dst=endpoint.port)
        yield match_of(**common, ipv4_src=str(endpoint.address), tcp_src=endpoint.port)


def _control_entry(match: Match, cookie: int) -> FlowEntry:
    return FlowEntry(
        table=CLASSIFY,
        priority=CONTROL_PRIORITY,
        match=match,
        meter=CONTROL_METER,
        dscp=dscp_of_class(HIGHEST_CLASS),
        queue=HIGHEST_CLASS,
        next_table=FORWARD,
        cookie=cookie,
    )


UNCONFIGURED = SwitchState.of(
    [
        FlowEntry(
            table=CLASSIFY,
            priority=ARP_PRIORITY,
            match=match_of(eth_type=ARP),
            meter=ARP_METER,
            queue=HIGHEST_CLASS,
            next_table=FORWARD,
            cookie=version_cookie(0),
        ),
        FlowEntry(
            table=CLASSIFY, priority=0, match=(), next_table=FORWARD, cookie=version_cookie(0)
        ),
    ],
    [MeterEntry(id=ARP_METER, rate=ARP_PACKETS_PER_SECOND, burst=ARP_BURST_PACKETS)],
)
"""What a switch classifies before it has a configuration: nothing, but ARP stays within bounds."""
