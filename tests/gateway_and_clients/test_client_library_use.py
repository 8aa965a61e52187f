"""Using the libraries and commands: callbacks, iterators, asyncio, statistics, tokens, TLS."""

import asyncio
import itertools
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from click.testing import CliRunner
from fake_service import FakeService, running_service
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
    Subscriber,
)
from firedex_clients.delivery_log import read_records
from firedex_clients.pub_command import pub
from firedex_clients.sub_command import sub

LOG = LogUtility(weight=1.0)
SUB = "from firedex_clients.sub_command import sub; sub()"


class Site:
    """A fake service, a real gateway process that follows it, a real broker."""

    def __init__(self, broker: int, running: ExitStack) -> None:
        self.broker, port = broker, free_port()
        self.url, self.metrics = f"http://127.0.0.1:{port}", free_port()
        self.gateway = GatewayProcess(
            broker,
            self.url,
            f"--metrics=127.0.0.1:{self.metrics}",
            "--report-seconds=0.2",
            "--seed=1",
        )
        self.service = FakeService(self.gateway.port, udp_port=self.gateway.udp_port)
        running.enter_context(running_service(self.service, port))
        running.enter_context(self.gateway.running())

    def crew(self, address: str, **more: Any) -> Subscriber:
        return Subscriber(self.url, id="crew", switch="core", address=address, **more)


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


# -- commands --------------------------------------------------------------------------------------


def test_sub_prints_what_pub_publishes(site: Site, address: str, tmp_path: Path) -> None:
    site.service.set_plan({"cli/#": 3})
    records = tmp_path / "records.parquet"
    arguments = ["cli/#", "--utility", "5", "--service", site.url, "--address", address]
    arguments += ["--id", "cli", "-v", "-C", "2", "--records", str(records)]
    # A process of its own: CliRunner takes the standard output of this whole process for itself.
    with subprocess.Popen(
        [sys.executable, "-c", SUB, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(
                lambda: "cli" in site.service.subscribers,
                "it to register",
                seconds=3 * PATIENCE_SECONDS,
            )
            publication = ["cli/1", "-m", "hello", "--broker", f"127.0.0.1:{site.broker}"]

            def done() -> bool:
                assert CliRunner().invoke(pub, publication).exit_code == 0
                return process.poll() is not None

            wait_until(done, "two events", seconds=3 * PATIENCE_SECONDS)
            assert process.stdout is not None
            output = process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0, output
    first = output.splitlines()[0]
    assert first.startswith("cli/1 [flow 3 priority 3, ")
    assert first.endswith(" ms] hello")
    assert site.service.subscribers["cli"].subscriber.subscriptions[0].utility == LogUtility(
        weight=5.0
    )
    assert read_records(records).num_rows == 2


def test_sub_that_is_ended_writes_its_records_first(
    site: Site, address: str, tmp_path: Path
) -> None:
    site.service.set_plan({"cli/#": 3})
    records = tmp_path / "records.parquet"
    arguments = ["cli/#", "--service", site.url, "--address", address, "--id", "cli"]
    with subprocess.Popen(
        [sys.executable, "-c", SUB, *arguments, "--records", str(records)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_until(
                lambda: "cli" in site.service.subscribers,
                "it to register",
                seconds=3 * PATIENCE_SECONDS,
            )
            publication = ["cli/1", "-m", "hello", "--broker", f"127.0.0.1:{site.broker}"]
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)

            def heard() -> bool:
                assert CliRunner().invoke(pub, publication).exit_code == 0
                return bool(process.stdout and process.stdout.readline())

            wait_until(heard, "an event", seconds=3 * PATIENCE_SECONDS)
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 143
        finally:
            process.kill()
    assert read_records(records).num_rows >= 1


def test_sub_says_at_once_that_it_could_not_write_its_records(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "records.parquet"
    result = CliRunner().invoke(sub, ["t", "--records", str(nowhere)])
    assert result.exit_code == 2
    assert "is no folder" in result.output


def test_sub_under_a_name_of_its_own_making_signs_off_when_it_is_ended(
    site: Site, address: str
) -> None:
    arguments = ["t", "--service", site.url, "--address", address]
    with subprocess.Popen([sys.executable, "-c", SUB, *arguments]) as process:
        try:
            wait_until(
                lambda: bool(site.service.subscribers),
                "it to register",
                seconds=3 * PATIENCE_SECONDS,
            )
            process.terminate()
            wait_until(lambda: not site.service.subscribers, "it to sign off")
            assert process.wait(PATIENCE_SECONDS) == 143
        finally:
            process.kill()


def test_sub_says_what_is_wrong() -> None:
    result = CliRunner().invoke(sub, ["a#", "--address", "127.0.0.1"])
    assert result.exit_code == 2
    assert "'#' must be the whole of the last level" in result.stderr
    away = f"http://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(sub, ["a", "--address", "127.0.0.1", "--service", away])
    assert result.exit_code == 2
    assert "does not answer" in result.stderr


def test_sub_lists_topics_without_a_filter(site: Site, address: str) -> None:
    publisher = Publisher("127.0.0.1", site.broker, id="p", service_url=site.url, switch="lan")
    publisher.declare("listed/1", event_bytes=10, rate_per_second=2.0)
    with publisher:
        pass
    options = ["--service", site.url, "--address", address]
    result = CliRunner().invoke(sub, ["--topics", *options])
    assert (result.exit_code, result.output) == (0, "listed/1\n")
    result = CliRunner().invoke(sub, options)
    assert result.exit_code == 2
    assert "name at least one FILTER" in result.stderr


def test_sub_interrupted_at_once_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("firedex_clients.sub_command.Subscriber", interrupted)
    result = CliRunner().invoke(sub, ["a", "-C", "1", "--address", "127.0.0.1"])
    assert result.exit_code == 27


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_pub_says_that_a_host_is_unknown(transport: str) -> None:
    arguments = ["t", "-m", "x", "--broker", "no-such-host.invalid:1", "--transport", transport]
    result = CliRunner().invoke(pub, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("firedex: no-such-host.invalid:1: ")


def test_sub_ends_after_its_time_with_mosquittos_code(site: Site, address: str) -> None:
    arguments = ["quiet", "--service", site.url, "--address", address, "-C", "1", "-W", "0.2"]
    assert CliRunner().invoke(sub, arguments).exit_code == 27


def test_sub_prints_json(site: Site, address: str) -> None:
    with Listener(site.broker) as plain:
        plain.publish_surely("json/1", b"kept", retain=True)
        arguments = ["json/#", "--service", site.url, "--address", address, "-C", "1", "--json"]
        result = CliRunner().invoke(sub, arguments)
        plain.publish_surely("json/1", b"", retain=True)
    found = json.loads(result.output)
    assert (found["topic"], found["payload"], found["retained"]) == ("json/1", "kept", True)
    assert found["delay_seconds"] is None


@pytest.mark.parametrize("arguments", [["-m", "x", "--repeat", "3", "-q", "1"], []])
def test_pub_reads_lines_or_repeats(broker: int, arguments: list[str]) -> None:
    with Listener(broker) as plain:
        plain.subscribe("pub/lines")
        result = CliRunner().invoke(
            pub, ["pub/lines", "--broker", f"127.0.0.1:{broker}", *arguments], input="x\nx\nx\n"
        )
        assert result.exit_code == 0, result.output
        wait_until(lambda: plain.payloads() == [b"x"] * 3, "three events")


@pytest.mark.parametrize("command", [sub, pub])
def test_help_has_an_example(command: Any) -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert f"Example: firedex {command.name} " in " ".join(result.output.split())


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
