"""Publisher and subscriber through a real service, relay and broker; no controller."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.service.planner.site_plan import Gateway
from firedex.wire import LogUtility
from firedex_clients import (
    ConnectionRefused,
    Event,
    Publisher,
    ServiceRefused,
    Subscriber,
)
from firedex_clients.publisher import open_connection
from tests.support.free_ports import free_port
from tests.support.loopback_parts import (
    Listener,
    fresh_address,
    mosquitto,
    running_relay,
    seeded_random,
    serve_site,
)
from tests.support.observed_relay import ObservedRelay
from tests.support.parts_site import publisher, site
from tests.support.service_requests import ServiceRequests
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

HIGH, LOW = LogUtility(weight=100.0), LogUtility(weight=1.0)
RATES = {"alarm/1": 5.0, "camera/1": 50.0, "camera/2": 50.0}


@dataclass
class RunningSite:
    """The addresses of a running site, and the connections to its relay."""

    service: str
    relay_port: int
    broker: int
    peers: list[tuple[str, int]] = field(default_factory=list)

    def subscriber(self, address: str, name: str = "crew", **more: Any) -> Subscriber:
        return Subscriber(self.service, id=name, switch="core", address=address, **more)

    def two_flows(self, address: str, events: list[Event], name: str = "crew") -> Subscriber:
        subscriber = self.subscriber(address, name)
        subscriber.subscribe("alarm/#", utility=HIGH, on_event=events.append)
        subscriber.subscribe("camera/#", utility=LOW, on_event=events.append)
        return subscriber


@pytest.fixture
def running_site(broker: int, state_file: Path) -> Iterator[RunningSite]:
    yield from run_site(broker, state_file)


@pytest.fixture
def distant_site(broker: int, state_file: Path) -> Iterator[RunningSite]:
    """Run a site with a delay of 0.3 s at the relay."""
    yield from run_site(broker, state_file, delay_seconds=0.3)


def run_site(broker: int, state_file: Path, **relay_options: float) -> Iterator[RunningSite]:
    peers: list[tuple[str, int]] = []
    with running_relay(ObservedRelay(broker, peers, **relay_options)) as port:
        gateway = Gateway(address=IPv4Address("127.0.0.1"), port=port)
        with serve_site(site(), state_file, gateway) as url:
            ServiceRequests(url).register_publisher(publisher("p0", RATES))
            peers.clear()
            yield RunningSite(url, port, broker, peers)


def publish_until_received(client: Publisher, topic: str, events: list[Event]) -> None:
    """Publish until an event of ``topic`` has arrived."""

    def event_received() -> bool:
        client.publish(topic, b"test")
        return any(event.topic == topic for event in events)

    wait_until(event_received, f"an event of {topic}")


# -- events ----------------------------------------------------------------------------------------


def test_flows_use_their_assigned_ports(running_site: RunningSite, address: str) -> None:
    with running_site.two_flows(address, []):
        assert sorted(running_site.peers) == [(address, 20_000), (address, 20_002)]


def test_event_contains_id_flow_class_and_delay(running_site: RunningSite, address: str) -> None:
    events: list[Event] = []
    with (
        running_site.two_flows(address, events),
        Publisher("127.0.0.1", running_site.broker, id="p0") as client,
    ):
        publish_until_received(client, "alarm/1", events)
        publish_until_received(client, "camera/1", events)
        started = time.time()
        sent = {
            client.publish(topic, b"\x00payload %d" % n): (topic, n)
            for n in range(20)
            for topic in ("alarm/1", "camera/1")
        }
        wait_until(lambda: set(sent) <= {event.event_id for event in events}, "all events")
    received = [event for event in events if event.event_id in sent]
    assert len(received) == len(sent), "each event arrives once"
    for event in received:
        topic, number = sent[event.event_id or ""]
        assert (event.topic, event.payload) == (topic, b"\x00payload %d" % number)
        expected = 0 if topic == "alarm/1" else 1
        assert (event.flow, event.priority) == (expected, expected)
        assert event.filter == topic.split("/")[0] + "/#"
        assert event.configuration_version == 2
        assert event.published_at_seconds is not None
        assert started <= event.published_at_seconds <= event.received_at_seconds
        assert event.received_at_seconds - event.published_at_seconds < 10


def test_event_without_stamp_has_no_id_and_no_delay(
    running_site: RunningSite, address: str
) -> None:
    events: list[Event] = []
    with Listener(running_site.broker) as plain:
        plain.publish_and_wait("alarm/1", b"plain", retain=True)
        try:
            with running_site.two_flows(address, events):
                wait_until(lambda: bool(events), "the retained event")
        finally:
            plain.publish_and_wait("alarm/1", b"", retain=True)
    assert (events[0].payload, events[0].event_id) == (b"plain", None)
    assert events[0].published_at_seconds is None


def test_closed_subscriber_receives_no_events(running_site: RunningSite, address: str) -> None:
    events: list[Event] = []
    with Publisher("127.0.0.1", running_site.broker, id="p0") as client:
        with running_site.two_flows(address, events):
            publish_until_received(client, "alarm/1", events)
        count = len(events)
        with Listener(running_site.broker) as observer:
            observer.subscribe("alarm/1")
            client.publish("alarm/1", b"later", qos=1)
            observer.wait_for(b"later")
        assert len(events) == count


def test_overlapping_filters_receive_each_event_once(
    running_site: RunningSite, address: str
) -> None:
    events: list[Event] = []
    one_flow = running_site.subscriber(address)
    # Four subscriptions in two flows: the two of each flow overlap.
    for name in ("camera/#", "camera/+", "camera/1", "+/1"):
        one_flow.subscribe(name, utility=LOW, on_event=events.append)
    with one_flow, Publisher("127.0.0.1", running_site.broker, id="p0") as client:
        wait_until(
            lambda: (client.publish("camera/1", b"?"), len({e.filter for e in events}) == 4)[1],
            "all four filters",
        )
        event_id = client.publish("camera/1", b"once", qos=1)
        last = client.publish("camera/1", b"last", qos=1)

        def count(event_id: str, name: str) -> int:
            return sum((e.event_id, e.filter) == (event_id, name) for e in events)

        names = ("camera/#", "camera/+", "camera/1", "+/1")
        wait_until(lambda: all(count(last, name) for name in names), "the last event")
        assert {name: count(event_id, name) for name in names} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_closing_a_publisher_sends_all_events(running_site: RunningSite, qos: int) -> None:
    with Listener(running_site.broker) as listener:
        listener.subscribe("leaving")
        with Publisher("127.0.0.1", running_site.broker, id="brief") as client:
            for number in range(20):
                client.publish("leaving", b"%d" % number, qos=qos)
        wait_until(lambda: len(listener.received) == 20, "20 events")


def test_publish_rejects_a_topic_with_a_wildcard(running_site: RunningSite) -> None:
    with (
        Publisher("127.0.0.1", running_site.broker, id="p0") as client,
        pytest.raises(ValueError, match="wildcard"),
    ):
        client.publish("alarm/#", b"")


# -- opening and closing --------------------------------------------------------------------------


def test_open_subscriber_can_subscribe_and_unsubscribe(
    running_site: RunningSite, address: str
) -> None:
    events: list[Event] = []
    with (
        running_site.subscriber(address) as crew,
        Publisher("127.0.0.1", running_site.broker, id="p0") as client,
    ):
        crew.subscribe("alarm/1", utility=HIGH, on_event=events.append)
        publish_until_received(client, "alarm/1", events)
        other: list[Event] = []
        crew.subscribe("camera/1", utility=LOW, on_event=other.append)
        publish_until_received(client, "camera/1", other)
        crew.unsubscribe("alarm/1")

        def no_event_arrives() -> bool:
            count = len(events)
            last = client.publish("alarm/1", b"test", qos=1)
            client.publish("camera/1", b"after", qos=1)
            wait_until(lambda: other[-1].payload == b"after", "a later event")
            return len(events) == count and last not in {event.event_id for event in events}

        wait_until(no_event_arrives, "no more alarms")


def test_open_subscriber_is_subscribed_to_all_filters(
    distant_site: RunningSite, address: str
) -> None:
    events: list[Event] = []
    with (
        Publisher("127.0.0.1", distant_site.broker, id="p0") as client,
        Listener(distant_site.broker) as observer,
    ):
        observer.subscribe("alarm/1")
        with distant_site.two_flows(address, events):
            client.publish("alarm/1", b"at once", qos=1)
            observer.wait_for(b"at once")
            wait_until(lambda: bool(events), "the event published right after entering")


def test_subscriber_can_be_opened_again_at_once(running_site: RunningSite, address: str) -> None:
    events: list[Event] = []
    with running_site.two_flows(address, events):
        pass
    with (
        running_site.two_flows(address, events),
        Publisher("127.0.0.1", running_site.broker, id="p0") as client,
    ):
        publish_until_received(client, "alarm/1", events)


def test_two_subscribers_with_one_address_use_different_ports(
    running_site: RunningSite, address: str
) -> None:
    with (
        running_site.two_flows(address, [], name="engine2"),
        running_site.two_flows(address, [], name="engine1"),
    ):
        assert len({port for _, port in running_site.peers}) == 4


def test_subscriptions_continue_after_a_broker_restart(
    state_file: Path, address: str, tmp_path: Path
) -> None:
    port, events = free_port(), list[Event]()
    with ExitStack() as running, ExitStack() as first:
        first.enter_context(mosquitto(tmp_path, port))
        running_site = running.enter_context(contextmanager(run_site)(port, state_file))
        running.enter_context(running_site.two_flows(address, events))
        with Publisher("127.0.0.1", port, id="before") as client:
            publish_until_received(client, "alarm/1", events)
        first.close()
        events.clear()
        running.enter_context(mosquitto(tmp_path, port))
        with Publisher("127.0.0.1", port, id="after") as client:
            publish_until_received(client, "alarm/1", events)


# -- errors -------------------------------------------------------------------------------


def test_unreachable_service_raises_service_refused(address: str) -> None:
    crew = Subscriber(f"http://127.0.0.1:{free_port()}", id="crew", switch="core", address=address)
    with pytest.raises(ServiceRefused, match="does not answer"), crew:
        pass


def test_rejected_registration_opens_no_connection(running_site: RunningSite, address: str) -> None:
    crew = Subscriber(running_site.service, id="crew", switch="attic", address=address)
    crew.subscribe("alarm/1", utility=HIGH, on_event=print)
    with pytest.raises(ServiceRefused, match="attic"), crew:
        pass
    assert running_site.peers == []


def test_port_in_use_raises_connection_refused(running_site: RunningSite, address: str) -> None:
    crew = running_site.two_flows(address, [])
    with (
        socket.create_server((address, 20_000)),
        socket.create_server((address, 20_001)),
        pytest.raises(ConnectionRefused, match="in use"),
        crew,
    ):
        pass


def test_refused_flow_closes_the_other_flows(running_site: RunningSite, address: str) -> None:
    crew = running_site.two_flows(address, [])
    with (
        socket.create_server((address, 20_002)),
        socket.create_server((address, 20_003)),
        pytest.raises(ConnectionRefused, match="in use"),
        crew,
    ):
        pass
    assert running_site.peers == [(address, 20_000)]


def test_unreachable_gateway_raises_connection_refused(state_file: Path, address: str) -> None:
    gateway = Gateway(address=IPv4Address("127.0.0.1"), port=free_port())
    with serve_site(site(), state_file, gateway) as url:
        ServiceRequests(url).register_publisher(publisher("p0", RATES))
        crew = Subscriber(url, id="crew", switch="core", address=address)
        crew.subscribe("alarm/1", utility=HIGH, on_event=print)
        with pytest.raises(ConnectionRefused, match="refused"), crew:
            pass


def test_unreachable_broker_raises_connection_refused() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefused, match=rf"127\.0\.0\.1:{port}: .*refused"):
        open_connection("127.0.0.1", port, client_id="x")


def test_gateway_without_broker_raises_connection_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firedex_clients.publisher.TIMEOUT_SECONDS", 1.0)
    relay = Relay(("127.0.0.1", free_port()), FlowTable(), seeded_random())
    with running_relay(relay) as port, pytest.raises(ConnectionRefused, match="no CONNACK in time"):
        open_connection("127.0.0.1", port, client_id="x", bind=(fresh_address(), 20_000))


def test_subscriber_rejects_an_address_that_is_not_ipv4(running_site: RunningSite) -> None:
    with pytest.raises(ValueError, match="::1"):
        running_site.subscriber("::1")
