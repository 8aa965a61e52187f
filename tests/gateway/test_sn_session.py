"""The session of one MQTT-SN client, without sockets."""

from typing import Any

import pytest

from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import EventTotals, FlowCounts, ManagedFlow, max_qos
from firedex.gateway.sn_delivery import MAX_REJECTIONS, SLEEP_BUFFER_LIMITS, Outlets, SnDelivery
from firedex.gateway.sn_session import PROBE_SECONDS, SessionState, SnSession
from firedex.gateway.sn_topics import TopicIds
from firedex.transport.mqtt import packets as broker
from firedex.transport.mqtt.encoding import PacketType, encode_packet
from firedex.transport.mqtt.packets import PublishPacket
from firedex.transport.mqtt_sn import (
    Connack,
    Connect,
    Disconnect,
    Message,
    PingReq,
    PingResp,
    Puback,
    Publish,
    Regack,
    Register,
    ReturnCode,
    Suback,
    Subscribe,
    decode,
)
from tests.support.loopback_parts import seeded_random

LIMITS = BufferLimits(bytes=20_000, seconds=1.0)


class FakeLink:
    """A link that records the packets sent."""

    def __init__(self) -> None:
        self.level, self.congested, self.paused, self.aborted = 5, False, False, False
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def pause_reading(self, paused: bool) -> None:
        self.paused = paused

    def tick(self, now: float) -> None:
        pass

    def close(self) -> None:
        self.aborted = True

    def abort(self) -> None:
        self.aborted = True

    def packet_types(self) -> list[PacketType]:
        return [PacketType(each[0] >> 4) for each in self.sent]


class Client:
    """A client, its session and the broker; tests advance the clock."""

    def __init__(self, **connect: Any) -> None:
        self.link, self.received = FakeLink(), list[Message]()
        self.now, self.congested = 0.0, False
        self.flow: ManagedFlow | None = ManagedFlow("crew", 0, 0.0)
        self.session = SnSession(
            "client",
            lambda _: self.link,
            lambda datagram: self.received.append(decode(datagram)),
            lambda: self.congested,
            self._make_delivery,
            TopicIds({7: b"predefined/topic"}),
            lambda: max_qos(self.flow),
        )
        self.send(Connect(client_id="c", **{"duration_seconds": 30, **connect}))
        self.session.broker_connected()
        assert self.take() == [Connack(return_code=0)]

    def _make_delivery(self, topics: TopicIds, outlet: Outlets) -> SnDelivery:
        return SnDelivery(
            outlet,
            topics,
            lambda: self.flow,
            generator=seeded_random(),
            unmanaged=EventTotals(),
            retry_seconds=5.0,
            limits=LIMITS,
        )

    @property
    def counts(self) -> FlowCounts:
        """The counts of the flow, which must be managed."""
        assert self.flow is not None
        return self.flow.counts

    def send(self, message: Message) -> None:
        self.session.receive(message, self.now)

    def take(self) -> list[Message]:
        """Return the messages received since the last call."""
        received, self.received = self.received, []
        return received

    def event(self, topic: bytes, payload: bytes = b"x", **more: Any) -> None:
        """Let the broker send an event to the client."""
        event = PublishPacket(topic=topic, payload=payload, **more)
        self.session.packet_received(broker.encode_publish(event, level=self.link.level))

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.session.tick(self.now)

    def register_topic(self, topic: bytes) -> int:
        """Let an event arrive, acknowledge its REGISTER, and return the topic id."""
        self.event(topic)
        (register,) = self.take()
        assert isinstance(register, Register)
        self.send(Regack(topic_id=register.topic_id, message_id=register.message_id, return_code=0))
        self.take()
        return register.topic_id


@pytest.fixture
def client() -> Client:
    return Client()


def payloads(messages: list[Message]) -> list[bytes]:
    return [each.payload for each in messages if isinstance(each, Publish)]


# -- unknown topics --------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_event_is_repeated_after_its_topic_is_registered_again(client: Client, qos: int) -> None:
    number = client.register_topic(b"a/b")
    client.event(b"a/b", b"kept", qos=qos, packet_id=9)
    assert payloads(client.take()) == [b"kept"]
    unknown = ReturnCode.INVALID_TOPIC_ID
    client.send(Puback(topic_id=number, message_id=9, return_code=unknown))
    (register,) = client.take()
    assert isinstance(register, Register)
    assert register.topic == "a/b"
    assert client.link.sent == [], "an event that was not accepted is not acknowledged"
    client.send(Regack(topic_id=register.topic_id, message_id=register.message_id, return_code=0))
    assert payloads(client.take()) == [b"kept"]


def test_event_with_a_topic_id_that_is_always_rejected_is_refused(client: Client) -> None:
    """At QoS 2 the broker receives PUBREC and PUBCOMP, never PUBACK."""
    short = int.from_bytes(b"ab", "big")
    client.event(b"ab", qos=2, packet_id=9)
    unknown = ReturnCode.INVALID_TOPIC_ID
    for _ in range(MAX_REJECTIONS + 1):
        assert len(payloads(client.take())) == 1
        client.send(Puback(topic_id=short, message_id=9, return_code=unknown))
    assert client.take() == []
    client.session.packet_received(broker.encode_acknowledgement(PacketType.PUBREL, 9))
    assert client.link.packet_types() == [PacketType.PUBREC, PacketType.PUBCOMP]
    assert client.counts.totals.refused == 1


def test_puback_does_not_acknowledge_qos_2(client: Client) -> None:
    number = client.register_topic(b"a/b")
    client.event(b"a/b", qos=2, packet_id=9)
    client.send(Puback(topic_id=number, message_id=9, return_code=0))
    assert client.link.sent == []


def test_event_does_not_overtake_events_that_wait_for_regack(client: Client) -> None:
    """Not even if the client registers the same topic itself meanwhile."""
    client.event(b"a/b", b"1")
    (register,) = client.take()
    assert isinstance(register, Register)
    client.send(Register(topic_id=0, message_id=1, topic="a/b"))
    client.event(b"a/b", b"2")
    assert payloads(client.take()) == []
    client.send(Regack(topic_id=register.topic_id, message_id=register.message_id, return_code=0))
    assert payloads(client.take()) == [b"1", b"2"]


def test_events_that_wait_for_regack_are_bounded_in_bytes(client: Client) -> None:
    for n in range(100):
        for _ in range(10):
            client.event(b"topic/%d" % n, bytes(1000))
    delivery = client.session.delivery
    assert delivery.waiting_bytes <= LIMITS.bytes
    assert client.counts.totals.shed == 1000 - delivery.waiting_events
    assert not client.link.paused
    for n in range(30):
        client.event(b"topic/1", bytes(1000), qos=1, packet_id=n + 1)
    assert client.link.paused, "reading is paused instead of shedding QoS 1 events"


def test_empty_events_count_towards_the_limit(client: Client) -> None:
    for _ in range(1000):
        client.event(b"a/b", b"")
    assert client.session.delivery.waiting_events < 300


# -- sleep -----------------------------------------------------------------------------------------


def test_reading_is_paused_if_retained_events_fill_the_sleep_buffer(
    client: Client,
) -> None:
    number = client.register_topic(b"a/b")
    client.send(Disconnect(duration_seconds=600))
    size = 1000
    for _ in range(2 * SLEEP_BUFFER_LIMITS.bytes // size):
        if client.link.paused:
            break
        client.event(b"a/b", bytes(size), retain=True)
    assert client.link.paused
    kept = client.session.delivery.waiting_events
    assert kept < 1.1 * SLEEP_BUFFER_LIMITS.bytes / size
    client.take()
    client.send(PingReq(client_id="c"))
    received = client.take()
    assert [each.topic_id for each in received if isinstance(each, Publish)] == [number] * kept
    assert not client.link.paused


def test_sleeping_client_receives_topic_ids_before_pingresp(client: Client) -> None:
    client.send(Disconnect(duration_seconds=600))
    client.event(b"new/1", b"1")
    client.event(b"new/2", b"2")
    client.take()
    client.send(PingReq(client_id="c"))
    received = client.take()
    assert [type(each) for each in received] == [Register, Register], "PINGRESP must wait"
    for each in received:
        assert isinstance(each, Register)
        client.send(Regack(topic_id=each.topic_id, message_id=each.message_id, return_code=0))
    rest = client.take()
    assert payloads(rest) == [b"1", b"2"]
    assert isinstance(rest[-1], PingResp)
    client.event(b"new/1", b"3")
    assert client.take() == [], "the client is asleep again"


def test_unacknowledged_event_is_repeated_when_the_client_wakes(client: Client) -> None:
    client.register_topic(b"a/b")
    client.event(b"a/b", b"kept", qos=1, packet_id=9)
    client.send(Disconnect(duration_seconds=600))
    client.advance(30)
    client.take()
    client.send(PingReq(client_id="c"))
    again = client.take()[0]
    assert isinstance(again, Publish)
    assert (again.payload, again.dup) == (b"kept", True)


# -- keep-alive ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 0xFFFF])
def test_client_without_keep_alive_is_probed(seconds: int) -> None:
    client = Client(duration_seconds=seconds)
    client.advance(PROBE_SECONDS)
    assert PingReq() in client.take()
    for _ in range(5):
        client.send(PingResp())
        client.advance(PROBE_SECONDS)
    assert client.session.state == SessionState.ACTIVE
    client.advance(PROBE_SECONDS)
    assert client.session.state == SessionState.DISCONNECTED
    assert client.link.aborted


def test_client_with_keep_alive_is_not_probed(client: Client) -> None:
    for _ in range(10):
        client.advance(20)
        client.send(PingReq())
    assert set(map(type, client.take())) == {PingResp}


# -- a slow broker ---------------------------------------------------------------------------------


def test_nothing_is_sent_to_a_congested_broker(client: Client) -> None:
    client.send(Register(topic_id=0, message_id=1, topic="a/b"))
    (answer,) = client.take()
    assert isinstance(answer, Regack)
    client.link.congested = True
    for qos in (0, 1, 2):
        client.send(Publish(topic_id=answer.topic_id, payload=b"", qos=qos, message_id=qos))
    client.send(Subscribe(message_id=3, topic="c"))
    assert client.link.sent == []
    received = client.take()
    assert [(type(each), each.return_code) for each in received] == [  # type: ignore[union-attr]
        (Puback, ReturnCode.CONGESTION),
        (Puback, ReturnCode.CONGESTION),
        (Suback, ReturnCode.CONGESTION),
    ]


def test_packets_are_read_at_the_level_of_their_link(client: Client) -> None:
    client.register_topic(b"a/b")
    with_properties = encode_packet(
        PacketType.PUBLISH, 0, b"\x00\x03a/b" + b"\x05\x26\x00\x00\x00\x00" + b"x"
    )
    client.session.packet_received(with_properties)
    client.link.level = 4
    client.session.packet_received(encode_packet(PacketType.PUBLISH, 0, b"\x00\x03a/b" + b"\x05y"))
    assert payloads(client.take()) == [b"x", b"\x05y"]


# -- counting --------------------------------------------------------------------------------------


def test_delivery_counts_in_the_window_in_which_the_event_is_sent(client: Client) -> None:
    client.register_topic(b"a/b")
    client.counts.take_counts()
    client.congested = True
    client.event(b"a/b")
    client.counts.take_counts()
    client.congested = False
    client.session.delivery.drain(client.now)
    assert client.counts.take_counts()[b"a/b"].delivered == 1


@pytest.mark.parametrize("planned", [0, 1, 2, None])
def test_subscription_is_limited_to_the_planned_qos(client: Client, planned: int | None) -> None:
    if planned is None:
        client.flow = None
    else:
        client.flow = ManagedFlow("crew", 0, 0.5, planned)
    client.send(Subscribe(message_id=1, topic="a/#", qos=2))
    expected = broker.encode_subscribe(1, b"a/#", 2 if planned is None else planned, level=5)
    assert client.link.sent == [expected]
