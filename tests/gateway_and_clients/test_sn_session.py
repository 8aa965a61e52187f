"""One MQTT-SN client at the gateway, without sockets: what it and the broker are told, and when."""

from typing import Any

import pytest
from loopback_parts import coins

from firedex.gateway import broker_packets as broker
from firedex.gateway.broker_packets import BrokerEvent
from firedex.gateway.event_counts import Totals
from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import ManagedFlow, highest_qos
from firedex.gateway.mqtt_packets import PacketKind, packet
from firedex.gateway.sn_delivery import ASLEEP, MOST_REFUSALS, Outlet, SnDelivery
from firedex.gateway.sn_session import ASK_SECONDS, SnSession
from firedex.gateway.sn_states import State
from firedex.gateway.sn_topics import SnTopics
from firedex.mqtt_sn import (
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

LIMITS = BufferLimits(bytes=20_000, seconds=1.0)


class FakeLink:
    """A connection to the broker that keeps what is said."""

    def __init__(self) -> None:
        self.level, self.congested, self.held, self.aborted = 5, False, False, False
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def hold_back(self, on: bool) -> None:
        self.held = on

    def tick(self, now: float) -> None:
        pass

    def close(self) -> None:
        self.aborted = True

    def abort(self) -> None:
        self.aborted = True

    def kinds(self) -> list[PacketKind]:
        return [PacketKind(each[0] >> 4) for each in self.sent]


class Client:
    """A client, its session, and the broker behind it; time is moved by hand."""

    def __init__(self, **connect: Any) -> None:
        self.link, self.heard = FakeLink(), list[Message]()
        self.now, self.congested = 0.0, False
        self.flow: ManagedFlow | None = ManagedFlow("crew", 0, 0.0)
        self.session = SnSession(
            "client",
            lambda _: self.link,
            lambda datagram: self.heard.append(decode(datagram)),
            lambda: self.congested,
            self._make_delivery,
            SnTopics({7: b"known/beforehand"}),
            lambda: highest_qos(self.flow),
        )
        self.say(Connect(client_id="c", **{"duration_seconds": 30, **connect}))
        self.session.broker_accepted()
        assert self.take() == [Connack(return_code=0)]

    def _make_delivery(self, topics: SnTopics, outlet: Outlet) -> SnDelivery:
        return SnDelivery(
            outlet,
            topics,
            lambda: self.flow,
            coins=coins(),
            unmanaged=Totals(),
            retry_seconds=5.0,
            limits=LIMITS,
        )

    def say(self, message: Message) -> None:
        self.session.received(message, self.now)

    def take(self) -> list[Message]:
        """What the client has been told since the last time."""
        heard, self.heard = self.heard, []
        return heard

    def event(self, topic: bytes, payload: bytes = b"x", **more: Any) -> None:
        """The broker has an event for the client."""
        facts = {"qos": 0, "retain": False, "dup": False, "message_id": 0, **more}
        event = BrokerEvent(topic=topic, payload=payload, **facts)
        self.session.broker_said(broker.publish(event, level=self.link.level))

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.session.tick(self.now)

    def registered(self, topic: bytes) -> int:
        """An event of a topic has come, and the client has been told the topic's id."""
        self.event(topic)
        (register,) = self.take()
        assert isinstance(register, Register)
        self.say(Regack(topic_id=register.topic_id, message_id=register.message_id, return_code=0))
        self.take()
        return register.topic_id


@pytest.fixture
def client() -> Client:
    return Client()


def payloads(messages: list[Message]) -> list[bytes]:
    return [each.payload for each in messages if isinstance(each, Publish)]


# -- topics that the client does not know ----------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_an_event_of_a_topic_that_the_client_forgot_comes_again(client: Client, qos: int) -> None:
    number = client.registered(b"a/b")
    client.event(b"a/b", b"sure", qos=qos, message_id=9)
    assert payloads(client.take()) == [b"sure"]
    unknown = ReturnCode.INVALID_TOPIC_ID
    client.say(Puback(topic_id=number, message_id=9, return_code=unknown))
    (register,) = client.take()
    assert isinstance(register, Register)
    assert register.topic == "a/b"
    assert client.link.sent == [], "the broker is told nothing as long as the event is not taken"
    client.say(Regack(topic_id=register.topic_id, message_id=register.message_id, return_code=0))
    assert payloads(client.take()) == [b"sure"]


def test_a_topic_that_is_never_understood_is_given_up(client: Client) -> None:
    """At QoS 2 the broker hears PUBREC and PUBCOMP, never PUBACK."""
    short = int.from_bytes(b"ab", "big")
    client.event(b"ab", qos=2, message_id=9)
    unknown = ReturnCode.INVALID_TOPIC_ID
    for _ in range(MOST_REFUSALS + 1):
        assert len(payloads(client.take())) == 1
        client.say(Puback(topic_id=short, message_id=9, return_code=unknown))
    assert client.take() == []
    client.session.broker_said(broker.acknowledge(PacketKind.PUBREL, 9))
    assert client.link.kinds() == [PacketKind.PUBREC, PacketKind.PUBCOMP]
    assert client.flow.counts.totals.refused == 1


def test_a_puback_does_not_acknowledge_qos_2(client: Client) -> None:
    number = client.registered(b"a/b")
    client.event(b"a/b", qos=2, message_id=9)
    client.say(Puback(topic_id=number, message_id=9, return_code=0))
    assert client.link.sent == []


def test_no_event_overtakes_those_that_wait_for_their_topic(client: Client) -> None:
    """Not even if the client learns the topic's id in another way meanwhile."""
    client.event(b"a/b", b"1")
    (asked,) = client.take()
    assert isinstance(asked, Register)
    client.say(Register(topic_id=0, message_id=1, topic="a/b"))
    client.event(b"a/b", b"2")
    assert payloads(client.take()) == []
    client.say(Regack(topic_id=asked.topic_id, message_id=asked.message_id, return_code=0))
    assert payloads(client.take()) == [b"1", b"2"]


def test_what_waits_for_topics_is_bounded_in_bytes(client: Client) -> None:
    for n in range(100):
        for _ in range(10):
            client.event(b"topic/%d" % n, bytes(1000))
    delivery = client.session.delivery
    assert delivery.waiting_bytes <= LIMITS.bytes
    assert client.flow.counts.totals.shed == 1000 - delivery.waiting_events
    assert not client.link.held
    for n in range(30):
        client.event(b"topic/1", bytes(1000), qos=1, message_id=n + 1)
    assert client.link.held, "what may not be shed is left with the broker"


def test_empty_events_take_room_too(client: Client) -> None:
    for _ in range(1000):
        client.event(b"a/b", b"")
    assert client.session.delivery.waiting_events < 300


# -- sleep -----------------------------------------------------------------------------------------


def test_what_is_retained_for_a_sleeper_is_left_with_the_broker(client: Client) -> None:
    number = client.registered(b"a/b")
    client.say(Disconnect(duration_seconds=600))
    size = 1000
    for _ in range(2 * ASLEEP.bytes // size):
        if client.link.held:
            break
        client.event(b"a/b", bytes(size), retain=True)
    assert client.link.held
    kept = client.session.delivery.waiting_events
    assert kept < 1.1 * ASLEEP.bytes / size
    client.take()
    client.say(PingReq(client_id="c"))
    told = client.take()
    assert [each.topic_id for each in told if isinstance(each, Publish)] == [number] * kept
    assert not client.link.held


def test_a_sleeper_is_told_of_topics_before_it_sleeps_on(client: Client) -> None:
    client.say(Disconnect(duration_seconds=600))
    client.event(b"new/1", b"1")
    client.event(b"new/2", b"2")
    client.take()
    client.say(PingReq(client_id="c"))
    told = client.take()
    assert [type(each) for each in told] == [Register, Register], "and no PINGRESP yet"
    for each in told:
        assert isinstance(each, Register)
        client.say(Regack(topic_id=each.topic_id, message_id=each.message_id, return_code=0))
    rest = client.take()
    assert payloads(rest) == [b"1", b"2"]
    assert isinstance(rest[-1], PingResp)
    client.event(b"new/1", b"3")
    assert client.take() == [], "it sleeps"


def test_what_a_sleeper_did_not_acknowledge_comes_again_when_it_wakes(client: Client) -> None:
    client.registered(b"a/b")
    client.event(b"a/b", b"sure", qos=1, message_id=9)
    client.say(Disconnect(duration_seconds=600))
    client.advance(30)
    client.take()
    client.say(PingReq(client_id="c"))
    again = client.take()[0]
    assert isinstance(again, Publish)
    assert (again.payload, again.dup) == (b"sure", True)


# -- signs of life ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 0xFFFF])
def test_a_client_that_promises_no_sign_of_life_is_asked_for_it(seconds: int) -> None:
    client = Client(duration_seconds=seconds)
    client.advance(ASK_SECONDS)
    assert PingReq() in client.take()
    for _ in range(5):
        client.say(PingResp())
        client.advance(ASK_SECONDS)
    assert client.session.state == State.ACTIVE
    client.advance(ASK_SECONDS)
    assert client.session.state == State.GONE
    assert client.link.aborted


def test_a_client_that_keeps_its_promise_is_not_asked(client: Client) -> None:
    for _ in range(10):
        client.advance(20)
        client.say(PingReq())
    assert set(map(type, client.take())) == {PingResp}


# -- a slow broker ---------------------------------------------------------------------------------


def test_a_slow_broker_is_not_sent_more(client: Client) -> None:
    client.say(Register(topic_id=0, message_id=1, topic="a/b"))
    (answer,) = client.take()
    assert isinstance(answer, Regack)
    client.link.congested = True
    for qos in (0, 1, 2):
        client.say(Publish(topic_id=answer.topic_id, payload=b"", qos=qos, message_id=qos))
    client.say(Subscribe(message_id=3, topic="c"))
    assert client.link.sent == []
    told = client.take()
    assert [(type(each), each.return_code) for each in told] == [  # type: ignore[union-attr]
        (Puback, ReturnCode.CONGESTION),
        (Puback, ReturnCode.CONGESTION),
        (Suback, ReturnCode.CONGESTION),
    ]


def test_each_link_is_read_at_its_own_level(client: Client) -> None:
    client.registered(b"a/b")
    with_properties = packet(
        PacketKind.PUBLISH, 0, b"\x00\x03a/b" + b"\x05\x26\x00\x00\x00\x00" + b"x"
    )
    client.session.broker_said(with_properties)
    client.link.level = 4
    client.session.broker_said(packet(PacketKind.PUBLISH, 0, b"\x00\x03a/b" + b"\x05y"))
    assert payloads(client.take()) == [b"x", b"\x05y"]


# -- counting --------------------------------------------------------------------------------------


def test_an_event_is_delivered_in_the_window_in_which_it_leaves(client: Client) -> None:
    client.registered(b"a/b")
    client.flow.counts.take_window()
    client.congested = True
    client.event(b"a/b")
    client.flow.counts.take_window()
    client.congested = False
    client.session.delivery.drain(client.now)
    assert client.flow.counts.take_window()[b"a/b"].delivered == 1


@pytest.mark.parametrize("planned", [0, 1, 2, None])
def test_nobody_subscribes_above_the_quality_that_was_planned(
    client: Client, planned: int | None
) -> None:
    if planned is None:
        client.flow = None
    else:
        client.flow = ManagedFlow("crew", 0, 0.5, planned)
    client.say(Subscribe(message_id=1, topic="a/#", qos=2))
    expected = broker.subscribe(1, b"a/#", 2 if planned is None else planned, level=5)
    assert client.link.sent == [expected]
