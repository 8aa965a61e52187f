"""Answers to requests for statistics and descriptions, entry by entry."""

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from firedex_controller.fake_switch import replies
from firedex_controller.fake_switch.flow_tables import FlowTables
from firedex_controller.fake_switch.meter_table import MeterTable
from firedex_controller.fake_switch.refusals import Refusal
from firedex_controller.fake_switch.requests import body_of, flow_filter_of
from firedex_controller.framework import ofproto

__all__ = ["PortTraffic", "SwitchPorts", "statistics_reply"]

BODY = ofproto.OFP_MULTIPART_REQUEST_SIZE


@dataclass(slots=True)
class PortTraffic:
    """What went through a port."""

    number: int
    since: float
    received_packets: int = 0
    sent_packets: int = 0
    received_octets: int = 0
    sent_octets: int = 0


class SwitchPorts(Protocol):
    """What the switch says of itself and its ports."""

    name: str

    def port_descriptions(self) -> Sequence[replies.PortDescription]:
        """All ports."""

    def port_traffic(self) -> Sequence[PortTraffic]:
        """All ports' counters."""


def statistics_reply(
    kind: int, message: bytes, flows: FlowTables, meters: MeterTable, ports: SwitchPorts
) -> Iterable[bytes]:
    """The entries of the answer to one multipart request."""
    if kind == ofproto.OFPMP_FLOW:
        return [replies.flow_entry(stored) for stored in flows.select(flow_filter_of(message))]
    if kind == ofproto.OFPMP_AGGREGATE:
        return [_aggregate(message, flows)]
    if kind == ofproto.OFPMP_PORT_STATS:
        (port,) = body_of(message, ofproto.OFP_PORT_STATS_REQUEST_PACK_STR, BODY)
        return [_port(p) for p in ports.port_traffic() if port in (ofproto.OFPP_ANY, p.number)]
    if kind == ofproto.OFPMP_PORT_DESC:
        return map(replies.port_entry, ports.port_descriptions())
    if kind == ofproto.OFPMP_QUEUE:
        return _no_queues(message)
    if kind == ofproto.OFPMP_DESC:
        return [replies.description_entry(ports.name)]
    return _of_meters(kind, message, flows, meters)


def _of_meters(kind: int, message: bytes, flows: FlowTables, meters: MeterTable) -> Iterable[bytes]:
    if kind == ofproto.OFPMP_METER_FEATURES:
        return [replies.meter_features_entry(meters.max_meters)]
    if kind not in (ofproto.OFPMP_METER, ofproto.OFPMP_METER_CONFIG):
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_MULTIPART)
    (meter,) = body_of(message, ofproto.OFP_METER_MULTIPART_REQUEST_PACK_STR, BODY)
    asked = meters.asked(meter)
    if kind == ofproto.OFPMP_METER_CONFIG:
        return [replies.meter_config_entry(stored.meter) for stored in asked]
    users = Counter(stored.flow.instructions.meter for stored in flows)
    return [replies.meter_stats_entry(stored, users[stored.meter.id]) for stored in asked]


def _aggregate(message: bytes, flows: FlowTables) -> bytes:
    found = [stored.counters for stored in flows.select(flow_filter_of(message))]
    packets = sum(counters.packets for counters in found)
    octets = sum(counters.octets for counters in found)
    return struct.pack(ofproto.OFP_AGGREGATE_STATS_REPLY_PACK_STR, packets, octets, len(found))


def _port(traffic: PortTraffic) -> bytes:
    lasted = monotonic() - traffic.since
    packets_and_octets = (
        traffic.received_packets,
        traffic.sent_packets,
        traffic.received_octets,
        traffic.sent_octets,
    )
    nothing_lost = (0,) * 8
    duration = (int(lasted), int(lasted % 1 * 1e9))
    layout = ofproto.OFP_PORT_STATS_PACK_STR
    return struct.pack(layout, traffic.number, *packets_and_octets, *nothing_lost, *duration)


def _no_queues(message: bytes) -> list[bytes]:
    """There are none: those of real switches live in the switch host."""
    _, queue = body_of(message, ofproto.OFP_QUEUE_STATS_REQUEST_PACK_STR, BODY)
    if queue != ofproto.OFPQ_ALL:
        raise Refusal(ofproto.OFPET_QUEUE_OP_FAILED, ofproto.OFPQOFC_BAD_QUEUE)
    return []
