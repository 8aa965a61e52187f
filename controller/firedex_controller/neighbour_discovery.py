"""Discovery of links: LLDP frames that are sent out of every port and received at its neighbour.

A frame is authenticated with a key of this controller, so that no host can announce a link.
"""

import hashlib
import hmac
import secrets
import threading
from time import monotonic
from typing import Any

from firedex_controller.errors import ControllerError
from firedex_controller.framework import library
from firedex_controller.openflow_messages import packet_out
from firedex_controller.reconciler import Reconciler
from firedex_controller.topology import PortRef

__all__ = ["LldpFrames", "NeighbourDiscovery"]

ethernet = library("packet.ethernet")
lldp = library("packet.lldp")
packet = library("packet.packet")

ANNOUNCE_SECONDS = 0.3
CONFIRM_TIMEOUT_SECONDS = 2.0
KEY_BYTES, SIGNATURE_BYTES = 32, 16
TIME_TO_LIVE_SECONDS = 5
ORGANISATION_ID = b"\x02\xf1\x7e"
SIGNATURE_SUBTYPE = 1
EPOCH_SECONDS = 2.0
"""A frame is valid in its epoch and in the next, so that a host cannot replay it later."""


def _epoch() -> int:
    return int(monotonic() / EPOCH_SECONDS)


class LldpFrames:
    """Make and verify LLDP frames; ``key`` is a secret of this controller."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, sender: PortRef, hardware_address: str) -> bytes:
        """Return the frame to send out of a port."""
        frame = packet.Packet()
        frame.add_protocol(
            ethernet.ethernet(lldp.LLDP_MAC_NEAREST_BRIDGE, hardware_address, 0x88CC)
        )
        signature = self._signature(sender, _epoch())
        frame.add_protocol(
            lldp.lldp(
                (
                    lldp.ChassisID(
                        subtype=lldp.ChassisID.SUB_LOCALLY_ASSIGNED,
                        chassis_id=sender.switch.encode(),
                    ),
                    lldp.PortID(
                        subtype=lldp.PortID.SUB_LOCALLY_ASSIGNED,
                        port_id=str(sender.number).encode(),
                    ),
                    lldp.TTL(ttl=TIME_TO_LIVE_SECONDS),
                    lldp.OrganizationallySpecific(
                        oui=ORGANISATION_ID, subtype=SIGNATURE_SUBTYPE, info=signature
                    ),
                    lldp.End(),
                )
            )
        )
        frame.serialize()
        return bytes(frame.data)

    def sender(self, frame: Any) -> PortRef | None:
        """Return the port that sent a received frame; None if this controller did not make it."""
        tlvs = {type(tlv).__name__: tlv for tlv in frame.tlvs}
        try:
            sender = PortRef(
                tlvs["ChassisID"].chassis_id.decode(), int(tlvs["PortID"].port_id.decode())
            )
            signature = bytes(tlvs["OrganizationallySpecific"].info)
        except (KeyError, ValueError, AttributeError):
            return None
        now = _epoch()
        valid = [self._signature(sender, epoch) for epoch in (now, now - 1)]
        return sender if any(hmac.compare_digest(signature, each) for each in valid) else None

    def _signature(self, sender: PortRef, epoch: int) -> bytes:
        signed = f"{sender.switch}/{sender.number}/{epoch}".encode()
        return hashlib.blake2s(signed, key=self._key, digest_size=SIGNATURE_BYTES).digest()


class NeighbourDiscovery:
    """Send announcements out of all ports, and report links and confirmed announcements."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._frames = LldpFrames(secrets.token_bytes(KEY_BYTES))
        self._sent: dict[str, list[PortRef]] = {}

    def frame_received(self, port: PortRef, frame: Any) -> None:
        """Report the link between the sender of an LLDP frame and ``port``."""
        sender = self._frames.sender(frame)
        if sender is not None:
            self._reconciler.link_seen(port, sender)

    def announce(self) -> None:
        """Send announcements periodically, without waiting for replies; never returns."""
        pause = threading.Event()
        while not pause.wait(ANNOUNCE_SECONDS):
            for name, session in dict(self._reconciler.sessions).items():
                sent = []
                for port in self._reconciler.ports.get(name, {}).values():
                    if port.up:
                        sender = PortRef(name, port.number)
                        sent.append(sender)
                        frame = self._frames.make(sender, port.hardware_address)
                        session.datapath.send_msg(packet_out(session.datapath, port.number, frame))
                self._sent[name] = sent

    def confirm_announcements(self) -> None:
        """Report announcements whose effects, if any, have reached the controller; never returns.

        This is certain when every switch has replied to two barriers after the announcement: after
        the first, the frames have been sent; after the second, the neighbours have reported what
        they received. Announcements of a switch that does not reply in time are not counted.
        """
        pause = threading.Event()
        while not pause.wait(ANNOUNCE_SECONDS):
            sessions = dict(self._reconciler.sessions)
            confirmed = {name: self._sent.get(name, []) for name in sessions}
            for name, session in [*sessions.items(), *sessions.items()]:
                try:
                    session.channel.barrier(CONFIRM_TIMEOUT_SECONDS)
                except ControllerError:
                    confirmed.pop(name, None)
            for ports in confirmed.values():
                self._reconciler.announcements_sent(ports)
