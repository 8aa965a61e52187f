"""The frames by which switches find each other: LLDP, with a seal that hosts cannot make."""

import hashlib
import hmac
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
                        oui=OUR_ORGANISATION, subtype=SEAL, info=self._seal(sender)
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
        return sender if hmac.compare_digest(seal, self._seal(sender)) else None

    def _seal(self, sender: PortRef) -> bytes:
        said = f"{sender.switch}/{sender.number}".encode()
        return hashlib.blake2s(said, key=self._secret, digest_size=SEAL_BYTES).digest()
