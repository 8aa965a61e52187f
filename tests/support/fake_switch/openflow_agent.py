"""The switch side of OpenFlow 1.3, without sockets: messages in, replies out; and bundles.

Bundles behave as in Open vSwitch: an invalid message is refused when it is added, and the bundle
continues without it, so that a commit succeeds. Only an error during the commit (a full table, an
unknown meter) fails the commit, and then nothing is changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from firedex_controller.framework import ofproto
from tests.support.fake_switch import replies, requests
from tests.support.fake_switch.flow_entries import FlowChange, decode_flow_change
from tests.support.fake_switch.openflow_wire import (
    ONF_EXPERIMENTER,
    Refusal,
    bundle_refusal,
    decode_header,
)
from tests.support.fake_switch.replies import SwitchPorts, statistics_reply
from tests.support.fake_switch.requests import ReceivedMessage
from tests.support.fake_switch.tables import FlowTables, MeterTable, StoredFlow

__all__ = ["Bundle", "BundledChange", "Bundles", "OpenFlowAgent"]


@dataclass(frozen=True, slots=True)
class BundledChange:
    """One change in a bundle, and its message."""

    change: FlowChange
    message: bytes


@dataclass(slots=True)
class Bundle:
    """The changes that were added to a bundle."""

    flags: int
    closed: bool = False
    changes: list[BundledChange] = field(default_factory=list)


class Bundles:
    """The open and closed bundles of one control channel."""

    def __init__(self) -> None:
        self._by_id: dict[int, Bundle] = {}

    def open(self, bundle_id: int, flags: int) -> None:
        """Open a bundle; if it is open already, discard it and raise an error."""
        if self._by_id.pop(bundle_id, None) is not None:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_ID)
        self._by_id[bundle_id] = Bundle(flags)

    def check_addable(self, bundle_id: int, flags: int) -> Bundle:
        """Return the bundle to add to; the first addition opens a new one."""
        if bundle_id not in self._by_id:
            self._by_id[bundle_id] = Bundle(flags)
        bundle = self._by_id[bundle_id]
        if bundle.closed:
            raise self._discard_and_refuse(bundle_id, ofproto.ONFERR_ET_BUNDLE_CLOSED)
        if bundle.flags != flags:
            raise self._discard_and_refuse(bundle_id, ofproto.ONFERR_ET_BAD_FLAGS)
        return bundle

    def close(self, bundle_id: int, flags: int) -> None:
        """Close a bundle for additions."""
        bundle = self._get_bundle(bundle_id)
        if bundle.closed:
            raise self._discard_and_refuse(bundle_id, ofproto.ONFERR_ET_BUNDLE_CLOSED)
        if bundle.flags != flags:
            raise self._discard_and_refuse(bundle_id, ofproto.ONFERR_ET_BAD_FLAGS)
        bundle.closed = True

    def take_for_commit(self, bundle_id: int, flags: int) -> list[BundledChange]:
        """Remove the bundle and return its changes."""
        bundle = self._get_bundle(bundle_id)
        del self._by_id[bundle_id]
        if bundle.flags != flags:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_FLAGS)
        return bundle.changes

    def discard(self, bundle_id: int) -> None:
        """Discard a bundle."""
        self._get_bundle(bundle_id)
        del self._by_id[bundle_id]

    def discard_all(self) -> None:
        """Discard all bundles, because the channel is closed."""
        self._by_id.clear()

    def _get_bundle(self, bundle_id: int) -> Bundle:
        if bundle_id not in self._by_id:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_ID)
        return self._by_id[bundle_id]

    def _discard_and_refuse(self, bundle_id: int, kind: int) -> Refusal:
        del self._by_id[bundle_id]
        return bundle_refusal(kind)


KINDS = {
    number: name[len("OFPT_") :].lower().replace("_", " ").removesuffix(" request")
    for name, number in vars(ofproto).items()
    if name.startswith("OFPT_")
}
PacketOutHandler = Callable[[requests.PacketOut], None]
NO_REPLIES: list[bytes] = []


class OpenFlowAgent:
    """Flows, meters and bundles of one switch; handles messages without sockets."""

    def __init__(self, datapath_id: int, ports: SwitchPorts, packet_out: PacketOutHandler) -> None:
        self.datapath_id = datapath_id
        self.flows = FlowTables()
        self.meters = MeterTable()
        self.bundles = Bundles()
        self.bundles_supported = True
        self.received: list[ReceivedMessage] = []
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

    def delete_all(self) -> None:
        """Delete all flows and meters; limits stay."""
        self.flows.restore({})
        self.meters.stored.clear()
        self.reset_channel()

    def reset_channel(self) -> None:
        """Discard what belongs to a control channel."""
        self.bundles.discard_all()
        self._role = ofproto.OFPCR_ROLE_EQUAL

    def handle(self, message: bytes) -> list[bytes]:
        """Handle one message; return the replies."""
        header = decode_header(message)
        handle = self._handlers.get(header.type, self._refuse_unknown)
        already = len(self.received)
        try:
            return handle(message, header.transaction)
        except Refusal as refusal:
            self._record_refused(already, header.type, header.transaction, refusal)
            return [replies.error_message(refusal, header.transaction, message)]
        finally:
            if len(self.received) == already:
                kind = KINDS.get(header.type, str(header.type))
                self.received.append(ReceivedMessage(kind, header.transaction))

    def _record_refused(self, already: int, kind: int, transaction: int, refusal: Refusal) -> None:
        if len(self.received) > already:
            record = self.received.pop()
        else:
            record = ReceivedMessage(KINDS.get(kind, str(kind)), transaction)
        facts = (record.kind, record.transaction, record.subject, record.bundle)
        self.received.append(ReceivedMessage(*facts, refused=refusal.facts()))

    def _record(self, kind: str, transaction: int, **facts: Any) -> None:
        self.received.append(ReceivedMessage(kind, transaction, **facts))

    # -- the control channel -------------------------------------------------------------------

    def _ignore(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        return NO_REPLIES

    def _refuse_unknown(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_TYPE)

    def _echo(self, message: bytes, transaction: int) -> list[bytes]:
        self._record("echo request", transaction)
        data = message[ofproto.OFP_HEADER_SIZE :]
        return [replies.build_message(ofproto.OFPT_ECHO_REPLY, transaction, data)]

    def _features(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        self._record("features request", transaction)
        return [replies.features_message(self.datapath_id, transaction)]

    def _get_config(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        return [replies.config_message(self._miss_send_bytes, transaction)]

    def _set_config(self, message: bytes, transaction: int) -> list[bytes]:
        self._record("set config", transaction)
        _, self._miss_send_bytes = requests.unpack_body(message, ofproto.OFP_SWITCH_CONFIG_PACK_STR)
        return NO_REPLIES

    def _barrier(self, message: bytes, transaction: int) -> list[bytes]:  # noqa: ARG002
        return [replies.build_message(ofproto.OFPT_BARRIER_REPLY, transaction)]

    def _set_role(self, message: bytes, transaction: int) -> list[bytes]:
        role, generation = requests.unpack_body(message, ofproto.OFP_ROLE_REQUEST_PACK_STR)
        if role in (ofproto.OFPCR_ROLE_MASTER, ofproto.OFPCR_ROLE_SLAVE):
            self._generation = generation
        if role != ofproto.OFPCR_ROLE_NOCHANGE:
            self._role = role
        return [replies.role_message(self._role, self._generation, transaction)]

    # -- changes -------------------------------------------------------------------------------

    def _flow_mod(self, message: bytes, transaction: int) -> list[bytes]:
        self._record("flow mod", transaction)
        change = decode_flow_change(requests.decode_flow_mod(message))
        self.received[-1] = ReceivedMessage(f"flow {change.command}", transaction, change)
        return _removal_notices(self.flows.apply(change, self.meters.exists))

    def _meter_mod(self, message: bytes, transaction: int) -> list[bytes]:
        self._record("meter mod", transaction)
        change = requests.decode_meter_change(message)
        self.received[-1] = ReceivedMessage(f"meter {change.command}", transaction, change)
        # Like Open vSwitch, which sends no notification of these removals in OpenFlow 1.3.
        self.flows.remove_users_of_meters(self.meters.apply(change))
        return NO_REPLIES

    def _send_packet(self, message: bytes, transaction: int) -> list[bytes]:
        packet_out = requests.decode_packet_out(message)
        self._record("packet out", transaction, subject=packet_out)
        self._packet_out(packet_out)
        return NO_REPLIES

    def _statistics(self, message: bytes, transaction: int) -> list[bytes]:
        kind, _ = requests.unpack_body(message, ofproto.OFP_MULTIPART_REQUEST_PACK_STR)
        self._record(f"statistics {kind}", transaction)
        entries = statistics_reply(kind, message, self.flows, self.meters, self._ports)
        return list(replies.multipart_messages(kind, transaction, entries))

    # -- bundles -------------------------------------------------------------------------------

    def _experimenter(self, message: bytes, transaction: int) -> list[bytes]:
        experimenter, kind = requests.decode_experimenter(message)
        if experimenter != ONF_EXPERIMENTER or not self.bundles_supported:
            raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_EXPERIMENTER)
        if kind == ofproto.ONF_ET_BUNDLE_ADD_MESSAGE:
            self._add_to_bundle(message, transaction)
            return NO_REPLIES
        if kind == ofproto.ONF_ET_BUNDLE_CONTROL:
            return self._control_bundle(message, transaction)
        raise Refusal(ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_EXP_TYPE)

    def _add_to_bundle(self, message: bytes, transaction: int) -> None:
        addition = requests.decode_bundle_addition(message)
        inner = decode_header(addition.message)
        kind = KINDS.get(inner.type, str(inner.type))
        self._record(kind, transaction, bundle=addition.bundle)
        if inner.transaction != transaction:
            raise bundle_refusal(ofproto.ONFERR_ET_MSG_BAD_XID)
        if inner.type == ofproto.OFPT_PACKET_OUT:
            self.bundles.check_addable(addition.bundle, addition.flags)
            return  # Open vSwitch allows it; the fake ignores it
        if inner.type != ofproto.OFPT_FLOW_MOD:
            raise bundle_refusal(ofproto.ONFERR_ET_MSG_UNSUP)
        change = decode_flow_change(requests.decode_flow_mod(addition.message))
        kind = f"flow {change.command}"
        self.received[-1] = ReceivedMessage(kind, transaction, change, addition.bundle)
        bundle = self.bundles.check_addable(addition.bundle, addition.flags)
        bundle.changes.append(BundledChange(change, message))

    def _control_bundle(self, message: bytes, transaction: int) -> list[bytes]:
        control = requests.decode_bundle_control(message)
        bundle, flags = control.bundle, control.flags
        if control.kind == ofproto.ONF_BCT_OPEN_REQUEST:
            self._record("bundle open", transaction, bundle=bundle)
            self.bundles.open(bundle, flags)
        elif control.kind == ofproto.ONF_BCT_CLOSE_REQUEST:
            self._record("bundle close", transaction, bundle=bundle)
            self.bundles.close(bundle, flags)
        elif control.kind == ofproto.ONF_BCT_DISCARD_REQUEST:
            self._record("bundle discard", transaction, bundle=bundle)
            self.bundles.discard(bundle)
        elif control.kind == ofproto.ONF_BCT_COMMIT_REQUEST:
            self._record("bundle commit", transaction, bundle=bundle)
            return self._commit(message, transaction, control)
        else:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_TYPE)
        return [replies.bundle_message(bundle, control.kind + 1, transaction)]

    def _commit(
        self, message: bytes, transaction: int, control: requests.BundleControl
    ) -> list[bytes]:
        """Apply all changes or none; errors refer to the first that fails and to the commit."""
        before = self.flows.snapshot()
        removed: list[StoredFlow] = []
        for bundled in self.bundles.take_for_commit(control.bundle, control.flags):
            try:
                removed += self.flows.apply(bundled.change, self.meters.exists)
            except Refusal as refusal:
                self.flows.restore(before)
                failed = bundle_refusal(ofproto.ONFERR_ET_FAILED)
                self._record_refused(len(self.received) - 1, 0, transaction, failed)
                failed_transaction = decode_header(bundled.message).transaction
                return [
                    replies.error_message(refusal, failed_transaction, bundled.message),
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
