"""MQTT-SN 1.2 messages through the gateway to a real Mosquitto."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from firedex.gateway.sn_gateway import SnGateway
from firedex.transport.mqtt_sn import (
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
from firedex_clients.event_loop import EventLoopThread
from firedex_clients.flow import FlowSettings
from firedex_clients.sn_flow import SnFlow
from tests.support.free_ports import free_port
from tests.support.loopback_parts import TIMEOUT_SECONDS, Listener
from tests.support.sn_parts import BareClient, running_sn_gateway
from tests.support.waiting import wait_until

PREDEFINED = {7: "known/beforehand"}


@pytest.fixture
def gateway(broker: int) -> Iterator[tuple[SnGateway, int]]:
    with running_sn_gateway(broker, predefined=PREDEFINED) as running:
        yield running


@pytest.fixture
def port(gateway: tuple[SnGateway, int]) -> int:
    return gateway[1]


@pytest.fixture
def plain(broker: int) -> Iterator[Listener]:
    """Connect an MQTT client directly to the broker."""
    with Listener(broker) as client:
        yield client


@pytest.fixture
def client(port: int) -> Iterator[BareClient]:
    with BareClient(port) as connected:
        connected.connect()
        yield connected
        connected.send(Disconnect())


# -- publishing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_published_event_reaches_the_broker(client: BareClient, plain: Listener, qos: int) -> None:
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


def test_repeated_qos_2_event_is_published_once(client: BareClient, plain: Listener) -> None:
    plain.subscribe("once")
    number = client.register("once")
    event = Publish(topic_id=number, payload=b"x", qos=2, message_id=9)
    client.ask(event, Pubrec)
    repeated = Publish(topic_id=number, payload=b"x", qos=2, message_id=9, dup=True)
    client.ask(repeated, Pubrec)
    client.ask(Pubrel(message_id=9), Pubcomp)
    client.send(Publish(topic_id=number, payload=b"end"))
    plain.wait_for(b"end")
    wait_until(lambda: len(plain.received) >= 2, "both events")
    assert sorted(plain.payloads()) == [b"end", b"x"]


def test_qos_minus_1_event_needs_no_connection(port: int, plain: Listener) -> None:
    plain.subscribe("known/beforehand")
    plain.subscribe("ab")
    with BareClient(port) as unconnected:
        unconnected.send(Publish(topic_id=7, payload=b"one", kind=TopicKind.PREDEFINED, qos=-1))
        short = int.from_bytes(b"ab", "big")
        unconnected.send(Publish(topic_id=short, payload=b"two", kind=TopicKind.SHORT, qos=-1))
        plain.wait_for(b"one")
        plain.wait_for(b"two")
        unconnected.send(Publish(topic_id=1, payload=b"three", qos=-1))
        unconnected.send(Publish(topic_id=short, payload=b"four", kind=TopicKind.SHORT, qos=-1))
        plain.wait_for(b"four")
    assert b"three" not in plain.payloads()


def test_retained_event_is_stored_by_the_broker(client: BareClient, plain: Listener) -> None:
    number = client.register("sn/kept")
    client.ask(Publish(topic_id=number, payload=b"v", qos=1, message_id=1, retain=True), Puback)
    plain.subscribe("sn/kept")
    plain.wait_for(b"v")
    assert plain.received[0].retain
    plain.publish_and_wait("sn/kept", b"", retain=True)


def test_unknown_topic_id_is_rejected(client: BareClient) -> None:
    for kind in (TopicKind.NORMAL, TopicKind.PREDEFINED):
        response = client.ask(Publish(topic_id=999, payload=b"", kind=kind), Puback)
        assert response.return_code == ReturnCode.INVALID_TOPIC_ID


def test_too_large_event_is_rejected(client: BareClient) -> None:
    number = client.register("large")
    response = client.ask(
        Publish(topic_id=number, payload=bytes(2000), qos=1, message_id=3), Puback
    )
    assert response.return_code == ReturnCode.NOT_SUPPORTED


@pytest.mark.parametrize("topic", ["a/#", "+", ""])
def test_registration_of_an_invalid_topic_is_rejected(client: BareClient, topic: str) -> None:
    response = client.ask(Register(topic_id=0, message_id=1, topic=topic), Regack)
    assert response.return_code == ReturnCode.NOT_SUPPORTED


# -- subscribing -----------------------------------------------------------------------------------


def test_suback_contains_the_id_of_a_topic_name(client: BareClient, plain: Listener) -> None:
    number = client.subscribe("named/topic")
    assert number > 0
    plain.publish("named/topic", b"hello")
    event, registered = client.take_event()
    assert (event.topic_id, event.payload, registered) == (number, b"hello", None)


def test_topic_that_matches_a_wildcard_is_registered_once(
    client: BareClient, plain: Listener
) -> None:
    assert client.subscribe("wild/+/x") == 0
    topics_by_id: dict[int, str] = {}
    for n in range(6):
        plain.publish(f"wild/{n % 3}/x", b"%d" % n)
        event, topic = client.take_event()
        if topic is not None:
            topics_by_id[event.topic_id] = topic
        assert topics_by_id[event.topic_id] == f"wild/{n % 3}/x"
        assert event.payload == b"%d" % n
    assert len(topics_by_id) == 3, "each topic is registered once"


def test_events_wait_for_the_registration_of_their_topic_in_order(
    client: BareClient, plain: Listener
) -> None:
    client.subscribe("burst/#")
    for n in range(20):
        plain.publish("burst/1", b"%d" % n)
    payloads = [client.take_event()[0].payload for _ in range(20)]
    assert payloads == [b"%d" % n for n in range(20)]


def test_short_and_predefined_topics_need_no_registration(
    client: BareClient, plain: Listener
) -> None:
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
def test_invalid_topic_filter_is_rejected(client: BareClient, topic: str) -> None:
    response = client.ask(Subscribe(message_id=1, topic=topic), Suback)
    assert response.return_code != ReturnCode.ACCEPTED


def test_no_events_arrive_after_unsubscribe(client: BareClient, plain: Listener) -> None:
    client.subscribe("until/now")
    client.subscribe("after")
    client.ask(Unsubscribe(message_id=77, topic="until/now"), Unsuback)
    plain.publish("until/now", b"no")
    plain.publish("after", b"yes")
    assert client.take_event()[0].payload == b"yes"


@pytest.mark.parametrize("qos", [1, 2])
def test_event_is_repeated_until_it_is_acknowledged(
    client: BareClient, plain: Listener, qos: int
) -> None:
    client.subscribe("sure/1", qos=qos)
    plain.publish("sure/1", b"important", qos=qos)
    first, _ = client.take_event()
    repeated, _ = client.take_event()
    assert (first.dup, repeated.dup) == (False, True)
    assert (first.message_id, first.payload) == (repeated.message_id, repeated.payload)
    if qos == 1:
        client.send(
            Puback(topic_id=repeated.topic_id, message_id=repeated.message_id, return_code=0)
        )
    else:
        client.send(Pubrec(message_id=repeated.message_id))
        pubrel = client.await_kind(Pubrel)
        assert client.expect(Pubrel) == pubrel, "PUBREL is repeated too"
        client.send(Pubcomp(message_id=pubrel.message_id))
    client.send(PingReq())
    client.await_kind(PingResp)  # skips repetitions sent before the acknowledgement
    assert client.is_quiet(0.8)


def test_event_that_does_not_fit_a_datagram_is_not_delivered(
    gateway: tuple[SnGateway, int], client: BareClient, plain: Listener
) -> None:
    client.subscribe("size/#", qos=2)
    for qos in (0, 1, 2):
        plain.publish("size/1", bytes(1464), qos=qos)
    plain.publish("size/1", b"end", qos=1)
    assert client.take_event()[0].payload == b"end"
    wait_until(lambda: gateway[0].unmanaged.refused == 3, "three events to be refused")
    plain.publish("size/1", bytes(1463))
    assert len(client.take_event()[0].payload) == 1463


def test_topic_id_that_the_client_rejects_is_registered_again(
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


def test_will_is_published_when_the_client_is_lost(port: int, plain: Listener) -> None:
    plain.subscribe("sn/will/#")
    with BareClient(port, "lost") as lost:
        connect = Connect(client_id="lost", duration_seconds=1, will=True)
        lost.ask(connect, WillTopicReq)
        lost.ask(WillTopic(topic="sn/will/1", qos=1, retain=False), WillMsgReq)
        assert lost.ask(WillMsg(payload=b"lost"), Connack).return_code == 0
    plain.wait_for(b"lost")


def test_will_is_not_published_after_disconnect(port: int, plain: Listener) -> None:
    plain.subscribe("sn/will/#")
    with BareClient(port, "client") as client:
        client.ask(Connect(client_id="client", duration_seconds=1, will=True), WillTopicReq)
        client.ask(WillTopic(topic="sn/will/2"), WillMsgReq)
        client.ask(WillMsg(payload=b"lost"), Connack)
        client.ask(Disconnect(), Disconnect)
    with BareClient(port, "other") as other:
        other.connect()
        number = other.register("sn/will/end")
        other.send(Publish(topic_id=number, payload=b"end"))
    plain.wait_for(b"end")
    assert plain.payloads() == [b"end"]


def test_will_update_is_not_supported(client: BareClient) -> None:
    assert client.ask(WillTopicUpd(topic="x"), WillTopicResp).return_code == 3
    assert client.ask(WillMsgUpd(payload=b"x"), WillMsgResp).return_code == 3


def test_sleeping_client_receives_all_events_when_it_wakes(
    client: BareClient, plain: Listener
) -> None:
    number = client.subscribe("night", qos=1)
    client.ask(Disconnect(duration_seconds=60), Disconnect)
    for n in range(5):
        plain.publish_and_wait("night", b"%d" % n)
    assert client.is_quiet()
    client.send(PingReq(client_id="bare"))
    events = [client.expect(Publish) for _ in range(5)]
    client.expect(PingResp)
    assert [event.payload for event in events] == [b"%d" % n for n in range(5)]
    assert {event.topic_id for event in events} == {number}
    for event in events:
        client.send(Puback(topic_id=number, message_id=event.message_id, return_code=0))
    plain.publish_and_wait("night", b"still asleep")
    assert client.is_quiet()
    client.send(Connect(client_id="bare", duration_seconds=30, clean_session=False))
    client.expect(Connack)
    assert client.take_event()[0].payload == b"still asleep"


def test_session_ends_if_the_client_is_silent(gateway: tuple[SnGateway, int], port: int) -> None:
    with BareClient(port, "short") as short:
        short.connect(seconds=1)
        wait_until(lambda: not gateway[0].clients, "the session to end")
        assert isinstance(short.ask(PingReq(), Disconnect), Disconnect)


def test_broker_keeps_a_session_without_clean_session(port: int, plain: Listener) -> None:
    with BareClient(port, "lasting") as first:
        first.connect(clean_session=False)
        first.subscribe("kept/for/later", qos=1)
        first.ask(Disconnect(), Disconnect)
    plain.publish_and_wait("kept/for/later", b"meanwhile")
    with BareClient(port, "lasting") as second:
        second.connect(clean_session=False)
        event, _ = second.take_event()
        assert event.payload == b"meanwhile"
        second.send(Puback(topic_id=event.topic_id, message_id=event.message_id, return_code=0))
        second.send(Connect(client_id="lasting", duration_seconds=5))
        second.expect(Connack)


def test_gateway_advertises_and_answers_searchgw(broker: int) -> None:
    port = free_port()
    with BareClient(port) as listener:
        address = listener._socket.getsockname()
        with running_sn_gateway(broker, port=port, gateway_id=42, advertise=address):
            assert listener.expect(Advertise).gateway_id == 42
            assert listener.ask(SearchGw(), GwInfo).gateway_id == 42


def test_connect_is_rejected_if_the_broker_is_unreachable() -> None:
    with running_sn_gateway(free_port()) as (_, port), BareClient(port) as client:
        response = client.ask(Connect(client_id="x", duration_seconds=5), Connack)
        assert response.return_code == ReturnCode.CONGESTION


def test_connect_without_client_id_is_rejected(port: int) -> None:
    with BareClient(port) as client:
        response = client.ask(Connect(client_id="", duration_seconds=5), Connack)
        assert response.return_code == ReturnCode.NOT_SUPPORTED


def test_connect_beyond_the_maximum_of_clients_is_rejected(broker: int) -> None:
    with (
        running_sn_gateway(broker, max_clients=1) as (_, port),
        BareClient(port, "one") as one,
        BareClient(port, "two") as two,
    ):
        one.connect()
        response = two.ask(Connect(client_id="two", duration_seconds=5), Connack)
        assert response.return_code == ReturnCode.CONGESTION
        one.ask(PingReq(), PingResp)


# -- the subscriber and publisher of the client library --------------------------------------------


def test_flow_answers_pingreq_with_pingresp() -> None:
    class FakeFlowListener:
        def __getattr__(self, _: str) -> Any:
            return lambda *_: None

    thread = EventLoopThread("test")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.settimeout(TIMEOUT_SECONDS)
        settings = FlowSettings(host="127.0.0.1", port=gateway.getsockname()[1], transport="udp")
        flow = SnFlow(thread.loop, settings, FakeFlowListener(), client_id="c")
        thread.call(flow.open)
        data, peer = gateway.recvfrom(65_536)
        assert isinstance(decode(data), Connect)
        gateway.sendto(encode(PingReq()), peer)
        while not isinstance(decode(gateway.recv(65_536)), PingResp):
            pass
        thread.call(flow.close)
        wait_until(lambda: flow.closed, "the flow to close")
        thread.stop()
        assert thread.join(TIMEOUT_SECONDS)


def test_publisher_repeats_unacknowledged_event_with_dup_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firedex_clients.sn_publisher.RETRY_SECONDS", 0.2)
    monkeypatch.setattr("firedex_clients.sn_publisher.MAX_ATTEMPTS", 30)
    received: list[Publish] = []

    def serve(gateway: socket.socket) -> None:
        """Acknowledge CONNECT, and only those events that are repeated."""
        while True:
            data, peer = gateway.recvfrom(65_536)
            message = decode(data)
            if isinstance(message, Connect):
                gateway.sendto(encode(Connack(return_code=0)), peer)
            elif isinstance(message, Publish):
                received.append(message)
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
    assert [event.dup for event in received[:2]] == [False, True]


def test_publish_raises_if_the_gateway_is_unreachable(
    broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with running_sn_gateway(broker, port=port):
        publisher = Publisher("127.0.0.1", port, id="p", transport="udp").__enter__()
        publisher.publish("away/1", b"x", qos=1)
    monkeypatch.setattr("firedex_clients.sn_publisher.RETRY_SECONDS", 0.05)
    for _ in range(5):
        publisher.publish("away/1", b"lost")
    with pytest.raises(ConnectionRefused):
        publisher.publish("away/1", b"x", qos=1)
    publisher.__exit__(None, None, None)


def test_publisher_continues_after_a_restart_of_the_gateway(broker: int, plain: Listener) -> None:
    port = free_port()
    with running_sn_gateway(broker, port=port):
        publisher = Publisher("127.0.0.1", port, id="p", transport="udp").__enter__()
        publisher.publish("restarted/1", b"before", qos=1)
    plain.subscribe("restarted/1")
    with running_sn_gateway(broker, port=port):
        publisher.publish("restarted/1", b"after", qos=1)
        plain.wait_for(b"after")
        publisher.__exit__(None, None, None)
