"""Hostile input to both protocols: no crash, no hang, no growth, others unaffected."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_parts import Listener, coins, running_relay, wait_until
from restarting_parts import GatewayProcess
from sn_parts import BareClient, running_sn_gateway

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.mqtt_sn import Connect, Publish, Register, Subscribe, TopicKind, encode

CONNECT = bytes.fromhex("101000044d5154540502000a000003726177")
TCP_CORPUS = {
    "nothing but zeros": bytes(100),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100f8010000f40303") + bytes(200),
    "publish first": b"\x30\x05\x00\x03a/b",
    "endless length": b"\x10\xff\xff\xff\xff\xff",
    "connect of 256 megabytes": b"\x10\xff\xff\xff\x7f" + bytes(70_000),
    "connect without a name": b"\x10\x02\x00\x00",
    "another protocol": b"\x10\x0c\x00\x04HTTP\x04\x02\x00\x0a\x00\x00",
    "properties beyond the end": bytes.fromhex("100f00044d5154540502000aff7f000372"),
    "unknown property": bytes.fromhex("101100044d5154540502000a0199000003726177"),
    "cut within connect": CONNECT[:9],
    "connect, then zeros": CONNECT + bytes(1000),
    "connect, then garbage": CONNECT + b"\xff" * 1000,
    "connect, then endless length": CONNECT + b"\x30\xff\xff\xff\xff\xff",
    "connect, then bad publish": CONNECT + b"\x36\x05\x00\x01a\x00\x01",
}
UDP_CORPUS = {
    "empty": b"",
    "one byte": b"\x05",
    "length too long": b"\xff\x04\x04\x01",
    "length too short": b"\x02\x04\x04\x01\x00\x00a",
    "long form, cut": b"\x01\x00",
    "long form, zero": b"\x01\x00\x00\x0c",
    "unknown type": b"\x02\x7e",
    "encapsulated": b"\x03\xfe\x00",
    "other protocol id": b"\x07\x04\x04\x09\x00\x1ea",
    "publish of nobody": encode(Publish(topic_id=1, payload=b"x")),
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
    """The real thing, in a process of its own whose memory can be seen."""
    made = GatewayProcess(broker, "http://127.0.0.1:1")
    with made.running():
        yield made


def tcp(port: int, data: bytes, *, wait: bool = False) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        if wait:
            while raw.recv(4096):
                pass


def udp(port: int, data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.sendto(data, ("127.0.0.1", port))


def still_serves(gateway: GatewayProcess) -> None:
    """Both protocols answer at once."""
    assert gateway.alive
    with Listener(gateway.port) as client:
        client.subscribe("alive")
        client.publish("alive", b"yes")
        client.wait_for(b"yes")
    with BareClient(gateway.udp_port, "alive") as sensor:
        sensor.connect()


def test_nobody_disturbs_those_who_publish_without_a_connection(broker: int) -> None:
    """They share one connection to the broker, which closes it for a wildcard in a topic."""
    with (
        running_sn_gateway(broker) as (gateway, port),
        Listener(broker) as plain,
        BareClient(port) as stranger,
    ):
        plain.subscribe("ok")
        good = int.from_bytes(b"ok", "big")
        for n in range(20):
            stranger.send_bytes(UDP_CORPUS["short topic with a wildcard"])
            stranger.send(Publish(topic_id=good, payload=b"%d" % n, kind=TopicKind.SHORT, qos=-1))
        wait_until(lambda: len(plain.received) == 20, "all good ones")
        assert gateway.refused_datagrams == 20


@pytest.mark.parametrize("name", TCP_CORPUS)
def test_broken_tcp(gateway: GatewayProcess, name: str) -> None:
    tcp(gateway.port, TCP_CORPUS[name], wait=True)
    still_serves(gateway)


@pytest.mark.parametrize("name", UDP_CORPUS)
def test_broken_udp(gateway: GatewayProcess, name: str) -> None:
    udp(gateway.udp_port, UDP_CORPUS[name])
    with BareClient(gateway.udp_port, "victim") as client:
        client.connect()
        client.send_bytes(UDP_CORPUS[name])
    still_serves(gateway)


@settings(max_examples=60, deadline=None)
@given(data=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda b: CONNECT + b)))
def test_any_bytes_over_tcp(gateway: GatewayProcess, data: bytes) -> None:
    tcp(gateway.port, data)
    assert gateway.alive


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=200).map(lambda b: bytes([len(b) + 1]) + b), max_size=5))
def test_any_datagrams_of_a_connected_client(
    gateway: GatewayProcess, datagrams: list[bytes]
) -> None:
    with BareClient(gateway.udp_port, "any") as client:
        client.send(Connect(client_id="any", duration_seconds=2))
        for each in datagrams:
            client.send_bytes(each)
    assert gateway.alive


def test_memory_does_not_grow(gateway: GatewayProcess) -> None:
    """The same assault again and again: what is there after the first half is there at the end."""

    def assault(rounds: int) -> None:
        for _ in range(rounds):
            for data in TCP_CORPUS.values():
                tcp(gateway.port, data)
            for data in UDP_CORPUS.values():
                udp(gateway.udp_port, data)

    assault(20)
    still_serves(gateway)
    before = gateway.resident_bytes
    assault(40)
    still_serves(gateway)
    assert gateway.resident_bytes - before < 8 * 1024 * 1024


def test_others_are_unaffected_meanwhile(gateway: GatewayProcess, broker: int) -> None:
    stop = threading.Event()

    def assault() -> None:
        while not stop.is_set():
            for data in TCP_CORPUS.values():
                tcp(gateway.port, data)

    with Listener(gateway.port) as listener, Listener(broker) as sender:
        listener.subscribe("calm")
        thread = threading.Thread(target=assault)
        thread.start()
        try:
            for number in range(300):
                sender.publish("calm", b"%d" % number)
                time.sleep(0.002)
            wait_until(lambda: len(listener.received) == 300, "all events")
        finally:
            stop.set()
            thread.join()
        assert listener.payloads() == [b"%d" % n for n in range(300)]


def test_a_client_that_registers_without_end_is_refused(broker: int) -> None:
    from firedex.gateway import sn_topics

    with (
        pytest.MonkeyPatch.context() as patch,
        running_sn_gateway(broker) as (_, port),
        BareClient(port) as client,
    ):
        patch.setattr(sn_topics, "MOST_TOPICS", 5)
        client.connect()
        codes = []
        for n in range(8):
            client.send(Register(topic_id=0, message_id=n + 1, topic=f"t/{n}"))
            codes.append(client.receive().return_code)  # type: ignore[union-attr]
        assert codes == [0] * 5 + [3] * 3
        client.send(Subscribe(message_id=99, topic="one/more"))
        assert client.receive().return_code != 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tls", "TLS, which this port does not speak"),
        ("http", "begins with 0x47"),
        ("another protocol", "another protocol than MQTT"),
    ],
)
def test_a_clear_log_line(
    broker: int, name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(("127.0.0.1", broker), FlowTable(), coins())
    with caplog.at_level(logging.WARNING, "firedex.gateway"), running_relay(relay) as port:
        tcp(port, TCP_CORPUS[name], wait=True)
        wait_until(lambda: relay.refused_connections == 1, "the refusal")
    (line,) = [record.getMessage() for record in caplog.records]
    assert said in line
    assert line.startswith("client 127.0.0.1:")


def test_a_slow_connect_is_not_waited_for(broker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firedex.gateway.relay.HANDSHAKE_SECONDS", 0.3)
    relay = Relay(("127.0.0.1", broker), FlowTable(), coins())
    with (
        running_relay(relay) as port,
        socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
    ):
        raw.sendall(CONNECT[:5])
        assert raw.recv(10) == b""
