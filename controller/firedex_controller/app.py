"""The controller application: thin. Computes nothing; sends what is computed, in order, and waits.

Meters first, then flows, then a barrier; then whatever an earlier configuration left, and another
barrier. An answer is given when the last barrier is. Rules stay when this process dies.
"""

import logging
import os
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from firedex.wire import SwitchRules
from firedex_controller.api import serve_api
from firedex_controller.errors import SwitchNotConnected, SwitchRefused
from firedex_controller.framework import Application, handler, hub, ofp_event, ofproto, parser
from firedex_controller.openflow_state import (
    BASELINE,
    FlowEntry,
    MeterEntry,
    OpenFlowState,
    desired_state,
)
from firedex_controller.queue_commands import apply_queues
from firedex_controller.settings import ControllerSettings

__all__ = ["FiredexController"]

log = logging.getLogger("firedex.controller")
BARRIER_SECONDS = 5.0


@dataclass
class _Switch:
    """What is known of one switch. ``waiting`` maps a barrier's transaction to who waits for it."""

    name: str
    port: str
    datapath: Any = None
    desired: SwitchRules | None = None
    queues_applied: object = None
    meters: set[int] = field(default_factory=set)
    waiting: dict[int, Any] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)


class FiredexController(Application):  # type: ignore[misc]  # untyped framework
    """Keeps every switch at the state that was last asked for."""

    OFP_VERSIONS = [ofproto.OFP_VERSION]  # noqa: RUF012  # the framework's own convention

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = ControllerSettings.from_environment(os.environ)
        self._by_id = {
            datapath: _Switch(name=name, port=port)
            for name, (datapath, port) in self.settings.switches.items()
        }
        self._by_name = {switch.name: switch for switch in self._by_id.values()}
        self._one_at_a_time = hub.Semaphore(1)
        hub.spawn(serve_api, self)

    # -- what the API asks ---------------------------------------------------------------------

    def connected(self) -> dict[str, bool]:
        """Which of the known switches have a control channel."""
        return {name: switch.datapath is not None for name, switch in self._by_name.items()}

    def put_rules(self, rules: SwitchRules) -> float:
        """Bring one switch to ``rules``; return the seconds it took until the last barrier."""
        switch = self._by_name.get(rules.switch)
        if switch is None or switch.datapath is None:
            raise SwitchNotConnected(rules.switch)
        with self._one_at_a_time:
            start = monotonic()
            self._apply(switch, rules)
            switch.desired = rules
            return monotonic() - start

    # -- what switches say ---------------------------------------------------------------------

    @handler.set_ev_cls(ofp_event.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)  # type: ignore[untyped-decorator]
    def _joined(self, event: Any) -> None:
        switch = self._by_id.get(event.msg.datapath.id)
        if switch is None:
            log.warning("an unknown switch connected: datapath %x", event.msg.datapath.id)
            return
        switch.datapath = event.msg.datapath
        switch.meters.clear()  # whether it kept them over its absence is not known
        switch.queues_applied = None
        log.info("switch %s connected", switch.name)
        if switch.desired is not None:
            hub.spawn(self.put_rules, switch.desired)
            return
        for flow in BASELINE.flows:
            switch.datapath.send_msg(_flow_message(switch.datapath, BASELINE, flow))

    @handler.set_ev_cls(ofp_event.EventOFPStateChange, handler.DEAD_DISPATCHER)  # type: ignore[untyped-decorator]
    def _left(self, event: Any) -> None:
        for switch in self._by_id.values():
            if switch.datapath is event.datapath:
                switch.datapath = None
                log.warning("switch %s disconnected; it goes on by its rules", switch.name)

    @handler.set_ev_cls(ofp_event.EventOFPBarrierReply, handler.MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _passed_barrier(self, event: Any) -> None:
        switch = self._by_id.get(event.msg.datapath.id)
        waiter = switch.waiting.pop(event.msg.xid, None) if switch else None
        if waiter is not None:
            waiter.put(None)

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPErrorMsg,
        [handler.HANDSHAKE_DISPATCHER, handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER],
    )
    def _refused(self, event: Any) -> None:
        switch = self._by_id.get(event.msg.datapath.id)
        already_there = (
            event.msg.type == ofproto.OFPET_METER_MOD_FAILED
            and event.msg.code == ofproto.OFPMMFC_METER_EXISTS
        )
        if switch is not None and not already_there:
            switch.refusals.append(f"error type {event.msg.type} code {event.msg.code}")

    # -- sending -------------------------------------------------------------------------------

    def _apply(self, switch: _Switch, rules: SwitchRules) -> None:
        queues = (rules.bandwidth_bits_per_second, rules.queues)
        if switch.queues_applied != queues:
            apply_queues(switch.port, rules.bandwidth_bits_per_second, rules.queues)
            switch.queues_applied = queues
        switch.refusals.clear()
        state = desired_state(rules)
        for meter in state.meters:
            if meter.id not in switch.meters:
                switch.datapath.send_msg(_meter_message(switch.datapath, meter, ofproto.OFPMC_ADD))
            switch.datapath.send_msg(_meter_message(switch.datapath, meter, ofproto.OFPMC_MODIFY))
        for flow in state.flows:
            switch.datapath.send_msg(_flow_message(switch.datapath, state, flow))
        self._barrier(switch)
        if switch.desired is not None and switch.desired.configuration_version != state.cookie:
            switch.datapath.send_msg(
                _delete_flows_message(switch.datapath, switch.desired.configuration_version)
            )
        wanted = {meter.id for meter in state.meters}
        for meter_id in switch.meters - wanted:
            switch.datapath.send_msg(_delete_meter_message(switch.datapath, meter_id))
        switch.meters = wanted
        self._barrier(switch)

    def _barrier(self, switch: _Switch) -> None:
        request = parser.OFPBarrierRequest(switch.datapath)
        switch.datapath.set_xid(request)
        waiter = hub.Queue()
        switch.waiting[request.xid] = waiter
        switch.datapath.send_msg(request)
        try:
            waiter.get(timeout=BARRIER_SECONDS)
        except Exception as error:
            raise SwitchRefused(switch.name, "no barrier reply in time") from error
        if switch.refusals:
            raise SwitchRefused(switch.name, "; ".join(switch.refusals))


def _meter_message(datapath: Any, meter: MeterEntry, command: int) -> Any:
    flags = ofproto.OFPMF_PKTPS | ofproto.OFPMF_BURST
    band = parser.OFPMeterBandDrop(rate=meter.packets_per_second, burst_size=meter.burst_packets)
    return parser.OFPMeterMod(
        datapath, command=command, flags=flags, meter_id=meter.id, bands=[band]
    )


def _delete_meter_message(datapath: Any, meter_id: int) -> Any:
    return parser.OFPMeterMod(datapath, command=ofproto.OFPMC_DELETE, meter_id=meter_id)


def _flow_message(datapath: Any, state: OpenFlowState, flow: FlowEntry) -> Any:
    actions = []
    if flow.dscp is not None:
        actions.append(parser.OFPActionSetField(ip_dscp=flow.dscp))
    if flow.queue is not None:
        actions.append(parser.OFPActionSetQueue(flow.queue))
    actions.append(parser.OFPActionOutput(ofproto.OFPP_NORMAL))
    instructions = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)]
    if flow.meter is not None:
        instructions.insert(0, parser.OFPInstructionMeter(flow.meter, ofproto.OFPIT_METER))
    return parser.OFPFlowMod(
        datapath,
        cookie=state.cookie,
        priority=flow.priority,
        match=parser.OFPMatch(**dict(flow.match)),
        instructions=instructions,
    )


def _delete_flows_message(datapath: Any, cookie: int) -> Any:
    return parser.OFPFlowMod(
        datapath,
        command=ofproto.OFPFC_DELETE,
        cookie=cookie,
        cookie_mask=0xFFFFFFFFFFFFFFFF,
        table_id=ofproto.OFPTT_ALL,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=parser.OFPMatch(),
    )
