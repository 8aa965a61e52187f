"""The processing of packets: match fields of frames, actions, and the flow tables."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firedex_controller.framework import parser
from tests.support.fake_switch.flow_entries import (
    Action,
    FakeFlow,
    Output,
    SetField,
    SetQueue,
    field_numbers,
    readable_field,
)
from tests.support.fake_switch.tables import FlowTables, StoredFlow

__all__ = [
    "PacketOutput",
    "PacketState",
    "change_frame",
    "frame_fields",
    "packet_fields",
    "run_actions",
    "run_tables",
]

_PACKAGE = parser.__name__.partition(".")[0]


def _protocol(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.lib.packet.{name}")


_packet = _protocol("packet")
_CLASSES = {
    name: getattr(_protocol(name), name)
    for name in ("ethernet", "vlan", "arp", "ipv4", "ipv6", "tcp", "udp", "icmp")
}
# The protocol and attribute of each match field.
_FIELDS = {
    "eth_dst": ("ethernet", "dst"),
    "eth_src": ("ethernet", "src"),
    "arp_op": ("arp", "opcode"),
    "arp_sha": ("arp", "src_mac"),
    "arp_spa": ("arp", "src_ip"),
    "arp_tha": ("arp", "dst_mac"),
    "arp_tpa": ("arp", "dst_ip"),
    "ip_proto": ("ipv4", "proto"),
    "ipv4_src": ("ipv4", "src"),
    "ipv4_dst": ("ipv4", "dst"),
    "ipv6_src": ("ipv6", "src"),
    "ipv6_dst": ("ipv6", "dst"),
    "tcp_src": ("tcp", "src_port"),
    "tcp_dst": ("tcp", "dst_port"),
    "udp_src": ("udp", "src_port"),
    "udp_dst": ("udp", "dst_port"),
    "icmpv4_type": ("icmp", "type"),
    "icmpv4_code": ("icmp", "code"),
}


def packet_fields(**given: Any) -> dict[str, int]:
    """Return the fields of a packet for a trace; implied fields are added."""
    fields = {"vlan_vid": 0, **field_numbers(given.items())}
    kinds = {name.partition("_")[0] for name in given}
    for protocol, number in (("tcp", 6), ("udp", 17), ("icmpv4", 1)):
        if protocol in kinds:
            fields.setdefault("ip_proto", number)
    if "arp" in kinds:
        fields.setdefault("eth_type", 0x0806)
    if kinds & {"ipv4", "tcp", "udp", "icmpv4", "ip"}:
        fields.setdefault("eth_type", 0x0800)
    if fields.get("eth_type") in (0x0800, 0x86DD):
        fields.setdefault("ip_dscp", 0)
    return fields


def frame_fields(frame: bytes) -> dict[str, int]:
    """Return the match fields of a frame."""
    headers = {type(header).__name__: header for header in _packet.Packet(frame).protocols}
    ethernet = headers.get("ethernet")
    if ethernet is None:
        return {}
    tag = headers.get("vlan")
    fields = {
        "eth_type": ethernet.ethertype if tag is None else tag.ethertype,
        "vlan_vid": 0 if tag is None else 0x1000 | tag.vid,
    }
    ip = headers.get("ipv4")
    if ip is not None:
        fields.update(ip_dscp=ip.tos >> 2, ip_ecn=ip.tos & 3)
    found = {
        name: getattr(headers[protocol], attribute)
        for name, (protocol, attribute) in _FIELDS.items()
        if protocol in headers
    }
    return {**fields, **field_numbers(found.items())}


def change_frame(frame: bytes, changes: dict[str, int]) -> bytes:
    """Return the frame with new field values and valid checksums."""
    if not changes:
        return frame
    packet = _packet.Packet(frame)
    headers = {type(header).__name__: header for header in packet.protocols}
    for name, value in changes.items():
        if name in ("ip_dscp", "ip_ecn") and "ipv4" in headers:
            ip = headers["ipv4"]
            ip.tos = value << 2 | ip.tos & 3 if name == "ip_dscp" else ip.tos & ~3 | value
        elif name in _FIELDS and _FIELDS[name][0] in headers:
            protocol, attribute = _FIELDS[name]
            setattr(headers[protocol], attribute, readable_field(name, value))
    without_checksum = "udp" in headers and headers["udp"].csum == 0
    for header in headers.values():
        if hasattr(header, "csum"):
            header.csum = 0  # computed when the frame is encoded
    packet.serialize()
    if without_checksum:
        return _without_udp_checksum(bytes(packet.data), headers)
    return bytes(packet.data)


def _without_udp_checksum(frame: bytes, headers: dict[str, Any]) -> bytes:
    """Keep a missing checksum missing, although the framework computes it."""
    before = 14 + 4 * ("vlan" in headers)
    before += 4 * headers["ipv4"].header_length if "ipv4" in headers else 40
    return frame[: before + 6] + b"\0\0" + frame[before + 8 :]


NO_COOKIE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class PacketOutput:
    """One output: the port (possibly a reserved one), the queue, and the changed fields."""

    port: int
    queue: int | None
    changes: Mapping[str, int]
    flow: FakeFlow | None

    @property
    def is_table_miss(self) -> bool:
        """Whether the table-miss flow caused it."""
        return self.flow is not None and not self.flow.priority and not self.flow.match.fields


@dataclass(slots=True)
class PacketState:
    """The state of a packet during processing."""

    fields: dict[str, int]
    queue: int | None = None
    changes: dict[str, int] = field(default_factory=dict)
    meters: list[int] = field(default_factory=list)
    matched: list[StoredFlow] = field(default_factory=list)
    outputs: list[PacketOutput] = field(default_factory=list)

    def execute(self, action: Action, flow: FakeFlow | None) -> None:
        """Execute one action."""
        if isinstance(action, SetField):
            self.fields[action.name] = self.changes[action.name] = action.value
        elif isinstance(action, SetQueue):
            self.queue = action.queue
        else:
            self.outputs.append(PacketOutput(action.port, self.queue, dict(self.changes), flow))


def run_actions(fields: Mapping[str, int], actions: tuple[Action, ...]) -> PacketState:
    """Execute the actions of a packet-out."""
    state = PacketState(dict(fields))
    for action in actions:
        state.execute(action, None)
    return state


def run_tables(fields: Mapping[str, int], tables: FlowTables) -> PacketState:
    """Process a packet by the tables; a packet without a match is dropped."""
    state = PacketState(dict(fields))
    action_set: list[Action] = []
    table: int | None = 0
    last = None
    while table is not None:
        found = next(
            (s for s in tables.in_order(table) if s.flow.match.matches(state.fields)), None
        )
        if found is None:
            break  # actions so far are executed, as in Open vSwitch
        last = found.flow
        state.matched.append(found)
        instructions = found.flow.instructions
        if instructions.meter is not None:
            state.meters.append(instructions.meter)
        for action in instructions.apply:
            state.execute(action, found.flow)
        if instructions.clear:
            action_set.clear()
        action_set += instructions.write
        table = instructions.goto_table
    for action in sorted(action_set, key=lambda action: isinstance(action, Output)):
        state.execute(action, last)
    return state
