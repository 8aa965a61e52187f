"""The messages that a switch receives, decoded with the framework's parsers or layouts."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from firedex_controller.framework import ofproto, parser
from tests.support.fake_switch.flow_entries import Action, FlowChange, decode_actions, decode_match
from tests.support.fake_switch.openflow_wire import DATAPATH, decode_header
from tests.support.fake_switch.tables import FlowFilter, MeterChange

__all__ = [
    "BundleAddition",
    "BundleControl",
    "PacketOut",
    "ReceivedMessage",
    "change_order",
    "decode_bundle_addition",
    "decode_bundle_control",
    "decode_experimenter",
    "decode_flow_filter",
    "decode_flow_mod",
    "decode_meter_change",
    "decode_packet_out",
    "unpack_body",
]


@dataclass(frozen=True, slots=True)
class PacketOut:
    """A packet-out."""

    in_port: int
    actions: tuple[Action, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class BundleControl:
    """A bundle control message: open, close, commit or discard."""

    bundle: int
    kind: int
    flags: int


@dataclass(frozen=True, slots=True)
class BundleAddition:
    """A message that is added to a bundle."""

    bundle: int
    flags: int
    message: bytes


def unpack_body(
    message: bytes, layout: str, offset: int = ofproto.OFP_HEADER_SIZE
) -> tuple[Any, ...]:
    """Unpack the fields of ``layout`` after the header, or at an offset."""
    return struct.unpack_from(layout, message, offset)


def decode_flow_mod(message: bytes) -> Any:
    """Decode a flow mod."""
    header = decode_header(message)
    return parser.OFPFlowMod.parser(
        DATAPATH, header.version, header.type, header.length, header.transaction, message
    )


def decode_meter_change(message: bytes) -> MeterChange:
    """Decode a meter mod."""
    command, flags, meter_id = unpack_body(message, ofproto.OFP_METER_MOD_PACK_STR)
    bands = []
    offset = ofproto.OFP_METER_MOD_SIZE
    while offset < len(message):
        bands.append(parser.OFPMeterBandHeader.parser(message, offset))
        offset += bands[-1].len
    return MeterChange.of(command, flags, meter_id, bands)


def decode_packet_out(message: bytes) -> PacketOut:
    """Decode a packet-out."""
    _, in_port, actions_bytes = unpack_body(message, ofproto.OFP_PACKET_OUT_PACK_STR)
    actions = []
    offset = ofproto.OFP_PACKET_OUT_SIZE
    end = offset + actions_bytes
    while offset < end:
        actions.append(parser.OFPAction.parser(message, offset))
        offset += actions[-1].len
    return PacketOut(in_port, decode_actions(actions, None), message[end:])


def decode_flow_filter(message: bytes) -> FlowFilter:
    """Decode the filter of a request for flow statistics."""
    offset = ofproto.OFP_MULTIPART_REQUEST_SIZE
    layout = ofproto.OFP_FLOW_STATS_REQUEST_0_PACK_STR
    table, out_port, out_group, cookie, cookie_mask = unpack_body(message, layout, offset)
    match = parser.OFPMatch.parser(message, offset + ofproto.OFP_FLOW_STATS_REQUEST_0_SIZE)
    return FlowFilter(table, decode_match(match), cookie, cookie_mask, out_port, out_group)


def decode_experimenter(message: bytes) -> tuple[int, int]:
    """Decode experimenter and type of an experimenter message."""
    experimenter, kind = unpack_body(message, ofproto.OFP_EXPERIMENTER_HEADER_PACK_STR)
    return experimenter, kind


def decode_bundle_control(message: bytes) -> BundleControl:
    """Decode a bundle control message."""
    layout, offset = ofproto.ONF_BUNDLE_CTRL_PACK_STR, ofproto.OFP_EXPERIMENTER_HEADER_SIZE
    return BundleControl(*unpack_body(message, layout, offset))


def decode_bundle_addition(message: bytes) -> BundleAddition:
    """Decode a message that is added to a bundle."""
    offset = ofproto.OFP_EXPERIMENTER_HEADER_SIZE
    bundle, flags = unpack_body(message, ofproto.ONF_BUNDLE_ADD_MSG_PACK_STR, offset)
    start = offset + ofproto.ONF_BUNDLE_ADD_MSG_SIZE
    length = decode_header(message[start:]).length
    return BundleAddition(bundle, flags, message[start : start + length])


HOUSEKEEPING = {"hello", "echo request", "echo reply", "features request", "set config"}


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One received message: its kind, such as ``flow add`` or ``barrier``, and its content."""

    kind: str
    transaction: int
    subject: FlowChange | MeterChange | PacketOut | None = None
    bundle: int | None = None
    refused: tuple[int, int] | None = None


def change_order(record: Iterable[ReceivedMessage]) -> list[str]:
    """Return the kinds of changes in order; consecutive equal kinds count once."""
    kinds = (
        message.kind
        for message in record
        if message.kind not in HOUSEKEEPING and not message.kind.startswith("statistics")
    )
    return [kind for kind, _ in groupby(kinds)]
