"""Conversion of events from MQTT-SN clients for the broker, and publishing at QoS −1."""

from collections import deque
from collections.abc import Callable

from firedex.transport.broker_link import KEEP_ALIVE_SECONDS, Link
from firedex.transport.event_stamp import split_header
from firedex.transport.mqtt.packets import PublishPacket, encode_connect, encode_publish
from firedex.transport.mqtt.version import MQTT_5
from firedex.transport.mqtt_sn import messages as m

__all__ = ["AnonymousPublisher", "to_broker_packet"]

MAX_WAITING_EVENTS = 1000
RECONNECT_SECONDS = 1.0
"""Minimum time between attempts to connect."""


def to_broker_packet(message: m.Publish, topic: bytes, level: int) -> bytes:
    """Convert the PUBLISH message of a client to a PUBLISH packet for the broker.

    At level 5 an event stamp before the payload becomes a user property.
    """
    payload = message.payload
    properties: tuple[tuple[bytes, bytes], ...] = ()
    if level == MQTT_5:
        stamp, rest = split_header(payload)
        if stamp is not None:
            key, value = stamp.to_property()
            payload, properties = rest, ((key.encode(), value.encode()),)
    packet = PublishPacket(
        topic=topic,
        payload=payload,
        qos=max(message.qos, 0),
        retain=message.retain,
        dup=message.dup and message.qos > 0,
        packet_id=message.message_id,
        user_properties=properties,
    )
    return encode_publish(packet, level=level)


class AnonymousPublisher:
    """Publish QoS −1 events, whose senders have no session, over one link of the gateway.

    The link is opened when there is an event to publish. QoS −1 does not guarantee delivery: events
    are lost while the broker is unreachable or congested. Only the last events that arrive while
    the link is being opened are kept.
    """

    def __init__(self, make_link: Callable[["AnonymousPublisher"], Link]) -> None:
        self._make_link = make_link
        self._link: Link | None = None
        self._connected = False
        self._reconnect_at = 0.0
        self._waiting: deque[tuple[m.Publish, bytes]] = deque(maxlen=MAX_WAITING_EVENTS)

    def publish(self, message: m.Publish, topic: bytes, now: float) -> None:
        """Publish an event now, or as soon as the link is open."""
        if self._link is None and now >= self._reconnect_at:
            self._reconnect_at = now + RECONNECT_SECONDS
            self._link = self._make_link(self)
        if self._link is None:
            return
        if not self._connected:
            self._waiting.append((message, topic))
        elif not self._link.congested:
            self._link.send(to_broker_packet(message, topic, self._link.level))

    def tick(self, now: float) -> None:
        """Keep the link alive."""
        if self._link is not None:
            self._link.tick(now)

    def close(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def connect_packet(self, level: int) -> bytes:
        """Return CONNECT with an empty client id, so that the broker assigns one."""
        return encode_connect("", level=level, keep_alive_seconds=KEEP_ALIVE_SECONDS)

    def broker_connected(self) -> None:
        """Publish the waiting events."""
        self._connected = True
        while self._waiting and self._link is not None:
            self._link.send(to_broker_packet(*self._waiting.popleft(), self._link.level))

    def packet_received(self, packet: bytes) -> None:
        """Ignore packets: nothing is subscribed and nothing needs an acknowledgement."""

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:  # noqa: ARG002
        """Forget the link; a later event opens another one."""
        self._link, self._connected = None, False
        self._waiting.clear()
