"""The messages that a switch sends, encoded with the framework's layouts."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Any, Protocol

from firedex_controller.framework import ofproto, parser
from tests.support.fake_switch.flow_entries import Instructions, Match, instruction_messages
from tests.support.fake_switch.openflow_wire import DATAPATH, Refusal
from tests.support.fake_switch.requests import decode_flow_filter, unpack_body
from tests.support.fake_switch.tables import (
    MAX_BANDS,
    FakeMeter,
    FlowTables,
    MeterTable,
    StoredFlow,
    StoredMeter,
)

__all__ = [
    "PortDescription",
    "PortTraffic",
    "SwitchPorts",
    "build_message",
    "bundle_message",
    "config_message",
    "description_entry",
    "encode_message",
    "error_message",
    "features_message",
    "flow_entry",
    "flow_removed_message",
    "hello_message",
    "meter_config_entry",
    "meter_features_entry",
    "meter_stats_entry",
    "multipart_messages",
    "packet_in_message",
    "port_entry",
    "port_status_message",
    "role_message",
    "statistics_reply",
]

PART_BYTES = 60_000  # a message is at most 65 535 bytes long
CAPABILITIES = 79  # as in Open vSwitch
TABLES = 254


@dataclass(frozen=True, slots=True)
class PortDescription:
    """A port as it is described to the controller."""

    number: int
    name: str
    mac: bytes
    up: bool


def build_message(kind: int, transaction: int, body: bytes = b"") -> bytes:
    """Return a message with a header and ``body``."""
    length = ofproto.OFP_HEADER_SIZE + len(body)
    version = ofproto.OFP_VERSION
    return struct.pack(ofproto.OFP_HEADER_PACK_STR, version, kind, length, transaction) + body


def encode_message(message: Any, transaction: int) -> bytes:
    """Return a message that the framework can encode."""
    message.set_xid(transaction)
    message.serialize()
    return bytes(message.buf)


def hello_message() -> bytes:
    """Return the hello message."""
    return encode_message(parser.OFPHello(DATAPATH), 0)


def error_message(refusal: Refusal, transaction: int, cause: bytes) -> bytes:
    """Return an error message with the message that caused it."""
    facts: dict[str, Any] = {"type_": refusal.error_type, "data": cause}
    if refusal.experimenter is None:
        facts["code"] = refusal.code
    else:
        facts.update(exp_type=refusal.code, experimenter=refusal.experimenter)
    return encode_message(parser.OFPErrorMsg(DATAPATH, **facts), transaction)


def features_message(datapath_id: int, transaction: int) -> bytes:
    """Return the features of the switch."""
    layout = ofproto.OFP_SWITCH_FEATURES_PACK_STR
    body = struct.pack(layout, datapath_id, 0, TABLES, 0, CAPABILITIES, 0)
    return build_message(ofproto.OFPT_FEATURES_REPLY, transaction, body)


def config_message(miss_send_bytes: int, transaction: int) -> bytes:
    """Return the configuration of the switch."""
    body = struct.pack(ofproto.OFP_SWITCH_CONFIG_PACK_STR, 0, miss_send_bytes)
    return build_message(ofproto.OFPT_GET_CONFIG_REPLY, transaction, body)


def role_message(role: int, generation: int, transaction: int) -> bytes:
    """Return the role of the controller."""
    body = struct.pack(ofproto.OFP_ROLE_REQUEST_PACK_STR, role, generation)
    return build_message(ofproto.OFPT_ROLE_REPLY, transaction, body)


def bundle_message(bundle: int, kind: int, transaction: int) -> bytes:
    """Return the reply to a bundle control message."""
    message = parser.ONFBundleCtrlMsg(DATAPATH, bundle, kind, 0, [])
    return encode_message(message, transaction)


def multipart_messages(kind: int, transaction: int, entries: Iterable[bytes]) -> Iterator[bytes]:
    """Return a multipart reply in as many parts as it needs."""
    part = b""
    for entry in entries:
        if len(part) + len(entry) > PART_BYTES:
            yield _multipart(kind, transaction, ofproto.OFPMPF_REPLY_MORE, part)
            part = b""
        part += entry
    yield _multipart(kind, transaction, 0, part)


def _multipart(kind: int, transaction: int, flags: int, body: bytes) -> bytes:
    head = struct.pack(ofproto.OFP_MULTIPART_REPLY_PACK_STR, kind, flags)
    return build_message(ofproto.OFPT_MULTIPART_REPLY, transaction, head + body)


def description_entry(name: str) -> bytes:
    """Return the description of the switch, which says that it is a fake."""
    texts = (b"FireDeX", b"fake switch", b"OpenFlow 1.3", b"None", name.encode())
    return struct.pack(ofproto.OFP_DESC_PACK_STR, *texts)


def _duration(since: float) -> tuple[int, int]:
    seconds = monotonic() - since
    return int(seconds), int(seconds % 1 * 1e9)


@lru_cache(maxsize=65536)
def _encode_match(match: Match) -> bytes:
    buffer = bytearray()
    match.message().serialize(buffer, 0)
    return bytes(buffer)


@lru_cache(maxsize=65536)
def _encode_instructions(instructions: Instructions) -> bytes:
    buffer = bytearray()
    for message in instruction_messages(instructions):
        message.serialize(buffer, len(buffer))
    return bytes(buffer)


def flow_entry(stored: StoredFlow) -> bytes:
    """Return one flow with its statistics."""
    flow = stored.flow
    tail = _encode_match(flow.match) + _encode_instructions(flow.instructions)
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
    """Return the notification of a deleted flow."""
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
    return build_message(ofproto.OFPT_FLOW_REMOVED, 0, head + _encode_match(flow.match))


def meter_config_entry(meter: FakeMeter) -> bytes:
    """Return the configuration of one meter."""
    bands = bytearray()
    for band in meter.bands:
        parser.OFPMeterBandDrop(band.rate, band.burst).serialize(bands, len(bands))
    length = ofproto.OFP_METER_CONFIG_SIZE + len(bands)
    head = struct.pack(ofproto.OFP_METER_CONFIG_PACK_STR, length, meter.flags, meter.id)
    return head + bytes(bands)


def meter_stats_entry(stored: StoredMeter, flow_count: int) -> bytes:
    """Return one meter with its statistics; its bands never drop."""
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
    """Return the meter features: drop bands, both units, bursts."""
    kinds = 1 << ofproto.OFPMBT_DROP
    flags = 0b1111
    return struct.pack(ofproto.OFP_METER_FEATURES_PACK_STR, max_meters, kinds, flags, MAX_BANDS, 0)


def port_entry(port: PortDescription) -> bytes:
    """Return the description of one port."""
    config = 0 if port.up else ofproto.OFPPC_PORT_DOWN
    state = ofproto.OFPPS_LIVE if port.up else ofproto.OFPPS_LINK_DOWN
    name = port.name.encode()
    numbers = (config, state, 0, 0, 0, 0, 0, 0)
    return struct.pack(ofproto.OFP_PORT_PACK_STR, port.number, port.mac, name, *numbers)


def port_status_message(port: PortDescription) -> bytes:
    """Return the notification of a port that went up or down."""
    reason = struct.pack("!B7x", ofproto.OFPPR_MODIFY)
    return build_message(ofproto.OFPT_PORT_STATUS, 0, reason + port_entry(port))


def packet_in_message(*, frame: bytes, in_port: int, reason: int, table: int, cookie: int) -> bytes:
    """Return a packet-in with the whole frame; like Open vSwitch, the fake has no buffers."""
    layout = ofproto.OFP_PACKET_IN_PACK_STR
    head = struct.pack(layout, ofproto.OFP_NO_BUFFER, len(frame), reason, table, cookie)
    match = bytearray()
    parser.OFPMatch(in_port=in_port).serialize(match, 0)
    return build_message(ofproto.OFPT_PACKET_IN, 0, head + bytes(match) + b"\0\0" + frame)


BODY = ofproto.OFP_MULTIPART_REQUEST_SIZE


@dataclass(slots=True)
class PortTraffic:
    """The counters of a port."""

    number: int
    since: float
    received_packets: int = 0
    sent_packets: int = 0
    received_octets: int = 0
    sent_octets: int = 0


class SwitchPorts(Protocol):
    """The name and the ports of a switch, for descriptions."""

    name: str

    def port_descriptions(self) -> Sequence[PortDescription]:
        """Return the descriptions of all ports."""

    def port_traffic(self) -> Sequence[PortTraffic]:
        """Return the counters of all ports."""


def statistics_reply(
    kind: int, message: bytes, flows: FlowTables, meters: MeterTable, ports: SwitchPorts
) -> Iterable[bytes]:
    """Return the entries of the reply to one multipart request."""
    if kind == ofproto.OFPMP_FLOW:
        return [flow_entry(stored) for stored in flows.select(decode_flow_filter(message))]
    if kind == ofproto.OFPMP_AGGREGATE:
        return [_aggregate(message, flows)]
    if kind == ofproto.OFPMP_PORT_STATS:
        (port,) = unpack_body(message, ofproto.OFP_PORT_STATS_REQUEST_PACK_STR, BODY)
        return [
            _port_statistics(p)
            for p in ports.port_traffic()
            if port in (ofproto.OFPP_ANY, p.number)
        ]
    if kind == ofproto.OFPMP_PORT_DESC:
        return map(port_entry, ports.port_descriptions())
    if kind == ofproto.OFPMP_QUEUE:
        return _no_queues(message)
    if kind == ofproto.OFPMP_DESC:
        return [description_entry(ports.name)]
    return _meter_entries(kind, message, flows, meters)


def _meter_entries(
    kind: int, message: bytes, flows: FlowTables, meters: MeterTable
) -> Iterable[bytes]:
    if kind == ofproto.OFPMP_METER_FEATURES:
        return [meter_features_entry(meters.max_meters)]
    if kind not in (ofproto.OFPMP_METER, ofproto.OFPMP_METER_CONFIG):
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_MULTIPART)
    (meter,) = unpack_body(message, ofproto.OFP_METER_MULTIPART_REQUEST_PACK_STR, BODY)
    selected = meters.select(meter)
    if kind == ofproto.OFPMP_METER_CONFIG:
        return [meter_config_entry(stored.meter) for stored in selected]
    users = Counter(stored.flow.instructions.meter for stored in flows)
    return [meter_stats_entry(stored, users[stored.meter.id]) for stored in selected]


def _aggregate(message: bytes, flows: FlowTables) -> bytes:
    found = [stored.counters for stored in flows.select(decode_flow_filter(message))]
    packets = sum(counters.packets for counters in found)
    octets = sum(counters.octets for counters in found)
    return struct.pack(ofproto.OFP_AGGREGATE_STATS_REPLY_PACK_STR, packets, octets, len(found))


def _port_statistics(traffic: PortTraffic) -> bytes:
    elapsed = monotonic() - traffic.since
    packets_and_octets = (
        traffic.received_packets,
        traffic.sent_packets,
        traffic.received_octets,
        traffic.sent_octets,
    )
    no_errors = (0,) * 8
    duration = (int(elapsed), int(elapsed % 1 * 1e9))
    layout = ofproto.OFP_PORT_STATS_PACK_STR
    return struct.pack(layout, traffic.number, *packets_and_octets, *no_errors, *duration)


def _no_queues(message: bytes) -> list[bytes]:
    """Return no queues; those of real switches belong to the switch host."""
    _, queue = unpack_body(message, ofproto.OFP_QUEUE_STATS_REQUEST_PACK_STR, BODY)
    if queue != ofproto.OFPQ_ALL:
        raise Refusal(ofproto.OFPET_QUEUE_OP_FAILED, ofproto.OFPQOFC_BAD_QUEUE)
    return []
