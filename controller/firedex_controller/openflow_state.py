"""From a switch's desired rules to OpenFlow entries, as plain values. Pure.

Unmanaged traffic shares the lowest planned class; a mark that a host put on its own packets is
overwritten. What is not IP (ARP) takes no mark and so rides in the highest class.
"""

from dataclasses import dataclass

from firedex.wire import Meter, Rule, SwitchRules

__all__ = ["BASELINE", "FlowEntry", "MeterEntry", "OpenFlowState", "desired_state"]

MANAGED_PRIORITY = 200
UNMANAGED_PRIORITY = 100
OTHER_PRIORITY = 1
IPV4 = 0x0800
IP_PROTOCOL = {"tcp": 6, "udp": 17}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterEntry:
    """A limit in packets per second with its burst."""

    id: int
    packets_per_second: int
    burst_packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """One flow rule: match fields in OpenFlow's names, and what is done with what matches."""

    priority: int
    match: tuple[tuple[str, object], ...]
    dscp: int | None
    queue: int | None
    meter: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFlowState:
    """Everything that is to be on one switch; the cookie is the configuration's version."""

    cookie: int
    meters: tuple[MeterEntry, ...]
    flows: tuple[FlowEntry, ...]


EVERYTHING = FlowEntry(priority=OTHER_PRIORITY, match=(), dscp=None, queue=None, meter=None)
BASELINE = OpenFlowState(cookie=0, meters=(), flows=(EVERYTHING,))
"""What a switch gets before anything is configured: it forwards, so that hosts can register."""


def desired_state(rules: SwitchRules) -> OpenFlowState:
    """Compile the rules of one switch."""
    lowest = max(rules.queues, key=lambda queue: queue.priority, default=None)
    unmanaged = FlowEntry(
        priority=UNMANAGED_PRIORITY,
        match=(("eth_type", IPV4),),
        dscp=lowest.dscp if lowest else 0,
        queue=lowest.priority if lowest else 0,
        meter=None,
    )
    return OpenFlowState(
        cookie=rules.configuration_version,
        meters=tuple(_meter(meter) for meter in rules.meters),
        flows=(*(_flow(rule) for rule in rules.rules), unmanaged, EVERYTHING),
    )


def _meter(meter: Meter) -> MeterEntry:
    return MeterEntry(
        id=meter.id,
        packets_per_second=max(round(meter.packets_per_second), 1),
        burst_packets=meter.burst_packets,
    )


def _flow(rule: Rule) -> FlowEntry:
    return FlowEntry(
        priority=MANAGED_PRIORITY,
        match=(
            ("eth_type", IPV4),
            ("ip_proto", IP_PROTOCOL[rule.transport]),
            ("ipv4_src", str(rule.source_address)),
            ("ipv4_dst", str(rule.destination_address)),
            (f"{rule.transport}_src", rule.source_port),
            (f"{rule.transport}_dst", rule.destination_port),
        ),
        dscp=rule.dscp,
        queue=rule.priority,
        meter=rule.meter,
    )
