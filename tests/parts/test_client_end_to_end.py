"""Publisher and subscriber through a real service, relay and broker; no controller."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from loopback_parts import (
    Listener,
    coins,
    fresh_address,
    mosquitto,
    running_relay,
    served,
    wait_until,
)
from parts_site import publisher, site

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.service.site_plan import Gateway
from firedex.wire import LogUtility
from firedex_clients import (
    ConnectionRefused,
    Event,
    Publisher,
    ServiceRefused,
    Subscriber,
)
from firedex_clients.mqtt_connection import open_connection
from firedex_clients.service_client import ServiceClient

HIGH, LOW = LogUtility(weight=100.0), LogUtility(weight=1.0)
RATES = {"alarm/1": 5.0, "camera/1": 50.0, "camera/2": 50.0}


@dataclass
class Whole:
    """A site that runs, and what is needed to use it."""

    service: str
    relay_port: int
    broker: int
    peers: list[tuple[str, int]] = field(default_factory=list)

    def subscriber(self, address: str, name: str = "crew", **more: Any) -> Subscriber:
        return Subscriber(self.service, id=name, switch="core", address=address, **more)

    def two_flows(self, address: str, events: list[Event], name: str = "crew") -> Subscriber:
        made = self.subscriber(address, name)
        made.subscribe("alarm/#", utility=HIGH, on_event=events.append)
        made.subscribe("camera/#", utility=LOW, on_event=events.append)
        return made


class NotingRelay(Relay):
    """A relay that notes where connections come from, and may be far away."""

    def __init__(self, broker: int, whole: list[tuple[str, int]], lag_seconds: float = 0) -> None:
        super().__init__(("127.0.0.1", broker), FlowTable(), coins())
        self._peers, self._lag_seconds = whole, lag_seconds

    def connected(self, peer: tuple[str, int]) -> None:
        self._peers.append(peer)

    def upstream(self, send: Callable[[bytes], None], data: bytes) -> None:
        if self._lag_seconds:
            asyncio.get_running_loop().call_later(self._lag_seconds, send, data)
        else:
            send(data)


@pytest.fixture
def whole(broker: int, state_file: Path) -> Iterator[Whole]:
    yield from a_whole(broker, state_file)


@pytest.fixture
def far_whole(broker: int, state_file: Path) -> Iterator[Whole]:
    """The same, a third of a second away."""
    yield from a_whole(broker, state_file, lag_seconds=0.3)


def a_whole(broker: int, state_file: Path, **of_relay: float) -> Iterator[Whole]:
    peers: list[tuple[str, int]] = []
    with running_relay(NotingRelay(broker, peers, **of_relay)) as port:
        gateway = Gateway(address=IPv4Address("127.0.0.1"), port=port)
        with served(site(), state_file, gateway) as url:
            ServiceClient(url).register_publisher(publisher("p0", RATES))
            peers.clear()
            yield Whole(url, port, broker, peers)


def until_heard(client: Publisher, topic: str, events: list[Event]) -> None:
    """Publish until an event of ``topic`` has arrived."""

    def heard() -> bool:
        client.publish(topic, b"anybody?")
        return any(event.topic == topic for event in events)

    wait_until(heard, f"an event of {topic}")


# -- events ----------------------------------------------------------------------------------------


def test_two_flows_on_their_assigned_ports(whole: Whole, address: str) -> None:
    with whole.two_flows(address, []):
        assert sorted(whole.peers) == [(address, 20_000), (address, 20_002)]


def test_events_carry_id_flow_class_and_delay(whole: Whole, address: str) -> None:
    events: list[Event] = []
    with (
        whole.two_flows(address, events),
        Publisher("127.0.0.1", whole.broker, id="p0") as client,
    ):
        until_heard(client, "alarm/1", events)
        until_heard(client, "camera/1", events)
        started = time.time()
        sent = {
            client.publish(topic, b"\x00payload %d" % n): (topic, n)
            for n in range(20)
            for topic in ("alarm/1", "camera/1")
        }
        wait_until(lambda: set(sent) <= {event.event_id for event in events}, "all events")
    found = [event for event in events if event.event_id in sent]
    assert len(found) == len(sent), "each once"
    for event in found:
        topic, number = sent[event.event_id or ""]
        assert (event.topic, event.payload) == (topic, b"\x00payload %d" % number)
        expected = 0 if topic == "alarm/1" else 1
        assert (event.flow, event.priority) == (expected, expected)
        assert event.filter == topic.split("/")[0] + "/#"
        assert event.configuration_version == 2
        assert event.published_at_seconds is not None
        assert started <= event.published_at_seconds <= event.received_at_seconds
        assert event.received_at_seconds - event.published_at_seconds < 10


def test_what_is_not_stamped_has_no_id_and_no_delay(whole: Whole, address: str) -> None:
    events: list[Event] = []
    with Listener(whole.broker) as plain:
        plain.publish_surely("alarm/1", b"plain", retain=True)
        try:
            with whole.two_flows(address, events):
                wait_until(lambda: bool(events), "the retained event")
        finally:
            plain.publish_surely("alarm/1", b"", retain=True)
    assert (events[0].payload, events[0].event_id) == (b"plain", None)
    assert events[0].published_at_seconds is None


def test_after_leaving_no_event_arrives(whole: Whole, address: str) -> None:
    events: list[Event] = []
    with Publisher("127.0.0.1", whole.broker, id="p0") as client:
        with whole.two_flows(address, events):
            until_heard(client, "alarm/1", events)
        count = len(events)
        with Listener(whole.broker) as witness:
            witness.subscribe("alarm/1")
            client.publish("alarm/1", b"later", qos=1)
            witness.wait_for(b"later")
        assert len(events) == count


def test_overlapping_filters_each_get_an_event_once(whole: Whole, address: str) -> None:
    events: list[Event] = []
    one_flow = whole.subscriber(address)
    # Four subscriptions in two flows: the two of each flow overlap.
    for name in ("camera/#", "camera/+", "camera/1", "+/1"):
        one_flow.subscribe(name, utility=LOW, on_event=events.append)
    with one_flow, Publisher("127.0.0.1", whole.broker, id="p0") as client:
        wait_until(
            lambda: (client.publish("camera/1", b"?"), len({e.filter for e in events}) == 4)[1],
            "all four filters",
        )
        marked = client.publish("camera/1", b"once", qos=1)
        last = client.publish("camera/1", b"last", qos=1)

        def count(event_id: str, name: str) -> int:
            return sum((e.event_id, e.filter) == (event_id, name) for e in events)

        names = ("camera/#", "camera/+", "camera/1", "+/1")
        wait_until(lambda: all(count(last, name) for name in names), "the last event")
        assert {name: count(marked, name) for name in names} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("quality", [0, 1, 2])
def test_what_was_published_is_sent_before_leaving(whole: Whole, quality: int) -> None:
    with Listener(whole.broker) as listener:
        listener.subscribe("leaving")
        with Publisher("127.0.0.1", whole.broker, id="brief") as client:
            for number in range(20):
                client.publish("leaving", b"%d" % number, qos=quality)
        wait_until(lambda: len(listener.received) == 20, "20 events", seconds=5)


def test_a_topic_with_a_wildcard_is_refused(whole: Whole) -> None:
    with (
        Publisher("127.0.0.1", whole.broker, id="p0") as client,
        pytest.raises(ValueError, match="wildcard"),
    ):
        client.publish("alarm/#", b"")


# -- entering and leaving --------------------------------------------------------------------------


def test_one_may_subscribe_and_unsubscribe_while_inside(whole: Whole, address: str) -> None:
    events: list[Event] = []
    with (
        whole.subscriber(address) as crew,
        Publisher("127.0.0.1", whole.broker, id="p0") as client,
    ):
        crew.subscribe("alarm/1", utility=HIGH, on_event=events.append)
        until_heard(client, "alarm/1", events)
        other: list[Event] = []
        crew.subscribe("camera/1", utility=LOW, on_event=other.append)
        until_heard(client, "camera/1", other)
        crew.unsubscribe("alarm/1")

        def quiet() -> bool:
            count = len(events)
            last = client.publish("alarm/1", b"anybody?", qos=1)
            client.publish("camera/1", b"after", qos=1)
            wait_until(lambda: other[-1].payload == b"after", "a later event")
            return len(events) == count and last not in {event.event_id for event in events}

        wait_until(quiet, "no more alarms")


def test_once_entered_the_subscriptions_are_there(far_whole: Whole, address: str) -> None:
    events: list[Event] = []
    with (
        Publisher("127.0.0.1", far_whole.broker, id="p0") as client,
        Listener(far_whole.broker) as witness,
    ):
        witness.subscribe("alarm/1")
        with far_whole.two_flows(address, events):
            client.publish("alarm/1", b"at once", qos=1)
            witness.wait_for(b"at once")
            wait_until(lambda: bool(events), "the event published right after entering", seconds=3)


def test_a_subscriber_may_come_back_at_once(whole: Whole, address: str) -> None:
    events: list[Event] = []
    with whole.two_flows(address, events):
        pass
    with (
        whole.two_flows(address, events),
        Publisher("127.0.0.1", whole.broker, id="p0") as client,
    ):
        until_heard(client, "alarm/1", events)


def test_two_subscribers_share_an_address_whatever_their_names(whole: Whole, address: str) -> None:
    with whole.two_flows(address, [], name="engine2"), whole.two_flows(address, [], name="engine1"):
        assert len({port for _, port in whole.peers}) == 4


def test_subscriptions_survive_a_broker_that_restarts(
    state_file: Path, address: str, tmp_path: Path
) -> None:
    port, events = free_port(), list[Event]()
    with ExitStack() as running, ExitStack() as first:
        first.enter_context(mosquitto(tmp_path, port))
        whole = running.enter_context(contextmanager(a_whole)(port, state_file))
        running.enter_context(whole.two_flows(address, events))
        with Publisher("127.0.0.1", port, id="before") as client:
            until_heard(client, "alarm/1", events)
        first.close()
        events.clear()
        running.enter_context(mosquitto(tmp_path, port))
        with Publisher("127.0.0.1", port, id="after") as client:
            until_heard(client, "alarm/1", events)


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_service_that_is_away_is_a_refusal(address: str) -> None:
    crew = Subscriber(f"http://127.0.0.1:{free_port()}", id="crew", switch="core", address=address)
    with pytest.raises(ServiceRefused, match="does not answer"), crew:
        pass


def test_what_the_service_refuses_opens_no_connection(whole: Whole, address: str) -> None:
    crew = Subscriber(whole.service, id="crew", switch="attic", address=address)
    crew.subscribe("alarm/1", utility=HIGH, on_event=print)
    with pytest.raises(ServiceRefused, match="attic"), crew:
        pass
    assert whole.peers == []


def test_a_port_in_use_is_a_refused_connection(whole: Whole, address: str) -> None:
    crew = whole.two_flows(address, [])
    with (
        socket.create_server((address, 20_000)),
        socket.create_server((address, 20_001)),
        pytest.raises(ConnectionRefused, match="in use"),
        crew,
    ):
        pass


def test_after_a_refused_flow_the_others_are_closed(whole: Whole, address: str) -> None:
    crew = whole.two_flows(address, [])
    with (
        socket.create_server((address, 20_002)),
        socket.create_server((address, 20_003)),
        pytest.raises(ConnectionRefused, match="in use"),
        crew,
    ):
        pass
    assert whole.peers == [(address, 20_000)]


def test_a_gateway_that_is_away_is_a_refused_connection(state_file: Path, address: str) -> None:
    gateway = Gateway(address=IPv4Address("127.0.0.1"), port=free_port())
    with served(site(), state_file, gateway) as url:
        ServiceClient(url).register_publisher(publisher("p0", RATES))
        crew = Subscriber(url, id="crew", switch="core", address=address)
        crew.subscribe("alarm/1", utility=HIGH, on_event=print)
        with pytest.raises(ConnectionRefused, match="refused"), crew:
            pass


def test_a_broker_that_is_away_is_a_refused_connection() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefused, match=rf"127\.0\.0\.1:{port}: .*refused"):
        open_connection("127.0.0.1", port, client_id="x")


def test_a_gateway_without_its_broker_is_a_refused_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firedex_clients.mqtt_connection.PATIENCE_SECONDS", 1.0)
    relay = Relay(("127.0.0.1", free_port()), FlowTable(), coins())
    with running_relay(relay) as port, pytest.raises(ConnectionRefused, match="no answer in time"):
        open_connection("127.0.0.1", port, client_id="x", bind=(fresh_address(), 20_000))


def test_an_address_that_is_not_ipv4_is_refused(whole: Whole) -> None:
    with pytest.raises(ValueError, match="::1"):
        whole.subscriber("::1")
