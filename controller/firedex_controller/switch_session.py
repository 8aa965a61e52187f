"""One connected switch: what is installed on it, and bringing it to what is desired."""

import logging
from collections.abc import Iterator
from typing import Any

from firedex_controller.conversation import Conversation, Outgoing
from firedex_controller.difference import Change, difference
from firedex_controller.discovery import Port
from firedex_controller.errors import ControllerError, SwitchRefused, SwitchSilent
from firedex_controller.framework import ofproto, parser
from firedex_controller.openflow_messages import (
    controller_meter,
    delete_flow,
    delete_meter,
    entries_from_stats,
    meters_from_config,
    put_meter,
    set_flow,
)
from firedex_controller.switch_entries import FlowEntry, MeterEntry, SwitchState

__all__ = ["SwitchSession", "described_ports"]

log = logging.getLogger("firedex.controller")


class SwitchSession:
    """A switch while it is connected. ``installed`` is what its last barrier confirmed."""

    def __init__(self, name: str, datapath: Any) -> None:
        self.name = name
        self.conversation = Conversation(name, datapath)
        self.installed = SwitchState()
        self.has_meters = False
        self.has_packet_meters = False
        self.has_bundles = False
        self._bundle = 0

    @property
    def datapath(self) -> Any:
        """The framework's own object of this connection."""
        return self.conversation.datapath

    def begin(self) -> list[Port]:
        """Find out what the switch can do and what is on it; return its ports."""
        (features, *_) = self.conversation.ask(parser.OFPMeterFeaturesStatsRequest(self.datapath))
        described = features.body[0]
        self.has_meters = described.max_meter > 0
        self.has_packet_meters = bool(described.capabilities & ofproto.OFPMF_PKTPS)
        self.has_bundles = self.conversation.can_bundle()
        self._limit_packet_ins()
        self.look()
        answers = self.conversation.ask(parser.OFPPortDescStatsRequest(self.datapath, 0))
        return described_ports(port for answer in answers for port in answer.body)

    def look(self) -> None:
        """Read what is installed, from the switch itself."""
        flows = self.conversation.ask(parser.OFPFlowStatsRequest(self.datapath))
        meters = []
        if self.has_meters:
            asked = parser.OFPMeterConfigStatsRequest(self.datapath)
            meters = [each for answer in self.conversation.ask(asked) for each in answer.body]
        self.installed = SwitchState.of(
            entries_from_stats(stat for answer in flows for stat in answer.body),
            meters_from_config(meters),
        )

    def bring(self, desired: SwitchState) -> Change:
        """Bring the switch to ``desired``; if it refuses any of it, back to what it had."""
        if not (self.has_meters and self.has_packet_meters):
            desired = desired.without_meters()
        change = difference(self.installed, desired)
        if not change:
            return change
        before = self.installed
        try:
            self._send(change)
        except SwitchSilent:
            self.datapath.close()  # it comes back, and is asked what it has
            raise
        except SwitchRefused:
            self.restore(before)
            raise
        self.installed = desired
        return change

    def restore(self, before: SwitchState) -> None:
        """Bring the switch back to what it had, by what it says is on it."""
        try:
            self.look()
            undo = difference(self.installed, before)
            if undo:
                self._send(undo)
            self.installed = before
        except ControllerError as error:
            log.warning("switch %s could not be brought back: %s", self.name, error)
            self.datapath.close()

    def _send(self, change: Change) -> None:
        talk = self.conversation
        meters = [*self._meter_messages(change.meters_to_add, "add")]
        meters += self._meter_messages(change.meters_to_modify, "modify")
        setting = [Outgoing(set_flow(self.datapath, f), _name(f)) for f in change.flows_to_set]
        deleting = [
            Outgoing(delete_flow(self.datapath, f), _name(f)) for f in change.flows_to_delete
        ]
        if self.has_bundles:
            if meters:
                talk.send_and_confirm(meters)
            if setting or deleting:
                self._bundle += 1
                talk.send_in_bundle([*setting, *deleting], self._bundle)
        else:
            talk.send_and_confirm([*meters, *setting])
        stale = [
            Outgoing(delete_meter(self.datapath, meter.id), f"the end of meter {meter.id}")
            for meter in change.meters_to_delete
        ]
        last = stale if self.has_bundles else [*deleting, *stale]
        if last:
            talk.send_and_confirm(last)

    def _meter_messages(self, meters: tuple[MeterEntry, ...], how: Any) -> Iterator[Outgoing]:
        for meter in meters:
            message = put_meter(self.datapath, meter, how)
            yield Outgoing(message, meter.label or f"meter {meter.id}")

    def _limit_packet_ins(self) -> None:
        """Whether it is there already only the switch knows; one that has no such meter says so."""
        for how in ("add", "modify"):
            try:
                message = controller_meter(self.datapath, how)
                self.conversation.send_and_confirm([Outgoing(message, "the controller's meter")])
            except SwitchRefused:
                continue
            return
        log.info("switch %s cannot limit what it shows to the controller", self.name)


def described_ports(ports: Any) -> list[Port]:
    """The ports of a switch that lead anywhere; its own local one does not."""
    down = ofproto.OFPPS_LINK_DOWN
    off = ofproto.OFPPC_PORT_DOWN
    return [
        Port(
            number=port.port_no,
            name=_text(port.name),
            hardware_address=port.hw_addr,
            up=not (port.state & down or port.config & off),
        )
        for port in ports
        if port.port_no <= ofproto.OFPP_MAX
    ]


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _name(flow: FlowEntry) -> str:
    if flow.label:
        return flow.label
    return f"the entry of table {flow.table} with priority {flow.priority}"
