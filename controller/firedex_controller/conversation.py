"""Talking with one switch: questions and answers, barriers, and which message was refused."""

import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from firedex_controller.errors import SwitchNotConnected, SwitchRefused, SwitchSilent
from firedex_controller.framework import ofproto, parser

__all__ = ["Conversation", "Outgoing"]

PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message, and in words what it is for: said again when the switch refuses it."""

    message: Any
    purpose: str


class Conversation:
    """One control channel. Any thread may ask; only one sends what can be refused."""

    def __init__(self, switch: str, datapath: Any) -> None:
        self.switch = switch
        self.datapath = datapath
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._parts: dict[int, list[Any]] = {}
        self._errors: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._closed = False

    # -- asking --------------------------------------------------------------------------------

    def send(self, message: Any) -> int:
        """Send without waiting; return its transaction number."""
        if self._closed:
            raise SwitchNotConnected(self.switch)
        if message.xid is None:
            self.datapath.set_xid(message)
        self.datapath.send_msg(message)
        number: int = message.xid
        return number

    def ask(self, message: Any, patience_seconds: float = PATIENCE_SECONDS) -> list[Any]:
        """Send a question; return all parts of its answer. A refusal raises."""
        self.datapath.set_xid(message)
        waiter = queue.SimpleQueue[Any]()
        with self._lock:
            self._waiting[message.xid] = waiter
        try:
            self.send(message)
            answer = waiter.get(timeout=patience_seconds)
        except queue.Empty as error:
            raise SwitchSilent(
                self.switch, f"no answer to {type(message).__name__} in {patience_seconds:g} s"
            ) from error
        finally:
            with self._lock:
                self._waiting.pop(message.xid, None)
                self._parts.pop(message.xid, None)
        if answer is None:
            raise SwitchNotConnected(self.switch)
        if isinstance(answer, parser.OFPErrorMsg):
            raise SwitchRefused(self.switch, _error_in_words(answer))
        parts: list[Any] = answer
        return parts

    def barrier(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the switch has done everything that it was sent."""
        self.ask(parser.OFPBarrierRequest(self.datapath), patience_seconds)

    def send_and_confirm(self, outgoing: Iterable[Outgoing]) -> None:
        """Send all, then a barrier; raise with its purpose for the first that was refused."""
        self._errors.clear()
        purposes = {}
        for each in outgoing:
            purposes[self.send(each.message)] = each.purpose
        self.barrier()
        self._raise_first_refused(purposes)

    def send_in_bundle(self, outgoing: Iterable[Outgoing], bundle: int) -> None:
        """All or nothing, at one moment."""
        flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED
        self._errors.clear()
        self._bundle_control(bundle, ofproto.ONF_BCT_OPEN_REQUEST, flags)
        purposes = {}
        for each in outgoing:
            added = parser.ONFBundleAddMsg(self.datapath, bundle, flags, each.message, [])
            purposes[self.send(added)] = each.purpose
        # Open vSwitch refuses a message that is wrong in itself at once, and would then commit the
        # others; so nothing is committed before all are known to be in.
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

    def can_bundle(self) -> bool:
        """Whether the switch takes bundles: open one, and throw it away."""
        flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED
        try:
            self._bundle_control(1, ofproto.ONF_BCT_OPEN_REQUEST, flags)
            self._bundle_control(1, ofproto.ONF_BCT_DISCARD_REQUEST, flags)
        except SwitchRefused:
            return False
        return True

    def _bundle_control(self, bundle: int, kind: int, flags: int) -> None:
        self.ask(parser.ONFBundleCtrlMsg(self.datapath, bundle, kind, flags, []))

    def _raise_first_refused(self, purposes: dict[int, str]) -> None:
        for number, purpose in purposes.items():
            if number in self._errors:
                raise SwitchRefused(self.switch, _error_in_words(self._errors[number]), purpose)

    # -- hearing -------------------------------------------------------------------------------

    def heard(self, message: Any) -> None:
        """An answer, or a part of one."""
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

    def heard_error(self, message: Any) -> None:
        """A refusal: of a question, or of something sent along."""
        with self._lock:
            waiter = self._waiting.get(message.xid)
            self._errors[message.xid] = message
        if waiter is not None:
            waiter.put(message)

    def close(self) -> None:
        """The channel is gone: nobody waits any longer."""
        self._closed = True
        with self._lock:
            waiting = list(self._waiting.values())
        for waiter in waiting:
            waiter.put(None)


def _error_in_words(message: Any) -> str:
    if message.type == ofproto.OFPET_EXPERIMENTER:
        return f"experimenter {message.experimenter:#x}, error {message.exp_type}"
    kind = ofproto.ofp_error_type_to_str(message.type)
    code = ofproto.ofp_error_code_to_str(message.type, message.code)
    return f"{kind}, {code}"
