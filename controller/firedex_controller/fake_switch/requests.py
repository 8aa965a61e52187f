"""What a switch receives, decoded: with the framework's parsers, or at least its layouts."""

import struct
from dataclasses import dataclass
from typing import Any

from firedex_controller.fake_switch.flow_entries import Action, actions_of
from firedex_controller.fake_switch.flow_tables import FlowFilter
from firedex_controller.fake_switch.match_fields import match_of
from firedex_controller.fake_switch.meter_table import MeterChange
from firedex_controller.fake_switch.openflow_wire import DATAPATH, header_of
from firedex_controller.framework import ofproto, parser

__all__ = [
    "BundleAddition",
    "BundleControl",
    "PacketOut",
    "body_of",
    "bundle_addition_of",
    "bundle_control_of",
    "experimenter_of",
    "flow_filter_of",
    "flow_mod_of",
    "meter_change_of",
    "packet_out_of",
]


@dataclass(frozen=True, slots=True)
class PacketOut:
    """A frame that the controller sends through the switch."""

    in_port: int
    actions: tuple[Action, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class BundleControl:
    """Open, close, commit or discard."""

    bundle: int
    kind: int
    flags: int


@dataclass(frozen=True, slots=True)
class BundleAddition:
    """A message to keep for the commit."""

    bundle: int
    flags: int
    message: bytes


def body_of(message: bytes, layout: str, offset: int = ofproto.OFP_HEADER_SIZE) -> tuple[Any, ...]:
    """The fields of ``layout`` behind the header, or further on."""
    return struct.unpack_from(layout, message, offset)


def flow_mod_of(message: bytes) -> Any:
    """The framework's flow mod."""
    header = header_of(message)
    return parser.OFPFlowMod.parser(
        DATAPATH, header.version, header.type, header.length, header.transaction, message
    )


def meter_change_of(message: bytes) -> MeterChange:
    """What a meter mod asks for."""
    command, flags, meter_id = body_of(message, ofproto.OFP_METER_MOD_PACK_STR)
    bands = []
    offset = ofproto.OFP_METER_MOD_SIZE
    while offset < len(message):
        bands.append(parser.OFPMeterBandHeader.parser(message, offset))
        offset += bands[-1].len
    return MeterChange.of(command, flags, meter_id, bands)


def packet_out_of(message: bytes) -> PacketOut:
    """What a packet-out asks for."""
    _, in_port, actions_bytes = body_of(message, ofproto.OFP_PACKET_OUT_PACK_STR)
    actions = []
    offset = ofproto.OFP_PACKET_OUT_SIZE
    end = offset + actions_bytes
    while offset < end:
        actions.append(parser.OFPAction.parser(message, offset))
        offset += actions[-1].len
    return PacketOut(in_port, actions_of(actions, None), message[end:])


def flow_filter_of(message: bytes) -> FlowFilter:
    """Which flows a request for their statistics is about."""
    offset = ofproto.OFP_MULTIPART_REQUEST_SIZE
    layout = ofproto.OFP_FLOW_STATS_REQUEST_0_PACK_STR
    table, out_port, out_group, cookie, cookie_mask = body_of(message, layout, offset)
    match = parser.OFPMatch.parser(message, offset + ofproto.OFP_FLOW_STATS_REQUEST_0_SIZE)
    return FlowFilter(table, match_of(match), cookie, cookie_mask, out_port, out_group)


def experimenter_of(message: bytes) -> tuple[int, int]:
    """Whose extension a message belongs to, and which of its messages it is."""
    experimenter, kind = body_of(message, ofproto.OFP_EXPERIMENTER_HEADER_PACK_STR)
    return experimenter, kind


def bundle_control_of(message: bytes) -> BundleControl:
    """A bundle's control message."""
    layout, offset = ofproto.ONF_BUNDLE_CTRL_PACK_STR, ofproto.OFP_EXPERIMENTER_HEADER_SIZE
    return BundleControl(*body_of(message, layout, offset))


def bundle_addition_of(message: bytes) -> BundleAddition:
    """A message wrapped to be added to a bundle."""
    offset = ofproto.OFP_EXPERIMENTER_HEADER_SIZE
    bundle, flags = body_of(message, ofproto.ONF_BUNDLE_ADD_MSG_PACK_STR, offset)
    start = offset + ofproto.ONF_BUNDLE_ADD_MSG_SIZE
    length = header_of(message[start:]).length
    return BundleAddition(bundle, flags, message[start : start + length])
