"""The relay between real clients and a real Mosquitto: what passes, what a drop rate takes."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from free_ports import free_port
from loopback_parts import Listener, coins, mosquitto, running_relay, wait_until
from parts_site import configuration, flow
from scipy.stats import binom

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay

PORT = 20_000
EVENTS = 2000
END = b"the end"
CONNECT = bytes.fromhex("101000044d5154540502000a000003726177")  # client id "raw", keep alive 10 s
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


class Site:
    """A relay in front of the broker, and what it follows."""

    def __init__(self, broker: int, address: str) -> None:
        self.flows, self.address, self.broker = FlowTable(), address, broker
        self.relay = Relay(("127.0.0.1", broker), self.flows, coins(20250301))
        self.port = 0

    def set_drop_rate(self, drop_rate: float, *, version: int = 1) -> None:
        self.flows.follow(configuration(flow(self.address, drop_rate=drop_rate), version=version))

    @contextmanager
    def subscribed(self, name: str) -> Iterator[Listener]:
        """A subscriber on the flow's own port, through the relay."""
        with Listener(self.port, bind=(self.address, PORT)) as listener:
            listener.subscribe(name)
            yield listener


@pytest.fixture
def site(broker: int, address: str) -> Iterator[Site]:
    made = Site(broker, address)
    with running_relay(made.relay) as made.port:
        yield made


@pytest.fixture
def sender(broker: int) -> Iterator[Listener]:
    """A publisher directly at the broker, as publishers are."""
    with Listener(broker) as client:
        yield client


def send(sender: Listener, topic: str, count: int, begin: int = 0) -> None:
    """``count`` numbered events at QoS 0, then one at QoS 1 that ends them."""
    for number in range(begin, begin + count):
        sender.publish(topic, b"%d" % number)
    sender.publish_surely(topic, END + b"%d" % begin)


def events(listener: Listener) -> list[int]:
    return [int(payload) for payload in listener.payloads() if payload.isdigit()]


def test_without_a_drop_rate_everything_passes_in_order(site: Site, sender: Listener) -> None:
    site.set_drop_rate(0.0)
    with site.subscribed("calm") as listener:
        send(sender, "calm", EVENTS)
        listener.wait_for(END + b"0")
        assert events(listener) == list(range(EVENTS))
    assert (site.relay.offered_events, site.relay.dropped_events) == (EVENTS, 0)


@pytest.mark.parametrize("quality", [0, 1, 2])
def test_large_payloads_pass_unchanged_at_every_quality(
    site: Site, sender: Listener, quality: int
) -> None:
    payload = coins(quality).randbytes(700_001)
    with site.subscribed("large") as listener:
        sender.publish("large", payload, qos=quality)
        wait_until(lambda: len(listener.received) == 1, "one large event")
        (message,) = listener.received
        assert (message.payload == payload, message.qos) == (True, quality)


def test_large_events_pass_upstream_unchanged(site: Site, broker: int) -> None:
    payload = coins(3).randbytes(500_000)
    with Listener(broker) as listener, Listener(site.port) as client:
        listener.subscribe("up")
        client.publish("up", payload, qos=2)
        listener.wait_for(payload)


def test_half_of_the_events_arrive_at_a_drop_rate_of_a_half(site: Site, sender: Listener) -> None:
    site.set_drop_rate(0.5)
    with site.subscribed("half") as listener:
        send(sender, "half", EVENTS)
        listener.wait_for(END + b"0")
        found = events(listener)
    least, most = binom.interval(0.999, EVENTS, 0.5)
    assert least <= len(found) <= most
    assert found == sorted(set(found))
    assert site.relay.offered_events == EVENTS
    assert site.relay.dropped_events == EVENTS - len(found)


def test_at_a_drop_rate_of_one_what_must_pass_still_passes(site: Site, sender: Listener) -> None:
    sender.publish_surely("full/kept", b"retained", retain=True)
    site.set_drop_rate(1.0)
    with site.subscribed("full/#") as listener:
        listener.wait_for(b"retained")
        for quality in (1, 2):
            sender.publish("full/live", b"quality %d" % quality, qos=quality)
        send(sender, "full/live", 200)
        listener.wait_for(END + b"0")
        assert events(listener) == []
        listener.wait_for(b"quality 1")
        listener.wait_for(b"quality 2")
        assert [m.retain for m in listener.received if m.payload == b"retained"] == [True]
    sender.publish_surely("full/kept", b"", retain=True)
    assert site.relay.dropped_events == 200


def test_what_is_retained_passes_at_qos_0_too(site: Site, sender: Listener) -> None:
    sender.publish_surely("kept/0", b"retained", retain=True)
    site.set_drop_rate(1.0)
    with Listener(site.port, bind=(site.address, PORT)) as listener:
        listener.subscribe("kept/0", qos=0)
        listener.wait_for(b"retained")
        assert (listener.received[0].qos, listener.received[0].retain) == (0, True)
    sender.publish_surely("kept/0", b"", retain=True)


def test_keep_alive_passes_at_a_drop_rate_of_one(site: Site) -> None:
    site.set_drop_rate(1.0)
    with socket.create_connection(
        ("127.0.0.1", site.port), timeout=10, source_address=(site.address, PORT)
    ) as raw:
        raw.sendall(CONNECT)
        assert raw.recv(1024)[0] >> 4 == 2, "no CONNACK"
        for _ in range(3):
            raw.sendall(PINGREQ)
            assert raw.recv(1024) == PINGRESP


def test_an_open_connection_feels_a_new_drop_rate(site: Site, sender: Listener) -> None:
    site.set_drop_rate(0.0)
    with site.subscribed("change") as listener:
        for version, drop_rate in enumerate([0.0, 1.0, 0.0], start=1):
            site.set_drop_rate(drop_rate, version=version)
            send(sender, "change", 100, begin=100 * version)
            listener.wait_for(END + b"%d" % (100 * version))
        assert events(listener) == [*range(100, 200), *range(300, 400)]


def test_only_the_flow_itself_is_thinned(site: Site, sender: Listener) -> None:
    site.set_drop_rate(1.0)
    with site.subscribed("two") as thinned, Listener(site.port) as unmanaged:
        unmanaged.subscribe("two")
        send(sender, "two", 50)
        thinned.wait_for(END + b"0")
        unmanaged.wait_for(END + b"0")
        assert events(thinned) == []
        assert events(unmanaged) == list(range(50))


def test_while_the_broker_is_away_connections_are_closed_and_the_relay_survives(
    tmp_path: Path,
) -> None:
    port = free_port()
    with running_relay(Relay(("127.0.0.1", port), FlowTable(), coins())) as relay:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", relay), timeout=10) as raw:
                raw.sendall(CONNECT)
                assert raw.recv(10) == b""
        with mosquitto(tmp_path, port), Listener(relay) as listener:
            listener.subscribe("back")
            listener.publish("back", b"again")
            listener.wait_for(b"again")


def test_a_broker_that_dies_closes_its_connections(tmp_path: Path) -> None:
    with ExitStack() as running, ExitStack() as broker:
        port = broker.enter_context(mosquitto(tmp_path))
        relay = Relay(("127.0.0.1", port), FlowTable(), coins())
        at = running.enter_context(running_relay(relay))
        raw = running.enter_context(socket.create_connection(("127.0.0.1", at), timeout=10))
        raw.sendall(CONNECT)
        assert raw.recv(1024)[0] >> 4 == 2
        broker.close()
        assert raw.recv(10) in (b"", b"\xe0\x02\x8b\x00"), "neither closed nor a DISCONNECT"


@pytest.mark.parametrize(
    "nonsense",
    [b"\x30\xff\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b""],
    ids=["endless length", "http", "zeros", "nothing"],
)
def test_nonsense_from_one_client_is_nothing_to_the_others(
    site: Site, sender: Listener, nonsense: bytes
) -> None:
    with site.subscribed("others") as listener:
        with socket.create_connection(("127.0.0.1", site.port), timeout=10) as raw:
            raw.sendall(nonsense)
            if nonsense:
                assert raw.recv(10) == b"", "the broker closes what is not MQTT"
        with socket.create_connection(("127.0.0.1", site.port), timeout=10) as raw:
            raw.sendall(CONNECT + nonsense)
        send(sender, "others", 20)
        listener.wait_for(END + b"0")
        assert events(listener) == list(range(20))


def test_nonsense_from_a_broker_ends_that_connection_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as strange:
        relay = Relay(strange.getsockname()[:2], FlowTable(), coins())
        with running_relay(relay) as port:
            strange.settimeout(10)
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
                    raw.sendall(CONNECT)
                    answering, _ = strange.accept()
                    with answering:
                        answering.sendall(b"\x30\xff\xff\xff\xff\xff")
                        assert raw.recv(10) == b""
