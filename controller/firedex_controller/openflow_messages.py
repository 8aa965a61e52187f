"""Conversion between entries and OpenFlow 1.3 messages. Sends nothing."""

from collections.abc import Iterable
from typing import Any, Literal

from firedex_controller.framework import ofproto, parser
from firedex_controller.rules import version_of_cookie
from firedex_controller.switch_state import FlowEntry, MeterEntry, make_match

__all__ = [
    "controller_meter",
    "delete_flow",
    "delete_meter",
    "entries_from_stats",
    "meters_from_config",
    "packet_out",
    "put_meter",
    "set_flow",
]

BYTES_TO_CONTROLLER = 256
"""Enough of a packet for its addresses; the controller's LLDP frames are shorter."""
PACKET_IN_PER_SECOND, PACKET_IN_BURST = 1000, 500
UNITS: dict[str, int] = {
    "packets": ofproto.OFPMF_PKTPS,
    "kilobits": ofproto.OFPMF_KBPS,
}


def set_flow(datapath: Any, flow: FlowEntry) -> Any:
    """Return a message that adds an entry, or overwrites the one with the same key."""
    actions = []
    if flow.dscp is not None:
        actions.append(parser.OFPActionSetField(ip_dscp=flow.dscp))
    if flow.queue is not None:
        actions.append(parser.OFPActionSetQueue(flow.queue))
    if flow.to_controller:
        actions.append(parser.OFPActionOutput(ofproto.OFPP_CONTROLLER, BYTES_TO_CONTROLLER))
    actions += [parser.OFPActionOutput(port) for port in flow.outputs]
    instructions = []
    if flow.meter is not None:
        instructions.append(parser.OFPInstructionMeter(flow.meter, ofproto.OFPIT_METER))
    if actions:
        instructions.append(parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions))
    if flow.next_table is not None:
        instructions.append(parser.OFPInstructionGotoTable(flow.next_table))
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        table_id=flow.table,
        command=ofproto.OFPFC_ADD,
        priority=flow.priority,
        match=parser.OFPMatch(**dict(flow.match)),
        instructions=instructions,
    )


def delete_flow(datapath: Any, flow: FlowEntry) -> Any:
    """Return a message that deletes exactly this entry."""
    return parser.OFPFlowMod(
        datapath,
        table_id=flow.table,
        command=ofproto.OFPFC_DELETE_STRICT,
        priority=flow.priority,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=parser.OFPMatch(**dict(flow.match)),
    )


def put_meter(datapath: Any, meter: MeterEntry, action: Literal["add", "modify"]) -> Any:
    """Return a message that adds or modifies a meter."""
    return parser.OFPMeterMod(
        datapath,
        command=ofproto.OFPMC_ADD if action == "add" else ofproto.OFPMC_MODIFY,
        flags=UNITS[meter.unit] | ofproto.OFPMF_BURST,
        meter_id=meter.id,
        bands=[parser.OFPMeterBandDrop(rate=meter.rate, burst_size=meter.burst)],
    )


def delete_meter(datapath: Any, meter_id: int) -> Any:
    """Return a message that deletes a meter; the switch also deletes the flows that use it."""
    return parser.OFPMeterMod(datapath, command=ofproto.OFPMC_DELETE, meter_id=meter_id)


def controller_meter(datapath: Any, action: Literal["add", "modify"]) -> Any:
    """Return a message that limits the packet-ins of a switch, whatever hosts send."""
    limit = MeterEntry(id=ofproto.OFPM_CONTROLLER, rate=PACKET_IN_PER_SECOND, burst=PACKET_IN_BURST)
    return put_meter(datapath, limit, action)


def packet_out(datapath: Any, port: int, frame: bytes) -> Any:
    """Return a message that sends a frame out of a port."""
    return parser.OFPPacketOut(
        datapath,
        buffer_id=ofproto.OFP_NO_BUFFER,
        in_port=ofproto.OFPP_CONTROLLER,
        actions=[parser.OFPActionOutput(port)],
        data=frame,
    )


def entries_from_stats(stats: Iterable[Any]) -> list[FlowEntry]:
    """Return the entries of FireDeX among those that a switch reports."""
    return [_entry(stat) for stat in stats if version_of_cookie(stat.cookie) is not None]


def _entry(stat: Any) -> FlowEntry:
    meter = dscp = queue = next_table = None
    outputs: list[int] = []
    to_controller = False
    for instruction in stat.instructions:
        if isinstance(instruction, parser.OFPInstructionMeter):
            meter = instruction.meter_id
        elif isinstance(instruction, parser.OFPInstructionGotoTable):
            next_table = instruction.table_id
        elif isinstance(instruction, parser.OFPInstructionActions):
            for action in instruction.actions:
                if isinstance(action, parser.OFPActionSetQueue):
                    queue = action.queue_id
                elif isinstance(action, parser.OFPActionSetField):
                    dscp = action.value
                elif action.port == ofproto.OFPP_CONTROLLER:
                    to_controller = True
                else:
                    outputs.append(action.port)
    return FlowEntry(
        table=stat.table_id,
        priority=stat.priority,
        match=make_match(**dict(stat.match.items())),
        meter=meter,
        dscp=dscp,
        queue=queue,
        outputs=tuple(outputs),
        to_controller=to_controller,
        next_table=next_table,
        cookie=stat.cookie,
    )


def meters_from_config(configurations: Iterable[Any]) -> list[MeterEntry]:
    """Return the meters of a switch without OpenFlow's own (slow path, controller)."""
    meters = []
    for meter in configurations:
        if meter.meter_id > ofproto.OFPM_MAX or not meter.bands:
            continue
        band = meter.bands[0]
        unit: Literal["packets", "kilobits"] = (
            "packets" if meter.flags & ofproto.OFPMF_PKTPS else "kilobits"
        )
        meters.append(
            MeterEntry(id=meter.meter_id, unit=unit, rate=band.rate, burst=band.burst_size)
        )
    return meters
