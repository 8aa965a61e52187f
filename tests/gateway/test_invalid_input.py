"""Invalid input over both protocols: the gateway keeps running, and other clients are served."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.transport.mqtt_sn import Connect, Publish, Register, Subscribe, TopicKind, encode
from tests.support.loopback_parts import Listener, running_relay, seeded_random
from tests.support.restarting_parts import GatewayProcess
from tests.support.sn_parts import BareClient, running_sn_gateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

CONNECT = bytes.fromhex("101000044d5154540502000a000003726177")
TCP_CORPUS = {
    "zeros": bytes(100),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100f8010000f40303") + bytes(200),
    "publish first": b"\x30\x05\x00\x03a/b",
    "endless length": b"\x10\xff\xff\xff\xff\xff",
    "connect of 256 megabytes": b"\x10\xff\xff\xff\x7f" + bytes(70_000),
    "connect without protocol name": b"\x10\x02\x00\x00",
    "another protocol": b"\x10\x0c\x00\x04HTTP\x04\x02\x00\x0a\x00\x00",
    "properties beyond the end": bytes.fromhex("100f00044d5154540502000aff7f000372"),
    "unknown property": bytes.fromhex("101100044d5154540502000a0199000003726177"),
    "truncated connect": CONNECT[:9],
    "connect, then zeros": CONNECT + bytes(1000),
    "connect, then 0xff bytes": CONNECT + b"\xff" * 1000,
    "connect, then endless length": CONNECT + b"\x30\xff\xff\xff\xff\xff",
    "connect, then bad publish": CONNECT + b"\x36\x05\x00\x01a\x00\x01",
}
UDP_CORPUS = {
    "empty": b"",
    "one byte": b"\x05",
    "length too long": b"\xff\x04\x04\x01",
    "length too short": b"\x02\x04\x04\x01\x00\x00a",
    "long form, truncated": b"\x01\x00",
    "long form, zero": b"\x01\x00\x00\x0c",
    "unknown type": b"\x02\x7e",
    "encapsulated": b"\x03\xfe\x00",
    "other protocol id": b"\x07\x04\x04\x09\x00\x1ea",
    "publish without session": encode(Publish(topic_id=1, payload=b"x")),
    "not utf-8": b"\x08\x04\x04\x01\x00\x1e\xff\xfe",
    "reserved topic kind": b"\x08\x0c\x03\x00\x01\x00\x00x",
    "subscribe with id of one byte": b"\x06\x12\x01\x00\x01\x07",
    "anonymous with unknown id": encode(
        Publish(topic_id=9, payload=b"x", kind=TopicKind.PREDEFINED, qos=-1)
    ),
    "short topic with a wildcard": encode(
        Publish(topic_id=int.from_bytes(b"a#", "big"), payload=b"", kind=TopicKind.SHORT, qos=-1)
    ),
    "sixty thousand bytes": b"\x01\xea\x60\x0c" + bytes(59_996),
}


@pytest.fixture(scope="module")
def gateway(broker: int) -> Iterator[GatewayProcess]:
    """Run a gateway in its own process, so that its memory can be measured."""
    process = GatewayProcess(broker, "http://127.0.0.1:1")
    with process.running():
        yield process


def send_over_tcp(port: int, data: bytes, *, wait: bool = False) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        if wait:
            while raw.recv(4096):
                pass


def send_over_udp(port: int, data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.sendto(data, ("127.0.0.1", port))


def check_clients_are_served(gateway: GatewayProcess) -> None:
    """Check that both protocols are served."""
    assert gateway.alive
    with Listener(gateway.port) as client:
        client.subscribe("alive")
        client.publish("alive", b"yes")
        client.wait_for(b"yes")
    with BareClient(gateway.udp_port, "alive") as sensor:
        sensor.connect()


def test_invalid_anonymous_event_does_not_affect_others(broker: int) -> None:
    """Anonymous events share one link, which the broker would close for a wildcard in a topic."""
    with (
        running_sn_gateway(broker) as (gateway, port),
        Listener(broker) as plain,
        BareClient(port) as anonymous,
    ):
        plain.subscribe("ok")
        valid = int.from_bytes(b"ok", "big")
        for n in range(20):
            anonymous.send_bytes(UDP_CORPUS["short topic with a wildcard"])
            anonymous.send(Publish(topic_id=valid, payload=b"%d" % n, kind=TopicKind.SHORT, qos=-1))
        wait_until(lambda: len(plain.received) == 20, "all valid events")
        assert gateway.refused_datagrams == 20


@pytest.mark.parametrize("name", TCP_CORPUS)
def test_gateway_survives_invalid_tcp_stream(gateway: GatewayProcess, name: str) -> None:
    send_over_tcp(gateway.port, TCP_CORPUS[name], wait=True)
    check_clients_are_served(gateway)


@pytest.mark.parametrize("name", UDP_CORPUS)
def test_gateway_survives_invalid_datagram(gateway: GatewayProcess, name: str) -> None:
    send_over_udp(gateway.udp_port, UDP_CORPUS[name])
    with BareClient(gateway.udp_port, "victim") as client:
        client.connect()
        client.send_bytes(UDP_CORPUS[name])
    check_clients_are_served(gateway)


@settings(max_examples=60, deadline=None)
@given(data=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda b: CONNECT + b)))
def test_gateway_survives_arbitrary_bytes_over_tcp(gateway: GatewayProcess, data: bytes) -> None:
    send_over_tcp(gateway.port, data)
    assert gateway.alive


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=200).map(lambda b: bytes([len(b) + 1]) + b), max_size=5))
def test_gateway_survives_arbitrary_datagrams_of_a_connected_client(
    gateway: GatewayProcess, datagrams: list[bytes]
) -> None:
    with BareClient(gateway.udp_port, "any") as client:
        client.send(Connect(client_id="any", duration_seconds=2))
        for each in datagrams:
            client.send_bytes(each)
    assert gateway.alive


def test_invalid_input_does_not_increase_memory_use(gateway: GatewayProcess) -> None:
    """After the first rounds, further rounds of invalid input need no more memory."""

    def send_invalid_input(rounds: int) -> None:
        for _ in range(rounds):
            for data in TCP_CORPUS.values():
                send_over_tcp(gateway.port, data)
            for data in UDP_CORPUS.values():
                send_over_udp(gateway.udp_port, data)

    send_invalid_input(20)
    check_clients_are_served(gateway)
    before = gateway.resident_bytes
    send_invalid_input(40)
    check_clients_are_served(gateway)
    assert gateway.resident_bytes - before < 8 * 1024 * 1024


def test_other_clients_receive_all_events_during_invalid_input(
    gateway: GatewayProcess, broker: int
) -> None:
    stop = threading.Event()

    def send_invalid_input() -> None:
        while not stop.is_set():
            for data in TCP_CORPUS.values():
                send_over_tcp(gateway.port, data)

    with Listener(gateway.port) as listener, Listener(broker) as sender:
        listener.subscribe("unaffected")
        thread = threading.Thread(target=send_invalid_input)
        thread.start()
        try:
            for number in range(300):
                sender.publish("unaffected", b"%d" % number)
                time.sleep(0.002)
            wait_until(lambda: len(listener.received) == 300, "all events")
        finally:
            stop.set()
            thread.join()
        assert listener.payloads() == [b"%d" % n for n in range(300)]


def test_registrations_beyond_the_limit_are_refused(broker: int) -> None:
    from firedex.gateway import sn_topics

    with (
        pytest.MonkeyPatch.context() as patch,
        running_sn_gateway(broker) as (_, port),
        BareClient(port) as client,
    ):
        patch.setattr(sn_topics, "MAX_TOPICS", 5)
        client.connect()
        codes = []
        for n in range(8):
            client.send(Register(topic_id=0, message_id=n + 1, topic=f"t/{n}"))
            codes.append(client.receive().return_code)  # type: ignore[union-attr]
        assert codes == [0] * 5 + [3] * 3
        client.send(Subscribe(message_id=99, topic="one/more"))
        assert client.receive().return_code != 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tls", "does not accept TLS"),
        ("http", "the first byte is 0x47"),
        ("another protocol", "the protocol name in CONNECT is not MQTT"),
    ],
)
def test_log_contains_client_and_reason(
    broker: int, name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(("127.0.0.1", broker), FlowTable(), seeded_random())
    with caplog.at_level(logging.WARNING, "firedex.gateway"), running_relay(relay) as port:
        send_over_tcp(port, TCP_CORPUS[name], wait=True)
        wait_until(lambda: relay.refused_connections == 1, "the connection to be refused")
    (line,) = [record.getMessage() for record in caplog.records]
    assert reason in line
    assert line.startswith("connection of client 127.0.0.1:")


def test_connection_with_incomplete_connect_packet_is_closed(
    broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firedex.gateway.relay.HANDSHAKE_SECONDS", 0.3)
    relay = Relay(("127.0.0.1", broker), FlowTable(), seeded_random())
    with (
        running_relay(relay) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as raw,
    ):
        raw.sendall(CONNECT[:5])
        assert raw.recv(10) == b""
