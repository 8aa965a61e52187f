"""The CONNECT of an MQTT-SN client with its will, and the CONNECT packet for the broker."""

from dataclasses import dataclass

from firedex.transport.broker_link import KEEP_ALIVE_SECONDS
from firedex.transport.mqtt import packets as mqtt
from firedex.transport.mqtt_sn import messages as m

__all__ = ["ConnectRequest"]

RECEIVE_MAXIMUM = 32
"""Unacknowledged events that the broker may send to one client at a time."""
SESSION_EXPIRY_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRequest:
    """What a client asked for when it connected; MQTT-SN sends the will in separate messages."""

    connect: m.Connect | None = None
    will: m.WillTopic | None = None
    will_payload: bytes = b""

    @property
    def client_id(self) -> str:
        """The client id; empty before the first CONNECT."""
        return "" if self.connect is None else self.connect.client_id

    def to_broker_packet(self, level: int) -> bytes:
        """Return the CONNECT packet for the broker."""
        will = None
        if self.will is not None:
            will = mqtt.Will(
                topic=self.will.topic.encode(),
                payload=self.will_payload,
                qos=self.will.qos,
                retain=self.will.retain,
            )
        clean = self.connect is None or self.connect.clean_session
        return mqtt.encode_connect(
            self.client_id,
            level=level,
            clean_start=clean,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            will=will,
            session_expiry_seconds=0 if clean else SESSION_EXPIRY_SECONDS,
            receive_maximum=RECEIVE_MAXIMUM,
        )
