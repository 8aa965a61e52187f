"""MQTT-SN 1.2 through the gateway to a real Mosquitto, message by message."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from free_ports import free_port
from loopback_parts import PATIENCE_SECONDS, Listener, wait_until
from sn_parts import BareClient, running_sn_gateway

from firedex.gateway.sn_gateway import SnGateway
from firedex.mqtt_sn import (
    Advertise,
    Connack,
    Connect,
    Disconnect,
    GwInfo,
    PingReq,
    PingResp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Regack,
    Register,
    ReturnCode,
    SearchGw,
    Suback,
    Subscribe,
    TopicKind,
    Unsuback,
    Unsubscribe,
    WillMsg,
    WillMsgReq,
    WillMsgResp,
    WillMsgUpd,
    WillTopic,
    WillTopicReq,
    WillTopicResp,
    WillTopicUpd,
    decode,
    encode,
)
from firedex_clients import ConnectionRefused, Publisher
from firedex_clients.connection_loop import ConnectionLoop
from firedex_clients.flow_connection import FlowSettings
from firedex_clients.sn_flow import SnFlow

PREDEFINED = {7: "known/beforehand"}


@pytest.fixture
def gateway(broker: int) -> Iterator[tuple[SnGateway, int]]:
    with running_sn_gateway(broker, predefined=PREDEFINED) as made:
        yield made


@pytest.fixture
def port(gateway: tuple[SnGateway, int]) -> int:
    return gateway[1]


@pytest.fixture
def plain(broker: int) -> Iterator[Listener]:
    """An MQTT client at the broker."""
    with Listener(broker) as client:
        yield client


@pytest.fixture
def client(port: int) -> Iterator[BareClient]:
    with BareClient(port) as made:
        made.connect()
        yield made
        made.send(Disconnect())


# -- publishing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_events_reach_the_broker(client: BareClient, plain: Listener, qos: int) -> None:
    plain.subscribe("from/sensor")
    number = client.register("from/sensor")
    client.send(Publish(topic_id=number, payload=b"21 C", qos=qos, message_id=5 if qos else 0))
    if qos == 1:
        assert client.expect(Puback) == Puback(topic_id=number, message_id=5, return_code=0)
    if qos == 2:
        assert client.expect(Pubrec).message_id == 5
        assert client.ask(Pubrel(message_id=5), Pubcomp).message_id == 5
    plain.wait_for(b"21 C")
    assert [(m.topic, m.qos) for m in plain.received] == [("from/sensor", qos)]


def test_qos_2_repeated_is_published_once(client: BareClient, plain: Listener) -> None:
    plain.subscribe("once")
    number = client.register("once")
    event = Publish(topic_id=number, payload=b"x", qos=2, message_id=9)
    client.ask(event, Pubrec)
    repeated = Publish(topic_id=number, payload=b"x", qos=2, message_id=9, dup=True)
    client.ask(repeated, Pubrec)
    client.ask(Pubrel(message_id=9), Pubcomp)
    client.send(Publish(topic_id=number, payload=b"end"))
    plain.wait_for(b"end")
    wait_until(lambda: len(plain.received) >= 2, "both")
    assert sorted(plain.payloads()) == [b"end", b"x"]


def test_without_a_connection_at_qos_minus_1(port: int, plain: Listener) -> None:
    plain.subscribe("known/beforehand")
    plain.subscribe("ab")
    with BareClient(port) as stranger:
        stranger.send(Publish(topic_id=7, payload=b"one", kind=TopicKind.PREDEFINED, qos=-1))
        short = int.from_bytes(b"ab", "big")
        stranger.send(Publish(topic_id=short, payload=b"two", kind=TopicKind.SHORT, qos=-1))
        plain.wait_for(b"one")
        plain.wait_for(b"two")
        stranger.send(Publish(topic_id=1, payload=b"three", qos=-1))
        stranger.send(Publish(topic_id=short, payload=b"four", kind=TopicKind.SHORT, qos=-1))
        plain.wait_for(b"four")
    assert b"three" not in plain.payloads()


def test_a_retained_event_stays_at_the_broker(client: BareClient, plain: Listener) -> None:
    number = client.register("sn/kept")
    client.ask(Publish(topic_id=number, payload=b"v", qos=1, message_id=1, retain=True), Puback)
    plain.subscribe("sn/kept")
    plain.wait_for(b"v")
    assert plain.received[0].retain
    plain.publish_surely("sn/kept", b"", retain=True)


def test_an_unknown_topic_id_is_refused(client: BareClient) -> None:
    for kind in (TopicKind.NORMAL, TopicKind.PREDEFINED):
        found = client.ask(Publish(topic_id=999, payload=b"", kind=kind), Puback)
        assert found.return_code == ReturnCode.INVALID_TOPIC_ID


def test_an_event_that_is_too_large_is_refused(client: BareClient) -> None:
    number = client.register("large")
    found = client.ask(Publish(topic_id=number, payload=bytes(2000), qos=1, message_id=3), Puback)
    assert found.return_code == ReturnCode.NOT_SUPPORTED


@pytest.mark.parametrize("topic", ["a/#", "+", ""])
def test_a_topic_that_cannot_be_published_to_is_not_registered(
    client: BareClient, topic: str
) -> None:
    found = client.ask(Register(topic_id=0, message_id=1, topic=topic), Regack)
    assert found.return_code == ReturnCode.NOT_SUPPORTED


# -- subscribing -----------------------------------------------------------------------------------


def test_a_named_topic_has_its_id_at_once(client: BareClient, plain: Listener) -> None:
    number = client.subscribe("named/topic")
    assert number > 0
    plain.publish("named/topic", b"hello")
    event, registered = client.take_event()
    assert (event.topic_id, event.payload, registered) == (number, b"hello", None)


def test_a_wildcard_registers_topics_as_they_come(client: BareClient, plain: Listener) -> None:
    assert client.subscribe("wild/+/x") == 0
    seen: dict[int, str] = {}
    for n in range(6):
        plain.publish(f"wild/{n % 3}/x", b"%d" % n)
        event, topic = client.take_event()
        if topic is not None:
            seen[event.topic_id] = topic
        assert seen[event.topic_id] == f"wild/{n % 3}/x"
        assert event.payload == b"%d" % n
    assert len(seen) == 3, "each is registered once"


def test_events_of_a_topic_wait_for_its_registration_in_order(
    client: BareClient, plain: Listener
) -> None:
    client.subscribe("burst/#")
    for n in range(20):
        plain.publish("burst/1", b"%d" % n)
    found = [client.take_event()[0].payload for _ in range(20)]
    assert found == [b"%d" % n for n in range(20)]


def test_short_and_predefined_topics(client: BareClient, plain: Listener) -> None:
    client.subscribe("xy", kind=TopicKind.SHORT)
    message = Subscribe(message_id=client.next_id(), topic_id=7, kind=TopicKind.PREDEFINED)
    assert client.ask(message, Suback).return_code == ReturnCode.ACCEPTED
    plain.publish("xy", b"short")
    event, topic = client.take_event()
    assert (event.kind, topic, event.payload) == (TopicKind.SHORT, "xy", b"short")
    plain.publish("known/beforehand", b"predefined")
    event, _ = client.take_event()
    assert (event.kind, event.topic_id) == (TopicKind.PREDEFINED, 7)


@pytest.mark.parametrize("topic", ["a#", "a/#/b", "", "$share/g/t"])
def test_a_filter_that_is_none_is_refused(client: BareClient, topic: str) -> None:
    found = client.ask(Subscribe(message_id=1, topic=topic), Suback)
    assert found.return_code != ReturnCode.ACCEPTED


def test_unsubscribing_ends_it(client: BareClient, plain: Listener) -> None:
    client.subscribe("until/now")
    client.subscribe("after")
    client.ask(Unsubscribe(message_id=77, topic="until/now"), Unsuback)
    plain.publish("until/now", b"no")
    plain.publish("after", b"yes")
    assert client.take_event()[0].payload == b"yes"


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_events_are_repeated_until_they_are(
    client: BareClient, plain: Listener, qos: int
) -> None:
    client.subscribe("sure/1", qos=qos)
    plain.publish("sure/1", b"important", qos=qos)
    first, _ = client.take_event()
    again, _ = client.take_event()
    assert (first.dup, again.dup) == (False, True)
    assert (first.message_id, first.payload) == (again.message_id, again.payload)
    if qos == 1:
        client.send(Puback(topic_id=again.topic_id, message_id=again.message_id, return_code=0))
    else:
        client.send(Pubrec(message_id=again.message_id))
        released = client.await_kind(Pubrel)
        assert client.expect(Pubrel) == released, "it is repeated too"
        client.send(Pubcomp(message_id=released.message_id))
    client.send(PingReq())
    client.await_kind(PingResp)  # what was repeated before it was acknowledged
    assert client.is_quiet(0.8)


def test_an_event_that_does_not_fit_a_datagram_is_not_delivered(
    gateway: tuple[SnGateway, int], client: BareClient, plain: Listener
) -> None:
    client.subscribe("size/#", qos=2)
    for qos in (0, 1, 2):
        plain.publish("size/1", bytes(1464), qos=qos)
    plain.publish("size/1", b"end", qos=1)
    assert client.take_event()[0].payload == b"end"
    wait_until(lambda: gateway[0].unmanaged.refused == 3, "three to be refused")
    plain.publish("size/1", bytes(1463))
    assert len(client.take_event()[0].payload) == 1463


def test_a_topic_that_the_client_forgot_is_registered_again(
    client: BareClient, plain: Listener
) -> None:
    client.subscribe("forgetful/#")
    plain.publish("forgetful/1", b"1")
    event, _ = client.take_event()
    refusal = ReturnCode.INVALID_TOPIC_ID
    client.send(Puback(topic_id=event.topic_id, message_id=0, return_code=refusal))
    client.ask(PingReq(), PingResp)
    plain.publish("forgetful/1", b"2")
    assert client.take_event()[1] == "forgetful/1"


# -- connecting, will, sleep -----------------------------------------------------------------------


def test_a_will_is_published_when_the_client_is_lost(port: int, plain: Listener) -> None:
    plain.subscribe("sn/will/#")
    with BareClient(port, "mortal") as mortal:
        connect = Connect(client_id="mortal", duration_seconds=1, will=True)
        mortal.ask(connect, WillTopicReq)
        mortal.ask(WillTopic(topic="sn/will/1", qos=1, retain=False), WillMsgReq)
        assert mortal.ask(WillMsg(payload=b"lost"), Connack).return_code == 0
    plain.wait_for(b"lost")


def test_no_will_after_a_goodbye(port: int, plain: Listener) -> None:
    plain.subscribe("sn/will/#")
    with BareClient(port, "orderly") as orderly:
        orderly.ask(Connect(client_id="orderly", duration_seconds=1, will=True), WillTopicReq)
        orderly.ask(WillTopic(topic="sn/will/2"), WillMsgReq)
        orderly.ask(WillMsg(payload=b"lost"), Connack)
        orderly.ask(Disconnect(), Disconnect)
    with BareClient(port, "other") as other:
        other.connect()
        number = other.register("sn/will/end")
        other.send(Publish(topic_id=number, payload=b"end"))
    plain.wait_for(b"end")
    assert plain.payloads() == [b"end"]


def test_a_will_cannot_be_changed_later(client: BareClient) -> None:
    assert client.ask(WillTopicUpd(topic="x"), WillTopicResp).return_code == 3
    assert client.ask(WillMsgUpd(payload=b"x"), WillMsgResp).return_code == 3


def test_a_sleeping_client_gets_everything_when_it_wakes(
    client: BareClient, plain: Listener
) -> None:
    number = client.subscribe("night", qos=1)
    client.ask(Disconnect(duration_seconds=60), Disconnect)
    for n in range(5):
        plain.publish_surely("night", b"%d" % n)
    assert client.is_quiet()
    client.send(PingReq(client_id="bare"))
    found = [client.expect(Publish) for _ in range(5)]
    client.expect(PingResp)
    assert [event.payload for event in found] == [b"%d" % n for n in range(5)]
    assert {event.topic_id for event in found} == {number}
    for event in found:
        client.send(Puback(topic_id=number, message_id=event.message_id, return_code=0))
    plain.publish_surely("night", b"still asleep")
    assert client.is_quiet()
    client.send(Connect(client_id="bare", duration_seconds=30, clean_session=False))
    client.expect(Connack)
    assert client.take_event()[0].payload == b"still asleep"


def test_a_client_that_is_not_heard_of_is_forgotten(
    gateway: tuple[SnGateway, int], port: int
) -> None:
    with BareClient(port, "short") as short:
        short.connect(seconds=1)
        wait_until(lambda: not gateway[0].clients, "the client to be forgotten")
        assert isinstance(short.ask(PingReq(), Disconnect), Disconnect)


def test_a_session_that_is_not_clean_is_kept_by_the_broker(port: int, plain: Listener) -> None:
    with BareClient(port, "lasting") as first:
        first.connect(clean_session=False)
        first.subscribe("kept/for/later", qos=1)
        first.ask(Disconnect(), Disconnect)
    plain.publish_surely("kept/for/later", b"meanwhile")
    with BareClient(port, "lasting") as again:
        again.connect(clean_session=False)
        event, _ = again.take_event()
        assert event.payload == b"meanwhile"
        again.send(Puback(topic_id=event.topic_id, message_id=event.message_id, return_code=0))
        again.send(Connect(client_id="lasting", duration_seconds=5))
        again.expect(Connack)


def test_searching_and_advertising(broker: int) -> None:
    port = free_port()
    with BareClient(port) as listener:
        where = listener._socket.getsockname()
        with running_sn_gateway(broker, port=port, gateway_id=42, advertise=where):
            assert listener.expect(Advertise).gateway_id == 42
            assert listener.ask(SearchGw(), GwInfo).gateway_id == 42


def test_a_broker_that_is_away_refuses() -> None:
    with running_sn_gateway(free_port()) as (_, port), BareClient(port) as client:
        found = client.ask(Connect(client_id="x", duration_seconds=5), Connack)
        assert found.return_code == ReturnCode.CONGESTION


def test_a_client_without_a_name_is_refused(port: int) -> None:
    with BareClient(port) as client:
        found = client.ask(Connect(client_id="", duration_seconds=5), Connack)
        assert found.return_code == ReturnCode.NOT_SUPPORTED


def test_no_more_clients_than_are_allowed(broker: int) -> None:
    with (
        running_sn_gateway(broker, most_clients=1) as (_, port),
        BareClient(port, "one") as one,
        BareClient(port, "two") as two,
    ):
        one.connect()
        found = two.ask(Connect(client_id="two", duration_seconds=5), Connack)
        assert found.return_code == ReturnCode.CONGESTION
        one.ask(PingReq(), PingResp)


# -- our own subscriber and publisher -------------------------------------------------------------


def test_a_flow_that_is_asked_says_that_it_lives() -> None:
    class Nobody:
        def __getattr__(self, _: str) -> Any:
            return lambda *_: None

    loop = ConnectionLoop("asked")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.settimeout(PATIENCE_SECONDS)
        settings = FlowSettings(host="127.0.0.1", port=gateway.getsockname()[1], transport="udp")
        flow = SnFlow(loop, settings, Nobody(), client_id="c")
        loop.call(flow.open)
        data, peer = gateway.recvfrom(65_536)
        assert isinstance(decode(data), Connect)
        gateway.sendto(encode(PingReq()), peer)
        while not isinstance(decode(gateway.recv(65_536)), PingResp):
            pass
        loop.call(flow.close)
        wait_until(lambda: flow.closed, "the flow to be closed")
        loop.stop()
        assert loop.join(PATIENCE_SECONDS)


def test_a_publisher_repeats_with_the_dup_flag_and_raises_what_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firedex_clients.sn_publishing.RETRY_SECONDS", 0.2)
    monkeypatch.setattr("firedex_clients.sn_publishing.MOST_TRIES", 30)
    heard: list[Publish] = []

    def serve(gateway: socket.socket) -> None:
        """Answers everything but the first of any two events."""
        while True:
            data, peer = gateway.recvfrom(65_536)
            message = decode(data)
            if isinstance(message, Connect):
                gateway.sendto(encode(Connack(return_code=0)), peer)
            elif isinstance(message, Publish):
                heard.append(message)
                if message.dup:
                    done = Puback(topic_id=0, message_id=message.message_id, return_code=0)
                    gateway.sendto(encode(done), peer)
            elif isinstance(message, Disconnect):
                return

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
        gateway.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=serve, args=(gateway,))
        thread.start()
        port = gateway.getsockname()[1]
        with Publisher("127.0.0.1", port, id="p", transport="udp", stamped=False) as publisher:
            publisher.publish("ab", b"x", qos=1)
        thread.join()
    assert [event.dup for event in heard[:2]] == [False, True]


def test_a_publisher_whose_gateway_is_away_says_so(
    broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with running_sn_gateway(broker, port=port):
        publisher = Publisher("127.0.0.1", port, id="p", transport="udp").__enter__()
        publisher.publish("away/1", b"x", qos=1)
    monkeypatch.setattr("firedex_clients.sn_publishing.RETRY_SECONDS", 0.05)
    for _ in range(5):
        publisher.publish("away/1", b"lost")
    with pytest.raises(ConnectionRefused):
        publisher.publish("away/1", b"x", qos=1)
    publisher.__exit__(None, None, None)


def test_a_publisher_goes_on_when_its_gateway_has_restarted(broker: int, plain: Listener) -> None:
    port = free_port()
    with running_sn_gateway(broker, port=port):
        publisher = Publisher("127.0.0.1", port, id="p", transport="udp").__enter__()
        publisher.publish("restarted/1", b"before", qos=1)
    plain.subscribe("restarted/1")
    with running_sn_gateway(broker, port=port):
        publisher.publish("restarted/1", b"after", qos=1)
        plain.wait_for(b"after")
        publisher.__exit__(None, None, None)
