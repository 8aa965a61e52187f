"""The ONF bundle extension, as Open vSwitch has it: changes that are made together or not at all.

A message that is wrong in itself is refused when it is added, and the bundle goes on without it: a
commit then succeeds. Only what goes wrong while committing (a full table, an unknown meter) fails
the commit.
"""

from dataclasses import dataclass, field

from firedex_controller.fake_switch.flow_entries import FlowChange
from firedex_controller.fake_switch.refusals import Refusal, bundle_refusal
from firedex_controller.framework import ofproto

__all__ = ["Bundle", "BundledChange", "Bundles"]


@dataclass(frozen=True, slots=True)
class BundledChange:
    """One change in a bundle, and the message that brought it."""

    change: FlowChange
    message: bytes


@dataclass(slots=True)
class Bundle:
    """What was added so far."""

    flags: int
    closed: bool = False
    changes: list[BundledChange] = field(default_factory=list)


class Bundles:
    """The open and closed bundles of one control channel."""

    def __init__(self) -> None:
        self._by_id: dict[int, Bundle] = {}

    def open(self, bundle_id: int, flags: int) -> None:
        """Begin a bundle. One that is there already is dropped, and this is refused."""
        if self._by_id.pop(bundle_id, None) is not None:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_ID)
        self._by_id[bundle_id] = Bundle(flags)

    def check_addable(self, bundle_id: int, flags: int) -> Bundle:
        """The bundle to add to; one that was not opened is begun by the first addition."""
        if bundle_id not in self._by_id:
            self._by_id[bundle_id] = Bundle(flags)
        bundle = self._by_id[bundle_id]
        if bundle.closed:
            raise self._dropping(bundle_id, ofproto.ONFERR_ET_BUNDLE_CLOSED)
        if bundle.flags != flags:
            raise self._dropping(bundle_id, ofproto.ONFERR_ET_BAD_FLAGS)
        return bundle

    def close(self, bundle_id: int, flags: int) -> None:
        """Let nothing more be added."""
        bundle = self._known(bundle_id)
        if bundle.closed:
            raise self._dropping(bundle_id, ofproto.ONFERR_ET_BUNDLE_CLOSED)
        if bundle.flags != flags:
            raise self._dropping(bundle_id, ofproto.ONFERR_ET_BAD_FLAGS)
        bundle.closed = True

    def take_for_commit(self, bundle_id: int, flags: int) -> list[BundledChange]:
        """The changes to make; the bundle is gone, however that ends."""
        bundle = self._known(bundle_id)
        del self._by_id[bundle_id]
        if bundle.flags != flags:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_FLAGS)
        return bundle.changes

    def discard(self, bundle_id: int) -> None:
        """Forget a bundle."""
        self._known(bundle_id)
        del self._by_id[bundle_id]

    def forget_all(self) -> None:
        """The channel is gone, and its bundles with it."""
        self._by_id.clear()

    def _known(self, bundle_id: int) -> Bundle:
        if bundle_id not in self._by_id:
            raise bundle_refusal(ofproto.ONFERR_ET_BAD_ID)
        return self._by_id[bundle_id]

    def _dropping(self, bundle_id: int, kind: int) -> Refusal:
        del self._by_id[bundle_id]
        return bundle_refusal(kind)
