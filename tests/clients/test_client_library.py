"""The client library: callbacks, iterators, asyncio, outages, statistics, tokens and TLS."""

import asyncio
import itertools
import shutil
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.wire import LogUtility
from firedex_clients import (
    ClientError,
    Event,
    NotAcknowledged,
    Publisher,
    ServiceRefused,
)
from tests.support.client_site import Site
from tests.support.free_ports import free_port
from tests.support.loopback_parts import (
    TIMEOUT_SECONDS,
    Listener,
    mosquitto,
    running_relay,
    seeded_random,
)
from tests.support.restarting_parts import GatewayProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LOG = LogUtility(weight=1.0)


@pytest.fixture
def site(broker: int) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(broker, running)


def test_stream_can_be_iterated(site: Site, address: str) -> None:
    crew = site.crew(address)
    events = crew.subscribe("iterate", utility=LOG)
    with crew, Publisher("127.0.0.1", site.broker, id="p") as client:
        for n in range(5):
            client.publish("iterate", b"%d" % n)
        payloads = [event.payload for event in itertools.islice(events, 5)]
        assert events.take(timeout_seconds=0.01) is None
    assert payloads == [b"%d" % n for n in range(5)]
    assert list(events) == [], "the stream ends when the subscriber is closed"


def test_stream_can_be_iterated_asynchronously(site: Site, address: str) -> None:
    async def receive_events() -> list[bytes]:
        crew = site.crew(address)
        events = crew.subscribe("async", utility=LOG)
        payloads: list[bytes] = []
        async with crew:
            with Publisher("127.0.0.1", site.broker, id="p") as client:
                for n in range(5):
                    client.publish("async", b"%d" % n)
                async for event in events:
                    payloads.append(event.payload)
                    if len(payloads) == 5:
                        break
        return payloads

    assert asyncio.run(receive_events()) == [b"%d" % n for n in range(5)]


def test_full_stream_discards_the_oldest_events() -> None:
    from firedex_clients.events import EventStream

    stream = EventStream(max_waiting=3)
    for n in range(5):
        stream.put(make_event(n))
    stream.close()
    assert [each.payload for each in stream] == [b"2", b"3", b"4"]
    assert stream.discarded == 2


def make_event(number: int) -> Event:
    return Event(
        topic="t",
        filter="t",
        payload=b"%d" % number,
        flow=0,
        priority=0,
        configuration_version=1,
        event_id=None,
        published_at_seconds=None,
        received_at_seconds=0.0,
    )


def test_subscriber_continues_after_a_callback_raises(site: Site, address: str) -> None:
    received: list[Event] = []

    def on_event(event: Event) -> None:
        received.append(event)
        raise RuntimeError("callback fails")

    crew = site.crew(address)
    crew.subscribe("raises", utility=LOG, on_event=on_event)
    with crew, Publisher("127.0.0.1", site.broker, id="p") as client:
        for _ in range(3):
            client.publish("raises", b"")
        wait_until(lambda: len(received) == 3, "all three events")


def test_subscriber_can_be_closed_in_a_callback(site: Site, address: str) -> None:
    """Callbacks run in the thread that also closes the connections."""
    closed, crew = threading.Event(), site.crew(address)

    def close_subscriber(_: Event) -> None:
        crew.__exit__(None, None, None)
        closed.set()

    events = crew.subscribe("leave/2", utility=LOG)
    crew.subscribe("leave/1", utility=LOG, on_event=close_subscriber)
    crew.__enter__()
    thread = crew._thread
    assert thread is not None
    with Publisher("127.0.0.1", site.broker, id="p") as client:
        client.publish("leave/1", b"")
        assert closed.wait(TIMEOUT_SECONDS), "the thread waits for itself"
    assert thread.join(TIMEOUT_SECONDS), "the thread has ended"
    assert list(events) == []


def test_subscriber_can_be_closed_while_a_callback_blocks(
    site: Site, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firedex_clients.subscriber.TIMEOUT_SECONDS", 0.2)
    entered, continue_event, crew = threading.Event(), threading.Event(), site.crew(address)

    def block(_: Event) -> None:
        entered.set()
        continue_event.wait(TIMEOUT_SECONDS)

    crew.subscribe("block", utility=LOG, on_event=block)
    crew.__enter__()
    thread = crew._thread
    assert thread is not None
    with Publisher("127.0.0.1", site.broker, id="p") as client:
        client.publish("block", b"")
        assert entered.wait(TIMEOUT_SECONDS)
    crew.__exit__(None, None, None)
    continue_event.set()
    assert thread.join(TIMEOUT_SECONDS), "the thread ends when the callback returns"


# -- publishers and outages ------------------------------------------------------------------------


def test_qos_1_event_published_during_an_outage_is_delivered(tmp_path: Path) -> None:
    port = free_port()
    with mosquitto(tmp_path, port):
        publisher = Publisher("127.0.0.1", port, id="p").__enter__()
        client = publisher._client
    wait_until(lambda: not client.is_connected(), "the outage to be noticed")
    publisher.publish("outage", b"kept", qos=1, retain=True)
    with mosquitto(tmp_path, port):
        publisher.__exit__(None, None, None)
        with Listener(port) as plain:
            plain.subscribe("outage")
            plain.wait_for(b"kept")


def test_closing_raises_if_events_are_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firedex_clients.publisher.TIMEOUT_SECONDS", 0.1)
    with mosquitto(tmp_path) as port:
        publisher = Publisher("127.0.0.1", port, id="p").__enter__()
        client = publisher._client
    wait_until(lambda: not client.is_connected(), "the outage to be noticed")
    publisher.publish("outage", b"lost")
    publisher.publish("outage", b"lost too", qos=1)
    with pytest.raises(NotAcknowledged, match="1 events"):
        publisher.__exit__(None, None, None)
    assert client._thread is None or not client._thread.is_alive()


def test_declared_topic_is_registered_and_listed(site: Site, address: str) -> None:
    publisher = Publisher("127.0.0.1", site.broker, id="p", service_url=site.url, switch="lan")
    publisher.declare("declared/1", event_bytes=10, rate_per_second=2.0)
    with publisher:
        pass
    assert publisher.clock_offset is not None
    assert site.service.publishers["p"].topics[0].name == "declared/1"
    assert site.crew(address).topics() == ["declared/1"]


def test_subscriber_with_many_flows_uses_few_threads(site: Site, address: str) -> None:
    crew = site.crew(address)
    site.service.set_plan({f"t/{n}": n for n in range(16)})
    for n in range(16):
        crew.subscribe(f"t/{n}", utility=LOG, on_event=print)
    before = set(threading.enumerate())
    with crew:
        names = [thread.name for thread in set(threading.enumerate()) - before]
        assert len([name for name in names if name.startswith("firedex-")]) <= 5, "16 connections"


def test_client_and_gateway_report_statistics_to_the_service(site: Site, address: str) -> None:
    site.service.clock_ahead_seconds = 100.0
    site.service.set_plan({"counted": 0}, {0: 0.5})
    crew = site.crew(address, report_seconds=0.1)
    events: list[Event] = []
    crew.subscribe("counted", utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", site.broker, id="p") as client:
        wait_until(lambda: crew.clock_offset is not None, "the clock offset")
        expected_metric = f"firedex_gateway_configuration_version {site.service.version:.1f}"
        wait_until(
            lambda: expected_metric in metrics(site), "the gateway to apply the configuration"
        )
        for _ in range(400):
            client.publish("counted", b"12345")
        wait_until(lambda: len(reports_of(site, "crew")) > 0, "a report of the client")
        wait_until(lambda: offered_at_gateway(site) >= 400, "a report of the gateway")
    client_reports = reports_of(site, "crew")
    assert abs((client_reports[-1].clock_offset_seconds or 0) - 100) < 0.5
    delivered = sum(c.delivered_events or 0 for each in client_reports for c in each.topics)
    missing = sum(c.missing_events or 0 for each in client_reports for c in each.topics)
    assert delivered == len(events)
    assert 0 < len(events) < 400
    assert abs(delivered + missing - 400) <= 20, (
        "gaps before the first and after the last event are not counted"
    )
    assert client_reports[0].delay_mean_seconds is not None
    assert offered_at_gateway(site) == 400
    gateway_reports = reports_of(site, "gateway")
    assert sum(c.delivered_events or 0 for g in gateway_reports for c in g.topics) == len(events)
    assert sum(c.payload_bytes for g in gateway_reports for c in g.topics) == 400 * 5
    assert {beat.kind for beat in site.service.heartbeats} >= {"gateway"}
    text = metrics(site)
    assert 'firedex_gateway_offered_events_total{flow="0",subscriber="crew"} 400.0' in text
    assert 'firedex_gateway_drop_rate{flow="0",subscriber="crew"} 0.5' in text


def reports_of(site: Site, reporter: str) -> list[Any]:
    return [each for each in list(site.service.statistics) if each.reporter == reporter]


def offered_at_gateway(site: Site) -> int:
    return sum(c.offered_events or 0 for g in reports_of(site, "gateway") for c in g.topics)


def metrics(site: Site) -> str:
    url = f"http://127.0.0.1:{site.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        text: str = response.read().decode()
        return text


def test_token_is_sent_to_the_service(site: Site, address: str) -> None:
    site.service.token = "secret"  # noqa: S105
    with pytest.raises(ServiceRefused, match="a token is required"), site.crew(address):
        pass
    crew = site.crew(address, token="secret")  # noqa: S106
    crew.subscribe("x", utility=LOG, on_event=print)
    with crew:
        assert crew.settled()


def test_subscriber_waits_for_a_delayed_plan(site: Site, address: str) -> None:
    site.service.answer_later = True
    crew = site.crew(address)
    crew.subscribe("x", utility=LOG, on_event=print)
    with crew:
        assert crew.configuration is not None


def test_unknown_mqtt_version_is_rejected() -> None:
    with pytest.raises(ClientError, match=r"3\.1\.1"):
        Publisher("127.0.0.1", id="p", version="4")


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_subscriber_reads_the_stamp_of_both_mqtt_versions(
    site: Site, address: str, version: str
) -> None:
    crew, events = site.crew(address), list[Event]()
    crew.subscribe("stamped", utility=LOG, on_event=events.append)
    publisher = Publisher("127.0.0.1", site.broker, id="p", version=version)
    with crew, publisher, Listener(site.broker) as plain:
        sent = publisher.publish("stamped", b"payload")
        wait_until(lambda: len(events) == 1, "the event")
        plain.publish("stamped", b"of others")
        wait_until(lambda: len(events) == 2, "the other event")
    assert (events[0].event_id, events[0].payload) == (sent, b"payload")
    assert events[0].delay_seconds is not None
    assert (events[1].event_id, events[1].payload) == (None, b"of others")
    assert events[1].delay_seconds is None


# -- TLS -------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_gateway_accepts_tls_connections(broker: int, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    tls_port = free_port()
    gateway = GatewayProcess(
        broker,
        "http://127.0.0.1:1",
        f"--tls-listen=127.0.0.1:{tls_port}",
        f"--tls-certificate={certificate}",
        f"--tls-key={key}",
    )
    received: list[bytes] = []
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.tls_set(ca_certs=str(certificate), tls_version=ssl.PROTOCOL_TLS_CLIENT)
    client.on_connect = lambda *_: client.subscribe("secret", 1) and None

    def publish(*_: Any) -> None:
        client.publish("secret", b"x" * 100_000, 1)

    client.on_subscribe = publish
    client.on_message = lambda _c, _d, message: received.append(bytes(message.payload))
    with gateway.running():
        client.connect("localhost", tls_port)
        client.loop_start()
        wait_until(lambda: received == [b"x" * 100_000], "the event")
        client.disconnect()
        client.loop_stop()


# -- slow flows ------------------------------------------------------------------------------------


def test_slow_subscriber_receives_new_events_and_all_qos_1_events(
    broker: int, address: str
) -> None:
    """Check that old QoS 0 events are shed while the subscriber does not read."""
    import socket
    import time

    from firedex.gateway.flow_buffer import BufferLimits
    from firedex.transport.mqtt.encoding import PacketSplitter
    from tests.support.parts_site import configuration, flow

    flows = FlowTable()
    flows.apply(configuration(flow(address)))
    limits = BufferLimits(bytes=50_000, seconds=0.5)
    relay = Relay(("127.0.0.1", broker), flows, seeded_random(), limits=limits)
    connect = bytes.fromhex("101000044d5154540502000a000003726177")
    subscribe = b"\x82\x0a\x00\x01\x00\x00\x04slow\x01"
    with running_relay(relay) as port, Listener(broker) as sender, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        raw.bind((address, 20_000))
        raw.settimeout(TIMEOUT_SECONDS)
        raw.connect(("127.0.0.1", port))
        raw.sendall(connect)
        raw.recv(100)
        raw.sendall(subscribe)
        raw.recv(100)
        for n in range(3000):
            sender.publish("slow", b"%06d" % n + bytes(994))
            if n % 300 == 0:
                sender.publish("slow", b"%06d" % n + b"sure", qos=1)
                time.sleep(0.02)
        sender.publish_and_wait("slow", b"999999" + b"sure")
        wait_until(lambda: relay.flows.flows()[0].counts.totals.shed > 1000, "events to be shed")
        (connection,) = relay.connections
        assert connection.down.waiting_bytes <= 60_000
        splitter, packets = PacketSplitter(), list[bytes]()
        while not packets or b"999999sure" not in packets[-1]:
            packets += [each for each in splitter.feed(raw.recv(65_536)) if each[0] >> 4 == 3]
    qos_1_packets = [each for each in packets if each[0] & 0b0110]
    assert len(qos_1_packets) == 11, "QoS 1 events are never shed"
    assert len(packets) < 1500
