"""One MQTT-SN client at the gateway: connecting, will, topics, subscribing, publishing, sleep.

No sockets: datagrams and packets come in as values and go out through what is injected. Message ids
of the client are used towards the broker as they are, so that whatever the client repeats, the
broker recognises.
"""

import logging
from collections.abc import Callable

from firedex.event_stamp import STAMPED_CLIENT_PREFIX
from firedex.gateway import broker_packets as broker
from firedex.gateway.broker_link import KEEP_ALIVE_SECONDS
from firedex.gateway.broker_packets import Will
from firedex.gateway.mqtt_packets import PacketKind
from firedex.gateway.sn_delivery import Outlet, SnDelivery
from firedex.gateway.sn_states import Link, State, is_publishable, published
from firedex.gateway.sn_topics import SnTopics, TopicsExhausted
from firedex.mqtt_sn import messages as m
from firedex.mqtt_sn.codec import encode
from firedex.wire.mqtt_names import check_filter, check_topic, has_wildcard
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES

__all__ = ["SnSession"]

log = logging.getLogger("firedex.gateway")

HANDSHAKE_SECONDS = 20.0
GRACE = 1.5
LONGEST_KEEP_ALIVE_SECONDS = 3600
ASK_SECONDS = 60
"""A client that promises no sign of life, or one of very few, is asked for it; addresses can be
forged, and whoever is flooded in another's name must not be for ever."""
MOST_TRIES = 4
REFUSED = 0x80


class SnSession:
    """One client, from CONNECT to the end."""

    def __init__(
        self,
        who: str,
        make_link: Callable[["SnSession"], Link],
        to_client: Callable[[bytes], None],
        congested: Callable[[], bool],
        make_delivery: Callable[[SnTopics, Outlet], SnDelivery],
        topics: SnTopics,
        highest_qos: Callable[[], int],
    ) -> None:
        self.who, self._make_link, self._to_client = who, make_link, to_client
        self._make_delivery, self._topics, self._highest_qos = make_delivery, topics, highest_qos
        self._outlet = Outlet(to_client, self._to_broker, congested, self._hold_back)
        self.state = State.GONE
        self.delivery = make_delivery(topics, self._outlet)
        self._link: Link | None = None
        self._connect: m.Connect | None = None
        self._will: m.WillTopic | None = None
        self._will_payload = b""
        self._subscribing: dict[int, int] = {}
        self._publishing: dict[int, int] = {}
        self._deadline = self._ask_at = 0.0
        self._sleep_seconds = 0
        self._ping_unanswered = False
        self._now = 0.0
        self.client_id = ""

    def _say(self, message: m.Message) -> None:
        self._to_client(encode(message))

    def _to_broker(self, packet: bytes) -> None:
        if self._link is not None:
            self._link.send(packet)

    def _hold_back(self, on: bool) -> None:
        if self._link is not None:
            self._link.hold_back(on)

    # -- from the client ---------------------------------------------------------------------------

    def received(self, message: m.Message, now: float) -> None:
        """One message of the client."""
        self._now = now
        if isinstance(message, m.Connect):
            self._on_connect(message)
        elif self.state in (State.WILL_TOPIC, State.WILL_MESSAGE):
            self._on_will(message)
        elif self.state in (State.ACTIVE, State.ASLEEP):
            self._heard()
            handler = _HANDLERS.get(type(message))
            if handler is not None:
                handler(self, message)

    def _heard(self) -> None:
        if self._connect is not None and self.state == State.ACTIVE:
            seconds = self._connect.duration_seconds
            self._ask_at = float("inf")
            if not 0 < seconds <= LONGEST_KEEP_ALIVE_SECONDS:
                seconds = ASK_SECONDS
                self._ask_at = self._now + ASK_SECONDS / 2
            self._deadline = self._now + GRACE * seconds

    def _on_connect(self, message: m.Connect) -> None:
        if self.state == State.CONNECTING and message == self._connect:
            return  # the client repeats itself; the broker has not answered yet
        back_from_sleep = self.state == State.ASLEEP and not message.clean_session
        if back_from_sleep and message.client_id == self.client_id:
            self._connect, self.state, self._ping_unanswered = message, State.ACTIVE, False
            self._heard()
            self._say(m.Connack(return_code=m.ReturnCode.ACCEPTED))
            self.delivery.wake(self._now)
            return
        if self._link is not None:
            self._link.close()
            self._link = None
        self._topics.clear()
        self.delivery = self._make_delivery(self._topics, self._outlet)
        self._ping_unanswered = False
        self._connect, self.client_id = message, message.client_id
        self.delivery.stamped = message.client_id.startswith(STAMPED_CLIENT_PREFIX)
        self._will, self._will_payload = None, b""
        self._subscribing.clear()
        self._publishing.clear()
        self._deadline = self._now + HANDSHAKE_SECONDS
        if message.will:
            self.state = State.WILL_TOPIC
            self._say(m.WillTopicReq())
        else:
            self._reach_broker()

    def _on_will(self, message: m.Message) -> None:
        if self.state == State.WILL_TOPIC and isinstance(message, m.WillTopic):
            if not message.topic:
                self._reach_broker()
                return
            try:
                check_topic(message.topic)
            except ValueError as error:
                self._refuse_connection(f"a will that cannot be published: {error}")
                return
            self._will, self.state = message, State.WILL_MESSAGE
            self._say(m.WillMsgReq())
        elif self.state == State.WILL_MESSAGE and isinstance(message, m.WillMsg):
            self._will_payload = message.payload
            self._reach_broker()

    def _reach_broker(self) -> None:
        self.state = State.CONNECTING
        self._link = self._make_link(self)

    def _refuse_connection(self, why: str, code: int = m.ReturnCode.NOT_SUPPORTED) -> None:
        log.warning("%s refused: %s", self.who, why)
        self._say(m.Connack(return_code=code))
        self._end()

    def _end(self) -> None:
        self.state = State.GONE
        link, self._link = self._link, None
        if link is not None:
            link.abort()

    def _on_register(self, message: m.Register) -> None:
        code, number = m.ReturnCode.ACCEPTED, 0
        try:
            check_topic(message.topic)
            number = self._topics.register(message.topic.encode())
            self._topics.tell(number)
        except (ValueError, TopicsExhausted):
            code = m.ReturnCode.NOT_SUPPORTED
        self._say(m.Regack(topic_id=number, message_id=message.message_id, return_code=code))

    def _on_publish(self, message: m.Publish) -> None:
        topic, link = self._topics.name(message.kind, message.topic_id), self._link
        if topic is None or not is_publishable(topic):
            self._refuse_publish(message, m.ReturnCode.INVALID_TOPIC_ID)
        elif len(message.payload) > LARGEST_UDP_PAYLOAD_BYTES or (
            message.qos > 0 and not message.message_id
        ):
            self._refuse_publish(message, m.ReturnCode.NOT_SUPPORTED)
        elif link is None or link.congested:
            # The broker is slow. At QoS 0 the event is lost; at others the client tries again.
            if message.qos > 0:
                self._refuse_publish(message, m.ReturnCode.CONGESTION)
        else:
            if message.qos == 1:
                self._publishing[message.message_id] = message.topic_id
            link.send(published(message, topic, link.level))

    def _refuse_publish(self, message: m.Publish, code: int) -> None:
        self._say(
            m.Puback(topic_id=message.topic_id, message_id=message.message_id, return_code=code)
        )

    def _on_subscribe(self, message: m.Subscribe) -> None:
        (name, number), link = self._filter(message), self._link
        if name is None or not message.message_id or link is None or link.congested:
            code = m.ReturnCode.CONGESTION if message.message_id else m.ReturnCode.NOT_SUPPORTED
            code = m.ReturnCode.INVALID_TOPIC_ID if name is None else code
            self._say(m.Suback(topic_id=0, message_id=message.message_id, return_code=code))
            return
        self._subscribing[message.message_id] = number
        qos = min(message.qos, self._highest_qos())
        link.send(broker.subscribe(message.message_id, name, qos, level=link.level))

    def _on_unsubscribe(self, message: m.Unsubscribe) -> None:
        name, _ = self._filter(message)
        link = self._link
        if name is None or not message.message_id:
            self._say(m.Unsuback(message_id=message.message_id))
        elif link is not None:
            link.send(broker.unsubscribe(message.message_id, name, level=link.level))

    def _filter(self, message: m.Subscribe | m.Unsubscribe) -> tuple[bytes | None, int]:
        """The filter that is meant, and the id that its events will have if there is one."""
        if message.kind == m.TopicKind.PREDEFINED:
            return self._topics.name(message.kind, message.topic_id), message.topic_id
        try:
            check_filter(message.topic)
        except ValueError:
            return None, 0
        name = message.topic.encode()
        if has_wildcard(message.topic) or message.kind == m.TopicKind.SHORT:
            return name, 0
        try:
            return name, self._topics.register(name)
        except TopicsExhausted:
            return None, 0

    def _on_ping(self, message: m.PingReq) -> None:
        if self.state != State.ASLEEP or message.client_id != self.client_id:
            self._say(m.PingResp())
            return
        self._deadline = self._now + GRACE * self._sleep_seconds
        if not self._ping_unanswered:
            self._ping_unanswered = True
            self.delivery.wake(self._now)
            self._answer_ping()

    def _answer_ping(self) -> None:
        """PINGRESP sends a client back to sleep, so it must have been told of every topic."""
        if self._ping_unanswered and not self.delivery.registering:
            self._ping_unanswered, self.delivery.asleep = False, True
            self._say(m.PingResp())

    def _on_disconnect(self, message: m.Disconnect) -> None:
        self._say(m.Disconnect())
        if message.duration_seconds:
            self.state, self.delivery.asleep = State.ASLEEP, True
            self._ping_unanswered = False
            self._sleep_seconds = message.duration_seconds
            self._deadline = self._now + GRACE * message.duration_seconds
            return
        self.state = State.GONE
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _on_regack(self, message: m.Regack) -> None:
        self.delivery.registered(message.message_id, message.return_code, self._now)
        self._answer_ping()

    def _on_puback(self, message: m.Puback) -> None:
        self.delivery.puback(message.message_id, message.return_code, message.topic_id, self._now)

    def _on_pubrec(self, message: m.Pubrec) -> None:
        self.delivery.pubrec(message.message_id)

    def _on_pubcomp(self, message: m.Pubcomp) -> None:
        self.delivery.pubcomp(message.message_id)

    def _on_pubrel(self, message: m.Pubrel) -> None:
        self._to_broker(broker.acknowledge(PacketKind.PUBREL, message.message_id))

    def _on_will_topic_update(self, _: m.WillTopicUpd) -> None:
        # MQTT has no way to change a will.
        self._say(m.WillTopicResp(return_code=m.ReturnCode.NOT_SUPPORTED))

    def _on_will_message_update(self, _: m.WillMsgUpd) -> None:
        self._say(m.WillMsgResp(return_code=m.ReturnCode.NOT_SUPPORTED))

    # -- from the broker ---------------------------------------------------------------------------

    def hello(self, level: int) -> bytes:
        """Introduce the client to the broker."""
        will, client = None, self._connect
        if self._will is not None:
            will = Will(
                topic=self._will.topic.encode(),
                payload=self._will_payload,
                qos=self._will.qos,
                retain=self._will.retain,
            )
        return broker.connect(
            self.client_id,
            level=level,
            clean=client is None or client.clean_session,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            will=will,
        )

    def broker_said(self, packet: bytes) -> None:
        """One packet of the broker."""
        kind = packet[0] >> 4
        if self._link is None:
            return
        if kind == PacketKind.PUBLISH:
            event = broker.read_publish(packet, level=self._link.level)
            self.delivery.event(event, self._now)
        elif kind == PacketKind.SUBACK:
            self._on_suback(*broker.read_suback(packet, level=self._link.level))
        elif kind == PacketKind.UNSUBACK:
            self._say(m.Unsuback(message_id=broker.message_id_of(packet)[0]))
        elif kind == PacketKind.PUBACK:
            self._on_broker_puback(*broker.message_id_of(packet))
        elif kind == PacketKind.PUBREC:
            self._on_broker_pubrec(*broker.message_id_of(packet))
        elif kind == PacketKind.PUBREL:
            self.delivery.pubrel(broker.message_id_of(packet)[0], self._now)
        elif kind == PacketKind.PUBCOMP:
            self._say(m.Pubcomp(message_id=broker.message_id_of(packet)[0]))

    def broker_accepted(self) -> None:
        """The broker takes the client."""
        self.state = State.ACTIVE
        self._heard()
        self._say(m.Connack(return_code=m.ReturnCode.ACCEPTED))

    def broker_lost(self, why: str, *, refused: bool) -> None:
        """The broker has ended it, or was never there."""
        self._link = None
        if self.state == State.CONNECTING:
            code = m.ReturnCode.NOT_SUPPORTED if refused else m.ReturnCode.CONGESTION
            self._refuse_connection(why, code)
        elif self.state != State.GONE:
            log.warning("%s ended: %s", self.who, why)
            self._say(m.Disconnect())
            self._end()

    def _on_suback(self, message_id: int, code: int) -> None:
        number = self._subscribing.pop(message_id, 0)
        if code >= REFUSED:
            refusal = m.ReturnCode.NOT_SUPPORTED
            self._say(m.Suback(topic_id=0, message_id=message_id, return_code=refusal))
            return
        if number:
            self._topics.tell(number)
        self._say(
            m.Suback(
                topic_id=number, message_id=message_id, return_code=m.ReturnCode.ACCEPTED, qos=code
            )
        )

    def _on_broker_puback(self, message_id: int, reason: int) -> None:
        number = self._publishing.pop(message_id, 0)
        code = m.ReturnCode.NOT_SUPPORTED if reason >= REFUSED else m.ReturnCode.ACCEPTED
        self._say(m.Puback(topic_id=number, message_id=message_id, return_code=code))

    def _on_broker_pubrec(self, message_id: int, reason: int) -> None:
        if reason >= REFUSED:
            code = m.ReturnCode.NOT_SUPPORTED
            self._say(m.Puback(topic_id=0, message_id=message_id, return_code=code))
        else:
            self._say(m.Pubrec(message_id=message_id))

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """What must happen by itself: repeats, keep-alive, giving up."""
        self._now = now
        if self.state == State.GONE:
            return
        if now > self._deadline:
            log.warning("%s lost: it was %s and has not been heard of", self.who, self.state.value)
            self._end()
            return
        if not self.delivery.repeat(now, MOST_TRIES):
            log.warning("%s lost: it acknowledges nothing", self.who)
            self._end()
            return
        if self.state == State.ACTIVE and now > self._ask_at:
            self._ask_at = now + ASK_SECONDS / 4
            self._say(m.PingReq())
        if self._link is not None:
            self._link.tick(now)

    def leave(self) -> None:
        """The gateway ends."""
        if self.state != State.GONE:
            self._say(m.Disconnect())
            self._end()


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
