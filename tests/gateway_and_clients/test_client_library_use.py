"""Using the libraries and commands: callbacks, iterators, asyncio, statistics, tokens, TLS."""

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
from client_site import Site
from free_ports import free_port
from loopback_parts import PATIENCE_SECONDS, Listener, coins, mosquitto, running_relay, wait_until
from paho.mqtt.enums import CallbackAPIVersion
from restarting_parts import GatewayProcess

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

LOG = LogUtility(weight=1.0)


@pytest.fixture
def site(broker: int) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(broker, running)


def test_events_are_iterated_over(site: Site, address: str) -> None:
    crew = site.crew(address)
    events = crew.subscribe("iterate", utility=LOG)
    with crew, Publisher("127.0.0.1", site.broker, id="p") as client:
        for n in range(5):
            client.publish("iterate", b"%d" % n)
        found = [event.payload for event in itertools.islice(events, 5)]
        assert events.take(timeout_seconds=0.01) is None
    assert found == [b"%d" % n for n in range(5)]
    assert list(events) == [], "it ends when the subscriber is left"


def test_events_are_iterated_over_asynchronously(site: Site, address: str) -> None:
    async def take() -> list[bytes]:
        crew = site.crew(address)
        events = crew.subscribe("async", utility=LOG)
        found: list[bytes] = []
        async with crew:
            with Publisher("127.0.0.1", site.broker, id="p") as client:
                for n in range(5):
                    client.publish("async", b"%d" % n)
                async for event in events:
                    found.append(event.payload)
                    if len(found) == 5:
                        break
        return found

    assert asyncio.run(take()) == [b"%d" % n for n in range(5)]


def test_a_reader_that_is_too_slow_reads_what_is_new() -> None:
    from firedex_clients.event_stream import EventStream

    stream = EventStream(most_waiting=3)
    for n in range(5):
        stream.put(event(n))
    stream.close()
    assert [found.payload for found in stream] == [b"2", b"3", b"4"]
    assert stream.discarded == 2


def event(number: int) -> Event:
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


def test_a_callback_that_raises_ends_nothing(site: Site, address: str) -> None:
    seen: list[Event] = []

    def on_event(found: Event) -> None:
        seen.append(found)
        raise RuntimeError("not again")

    crew = site.crew(address)
    crew.subscribe("raises", utility=LOG, on_event=on_event)
    with crew, Publisher("127.0.0.1", site.broker, id="p") as client:
        for _ in range(3):
            client.publish("raises", b"")
        wait_until(lambda: len(seen) == 3, "all three")


def test_leaving_out_of_a_callback(site: Site, address: str) -> None:
    """The thread that runs callbacks is the one that all connections end in."""
    left, crew = threading.Event(), site.crew(address)

    def leave(_: Event) -> None:
        crew.__exit__(None, None, None)
        left.set()

    events = crew.subscribe("leave/2", utility=LOG)
    crew.subscribe("leave/1", utility=LOG, on_event=leave)
    crew.__enter__()
    loop = crew._loop
    assert loop is not None
    with Publisher("127.0.0.1", site.broker, id="p") as client:
        client.publish("leave/1", b"")
        assert left.wait(PATIENCE_SECONDS), "it waits for itself"
    assert loop.join(PATIENCE_SECONDS), "its thread has ended"
    assert list(events) == []


def test_leaving_while_a_callback_blocks(
    site: Site, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firedex_clients.subscriber.PATIENCE_SECONDS", 0.2)
    entered, go_on, crew = threading.Event(), threading.Event(), site.crew(address)

    def block(_: Event) -> None:
        entered.set()
        go_on.wait(PATIENCE_SECONDS)

    crew.subscribe("block", utility=LOG, on_event=block)
    with monkeypatch.context() as patient:
        patient.setattr("firedex_clients.subscriber.PATIENCE_SECONDS", PATIENCE_SECONDS)
        crew.__enter__()
    loop = crew._loop
    assert loop is not None
    with Publisher("127.0.0.1", site.broker, id="p") as client:
        client.publish("block", b"")
        assert entered.wait(PATIENCE_SECONDS)
    crew.__exit__(None, None, None)
    go_on.set()
    assert loop.join(PATIENCE_SECONDS), "all ends when the callback returns"


# -- publishers and outages ------------------------------------------------------------------------


def test_what_is_published_in_an_outage_is_waited_for(tmp_path: Path) -> None:
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


def test_what_was_never_acknowledged_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firedex_clients.publisher.PATIENCE_SECONDS", 0.1)
    with mosquitto(tmp_path) as port:
        publisher = Publisher("127.0.0.1", port, id="p").__enter__()
        client = publisher._client
    wait_until(lambda: not client.is_connected(), "the outage to be noticed")
    publisher.publish("outage", b"lost")
    publisher.publish("outage", b"lost too", qos=1)
    with pytest.raises(NotAcknowledged, match="1 events"):
        publisher.__exit__(None, None, None)
    assert client._thread is None or not client._thread.is_alive()


def test_what_is_declared_is_registered_and_listed(site: Site, address: str) -> None:
    publisher = Publisher("127.0.0.1", site.broker, id="p", service_url=site.url, switch="lan")
    publisher.declare("declared/1", event_bytes=10, rate_per_second=2.0)
    with publisher:
        pass
    assert publisher.clock_offset is not None
    assert site.service.publishers["p"].topics[0].name == "declared/1"
    assert site.crew(address).topics() == ["declared/1"]


def test_threads_are_few(site: Site, address: str) -> None:
    crew = site.crew(address)
    site.service.set_plan({f"t/{n}": n for n in range(16)})
    for n in range(16):
        crew.subscribe(f"t/{n}", utility=LOG, on_event=print)
    before = set(threading.enumerate())
    with crew:
        names = [thread.name for thread in set(threading.enumerate()) - before]
        assert len([name for name in names if name.startswith("firedex-")]) <= 5, "16 connections"


def test_statistics_reach_the_service_with_the_clocks_offset(site: Site, address: str) -> None:
    site.service.clock_ahead_seconds = 100.0
    site.service.set_plan({"counted": 0}, {0: 0.5})
    crew = site.crew(address, report_seconds=0.1)
    events: list[Event] = []
    crew.subscribe("counted", utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", site.broker, id="p") as client:
        wait_until(lambda: crew.clock_offset is not None, "the clock's offset")
        follows = f"firedex_gateway_configuration_version {site.service.version:.1f}"
        wait_until(lambda: follows in metrics(site), "the gateway to follow")
        for _ in range(400):
            client.publish("counted", b"12345")
        wait_until(lambda: len(sent_to(site, "crew")) > 0, "a report of the client")
        wait_until(lambda: offered(site) >= 400, "a report of the gateway")
    mine = sent_to(site, "crew")
    assert abs((mine[-1].clock_offset_seconds or 0) - 100) < 0.5
    delivered = sum(c.delivered_events or 0 for each in mine for c in each.topics)
    missing = sum(c.missing_events or 0 for each in mine for c in each.topics)
    assert delivered == len(events)
    assert 0 < len(events) < 400
    assert abs(delivered + missing - 400) <= 20, "those lost before the first or after the last"
    assert mine[0].delay_mean_seconds is not None
    assert offered(site) == 400
    gateways = sent_to(site, "gateway")
    assert sum(c.delivered_events or 0 for g in gateways for c in g.topics) == len(events)
    assert sum(c.payload_bytes for g in gateways for c in g.topics) == 400 * 5
    assert {beat.kind for beat in site.service.heartbeats} >= {"gateway"}
    found = metrics(site)
    assert 'firedex_gateway_offered_events_total{flow="0",subscriber="crew"} 400.0' in found
    assert 'firedex_gateway_drop_rate{flow="0",subscriber="crew"} 0.5' in found


def sent_to(site: Site, reporter: str) -> list[Any]:
    return [each for each in list(site.service.statistics) if each.reporter == reporter]


def offered(site: Site) -> int:
    return sum(c.offered_events or 0 for g in sent_to(site, "gateway") for c in g.topics)


def metrics(site: Site) -> str:
    url = f"http://127.0.0.1:{site.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def test_a_token_goes_along(site: Site, address: str) -> None:
    site.service.token = "secret"  # noqa: S105
    with pytest.raises(ServiceRefused, match="a token is needed"), site.crew(address):
        pass
    crew = site.crew(address, token="secret")  # noqa: S106
    crew.subscribe("x", utility=LOG, on_event=print)
    with crew:
        assert crew.settled()


def test_a_plan_that_comes_later_is_waited_for(site: Site, address: str) -> None:
    site.service.answer_later = True
    crew = site.crew(address)
    crew.subscribe("x", utility=LOG, on_event=print)
    with crew:
        assert crew.configuration is not None


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ClientError, match=r"3\.1\.1"):
        Publisher("127.0.0.1", id="p", version="4")


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_stamp_is_found_however_it_was_sent(site: Site, address: str, version: str) -> None:
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
def test_tls_ends_at_the_gateway(broker: int, tmp_path: Path) -> None:
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
    tls = free_port()
    gateway = GatewayProcess(
        broker,
        "http://127.0.0.1:1",
        f"--tls-listen=127.0.0.1:{tls}",
        f"--tls-certificate={certificate}",
        f"--tls-key={key}",
    )
    received: list[bytes] = []
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.tls_set(ca_certs=str(certificate), tls_version=ssl.PROTOCOL_TLS_CLIENT)
    client.on_connect = lambda *_: client.subscribe("secret", 1) and None
    client.on_subscribe = lambda *_: client.publish("secret", b"x" * 100_000, 1) and None
    client.on_message = lambda _c, _d, message: received.append(bytes(message.payload))
    with gateway.running():
        client.connect("localhost", tls)
        client.loop_start()
        wait_until(lambda: received == [b"x" * 100_000], "the event")
        client.disconnect()
        client.loop_stop()


# -- slow flows ------------------------------------------------------------------------------------


def test_a_slow_flow_gets_what_is_new(broker: int, address: str) -> None:
    """A reader that stops for a while finds no seconds of stale events, and all at QoS 1."""
    import socket
    import time

    from parts_site import configuration, flow

    from firedex.gateway.flow_buffer import BufferLimits
    from firedex.gateway.mqtt_packets import PacketCutter

    flows = FlowTable()
    flows.follow(configuration(flow(address)))
    relay = Relay(
        ("127.0.0.1", broker), flows, coins(), limits=BufferLimits(bytes=50_000, seconds=0.5)
    )
    connect = bytes.fromhex("101000044d5154540502000a000003726177")
    subscribe = b"\x82\x0a\x00\x01\x00\x00\x04slow\x01"
    with running_relay(relay) as port, Listener(broker) as sender, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        raw.bind((address, 20_000))
        raw.settimeout(PATIENCE_SECONDS)
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
        sender.publish_surely("slow", b"999999" + b"sure")
        wait_until(lambda: relay.flows.flows()[0].counts.totals.shed > 1000, "events to be shed")
        (connection,) = relay.connections
        assert connection.down.waiting_bytes <= 60_000
        cutter, found = PacketCutter(), list[bytes]()
        while not found or b"999999sure" not in found[-1]:
            found += [each for each in cutter.cut(raw.recv(65_536)) if each[0] >> 4 == 3]
    sure = [each for each in found if each[0] & 0b0110]
    assert len(sure) == 11, "QoS 1 is never shed"
    assert len(found) < 1500
