"""A connected switch: its control channel, and the messages that apply a desired state."""

import logging
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from firedex_controller.discovery import Port
from firedex_controller.errors import (
    ControllerError,
    SwitchNotConnected,
    SwitchRefused,
    SwitchTimeout,
)
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
from firedex_controller.switch_state import Change, FlowEntry, MeterEntry, SwitchState, difference

__all__ = ["ControlChannel", "OutgoingMessage", "SwitchSession", "ports_from_descriptions"]

log = logging.getLogger("firedex.controller")

REPLY_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message, and a description of its purpose for the error if the switch refuses it."""

    message: Any
    purpose: str


class ControlChannel:
    """One control channel. Any thread may send requests; only one sends changes."""

    def __init__(self, switch: str, datapath: Any) -> None:
        self.switch = switch
        self.datapath = datapath
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._parts: dict[int, list[Any]] = {}
        self._errors: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._closed = False

    def send(self, message: Any) -> int:
        """Send without waiting for a reply; return the transaction id."""
        if self._closed:
            raise SwitchNotConnected(self.switch)
        if message.xid is None:
            self.datapath.set_xid(message)
        self.datapath.send_msg(message)
        number: int = message.xid
        return number

    def request(self, message: Any, timeout_seconds: float = REPLY_TIMEOUT_SECONDS) -> list[Any]:
        """Send a request and return all parts of its reply; raise if it is refused."""
        self.datapath.set_xid(message)
        waiter = queue.SimpleQueue[Any]()
        with self._lock:
            self._waiting[message.xid] = waiter
        try:
            self.send(message)
            reply = waiter.get(timeout=timeout_seconds)
        except queue.Empty as error:
            raise SwitchTimeout(
                self.switch, f"no reply to {type(message).__name__} within {timeout_seconds:g} s"
            ) from error
        finally:
            with self._lock:
                self._waiting.pop(message.xid, None)
                self._parts.pop(message.xid, None)
        if reply is None:
            raise SwitchNotConnected(self.switch)
        if isinstance(reply, parser.OFPErrorMsg):
            raise SwitchRefused(self.switch, _error_text(reply))
        parts: list[Any] = reply
        return parts

    def barrier(self, timeout_seconds: float = REPLY_TIMEOUT_SECONDS) -> None:
        """Wait until the switch has processed everything that was sent."""
        self.request(parser.OFPBarrierRequest(self.datapath), timeout_seconds)

    def send_and_confirm(self, outgoing: Iterable[OutgoingMessage]) -> None:
        """Send messages and a barrier; raise for the first message that was refused."""
        self._errors.clear()
        purposes = {}
        for each in outgoing:
            purposes[self.send(each.message)] = each.purpose
        self.barrier()
        self._raise_first_refused(purposes)

    def send_in_bundle(self, outgoing: Iterable[OutgoingMessage], bundle: int) -> None:
        """Apply all messages at the same moment, or none of them."""
        flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED
        self._errors.clear()
        self._bundle_control(bundle, ofproto.ONF_BCT_OPEN_REQUEST, flags)
        purposes = {}
        for each in outgoing:
            added = parser.ONFBundleAddMsg(self.datapath, bundle, flags, each.message, [])
            purposes[self.send(added)] = each.purpose
        # Open vSwitch refuses an invalid message at once and would then commit the others, so the
        # commit is sent only after all messages are known to be in the bundle.
        self.barrier()
        try:
            self._raise_first_refused(purposes)
        except SwitchRefused:
            self._bundle_control(bundle, ofproto.ONF_BCT_DISCARD_REQUEST, flags)
            raise
        try:
            self._bundle_control(bundle, ofproto.ONF_BCT_COMMIT_REQUEST, flags)
        except SwitchRefused:
            self._raise_first_refused(purposes)
            raise

    def supports_bundles(self) -> bool:
        """Return whether the switch supports bundles, by opening and discarding one."""
        flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED
        try:
            self._bundle_control(1, ofproto.ONF_BCT_OPEN_REQUEST, flags)
            self._bundle_control(1, ofproto.ONF_BCT_DISCARD_REQUEST, flags)
        except SwitchRefused:
            return False
        return True

    def handle_reply(self, message: Any) -> None:
        """Handle a reply, or a part of one."""
        more_to_come = (
            isinstance(message, parser.OFPMultipartReply)
            and message.flags & ofproto.OFPMPF_REPLY_MORE
        )
        with self._lock:
            waiter = self._waiting.get(message.xid)
            if waiter is None:
                return
            parts = self._parts.setdefault(message.xid, [])
            parts.append(message)
        if not more_to_come:
            waiter.put(parts)

    def handle_error(self, message: Any) -> None:
        """Handle an error message, which may belong to a request or to a change."""
        with self._lock:
            waiter = self._waiting.get(message.xid)
            self._errors[message.xid] = message
        if waiter is not None:
            waiter.put(message)

    def close(self) -> None:
        """Fail all waiting requests, because the channel is closed."""
        self._closed = True
        with self._lock:
            waiting = list(self._waiting.values())
        for waiter in waiting:
            waiter.put(None)

    def _bundle_control(self, bundle: int, kind: int, flags: int) -> None:
        self.request(parser.ONFBundleCtrlMsg(self.datapath, bundle, kind, flags, []))

    def _raise_first_refused(self, purposes: dict[int, str]) -> None:
        for number, purpose in purposes.items():
            if number in self._errors:
                raise SwitchRefused(self.switch, _error_text(self._errors[number]), purpose)


class SwitchSession:
    """A connected switch; ``installed`` is the state that its last barrier confirmed."""

    def __init__(self, name: str, datapath: Any) -> None:
        self.name = name
        self.channel = ControlChannel(name, datapath)
        self.installed = SwitchState()
        self.has_meters = False
        self.has_packet_meters = False
        self.has_bundles = False
        self._bundle = 0

    @property
    def datapath(self) -> Any:
        """The framework's object for this connection."""
        return self.channel.datapath

    def start(self) -> list[Port]:
        """Read the capabilities and the installed state of the switch; return its ports."""
        (features, *_) = self.channel.request(parser.OFPMeterFeaturesStatsRequest(self.datapath))
        described = features.body[0]
        self.has_meters = described.max_meter > 0
        self.has_packet_meters = bool(described.capabilities & ofproto.OFPMF_PKTPS)
        self.has_bundles = self.channel.supports_bundles()
        self._limit_packet_ins()
        self.read_installed()
        replies = self.channel.request(parser.OFPPortDescStatsRequest(self.datapath, 0))
        return ports_from_descriptions(port for reply in replies for port in reply.body)

    def read_installed(self) -> None:
        """Read the installed state from the switch."""
        flows = self.channel.request(parser.OFPFlowStatsRequest(self.datapath))
        meters = []
        if self.has_meters:
            request = parser.OFPMeterConfigStatsRequest(self.datapath)
            meters = [each for reply in self.channel.request(request) for each in reply.body]
        self.installed = SwitchState.of(
            entries_from_stats(stat for reply in flows for stat in reply.body),
            meters_from_config(meters),
        )

    def apply(self, desired: SwitchState) -> Change:
        """Bring the switch to ``desired``; if it refuses any part, restore its previous state."""
        if not (self.has_meters and self.has_packet_meters):
            desired = desired.without_meters()
        change = difference(self.installed, desired)
        if not change:
            return change
        before = self.installed
        try:
            self._send(change)
        except SwitchTimeout:
            self.datapath.close()  # the switch reconnects, and its state is read again
            raise
        except SwitchRefused:
            self.restore(before)
            raise
        self.installed = desired
        return change

    def restore(self, before: SwitchState) -> None:
        """Bring the switch back to a previous state, starting from what it reports."""
        try:
            self.read_installed()
            undo = difference(self.installed, before)
            if undo:
                self._send(undo)
            self.installed = before
        except ControllerError as error:
            log.warning("cannot restore the previous rules of switch %s: %s", self.name, error)
            self.datapath.close()

    def _send(self, change: Change) -> None:
        channel = self.channel
        meters = [*self._meter_messages(change.meters_to_add, "add")]
        meters += self._meter_messages(change.meters_to_modify, "modify")
        additions = [
            OutgoingMessage(set_flow(self.datapath, flow), _flow_name(flow))
            for flow in change.flows_to_set
        ]
        deletions = [
            OutgoingMessage(delete_flow(self.datapath, flow), _flow_name(flow))
            for flow in change.flows_to_delete
        ]
        if self.has_bundles:
            if meters:
                channel.send_and_confirm(meters)
            if additions or deletions:
                self._bundle += 1
                channel.send_in_bundle([*additions, *deletions], self._bundle)
        else:
            channel.send_and_confirm([*meters, *additions])
        meter_deletions = [
            OutgoingMessage(
                delete_meter(self.datapath, meter.id), f"the deletion of meter {meter.id}"
            )
            for meter in change.meters_to_delete
        ]
        last = meter_deletions if self.has_bundles else [*deletions, *meter_deletions]
        if last:
            channel.send_and_confirm(last)

    def _meter_messages(
        self, meters: tuple[MeterEntry, ...], action: Any
    ) -> Iterator[OutgoingMessage]:
        for meter in meters:
            message = put_meter(self.datapath, meter, action)
            yield OutgoingMessage(message, meter.label or f"meter {meter.id}")

    def _limit_packet_ins(self) -> None:
        """Limit packet-ins with the controller's meter, if the switch supports it.

        OpenFlow does not report whether the meter exists: it is added, or modified if that fails.
        """
        for action in ("add", "modify"):
            try:
                message = controller_meter(self.datapath, action)
                self.channel.send_and_confirm([OutgoingMessage(message, "the controller's meter")])
            except SwitchRefused:
                continue
            return
        log.info("switch %s cannot limit its packet-ins", self.name)


def ports_from_descriptions(ports: Iterable[Any]) -> list[Port]:
    """Return the ports of a switch, without its local port."""
    down = ofproto.OFPPS_LINK_DOWN
    disabled = ofproto.OFPPC_PORT_DOWN
    return [
        Port(
            number=port.port_no,
            name=_text(port.name),
            hardware_address=port.hw_addr,
            up=not (port.state & down or port.config & disabled),
        )
        for port in ports
        if port.port_no <= ofproto.OFPP_MAX
    ]


def _error_text(message: Any) -> str:
    if message.type == ofproto.OFPET_EXPERIMENTER:
        return f"experimenter {message.experimenter:#x}, error {message.exp_type}"
    kind = ofproto.ofp_error_type_to_str(message.type)
    code = ofproto.ofp_error_code_to_str(message.type, message.code)
    return f"{kind}, {code}"


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _flow_name(flow: FlowEntry) -> str:
    if flow.label:
        return flow.label
    return f"the entry of table {flow.table} with priority {flow.priority}"
