"""The rules of a switch: the CLASSIFY table and meters for its desired flows. Pure.

Each flow's packets get the DSCP mark and queue of its class and pass its meter. Other IP packets
share the lowest class of any planned flow; their own mark is overwritten, and no rule drops them.
ARP and FireDeX's control traffic use the highest class, each with a meter.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from firedex.wire import ControlEndpoint, DesiredNetwork, DesiredSwitch, FlowRule
from firedex_controller.errors import InvalidNetwork
from firedex_controller.switch_state import (
    CLASSIFY,
    FORWARD,
    FlowEntry,
    Match,
    MeterEntry,
    SwitchState,
    make_match,
)

__all__ = [
    "BASE_CLASSIFICATION",
    "CLASSES",
    "check_network",
    "classification",
    "dscp_of_class",
    "flow_matches",
    "version_cookie",
    "version_of_cookie",
]

CLASSES = 64
EXPEDITED_FORWARDING = 46


def dscp_of_class(priority: int) -> int:
    """Return the DSCP mark of a class: 46 down to 1 for classes 0 to 45, then 47 to 63, then 0."""
    if not 0 <= priority < CLASSES:
        raise ValueError(f"class {priority} is not between 0 and {CLASSES - 1}")
    if priority < EXPEDITED_FORWARDING:
        return EXPEDITED_FORWARDING - priority
    return (priority + 1) % CLASSES


ARP_METER, CONTROL_METER, FIRST_FLOW_METER = 1, 2, 16
ARP_PACKETS_PER_SECOND, ARP_BURST_PACKETS = 200, 100
CONTROL_BURST_SECONDS = 1.0
ARP_PRIORITY, CONTROL_PRIORITY, FLOW_PRIORITY, UNMANAGED_PRIORITY = 300, 250, 200, 100
ARP, IPV4 = 0x0806, 0x0800
IP_PROTOCOL = {"tcp": 6, "udp": 17}
HIGHEST_CLASS = 0
MAX_UINT32 = 2**32 - 1
COOKIE_TAG = 0xF17E << 48
COOKIE_TAG_MASK = 0xFFFF << 48


def version_cookie(version: int) -> int:
    """Return the cookie of a configuration's entries; version 0 marks those of no configuration."""
    return COOKIE_TAG | version


def version_of_cookie(cookie: int) -> int | None:
    """Return the configuration version of an entry, or None if it is not an entry of FireDeX."""
    return cookie & ~COOKIE_TAG_MASK if cookie & COOKIE_TAG_MASK == COOKIE_TAG else None


def classification(
    network: DesiredNetwork, switch: DesiredSwitch, installed: SwitchState
) -> SwitchState:
    """Return the CLASSIFY table and meters of one switch; flows keep their installed meter ids."""
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
            match=make_match(eth_type=IPV4),
            dscp=dscp_of_class(lowest),
            queue=lowest,
            next_table=FORWARD,
            cookie=cookie,
        )
    )
    limits = [_meter(meters[rule.subscriber, rule.flow], rule) for rule in switch.flows]
    if network.control:
        limits.append(_control_meter(network.control_bits_per_second))
    return BASE_CLASSIFICATION.with_state(SwitchState.of(flows, limits))


def flow_matches(rule: FlowRule) -> Iterator[Match]:
    """Return the matches of a flow: from the gateway to each of its ports."""
    endpoints = rule.endpoints
    for port in endpoints.subscriber_ports:
        yield make_match(
            **{
                "eth_type": IPV4,
                "ip_proto": IP_PROTOCOL[endpoints.transport],
                "ipv4_src": str(endpoints.gateway_address),
                "ipv4_dst": str(endpoints.subscriber_address),
                f"{endpoints.transport}_src": endpoints.gateway_port,
                f"{endpoints.transport}_dst": port,
            }
        )


def _lowest_class(switch: DesiredSwitch) -> int:
    planned = {rule.priority for rule in switch.flows}
    offered = {queue.priority for port in switch.ports for queue in port.classes}
    return max(planned or offered or {HIGHEST_CLASS})


def _meter_ids(rules: Iterable[FlowRule], installed: SwitchState) -> Mapping[tuple[str, int], int]:
    """Return a meter id for each flow: the installed one, or a free one."""
    rules = list(rules)
    installed_meters = {
        flow.match: flow.meter for flow in installed.flows.values() if flow.table == CLASSIFY
    }
    ids: dict[tuple[str, int], int] = {}
    used_ids: set[int] = set()
    for rule in rules:
        for match in flow_matches(rule):
            meter = installed_meters.get(match)
            if meter is not None and meter not in used_ids:
                ids[rule.subscriber, rule.flow] = meter
                used_ids.add(meter)
                break
    # An id that is installed for another flow is not reused, because that flow may still need it.
    free_ids = _free_ids(used_ids | set(installed.meters))
    for rule in rules:
        if (rule.subscriber, rule.flow) not in ids:
            ids[rule.subscriber, rule.flow] = next(free_ids)
    return ids


def _free_ids(used_ids: set[int]) -> Iterator[int]:
    number = FIRST_FLOW_METER
    while True:
        if number not in used_ids:
            yield number
        number += 1


def _meter(number: int, rule: FlowRule) -> MeterEntry:
    return MeterEntry(
        id=number,
        rate=_to_uint32(rule.limit.packets_per_second),
        burst=_to_uint32(rule.limit.burst_packets),
        label=f"the meter of {_label(rule)}",
    )


def _to_uint32(number: float) -> int:
    """Round to a positive whole number of 32 bits, as OpenFlow needs it."""
    return min(max(round(number), 1), MAX_UINT32)


def _label(rule: FlowRule) -> str:
    return f"flow {rule.flow} of {rule.subscriber}"


def _control_meter(bits_per_second: float) -> MeterEntry:
    kilobits = _to_uint32(bits_per_second / 1000)
    burst = _to_uint32(kilobits * CONTROL_BURST_SECONDS)
    return MeterEntry(id=CONTROL_METER, unit="kilobits", rate=kilobits, burst=burst)


def _control_matches(endpoints: Iterable[ControlEndpoint]) -> Iterator[Match]:
    for endpoint in endpoints:
        common = {"eth_type": IPV4, "ip_proto": IP_PROTOCOL["tcp"]}
        yield make_match(**common, ipv4_dst=str(endpoint.address), tcp_dst=endpoint.port)
        yield make_match(**common, ipv4_src=str(endpoint.address), tcp_src=endpoint.port)


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


BASE_CLASSIFICATION = SwitchState.of(
    [
        FlowEntry(
            table=CLASSIFY,
            priority=ARP_PRIORITY,
            match=make_match(eth_type=ARP),
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
"""The CLASSIFY table of a switch without a configuration: only ARP is limited."""


Value = TypeVar("Value", bound=Hashable)
MAX_VERSION = 2**48 - 1
"""The largest version that fits into a cookie."""


def check_network(network: DesiredNetwork) -> None:
    """Raise InvalidNetwork if the network contradicts itself."""
    if network.configuration_version > MAX_VERSION:
        raise InvalidNetwork(f"configuration_version: at most {MAX_VERSION}")
    duplicate = _first_duplicate(part.switch for part in network.switches)
    if duplicate is not None:
        raise InvalidNetwork(f"switches: {duplicate!r} is listed twice")
    for part in network.switches:
        _check_switch(part)


def _check_switch(part: DesiredSwitch) -> None:
    towards = _first_duplicate((port.towards,) for port in part.ports)
    if towards is not None:
        target = f"{towards[0]!r}" if towards[0] else "hosts"
        raise InvalidNetwork(f"{part.switch}: ports: two ports lead to {target}")
    flow = _first_duplicate((rule.subscriber, rule.flow) for rule in part.flows)
    if flow is not None:
        raise InvalidNetwork(f"{part.switch}: flows: flow {flow[1]} of {flow[0]} is listed twice")
    owners: dict[Hashable, str] = {}
    for rule in part.flows:
        name = f"flow {rule.flow} of {rule.subscriber}"
        for match in flow_matches(rule):
            if match in owners:
                raise InvalidNetwork(
                    f"{part.switch}: flows: {owners[match]} and {name} have the same endpoints"
                )
            owners[match] = name
    offered = {queue.priority for port in part.ports for queue in port.classes}
    for rule in part.flows:
        if offered and rule.priority not in offered:
            raise InvalidNetwork(
                f"{part.switch}: flow {rule.flow} of {rule.subscriber} is in class "
                f"{rule.priority}, which no port of the switch has"
            )


def _first_duplicate(values: Iterable[Value]) -> Value | None:
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
