"""Flows and what is asked of them: comparable values, from and to the framework's messages."""

from dataclasses import dataclass
from typing import Any

from firedex_controller.fake_switch.match_fields import (
    Match,
    match_of,
    numbers_of,
    prerequisites_hold,
    readable_field,
)
from firedex_controller.fake_switch.refusals import ONF_EXPERIMENTER, Refusal
from firedex_controller.framework import ofproto, parser

__all__ = [
    "Action",
    "FakeFlow",
    "FlowChange",
    "Instructions",
    "Output",
    "SetField",
    "SetQueue",
    "actions_of",
    "flow_change_of",
    "instruction_messages",
]

LAST_TABLE = 253  # as in Open vSwitch, which keeps one more for itself
LAST_PORT = 0xFEFF  # likewise: beyond are reserved ports only
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
    """Send the packet as it is now."""

    port: int
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SetField:
    """Change a header field."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Which queue the next outputs use."""

    queue: int


Action = Output | SetField | SetQueue


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a flow does to its packets, in the order in which a switch does it."""

    meter: int | None = None
    apply: tuple[Action, ...] = ()
    clear: bool = False
    write: tuple[Action, ...] = ()
    goto_table: int | None = None

    def output_ports(self) -> set[int]:
        """Ports that an ``out_port`` filter would find."""
        return {a.port for a in self.apply + self.write if isinstance(a, Output)}


@dataclass(frozen=True, slots=True)
class FakeFlow:
    """One flow of a table. Its counters are kept elsewhere, so that equal rules are equal."""

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
    """One flow modification. ``flow`` holds what is to be, or what is looked for."""

    command: str
    flow: FakeFlow
    cookie_mask: int
    out_port: int
    out_group: int


def flow_change_of(message: Any) -> FlowChange:
    """What the framework's flow mod asks for; refuses what is wrong in itself."""
    command = COMMANDS.get(message.command)
    if command is None:
        raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_BAD_COMMAND)
    if message.flags & ~KNOWN_FLAGS:
        raise Refusal(ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_BAD_FLAGS)
    _check_table(command, message.table_id)
    match = match_of(message.match)
    flow = FakeFlow(
        table=message.table_id,
        priority=message.priority,
        match=match,
        instructions=_instructions_of(message, match),
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


def _instructions_of(message: Any, match: Match) -> Instructions:
    given: dict[str, Any] = {}
    for instruction in message.instructions:
        name, value = _instruction_of(instruction, message.table_id, match)
        if name in given:
            raise Refusal(
                ofproto.OFPET_EXPERIMENTER,
                ofproto.ONFERR_DUP_INSTRUCTION,
                experimenter=ONF_EXPERIMENTER,
            )
        given[name] = value
    return Instructions(**given)


def _instruction_of(instruction: Any, table: int, match: Match) -> tuple[str, Any]:
    kind = instruction.type
    if kind == ofproto.OFPIT_METER:
        return "meter", instruction.meter_id
    if kind == ofproto.OFPIT_GOTO_TABLE:
        if instruction.table_id <= table:
            raise Refusal(ofproto.OFPET_BAD_INSTRUCTION, ofproto.OFPBIC_BAD_TABLE_ID)
        return "goto_table", instruction.table_id
    if kind == ofproto.OFPIT_APPLY_ACTIONS:
        return "apply", actions_of(instruction.actions, match)
    if kind == ofproto.OFPIT_WRITE_ACTIONS:
        return "write", actions_of(instruction.actions, match)
    if kind == ofproto.OFPIT_CLEAR_ACTIONS:
        return "clear", True
    raise Refusal(ofproto.OFPET_BAD_INSTRUCTION, ofproto.OFPBIC_UNSUP_INST)


def actions_of(messages: list[Any], match: Match | None) -> tuple[Action, ...]:
    """Actions as values. ``match`` tells which fields a packet has (None: do not ask)."""
    return tuple(_action_of(message, match) for message in messages)


def _action_of(message: Any, match: Match | None) -> Action:
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
        return SetField(name, numbers_of([(name, message.value)])[name])
    if message.type == ofproto.OFPAT_GROUP:
        raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_GROUP)
    raise Refusal(ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_TYPE)


def instruction_messages(instructions: Instructions) -> list[Any]:
    """For the framework to encode."""
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
