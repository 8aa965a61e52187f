"""Matches, actions and flows as values that can be compared.

Two matches that select the same packets by the same fields are equal, whatever the message looked
like: fields are sorted, bits outside a mask are cleared, and a field with an empty mask is omitted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from firedex_controller.framework import ofproto, parser
from tests.support.fake_switch.openflow_wire import ONF_EXPERIMENTER, Refusal

__all__ = [
    "Action",
    "FakeFlow",
    "FlowChange",
    "Instructions",
    "Match",
    "MatchField",
    "Output",
    "SetField",
    "SetQueue",
    "decode_actions",
    "decode_flow_change",
    "decode_match",
    "field_numbers",
    "instruction_messages",
    "prerequisites_hold",
    "readable_field",
]

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
IP_FIELDS = {"ip_proto", "ip_dscp", "ip_ecn"}
PROTOCOLS = {"tcp": (6,), "udp": (17,), "sctp": (132,), "icmpv4": (1,), "icmpv6": (58,)}
ETHERNET_TYPES = {"ipv4": (IPV4,), "ipv6": (IPV6,), "arp": (ARP,)}


class MatchField(NamedTuple):
    """One field: the bits that are compared (``mask``), and their value."""

    name: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Match:
    """The match of a flow."""

    fields: tuple[MatchField, ...] = ()

    def matches(self, packet: Mapping[str, int]) -> bool:
        """Return whether a packet with these field values matches."""
        for name, value, mask in self.fields:
            found = packet.get(name)
            if found is None or found & mask != value:
                return False
        return True

    def covers(self, other: "Match") -> bool:
        """Return whether every packet that matches ``other`` matches this too."""
        theirs = {name: (value, mask) for name, value, mask in other.fields}
        for name, value, mask in self.fields:
            their_value, their_mask = theirs.get(name, (0, 0))
            if mask & ~their_mask or their_value & mask != value:
                return False
        return True

    def overlaps(self, other: "Match") -> bool:
        """Return whether one packet could match both."""
        theirs = {name: (value, mask) for name, value, mask in other.fields}
        for name, value, mask in self.fields:
            their_value, their_mask = theirs.get(name, (0, 0))
            if (value ^ their_value) & mask & their_mask:
                return False
        return True

    def as_readable(self) -> dict[str, Any]:
        """Return the fields by name: addresses as text, masked values as (value, mask)."""
        return {field.name: readable_field(*field) for field in self.fields}

    def message(self) -> Any:
        """Return the framework's objects, for encoding."""
        return parser.OFPMatch(**self.as_readable())


_MAC, _ADDRESS = "00:00:00:00:00:00", "0.0.0.0"  # noqa: S104  # examples, for their length


def _example(name: str) -> Any:
    if name in {"eth_dst", "eth_src", "arp_sha", "arp_tha", "ipv6_nd_sll", "ipv6_nd_tll"}:
        return _MAC
    if name in {"ipv4_src", "ipv4_dst", "arp_spa", "arp_tpa"}:
        return _ADDRESS
    return "::" if name in {"ipv6_src", "ipv6_dst", "ipv6_nd_target"} else 0


@lru_cache(maxsize=65536)
def _canonical_field(name: str, given: Any) -> tuple[MatchField | None, int]:
    _, value, mask = ofproto.oxm_from_user(name, given)
    every_bit = (1 << 8 * len(value)) - 1
    if name == "vlan_vid":
        every_bit = 0x1FFF
    bits = every_bit if mask is None else int.from_bytes(mask, "big") & every_bit
    number = int.from_bytes(value, "big")
    return (MatchField(name, number & bits, bits) if bits else None), number


@lru_cache(maxsize=65536)
def readable_field(name: str, value: int, mask: int | None = None) -> Any:
    """Return a field's value in the framework's notation; without a mask, all bits count."""
    number, example, _ = ofproto.oxm_from_user(name, _example(name))
    size = len(example)
    every_bit = 0x1FFF if name == "vlan_vid" else (1 << 8 * size) - 1
    whole = mask is None or mask == every_bit
    encoded_mask = None if whole else (mask or 0).to_bytes(size, "big")
    return ofproto.oxm_to_user(number, value.to_bytes(size, "big"), encoded_mask)[1]


def decode_match(message: Any) -> Match:
    """Convert the framework's match; raise the error of a switch if it is invalid."""
    fields: dict[str, MatchField] = {}
    seen: dict[str, int] = {}
    for name, given in message.items():
        if name in seen:
            raise Refusal(ofproto.OFPET_BAD_MATCH, ofproto.OFPBMC_DUP_FIELD)
        field, seen[name] = _canonical_field(name, given)
        if field is not None:
            fields[name] = field
    for name in fields:
        if not prerequisites_hold(name, seen):
            raise Refusal(ofproto.OFPET_BAD_MATCH, ofproto.OFPBMC_BAD_PREREQ)
    return Match(tuple(fields[name] for name in sorted(fields)))


def prerequisites_hold(name: str, known: Mapping[str, int]) -> bool:
    """Return whether a packet with the fields ``known`` has the field ``name``."""
    kind = name.partition("_")[0]
    if name in IP_FIELDS:
        return known.get("eth_type") in (IPV4, IPV6)
    if kind in ETHERNET_TYPES:
        return known.get("eth_type") in ETHERNET_TYPES[kind]
    if kind in PROTOCOLS:
        return known.get("ip_proto") in PROTOCOLS[kind] and prerequisites_hold("ip_proto", known)
    return name != "vlan_pcp" or bool(known.get("vlan_vid", 0) & ofproto.OFPVID_PRESENT)


def field_numbers(given: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Convert field values from the framework's notation to numbers."""
    return {name: _canonical_field(name, value)[1] for name, value in given}


LAST_TABLE = 253  # as in Open vSwitch, which reserves one more table
LAST_PORT = 0xFEFF  # as in Open vSwitch; higher numbers are reserved ports
READ_ONLY_FIELDS = {"in_port", "in_phy_port", "eth_type", "ip_proto", "metadata"}
KNOWN_FLAGS = 0b11111
COMMANDS = {
    ofproto.OFPFC_ADD: "add",
    ofproto.OFPFC_MODIFY: "modify",
    ofproto.OFPFC_MODIFY_STRICT: "modify strict",
    ofproto.OFPFC_DELETE: "delete",
    ofproto.OFPFC_DELETE_STRICT: "delete strict",
}


@dataclass(frozen=True, slots=True)
class Output:
    """Output the packet."""

    port: int
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SetField:
    """Change a header field."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Set the queue of later outputs."""

    queue: int


Action = Output | SetField | SetQueue


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions of a flow, in the order of execution."""

    meter: int | None = None
    apply: tuple[Action, ...] = ()
    clear: bool = False
    write: tuple[Action, ...] = ()
    goto_table: int | None = None

    def output_ports(self) -> set[int]:
        """Return the ports that an ``out_port`` filter matches."""
        return {a.port for a in self.apply + self.write if isinstance(a, Output)}


@dataclass(frozen=True, slots=True)
class FakeFlow:
    """One flow of a table, without counters, so that equal rules compare equal."""

    table: int
    priority: int
    match: Match
    instructions: Instructions
    cookie: int = 0
    flags: int = 0
    idle_timeout_seconds: int = 0
    hard_timeout_seconds: int = 0


@dataclass(frozen=True, slots=True)
class FlowChange:
    """One flow modification; ``flow`` is the new flow, or the pattern to search for."""

    command: str
    flow: FakeFlow
    cookie_mask: int
    out_port: int
    out_group: int


def decode_flow_change(message: Any) -> FlowChange:
    """Convert the framework's flow mod; raise the error of a switch if it is invalid."""
    command = COMMANDS.get(message.command)
    if command is None:
        raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_BAD_COMMAND)
    if message.flags & ~KNOWN_FLAGS:
        raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_BAD_FLAGS)
    _check_table(command, message.table_id)
    match = decode_match(message.match)
    flow = FakeFlow(
        table=message.table_id,
        priority=message.priority,
        match=match,
        instructions=_decode_instructions(message, match),
        cookie=message.cookie,
        flags=message.flags,
        idle_timeout_seconds=message.idle_timeout,
        hard_timeout_seconds=message.hard_timeout,
    )
    if message.buffer_id != ofproto.OFP_NO_BUFFER and not command.startswith("delete"):
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BUFFER_UNKNOWN)
    return FlowChange(command, flow, message.cookie_mask, message.out_port, message.out_group)


def _check_table(command: str, table: int) -> None:
    if table == ofproto.OFPTT_ALL:
        if not command.startswith("delete"):
            raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_BAD_TABLE_ID)
    elif table > LAST_TABLE:
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_EPERM)


def _decode_instructions(message: Any, match: Match) -> Instructions:
    given: dict[str, Any] = {}
    for instruction in message.instructions:
        name, value = _decode_instruction(instruction, message.table_id, match)
        if name in given:
            raise Refusal(
                ofproto.OFPET_EXPERIMENTER,
                ofproto.ONFERR_DUP_INSTRUCTION,
                experimenter=ONF_EXPERIMENTER,
            )
        given[name] = value
    return Instructions(**given)


def _decode_instruction(instruction: Any, table: int, match: Match) -> tuple[str, Any]:
    kind = instruction.type
    if kind == ofproto.OFPIT_METER:
        return "meter", instruction.meter_id
    if kind == ofproto.OFPIT_GOTO_TABLE:
        if instruction.table_id <= table:
            raise Refusal(ofproto.OFPET_BAD_INSTRUCTION, ofproto.OFPBIC_BAD_TABLE_ID)
        return "goto_table", instruction.table_id
    if kind == ofproto.OFPIT_APPLY_ACTIONS:
        return "apply", decode_actions(instruction.actions, match)
    if kind == ofproto.OFPIT_WRITE_ACTIONS:
        return "write", decode_actions(instruction.actions, match)
    if kind == ofproto.OFPIT_CLEAR_ACTIONS:
        return "clear", True
    raise Refusal(ofproto.OFPET_BAD_INSTRUCTION, ofproto.OFPBIC_UNSUP_INST)


def decode_actions(messages: list[Any], match: Match | None) -> tuple[Action, ...]:
    """Convert actions; ``match`` says which fields a packet has (None: no check)."""
    return tuple(_decode_action(message, match) for message in messages)


def _decode_action(message: Any, match: Match | None) -> Action:
    if message.type == ofproto.OFPAT_OUTPUT:
        if LAST_PORT < message.port < ofproto.OFPP_IN_PORT or message.port == ofproto.OFPP_ANY:
            raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_PORT)
        to_controller = message.port == ofproto.OFPP_CONTROLLER
        return Output(message.port, message.max_len if to_controller else 0)
    if message.type == ofproto.OFPAT_SET_QUEUE:
        return SetQueue(message.queue_id)
    if message.type == ofproto.OFPAT_SET_FIELD:
        name = message.key
        if name in READ_ONLY_FIELDS:
            raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_SET_ARGUMENT)
        known = {} if match is None else {field.name: field.value for field in match.fields}
        if match is not None and not prerequisites_hold(name, known):
            raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_MATCH_INCONSISTENT)
        return SetField(name, field_numbers([(name, message.value)])[name])
    if message.type == ofproto.OFPAT_GROUP:
        raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_GROUP)
    raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_TYPE)


def instruction_messages(instructions: Instructions) -> list[Any]:
    """Return the framework's objects, for encoding."""
    messages = []
    if instructions.meter is not None:
        messages.append(parser.OFPInstructionMeter(instructions.meter))
    for kind, actions, wanted in (
        (ofproto.OFPIT_APPLY_ACTIONS, instructions.apply, bool(instructions.apply)),
        (ofproto.OFPIT_CLEAR_ACTIONS, (), instructions.clear),
        (ofproto.OFPIT_WRITE_ACTIONS, instructions.write, bool(instructions.write)),
    ):
        if wanted:
            messages.append(parser.OFPInstructionActions(kind, [*map(_action_message, actions)]))
    if instructions.goto_table is not None:
        messages.append(parser.OFPInstructionGotoTable(instructions.goto_table))
    return messages


def _action_message(action: Action) -> Any:
    if isinstance(action, Output):
        return parser.OFPActionOutput(action.port, action.max_bytes)
    if isinstance(action, SetQueue):
        return parser.OFPActionSetQueue(action.queue)
    return parser.OFPActionSetField(**{action.name: readable_field(action.name, action.value)})
