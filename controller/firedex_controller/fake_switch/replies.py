"""What a switch sends, encoded with the framework's layouts."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Any

from firedex_controller.fake_switch.flow_entries import Instructions, instruction_messages
from firedex_controller.fake_switch.flow_tables import StoredFlow
from firedex_controller.fake_switch.match_fields import Match
from firedex_controller.fake_switch.meter_table import MAX_BANDS, FakeMeter, StoredMeter
from firedex_controller.fake_switch.openflow_wire import DATAPATH
from firedex_controller.fake_switch.refusals import Refusal
from firedex_controller.framework import ofproto, parser

__all__ = [
    "PortDescription",
    "bundle_message",
    "config_message",
    "description_entry",
    "encoded",
    "error_message",
    "features_message",
    "flow_entry",
    "flow_removed_message",
    "hello_message",
    "message_of",
    "meter_config_entry",
    "meter_features_entry",
    "meter_stats_entry",
    "multipart_messages",
    "packet_in_message",
    "port_entry",
    "port_status_message",
    "role_message",
]

PART_BYTES = 60_000  # a message is at most 65 535 bytes long
CAPABILITIES = 79  # what Open vSwitch says
TABLES = 254


@dataclass(frozen=True, slots=True)
class PortDescription:
    """A port as it is described to the controller."""

    number: int
    name: str
    mac: bytes
    up: bool


def message_of(kind: int, transaction: int, body: bytes = b"") -> bytes:
    """A message: its header, and ``body``."""
    length = ofproto.OFP_HEADER_SIZE + len(body)
    version = ofproto.OFP_VERSION
    return struct.pack(ofproto.OFP_HEADER_PACK_STR, version, kind, length, transaction) + body


def encoded(message: Any, transaction: int) -> bytes:
    """A message that the framework can encode itself."""
    message.set_xid(transaction)
    message.serialize()
    return bytes(message.buf)


def hello_message() -> bytes:
    """The greeting; its version is the only one spoken."""
    return encoded(parser.OFPHello(DATAPATH), 0)


def error_message(refusal: Refusal, transaction: int, cause: bytes) -> bytes:
    """A refusal, with the message that caused it."""
    facts: dict[str, Any] = {"type_": refusal.error_type, "data": cause}
    if refusal.experimenter is None:
        facts["code"] = refusal.code
    else:
        facts.update(exp_type=refusal.code, experimenter=refusal.experimenter)
    return encoded(parser.OFPErrorMsg(DATAPATH, **facts), transaction)


def features_message(datapath_id: int, transaction: int) -> bytes:
    """Who this is."""
    layout = ofproto.OFP_SWITCH_FEATURES_PACK_STR
    body = struct.pack(layout, datapath_id, 0, TABLES, 0, CAPABILITIES, 0)
    return message_of(ofproto.OFPT_FEATURES_REPLY, transaction, body)


def config_message(miss_send_bytes: int, transaction: int) -> bytes:
    """The switch's settings."""
    body = struct.pack(ofproto.OFP_SWITCH_CONFIG_PACK_STR, 0, miss_send_bytes)
    return message_of(ofproto.OFPT_GET_CONFIG_REPLY, transaction, body)


def role_message(role: int, generation: int, transaction: int) -> bytes:
    """Which role the controller has."""
    body = struct.pack(ofproto.OFP_ROLE_REQUEST_PACK_STR, role, generation)
    return message_of(ofproto.OFPT_ROLE_REPLY, transaction, body)


def bundle_message(bundle: int, kind: int, transaction: int) -> bytes:
    """A bundle's control reply."""
    message = parser.ONFBundleCtrlMsg(DATAPATH, bundle, kind, 0, [])
    return encoded(message, transaction)


def multipart_messages(kind: int, transaction: int, entries: Iterable[bytes]) -> Iterator[bytes]:
    """A reply in as many parts as it needs."""
    part = b""
    for entry in entries:
        if len(part) + len(entry) > PART_BYTES:
            yield _multipart(kind, transaction, ofproto.OFPMPF_REPLY_MORE, part)
            part = b""
        part += entry
    yield _multipart(kind, transaction, 0, part)


def _multipart(kind: int, transaction: int, flags: int, body: bytes) -> bytes:
    head = struct.pack(ofproto.OFP_MULTIPART_REPLY_PACK_STR, kind, flags)
    return message_of(ofproto.OFPT_MULTIPART_REPLY, transaction, head + body)


def description_entry(name: str) -> bytes:
    """What this is; nobody shall take it for a real switch."""
    texts = (b"FireDeX", b"fake switch", b"OpenFlow 1.3", b"None", name.encode())
    return struct.pack(ofproto.OFP_DESC_PACK_STR, *texts)


def _duration(since: float) -> tuple[int, int]:
    seconds = monotonic() - since
    return int(seconds), int(seconds % 1 * 1e9)


@lru_cache(maxsize=65536)
def _encoded_match(match: Match) -> bytes:
    buffer = bytearray()
    match.message().serialize(buffer, 0)
    return bytes(buffer)


@lru_cache(maxsize=65536)
def _encoded_instructions(instructions: Instructions) -> bytes:
    buffer = bytearray()
    for message in instruction_messages(instructions):
        message.serialize(buffer, len(buffer))
    return bytes(buffer)


def flow_entry(stored: StoredFlow) -> bytes:
    """One flow with its statistics."""
    flow = stored.flow
    tail = _encoded_match(flow.match) + _encoded_instructions(flow.instructions)
    head = struct.pack(
        ofproto.OFP_FLOW_STATS_0_PACK_STR,
        ofproto.OFP_FLOW_STATS_0_SIZE + len(tail),
        flow.table,
        *_duration(stored.since),
        flow.priority,
        flow.idle_timeout_seconds,
        flow.hard_timeout_seconds,
        flow.flags,
        flow.cookie,
        stored.counters.packets,
        stored.counters.octets,
    )
    return head + tail


def flow_removed_message(stored: StoredFlow) -> bytes:
    """A flow that asked for it was deleted."""
    flow = stored.flow
    head = struct.pack(
        ofproto.OFP_FLOW_REMOVED_PACK_STR0,
        flow.cookie,
        flow.priority,
        ofproto.OFPRR_DELETE,
        flow.table,
        *_duration(stored.since),
        flow.idle_timeout_seconds,
        flow.hard_timeout_seconds,
        stored.counters.packets,
        stored.counters.octets,
    )
    return message_of(ofproto.OFPT_FLOW_REMOVED, 0, head + _encoded_match(flow.match))


def meter_config_entry(meter: FakeMeter) -> bytes:
    """One meter as it was configured."""
    bands = bytearray()
    for band in meter.bands:
        parser.OFPMeterBandDrop(band.rate, band.burst).serialize(bands, len(bands))
    length = ofproto.OFP_METER_CONFIG_SIZE + len(bands)
    head = struct.pack(ofproto.OFP_METER_CONFIG_PACK_STR, length, meter.flags, meter.id)
    return head + bytes(bands)


def meter_stats_entry(stored: StoredMeter, flow_count: int) -> bytes:
    """One meter with its statistics; nothing is ever dropped by a band."""
    bands = struct.pack(ofproto.OFP_METER_BAND_STATS_PACK_STR, 0, 0) * len(stored.meter.bands)
    return (
        struct.pack(
            ofproto.OFP_METER_STATS_PACK_STR,
            stored.meter.id,
            ofproto.OFP_METER_STATS_SIZE + len(bands),
            flow_count,
            stored.packets,
            stored.octets,
            *_duration(stored.since),
        )
        + bands
    )


def meter_features_entry(max_meters: int) -> bytes:
    """What meters can do: drop, in either unit, with a burst."""
    kinds = 1 << ofproto.OFPMBT_DROP
    flags = 0b1111
    return struct.pack(ofproto.OFP_METER_FEATURES_PACK_STR, max_meters, kinds, flags, MAX_BANDS, 0)


def port_entry(port: PortDescription) -> bytes:
    """One port's description."""
    config = 0 if port.up else ofproto.OFPPC_PORT_DOWN
    state = ofproto.OFPPS_LIVE if port.up else ofproto.OFPPS_LINK_DOWN
    name = port.name.encode()
    numbers = (config, state, 0, 0, 0, 0, 0, 0)
    return struct.pack(ofproto.OFP_PORT_PACK_STR, port.number, port.mac, name, *numbers)


def port_status_message(port: PortDescription) -> bytes:
    """A port went up or down."""
    reason = struct.pack("!B7x", ofproto.OFPPR_MODIFY)
    return message_of(ofproto.OFPT_PORT_STATUS, 0, reason + port_entry(port))


def packet_in_message(*, frame: bytes, in_port: int, reason: int, table: int, cookie: int) -> bytes:
    """A frame for the controller, all of it: like Open vSwitch, this keeps no buffers."""
    layout = ofproto.OFP_PACKET_IN_PACK_STR
    head = struct.pack(layout, ofproto.OFP_NO_BUFFER, len(frame), reason, table, cookie)
    match = bytearray()
    parser.OFPMatch(in_port=in_port).serialize(match, 0)
    return message_of(ofproto.OFPT_PACKET_IN, 0, head + bytes(match) + b"\0\0" + frame)
