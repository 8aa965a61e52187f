"""The frames by which switches find each other: LLDP, with a seal that hosts cannot make."""

import hashlib
import hmac
from time import monotonic
from typing import Any

from firedex_controller.framework import library
from firedex_controller.topology import PortRef

__all__ = ["NeighbourFrames"]

ethernet = library("packet.ethernet")
lldp = library("packet.lldp")
packet = library("packet.packet")

SEAL_BYTES = 16
TIME_TO_LIVE_SECONDS = 5
OUR_ORGANISATION = b"\x02\xf1\x7e"
SEAL = 1
EPOCH_SECONDS = 2.0
"""A frame is good in its epoch and in the next; who repeats it later is not believed."""


def _epoch() -> int:
    return int(monotonic() / EPOCH_SECONDS)


class NeighbourFrames:
    """Makes and reads them; ``secret`` is this controller's own."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, sender: PortRef, hardware_address: str) -> bytes:
        """What is sent out of a port."""
        frame = packet.Packet()
        frame.add_protocol(
            ethernet.ethernet(lldp.LLDP_MAC_NEAREST_BRIDGE, hardware_address, 0x88CC)
        )
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
                        oui=OUR_ORGANISATION, subtype=SEAL, info=self._seal(sender, _epoch())
                    ),
                    lldp.End(),
                )
            )
        )
        frame.serialize()
        return bytes(frame.data)

    def sender(self, frame: Any) -> PortRef | None:
        """Which port a received frame was sent from; None if it is not one of ours."""
        tlvs = {type(tlv).__name__: tlv for tlv in frame.tlvs}
        try:
            sender = PortRef(
                tlvs["ChassisID"].chassis_id.decode(), int(tlvs["PortID"].port_id.decode())
            )
            seal = bytes(tlvs["OrganizationallySpecific"].info)
        except (KeyError, ValueError, AttributeError):
            return None
        now = _epoch()
        seals = [self._seal(sender, epoch) for epoch in (now, now - 1)]
        return sender if any(hmac.compare_digest(seal, each) for each in seals) else None

    def _seal(self, sender: PortRef, epoch: int) -> bytes:
        said = f"{sender.switch}/{sender.number}/{epoch}".encode()
        return hashlib.blake2s(said, key=self._secret, digest_size=SEAL_BYTES).digest()
