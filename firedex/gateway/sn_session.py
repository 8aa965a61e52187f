"""The session of one MQTT-SN client: connection, will, topics, subscriptions, publications, sleep.

No sockets: messages and packets come in as values and go out through injected functions. Message
ids of the client are used as packet identifiers towards the broker, so that the broker recognises
what the client repeats.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from firedex.gateway.sn_connect import ConnectRequest
from firedex.gateway.sn_delivery import Outlets, SnDelivery
from firedex.gateway.sn_publishing import to_broker_packet
from firedex.gateway.sn_topics import TooManyTopics, TopicIds, is_publishable
from firedex.transport.broker_link import Link
from firedex.transport.event_stamp import STAMPED_CLIENT_PREFIX
from firedex.transport.mqtt import packets as mqtt
from firedex.transport.mqtt.encoding import PacketType
from firedex.transport.mqtt_sn import messages as m
from firedex.transport.mqtt_sn.codec import encode
from firedex.wire.mqtt_names import check_topic
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES

__all__ = ["SessionState", "SnSession"]

log = logging.getLogger("firedex.gateway")

HANDSHAKE_SECONDS = 20.0
KEEP_ALIVE_TOLERANCE = 1.5
MAX_KEEP_ALIVE_SECONDS = 3600
PROBE_SECONDS = 60
"""A client without keep-alive, or with a very long one, is sent PINGREQ. The source address of UDP
can be forged: a host that never asked for events must not receive them for ever."""
MAX_ATTEMPTS = 4
ERROR_CODE = 0x80
"""Reason codes from here on are errors."""


class SessionState(Enum):
    """The state of a client (§6.14)."""

    WILL_TOPIC = "waiting for the will topic"
    WILL_MESSAGE = "waiting for the will message"
    CONNECTING = "waiting for the broker"
    ACTIVE = "active"
    ASLEEP = "asleep"
    DISCONNECTED = "disconnected"


class SnSession:
    """One client, from CONNECT to the end of its connection."""

    def __init__(
        self,
        name: str,
        make_link: Callable[["SnSession"], Link],
        to_client: Callable[[bytes], None],
        congested: Callable[[], bool],
        make_delivery: Callable[[TopicIds, Outlets], SnDelivery],
        topics: TopicIds,
        max_qos: Callable[[], int],
    ) -> None:
        self.name, self._make_link, self._to_client = name, make_link, to_client
        self._make_delivery, self._topics, self._max_qos = make_delivery, topics, max_qos
        self._outlets = Outlets(to_client, self._to_broker, congested, self._pause_reading)
        self.state = SessionState.DISCONNECTED
        self.delivery = make_delivery(topics, self._outlets)
        self._link: Link | None = None
        self._request = ConnectRequest()
        self._subscribing: dict[int, int] = {}
        self._publishing: dict[int, int] = {}
        self._deadline = self._probe_at = 0.0
        self._sleep_seconds = 0
        self._ping_pending = False
        self._now = 0.0

    @property
    def client_id(self) -> str:
        """The client id of the last CONNECT."""
        return self._request.client_id

    def _send(self, message: m.Message) -> None:
        self._to_client(encode(message))

    def _to_broker(self, packet: bytes) -> None:
        if self._link is not None:
            self._link.send(packet)

    def _pause_reading(self, paused: bool) -> None:
        if self._link is not None:
            self._link.pause_reading(paused)

    def _disconnect(self, *, graceful: bool) -> None:
        """End the session; the broker publishes the will unless the end is graceful."""
        self.state = SessionState.DISCONNECTED
        link, self._link = self._link, None
        if link is not None and graceful:
            link.close()
        elif link is not None:
            link.abort()

    # -- messages of the client --------------------------------------------------------------------

    def receive(self, message: m.Message, now: float) -> None:
        """Handle a message of the client."""
        self._now = now
        if isinstance(message, m.Connect):
            self._on_connect(message)
        elif self.state in (SessionState.WILL_TOPIC, SessionState.WILL_MESSAGE):
            self._on_will(message)
        elif self.state in (SessionState.ACTIVE, SessionState.ASLEEP):
            self._extend_deadline()
            handler = _HANDLERS.get(type(message))
            if handler is not None:
                handler(self, message)

    def _extend_deadline(self) -> None:
        connect = self._request.connect
        if connect is not None and self.state == SessionState.ACTIVE:
            seconds = connect.duration_seconds
            self._probe_at = float("inf")
            if not 0 < seconds <= MAX_KEEP_ALIVE_SECONDS:
                seconds = PROBE_SECONDS
                self._probe_at = self._now + PROBE_SECONDS / 2
            self._deadline = self._now + KEEP_ALIVE_TOLERANCE * seconds

    def _on_connect(self, message: m.Connect) -> None:
        if self.state == SessionState.CONNECTING and message == self._request.connect:
            return  # a repeated CONNECT; the broker has not responded yet
        waking = self.state == SessionState.ASLEEP and not message.clean_session
        if waking and message.client_id == self.client_id:
            self._request, self._ping_pending = replace(self._request, connect=message), False
            self.state = SessionState.ACTIVE
            self._extend_deadline()
            self._send(m.Connack(return_code=m.ReturnCode.ACCEPTED))
            self.delivery.wake(self._now)
            return
        if self._link is not None:
            self._link.close()
            self._link = None
        self._topics.clear()
        self.delivery = self._make_delivery(self._topics, self._outlets)
        self._ping_pending = False
        self._request = ConnectRequest(connect=message)
        self.delivery.stamped = message.client_id.startswith(STAMPED_CLIENT_PREFIX)
        self._subscribing.clear()
        self._publishing.clear()
        self._deadline = self._now + HANDSHAKE_SECONDS
        if message.will:
            self.state = SessionState.WILL_TOPIC
            self._send(m.WillTopicReq())
        else:
            self._connect_to_broker()

    def _on_will(self, message: m.Message) -> None:
        if self.state == SessionState.WILL_TOPIC and isinstance(message, m.WillTopic):
            if not message.topic:
                self._connect_to_broker()
                return
            try:
                check_topic(message.topic)
            except ValueError as error:
                self._refuse_connection(f"invalid will topic: {error}")
                return
            self._request = replace(self._request, will=message)
            self.state = SessionState.WILL_MESSAGE
            self._send(m.WillMsgReq())
        elif self.state == SessionState.WILL_MESSAGE and isinstance(message, m.WillMsg):
            self._request = replace(self._request, will_payload=message.payload)
            self._connect_to_broker()

    def _connect_to_broker(self) -> None:
        self.state = SessionState.CONNECTING
        self._link = self._make_link(self)

    def _refuse_connection(self, reason: str, code: int = m.ReturnCode.NOT_SUPPORTED) -> None:
        log.warning("connection of %s refused: %s", self.name, reason)
        self._send(m.Connack(return_code=code))
        self._disconnect(graceful=False)

    def _on_register(self, message: m.Register) -> None:
        code, topic_id = m.ReturnCode.ACCEPTED, 0
        try:
            check_topic(message.topic)
            topic_id = self._topics.register(message.topic.encode())
            self._topics.mark_known(topic_id)
        except (ValueError, TooManyTopics):
            code = m.ReturnCode.NOT_SUPPORTED
        self._send(m.Regack(topic_id=topic_id, message_id=message.message_id, return_code=code))

    def _on_publish(self, message: m.Publish) -> None:
        topic, link = self._topics.name(message.kind, message.topic_id), self._link
        if topic is None or not is_publishable(topic):
            self._refuse_publish(message, m.ReturnCode.INVALID_TOPIC_ID)
        elif len(message.payload) > MAX_UDP_PAYLOAD_BYTES or (
            message.qos > 0 and not message.message_id
        ):
            self._refuse_publish(message, m.ReturnCode.NOT_SUPPORTED)
        elif link is None or link.congested:
            # The broker is slow. A QoS 0 event is lost; at QoS 1 and 2 the client repeats it.
            if message.qos > 0:
                self._refuse_publish(message, m.ReturnCode.CONGESTION)
        else:
            if message.qos == 1:
                self._publishing[message.message_id] = message.topic_id
            link.send(to_broker_packet(message, topic, link.level))

    def _refuse_publish(self, message: m.Publish, code: int) -> None:
        self._send(
            m.Puback(topic_id=message.topic_id, message_id=message.message_id, return_code=code)
        )

    def _on_subscribe(self, message: m.Subscribe) -> None:
        (topic_filter, topic_id), link = self._topics.filter_of(message), self._link
        if topic_filter is None or not message.message_id or link is None or link.congested:
            code = m.ReturnCode.CONGESTION if message.message_id else m.ReturnCode.NOT_SUPPORTED
            code = m.ReturnCode.INVALID_TOPIC_ID if topic_filter is None else code
            self._send(m.Suback(topic_id=0, message_id=message.message_id, return_code=code))
            return
        self._subscribing[message.message_id] = topic_id
        qos = min(message.qos, self._max_qos())
        link.send(mqtt.encode_subscribe(message.message_id, topic_filter, qos, level=link.level))

    def _on_unsubscribe(self, message: m.Unsubscribe) -> None:
        topic_filter, _ = self._topics.filter_of(message)
        link = self._link
        if topic_filter is None or not message.message_id:
            self._send(m.Unsuback(message_id=message.message_id))
        elif link is not None:
            link.send(mqtt.encode_unsubscribe(message.message_id, topic_filter, level=link.level))

    def _on_ping(self, message: m.PingReq) -> None:
        if self.state != SessionState.ASLEEP or message.client_id != self.client_id:
            self._send(m.PingResp())
            return
        self._deadline = self._now + KEEP_ALIVE_TOLERANCE * self._sleep_seconds
        if not self._ping_pending:
            self._ping_pending = True
            self.delivery.wake(self._now)
            self._answer_ping()

    def _answer_ping(self) -> None:
        """Send PINGRESP, which sends the client back to sleep, once it knows all topics."""
        if self._ping_pending and not self.delivery.registering:
            self._ping_pending, self.delivery.asleep = False, True
            self._send(m.PingResp())

    def _on_disconnect(self, message: m.Disconnect) -> None:
        self._send(m.Disconnect())
        if not message.duration_seconds:
            self._disconnect(graceful=True)
            return
        self.state, self.delivery.asleep = SessionState.ASLEEP, True
        self._ping_pending = False
        self._sleep_seconds = message.duration_seconds
        self._deadline = self._now + KEEP_ALIVE_TOLERANCE * message.duration_seconds

    def _on_regack(self, message: m.Regack) -> None:
        self.delivery.regack(message.message_id, message.return_code, self._now)
        self._answer_ping()

    def _on_puback(self, message: m.Puback) -> None:
        self.delivery.puback(message.message_id, message.return_code, message.topic_id, self._now)

    def _on_pubrec(self, message: m.Pubrec) -> None:
        self.delivery.pubrec(message.message_id)

    def _on_pubcomp(self, message: m.Pubcomp) -> None:
        self.delivery.pubcomp(message.message_id)

    def _on_pubrel(self, message: m.Pubrel) -> None:
        self._to_broker(mqtt.encode_acknowledgement(PacketType.PUBREL, message.message_id))

    def _on_will_topic_update(self, _: m.WillTopicUpd) -> None:
        # MQTT has no packet that changes a will.
        self._send(m.WillTopicResp(return_code=m.ReturnCode.NOT_SUPPORTED))

    def _on_will_message_update(self, _: m.WillMsgUpd) -> None:
        self._send(m.WillMsgResp(return_code=m.ReturnCode.NOT_SUPPORTED))

    # -- packets of the broker ---------------------------------------------------------------------

    def connect_packet(self, level: int) -> bytes:
        """Return the CONNECT packet for the broker."""
        return self._request.to_broker_packet(level)

    def packet_received(self, packet: bytes) -> None:
        """Handle a packet of the broker."""
        packet_type = packet[0] >> 4
        if self._link is None:
            return
        if packet_type == PacketType.PUBLISH:
            event = mqtt.read_publish(packet, level=self._link.level)
            self.delivery.receive(event, self._now)
        elif packet_type == PacketType.SUBACK:
            self._on_broker_suback(*mqtt.read_suback(packet, level=self._link.level))
        elif packet_type == PacketType.UNSUBACK:
            self._send(m.Unsuback(message_id=mqtt.read_acknowledgement(packet)[0]))
        elif packet_type == PacketType.PUBACK:
            self._on_broker_puback(*mqtt.read_acknowledgement(packet))
        elif packet_type == PacketType.PUBREC:
            self._on_broker_pubrec(*mqtt.read_acknowledgement(packet))
        elif packet_type == PacketType.PUBREL:
            self.delivery.pubrel(mqtt.read_acknowledgement(packet)[0], self._now)
        elif packet_type == PacketType.PUBCOMP:
            self._send(m.Pubcomp(message_id=mqtt.read_acknowledgement(packet)[0]))

    def broker_connected(self) -> None:
        """Accept the client, because the broker accepted it."""
        self.state = SessionState.ACTIVE
        self._extend_deadline()
        self._send(m.Connack(return_code=m.ReturnCode.ACCEPTED))

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:
        """End the session, because the broker refused the client or its connection ended."""
        self._link = None
        if self.state == SessionState.CONNECTING:
            code = m.ReturnCode.NOT_SUPPORTED if refused else m.ReturnCode.CONGESTION
            self._refuse_connection(reason, code)
        elif self.state != SessionState.DISCONNECTED:
            log.warning("session of %s ended: %s", self.name, reason)
            self.close()

    def _on_broker_suback(self, message_id: int, code: int) -> None:
        topic_id = self._subscribing.pop(message_id, 0)
        if code >= ERROR_CODE:
            refusal = m.ReturnCode.NOT_SUPPORTED
            self._send(m.Suback(topic_id=0, message_id=message_id, return_code=refusal))
            return
        if topic_id:
            self._topics.mark_known(topic_id)
        accepted = m.ReturnCode.ACCEPTED
        self._send(
            m.Suback(topic_id=topic_id, message_id=message_id, return_code=accepted, qos=code)
        )

    def _on_broker_puback(self, message_id: int, reason: int) -> None:
        topic_id = self._publishing.pop(message_id, 0)
        code = m.ReturnCode.NOT_SUPPORTED if reason >= ERROR_CODE else m.ReturnCode.ACCEPTED
        self._send(m.Puback(topic_id=topic_id, message_id=message_id, return_code=code))

    def _on_broker_pubrec(self, message_id: int, reason: int) -> None:
        if reason >= ERROR_CODE:
            code = m.ReturnCode.NOT_SUPPORTED
            self._send(m.Puback(topic_id=0, message_id=message_id, return_code=code))
        else:
            self._send(m.Pubrec(message_id=message_id))

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due by time: repetitions, keep-alive, and the end of a silent session."""
        self._now = now
        if self.state == SessionState.DISCONNECTED:
            return
        if now > self._deadline:
            log.warning("%s timed out (%s)", self.name, self.state.value)
            self._disconnect(graceful=False)
            return
        if not self.delivery.repeat(now, MAX_ATTEMPTS):
            log.warning("%s timed out: it does not acknowledge events", self.name)
            self._disconnect(graceful=False)
            return
        if self.state == SessionState.ACTIVE and now > self._probe_at:
            self._probe_at = now + PROBE_SECONDS / 4
            self._send(m.PingReq())
        if self._link is not None:
            self._link.tick(now)

    def close(self) -> None:
        """Send DISCONNECT to the client and end the session."""
        if self.state != SessionState.DISCONNECTED:
            self._send(m.Disconnect())
            self._disconnect(graceful=False)


_HANDLERS: dict[type, Callable[..., None]] = {
    m.Register: SnSession._on_register,
    m.Regack: SnSession._on_regack,
    m.Publish: SnSession._on_publish,
    m.Puback: SnSession._on_puback,
    m.Pubrec: SnSession._on_pubrec,
    m.Pubrel: SnSession._on_pubrel,
    m.Pubcomp: SnSession._on_pubcomp,
    m.Subscribe: SnSession._on_subscribe,
    m.Unsubscribe: SnSession._on_unsubscribe,
    m.PingReq: SnSession._on_ping,
    m.Disconnect: SnSession._on_disconnect,
    m.WillTopicUpd: SnSession._on_will_topic_update,
    m.WillMsgUpd: SnSession._on_will_message_update,
}
