"""The relay between real clients and a real Mosquitto: which events pass and which are dropped."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from scipy.stats import binom

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from tests.support.free_ports import free_port
from tests.support.loopback_parts import Listener, mosquitto, running_relay, seeded_random
from tests.support.parts_site import configuration, flow
from tests.support.waiting import wait_until

PORT = 20_000
EVENTS = 2000
END = b"the end"
CONNECT = bytes.fromhex("101000044d5154540502000a000003726177")  # client id "raw", keep alive 10 s
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


class Site:
    """A relay in front of the broker, and its flow table."""

    def __init__(self, broker: int, address: str) -> None:
        self.flows, self.address, self.broker = FlowTable(), address, broker
        self.relay = Relay(("127.0.0.1", broker), self.flows, seeded_random(20250301))
        self.port = 0

    def set_drop_rate(self, drop_rate: float, *, version: int = 1) -> None:
        self.flows.apply(configuration(flow(self.address, drop_rate=drop_rate), version=version))

    @contextmanager
    def subscriber(self, name: str) -> Iterator[Listener]:
        """Connect a subscriber through the relay, on the port of the flow."""
        with Listener(self.port, bind=(self.address, PORT)) as listener:
            listener.subscribe(name)
            yield listener


@pytest.fixture
def site(broker: int, address: str) -> Iterator[Site]:
    new_site = Site(broker, address)
    with running_relay(new_site.relay) as new_site.port:
        yield new_site


@pytest.fixture
def sender(broker: int) -> Iterator[Listener]:
    """Connect a publisher directly to the broker, as publishers do."""
    with Listener(broker) as client:
        yield client


def send(sender: Listener, topic: str, count: int, begin: int = 0) -> None:
    """Publish ``count`` numbered events at QoS 0, then one at QoS 1 that marks the end."""
    for number in range(begin, begin + count):
        sender.publish(topic, b"%d" % number)
    sender.publish_and_wait(topic, END + b"%d" % begin)


def events(listener: Listener) -> list[int]:
    return [int(payload) for payload in listener.payloads() if payload.isdigit()]


def test_drop_rate_0_passes_all_events_in_order(site: Site, sender: Listener) -> None:
    site.set_drop_rate(0.0)
    with site.subscriber("calm") as listener:
        send(sender, "calm", EVENTS)
        listener.wait_for(END + b"0")
        assert events(listener) == list(range(EVENTS))
    assert (site.relay.offered_events, site.relay.dropped_events) == (EVENTS, 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_large_payloads_reach_the_subscriber_unchanged_at_every_qos(
    site: Site, sender: Listener, qos: int
) -> None:
    payload = seeded_random(qos).randbytes(700_001)
    with site.subscriber("large") as listener:
        sender.publish("large", payload, qos=qos)
        wait_until(lambda: len(listener.received) == 1, "one large event")
        (message,) = listener.received
        assert (message.payload == payload, message.qos) == (True, qos)


def test_large_payloads_reach_the_broker_unchanged(site: Site, broker: int) -> None:
    payload = seeded_random(3).randbytes(500_000)
    with Listener(broker) as listener, Listener(site.port) as client:
        listener.subscribe("up")
        client.publish("up", payload, qos=2)
        listener.wait_for(payload)


def test_drop_rate_one_half_drops_half_of_the_events(site: Site, sender: Listener) -> None:
    site.set_drop_rate(0.5)
    with site.subscriber("half") as listener:
        send(sender, "half", EVENTS)
        listener.wait_for(END + b"0")
        numbers = events(listener)
    minimum, maximum = binom.interval(0.999, EVENTS, 0.5)
    assert minimum <= len(numbers) <= maximum
    assert numbers == sorted(set(numbers))
    assert site.relay.offered_events == EVENTS
    assert site.relay.dropped_events == EVENTS - len(numbers)


def test_drop_rate_1_passes_retained_and_qos_1_and_2_events(site: Site, sender: Listener) -> None:
    sender.publish_and_wait("full/kept", b"retained", retain=True)
    site.set_drop_rate(1.0)
    with site.subscriber("full/#") as listener:
        listener.wait_for(b"retained")
        for qos in (1, 2):
            sender.publish("full/live", b"qos %d" % qos, qos=qos)
        send(sender, "full/live", 200)
        listener.wait_for(END + b"0")
        assert events(listener) == []
        listener.wait_for(b"qos 1")
        listener.wait_for(b"qos 2")
        assert [m.retain for m in listener.received if m.payload == b"retained"] == [True]
    sender.publish_and_wait("full/kept", b"", retain=True)
    assert site.relay.dropped_events == 200


def test_drop_rate_1_passes_retained_events_at_qos_0(site: Site, sender: Listener) -> None:
    sender.publish_and_wait("kept/0", b"retained", retain=True)
    site.set_drop_rate(1.0)
    with Listener(site.port, bind=(site.address, PORT)) as listener:
        listener.subscribe("kept/0", qos=0)
        listener.wait_for(b"retained")
        assert (listener.received[0].qos, listener.received[0].retain) == (0, True)
    sender.publish_and_wait("kept/0", b"", retain=True)


def test_drop_rate_1_passes_keep_alive_packets(site: Site) -> None:
    site.set_drop_rate(1.0)
    with socket.create_connection(
        ("127.0.0.1", site.port), timeout=60, source_address=(site.address, PORT)
    ) as raw:
        raw.sendall(CONNECT)
        assert raw.recv(1024)[0] >> 4 == 2, "no CONNACK"
        for _ in range(3):
            raw.sendall(PINGREQ)
            assert raw.recv(1024) == PINGRESP


def test_new_drop_rate_applies_to_open_connections(site: Site, sender: Listener) -> None:
    site.set_drop_rate(0.0)
    with site.subscriber("change") as listener:
        for version, drop_rate in enumerate([0.0, 1.0, 0.0], start=1):
            site.set_drop_rate(drop_rate, version=version)
            send(sender, "change", 100, begin=100 * version)
            listener.wait_for(END + b"%d" % (100 * version))
        assert events(listener) == [*range(100, 200), *range(300, 400)]


def test_drop_rate_applies_only_to_its_flow(site: Site, sender: Listener) -> None:
    site.set_drop_rate(1.0)
    with site.subscriber("two") as managed, Listener(site.port) as unmanaged:
        unmanaged.subscribe("two")
        send(sender, "two", 50)
        managed.wait_for(END + b"0")
        unmanaged.wait_for(END + b"0")
        assert events(managed) == []
        assert events(unmanaged) == list(range(50))


def test_relay_closes_connections_while_the_broker_is_unreachable(
    tmp_path: Path,
) -> None:
    port = free_port()
    with running_relay(Relay(("127.0.0.1", port), FlowTable(), seeded_random())) as relay:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", relay), timeout=60) as raw:
                raw.sendall(CONNECT)
                assert raw.recv(10) == b""
        with mosquitto(tmp_path, port), Listener(relay) as listener:
            listener.subscribe("back")
            listener.publish("back", b"again")
            listener.wait_for(b"again")


def test_end_of_the_broker_closes_its_connections(tmp_path: Path) -> None:
    with ExitStack() as running, ExitStack() as broker:
        port = broker.enter_context(mosquitto(tmp_path))
        relay = Relay(("127.0.0.1", port), FlowTable(), seeded_random())
        relay_port = running.enter_context(running_relay(relay))
        raw = running.enter_context(socket.create_connection(("127.0.0.1", relay_port), timeout=60))
        raw.sendall(CONNECT)
        assert raw.recv(1024)[0] >> 4 == 2
        broker.close()
        assert raw.recv(10) in (b"", b"\xe0\x02\x8b\x00"), "neither closed nor a DISCONNECT"


@pytest.mark.parametrize(
    "invalid_bytes",
    [b"\x30\xff\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b""],
    ids=["endless length", "http", "zeros", "empty"],
)
def test_invalid_bytes_of_one_client_do_not_affect_others(
    site: Site, sender: Listener, invalid_bytes: bytes
) -> None:
    with site.subscriber("others") as listener:
        with socket.create_connection(("127.0.0.1", site.port), timeout=60) as raw:
            raw.sendall(invalid_bytes)
            if invalid_bytes:
                assert raw.recv(10) == b"", "a connection that is not MQTT is closed"
        with socket.create_connection(("127.0.0.1", site.port), timeout=60) as raw:
            raw.sendall(CONNECT + invalid_bytes)
        send(sender, "others", 20)
        listener.wait_for(END + b"0")
        assert events(listener) == list(range(20))


def test_invalid_bytes_of_the_broker_close_only_that_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as fake_broker:
        relay = Relay(fake_broker.getsockname()[:2], FlowTable(), seeded_random())
        with running_relay(relay) as port:
            fake_broker.settimeout(10)
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
                    raw.sendall(CONNECT)
                    connection, _ = fake_broker.accept()
                    with connection:
                        connection.sendall(b"\x30\xff\xff\xff\xff\xff")
                        assert raw.recv(10) == b""
