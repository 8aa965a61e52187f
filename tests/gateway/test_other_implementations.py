"""Other implementations: the broker aMQTT (only MQTT 3.1.1) and the MQTT-SN client mqtt-sn-12."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.wire import LogUtility
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, Subscriber
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.loopback_parts import TIMEOUT_SECONDS, Listener, running_relay, seeded_random
from tests.support.sn_parts import running_sn_gateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LOG = LogUtility(weight=1.0)


@pytest.fixture(scope="module")
def other_broker() -> Iterator[int]:
    """Run aMQTT in its own process."""
    if importlib.util.find_spec("amqtt") is None:
        pytest.skip("amqtt is not installed")
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.amqtt_program", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield port
        finally:
            process.kill()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("version", ["3.1.1", "udp"])
def test_subscriber_receives_all_events_of_another_broker(
    other_broker: int, address: str, transport: Transport, version: str
) -> None:
    """The subscription moves to another flow between two series of events."""
    relay = Relay(("127.0.0.1", other_broker), FlowTable(), seeded_random())
    events: list[Event] = []
    with running_relay(relay) as port, running_sn_gateway(other_broker) as (_, udp):
        service = FakeService(port, udp_port=udp)
        service.set_plan({"other/#": 0})
        publisher = (
            Publisher("127.0.0.1", udp, id="p", transport="udp")
            if version == "udp"
            else Publisher("127.0.0.1", other_broker, id="p", version=version)
        )
        with running_service(service) as url:
            crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
            crew.subscribe("other/#", utility=LOG, on_event=events.append, qos=1)
            with crew, publisher:
                sent = [publisher.publish("other/1", b"%d" % n, qos=n % 2) for n in range(40)]
                version_after_move = service.set_plan({"other/#": 1})
                wait_until(
                    lambda: crew.configuration.version >= version_after_move and crew.settled(),  # type: ignore[union-attr]
                    "the subscription to move",
                )
                sent += [publisher.publish("other/1", b"%d" % n, qos=1) for n in range(40, 60)]
                wait_until(lambda: len(events) >= 60, "all events")
    assert sorted(event.event_id or "" for event in events) == sorted(sent)
    assert {event.payload for event in events} == {b"%d" % n for n in range(60)}
    assert {event.flow for event in events} == {0, 1}
    assert all(event.delay_seconds is not None for event in events)


def test_plain_client_receives_all_events_of_another_broker(other_broker: int) -> None:
    relay = Relay(("127.0.0.1", other_broker), FlowTable(), seeded_random())
    received: list[bytes] = []
    with running_relay(relay) as port:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        granted = threading.Event()
        client.on_connect = lambda *_: client.subscribe("plain", 2) and None
        client.on_subscribe = lambda *_: granted.set()
        client.on_message = lambda _c, _d, message: received.append(bytes(message.payload))
        client.connect("127.0.0.1", port)
        client.loop_start()
        try:
            assert granted.wait(TIMEOUT_SECONDS)
            for n in range(30):
                client.publish("plain", b"%d" % n, n % 3)
            wait_until(lambda: len(received) == 30, "30 events")
        finally:
            client.disconnect()
            client.loop_stop()
    assert sorted(received, key=int) == [b"%d" % n for n in range(30)]


# -- the MQTT-SN client of mqtt-sn-12 --------------------------------------------------------------

needs_client = pytest.mark.skipif(
    importlib.util.find_spec("mqttsn12") is None, reason="mqtt-sn-12 is not installed"
)


def mqtt_sn_client(program: str, port: int, *arguments: str) -> list[str]:
    start = f"from mqttsn12.{program} import main; main()"
    return [sys.executable, "-c", start, "-h", "127.0.0.1", "-p", str(port), *arguments]


@needs_client
@pytest.mark.parametrize("qos", ["0", "1"])
def test_events_of_another_mqtt_sn_client_reach_the_broker(broker: int, qos: str) -> None:
    with running_sn_gateway(broker) as (_, port), Listener(broker) as plain:
        plain.subscribe("from/foreign")
        arguments = ["-t", "from/foreign", "-m", "hello", "-q", qos, "-i", "foreign"]
        done = subprocess.run(
            mqtt_sn_client("mqtt_sn_pub", port, *arguments),
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        plain.wait_for(b"hello")


@needs_client
def test_another_mqtt_sn_client_receives_events_without_stamps(broker: int) -> None:
    with running_sn_gateway(broker) as (gateway, port):
        arguments = ["-t", "to/foreign", "-q", "1", "-i", "foreign-sub"]
        with subprocess.Popen(
            mqtt_sn_client("mqtt_sn_sub", port, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PYTHONUNBUFFERED": "1", "PATH": "/usr/bin"},
        ) as process:
            try:
                wait_until(lambda: bool(gateway.clients), "the client to connect")
                lines: list[bytes] = []
                assert process.stdout is not None
                reader = threading.Thread(target=_read_lines, args=(process.stdout, lines))
                reader.start()
                with Publisher("127.0.0.1", broker, id="p") as client:

                    def event_is_printed() -> bool:
                        client.publish("to/foreign", b"good evening")
                        return any(b"good evening" in line for line in lines)

                    wait_until(event_is_printed, "the client to print the event")
                found = next(line for line in lines if b"good evening" in line)
                assert b"\xfd\xe8" not in found
            finally:
                process.kill()
                reader.join(TIMEOUT_SECONDS)


def _read_lines(stream: Any, lines: list[bytes]) -> None:
    while line := stream.readline():
        lines.append(line)
