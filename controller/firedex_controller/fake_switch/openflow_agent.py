"""One switch's side of OpenFlow 1.3: a message in, what is answered out. No sockets in here."""

from collections.abc import Callable
from typing import Any

from firedex_controller.fake_switch import replies, requests
from firedex_controller.fake_switch.bundles import BundledChange, Bundles
from firedex_controller.fake_switch.flow_entries import flow_change_of
from firedex_controller.fake_switch.flow_tables import FlowTables, StoredFlow
from firedex_controller.fake_switch.meter_table import MeterTable
from firedex_controller.fake_switch.openflow_wire import header_of
from firedex_controller.fake_switch.received_messages import Received
from firedex_controller.fake_switch.refusals import ONF_EXPERIMENTER, Refusal, bundle_refusal
from firedex_controller.fake_switch.statistics_replies import SwitchPorts, statistics_reply
from firedex_controller.framework import ofproto

__all__ = ["OpenFlowAgent"]

KINDS = {
    number: name[len("OFPT_") :].lower().replace("_", " ").removesuffix(" request")
    for name, number in vars(ofproto).items()
    if name.startswith("OFPT_")
}
PacketOutHandler = Callable[[requests.PacketOut], None]
NOTHING_SENT: list[bytes] = []


class OpenFlowAgent:
    """Flows, meters and bundles of one switch, and how messages change them."""

    def __init__(self, datapath_id: int, ports: SwitchPorts, packet_out: PacketOutHandler) -> None:
        self.datapath_id = datapath_id
        self.flows = FlowTables()
        self.meters = MeterTable()
        self.bundles = Bundles()
        self.bundles_supported = True
        self.received: list[Received] = []
        self._ports = ports
        self._packet_out = packet_out
        self._miss_send_bytes = 128
        self._generation = (1 << 64) - 1
        self._role: int = ofproto.OFPCR_ROLE_EQUAL
        self._handlers: dict[int, Callable[[bytes, int], list[bytes]]] = {
            ofproto.OFPT_ECHO_REQUEST: self._echo,
            ofproto.OFPT_FEATURES_REQUEST: self._features,
            ofproto.OFPT_GET_CONFIG_REQUEST: self._get_config,
            ofproto.OFPT_SET_CONFIG: self._set_config,
            ofproto.OFPT_BARRIER_REQUEST: self._barrier,
            ofproto.OFPT_ROLE_REQUEST: self._set_role,
            ofproto.OFPT_FLOW_MOD: self._flow_mod,
            ofproto.OFPT_METER_MOD: self._meter_mod,
            ofproto.OFPT_PACKET_OUT: self._send_packet,
            ofproto.OFPT_MULTIPART_REQUEST: self._statistics,
            ofproto.OFPT_EXPERIMENTER: self._experimenter,
            ofproto.OFPT_HELLO: self._ignore,
            ofproto.OFPT_ECHO_REPLY: self._ignore,
            ofproto.OFPT_ERROR: self._ignore,
        }

    def forget(self) -> None:
        """Start anew: no flows, no meters. Limits stay."""
        self.flows.restore({})
        self.meters.stored.clear()
        self.channel_lost()

    def channel_lost(self) -> None:
        """What belongs to a control channel goes with it."""
        self.bundles.forget_all()
        self._role = ofproto.OFPCR_ROLE_EQUAL

    def digest(self, message: bytes) -> list[bytes]:
        """Do what one message asks; return what is said to it."""
        header = header_of(message)
        handle = self._handlers.get(header.type, self._unknown)
        already = len(self.received)
        try:
            return handle(message, header.transaction)
        except Refusal as refusal:
            self._note_refused(already, header.type, header.transaction, refusal)
            return [replies.error_message(refusal, header.transaction, message)]
        finally:
            if len(self.received) == already:
                kind = KINDS.get(header.type, str(header.type))
                self.received.append(Received(kind, header.transaction))

    def _note_refused(self, already: int, kind: int, transaction: int, refusal: Refusal) -> None:
        if len(self.received) > already:
            noted = self.received.pop()
        else:
            noted = Received(KINDS.get(kind, str(kind)), transaction)
        facts = (noted.kind, noted.transaction, noted.subject, noted.bundle)
        self.received.append(Received(*facts, refused=refusal.facts()))

    def _note(self, kind: str, transaction: int, **facts: Any) -> None:
        self.received.append(Received(kind, transaction, **facts))

    # -- the channel itself --------------------------------------------------------------------

    def _ignore(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        return NOTHING_SENT

    def _unknown(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_TYPE)

    def _echo(self, message: bytes, transaction: int) -> list[bytes]:
        self._note("echo request", transaction)
        data = message[ofproto.OFP_HEADER_SIZE :]
        return [replies.message_of(ofproto.OFPT_ECHO_REPLY, transaction, data)]

    def _features(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        self._note("features request", transaction)
        return [replies.features_message(self.datapath_id, transaction)]

    def _get_config(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        return [replies.config_message(self._miss_send_bytes, transaction)]

    def _set_config(self, message: bytes, transaction: int) -> list[bytes]:
        self._note("set config", transaction)
        _, self._miss_send_bytes = requests.body_of(message, ofproto.OFP_SWITCH_CONFIG_PACK_STR)
        return NOTHING_SENT

    def _barrier(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        return [replies.message_of(ofproto.OFPT_BARRIER_REPLY, transaction)]

    def _set_role(self, message: bytes, transaction: int) -> list[bytes]:
        role, generation = requests.body_of(message, ofproto.OFP_ROLE_REQUEST_PACK_STR)
        if role in (ofproto.OFPCR_ROLE_MASTER, ofproto.OFPCR_ROLE_SLAVE):
            self._generation = generation
        if role != ofproto.OFPCR_ROLE_NOCHANGE:
            self._role = role
        return [replies.role_message(self._role, self._generation, transaction)]

    # -- changes -------------------------------------------------------------------------------

    def _flow_mod(self, message: bytes, transaction: int) -> list[bytes]:
        self._note("flow mod", transaction)
        change = flow_change_of(requests.flow_mod_of(message))
        self.received[-1] = Received(f"flow {change.command}", transaction, change)
        return _removal_notices(self.flows.apply(change, self.meters.exists))

    def _meter_mod(self, message: bytes, transaction: int) -> list[bytes]:
        self._note("meter mod", transaction)
        change = requests.meter_change_of(message)
        self.received[-1] = Received(f"meter {change.command}", transaction, change)
        # Like Open vSwitch, which says nothing of these removals in this version of the protocol.
        self.flows.remove_users_of_meters(self.meters.apply(change))
        return NOTHING_SENT

    def _send_packet(self, message: bytes, transaction: int) -> list[bytes]:
        packet_out = requests.packet_out_of(message)
        self._note("packet out", transaction, subject=packet_out)
        self._packet_out(packet_out)
        return NOTHING_SENT

    def _statistics(self, message: bytes, transaction: int) -> list[bytes]:
        kind, _ = requests.body_of(message, ofproto.OFP_MULTIPART_REQUEST_PACK_STR)
        self._note(f"statistics {kind}", transaction)
        entries = statistics_reply(kind, message, self.flows, self.meters, self._ports)
        return list(replies.multipart_messages(kind, transaction, entries))

    # -- bundles -------------------------------------------------------------------------------

    def _experimenter(self, message: bytes, transaction: int) -> list[bytes]:
        experimenter, kind = requests.experimenter_of(message)
        if experimenter != ONF_EXPERIMENTER or not self.bundles_supported:
            raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_EXPERIMENTER)
        if kind == ofproto.ONF_ET_BUNDLE_ADD_MESSAGE:
            self._add_to_bundle(message, transaction)
            return NOTHING_SENT
        if kind == ofproto.ONF_ET_BUNDLE_CONTROL:
            return self._control_bundle(message, transaction)
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_EXP_TYPE)

    def _add_to_bundle(self, message: bytes, transaction: int) -> None:
        addition = requests.bundle_addition_of(message)
        inner = header_of(addition.message)
        kind = KINDS.get(inner.type, str(inner.type))
        self._note(kind, transaction, bundle=addition.bundle)
        if inner.transaction != transaction:
            raise bundle_refusal(ofproto.ONFERR_ET_MSG_BAD_XID)
        if inner.type == ofproto.OFPT_PACKET_OUT:
            self.bundles.check_addable(addition.bundle, addition.flags)
            return  # allowed by Open vSwitch; of no use to us
        if inner.type != ofproto.OFPT_FLOW_MOD:
            raise bundle_refusal(ofproto.ONFERR_ET_MSG_UNSUP)
        change = flow_change_of(requests.flow_mod_of(addition.message))
        kind = f"flow {change.command}"
        self.received[-1] = Received(kind, transaction, change, addition.bundle)
        bundle = self.bundles.check_addable(addition.bundle, addition.flags)
        bundle.changes.append(BundledChange(change, message))

    def _control_bundle(self, message: bytes, transaction: int) -> list[bytes]:
        control = requests.bundle_control_of(message)
        bundle, flags = control.bundle, control.flags
        if control.kind == ofproto.ONF_BCT_OPEN_REQUEST:
            self._note("bundle open", transaction, bundle=bundle)
            self.bundles.open(bundle, flags)
        elif control.kind == ofproto.ONF_BCT_CLOSE_REQUEST:
            self._note("bundle close", transaction, bundle=bundle)
            self.bundles.close(bundle, flags)
        elif control.kind == ofproto.ONF_BCT_DISCARD_REQUEST:
            self._note("bundle discard", transaction, bundle=bundle)
            self.bundles.discard(bundle)
        elif control.kind == ofproto.ONF_BCT_COMMIT_REQUEST:
            self._note("bundle commit", transaction, bundle=bundle)
            return self._commit(message, transaction, control)
        else:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_TYPE)
        return [replies.bundle_message(bundle, control.kind + 1, transaction)]

    def _commit(
        self, message: bytes, transaction: int, control: requests.BundleControl
    ) -> list[bytes]:
        """Make all changes or none. An error names the first that fails, another the commit."""
        before = self.flows.saved()
        removed: list[StoredFlow] = []
        for bundled in self.bundles.take_for_commit(control.bundle, control.flags):
            try:
                removed += self.flows.apply(bundled.change, self.meters.exists)
            except Refusal as refusal:
                self.flows.restore(before)
                failed = bundle_refusal(ofproto.ONFERR_ET_FAILED)
                self._note_refused(len(self.received) - 1, 0, transaction, failed)
                culprit = header_of(bundled.message).transaction
                return [
                    replies.error_message(refusal, culprit, bundled.message),
                    replies.error_message(failed, transaction, message),
                ]
        done = replies.bundle_message(control.bundle, control.kind + 1, transaction)
        return [*_removal_notices(removed), done]


def _removal_notices(removed: list[StoredFlow]) -> list[bytes]:
    return [
        replies.flow_removed_message(stored)
        for stored in removed
        if stored.flow.flags & ofproto.OFPFF_SEND_FLOW_REM
    ]
