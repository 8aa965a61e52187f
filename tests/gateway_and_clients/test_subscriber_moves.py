"""Subscriptions that move between flows under load: nothing lost, nothing twice, order kept."""

import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from fake_service import FakeService, running_service
from free_ports import free_port
from loopback_parts import Listener, coins, running_relay, wait_until
from sn_parts import running_sn_gateway

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.mqtt_level_choice import MQTT_3
from firedex.wire import LogUtility
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, Subscriber

LOG = LogUtility(weight=1.0)
TOPICS = [f"move/{n}" for n in range(4)]
MOVES = 200
RATE_PER_SECOND = 400.0


@pytest.fixture
def site(broker: int) -> Iterator[tuple[FakeService, str, Relay]]:
    relay = Relay(("127.0.0.1", broker), FlowTable(), coins())
    with running_relay(relay) as port, running_sn_gateway(broker) as (_, udp):
        service = FakeService(port, udp_port=udp)
        with running_service(service) as url:
            yield service, url, relay


@contextmanager
def load(broker: int, sent: list[tuple[str, str]], qos: int = 0) -> Iterator[threading.Event]:
    """Events of all topics, until left."""
    stop = threading.Event()
    with Publisher("127.0.0.1", broker, id="load") as client:

        def publish() -> None:
            number = 0
            while not stop.is_set():
                topic = TOPICS[number % len(TOPICS)]
                sent.append((client.publish(topic, b"%d" % number, qos=qos), topic))
                number += 1
                time.sleep(1 / RATE_PER_SECOND)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join()


def sequences(events: list[Event]) -> dict[tuple[str, int], list[int]]:
    """Sequence numbers by topic and flow, as they came."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for event in events:
        assert event.event_id is not None
        found[event.topic, event.flow].append(int(event.event_id.split("-")[1]))
    return found


@pytest.mark.parametrize(("qos", "transport"), [(0, "tcp"), (1, "tcp"), (0, "udp"), (1, "udp")])
def test_200_moves_under_load(
    site: tuple[FakeService, str, Relay],
    broker: int,
    address: str,
    qos: int,
    transport: Transport,
) -> None:
    service, url, _ = site
    events: list[Event] = []
    generator = coins(qos)
    service.set_plan({topic: n % 2 for n, topic in enumerate(TOPICS)})
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    for topic in TOPICS:
        crew.subscribe(topic, utility=LOG, on_event=events.append, qos=qos)
    sent: list[tuple[str, str]] = []
    with crew, load(broker, sent, qos) as stop:
        wait_until(lambda: len(events) > 20, "events")
        for _ in range(MOVES):
            version = service.set_plan(shuffled(service.places, generator))
            wait_until(lambda v=version: at(crew, v), "the move")
        assert crew.moves >= MOVES * len(TOPICS) * 0.9
        stop.set()
        expected = {event_id for event_id, _ in sent}
        wait_until(lambda: len(events) >= len(expected), "all events")
        wait_until(lambda: crew.settled(), "the last move")
    got = [event.event_id for event in events]
    lost = expected - set(got)
    assert not lost, f"{len(lost)} of {len(expected)} lost"
    assert len(got) == len(set(got)), "some came twice"
    for (topic, flow), numbers in sequences(events).items():
        assert numbers == sorted(numbers), f"order of {topic} on flow {flow}"
    assert len({event.flow for event in events}) == 4, "nothing moved"


def shuffled(places: dict[str, int], generator: random.Random) -> dict[str, int]:
    """The same filters on other flows out of four."""
    return {topic: (flow + generator.randrange(1, 4)) % 4 for topic, flow in places.items()}


@pytest.mark.parametrize("spoken", ["MQTT 5", "MQTT 3.1.1", "MQTT-SN"])
def test_a_move_brings_no_retained_message_again(
    site: tuple[FakeService, str, Relay], broker: int, address: str, spoken: str
) -> None:
    service, url, _ = site
    service.set_plan({"kept/#": 0, "live": 0})
    kept, live = list[Event](), list[Event]()
    transport: Transport = "udp" if spoken == "MQTT-SN" else "tcp"
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    if spoken == "MQTT 3.1.1":
        crew._levels["127.0.0.1", service.gateway_port] = MQTT_3
    crew.subscribe("kept/#", utility=LOG, on_event=kept.append)
    crew.subscribe("live", utility=LOG, on_event=live.append)
    with Listener(broker) as plain:
        for n in range(3):
            plain.publish_surely(f"kept/{n}", b"unstamped", retain=True)
        try:
            with crew:
                wait_until(lambda: len(kept) == 3, "what is retained")
                for flow in (1, 0, 2):
                    version = service.set_plan({"kept/#": flow, "live": flow})
                    wait_until(lambda v=version: at(crew, v), "the move")
                    plain.publish_surely("live", b"%d" % flow)
                    wait_until(lambda f=flow: any(e.flow == f for e in live), "a live event")
                assert crew._flows is not None
                places = crew._flows.places
                wait_until(
                    lambda: not any(each.connection.unsubscribing for each in places()),
                    "the old flows to end: what is not stamped would come over both",
                )
                plain.publish_surely("kept/1", b"new", retain=True)
                wait_until(lambda: kept[-1].payload == b"new", "the new value")
        finally:
            for n in range(3):
                plain.publish_surely(f"kept/{n}", b"", retain=True)
    assert [event.payload for event in kept] == [b"unstamped"] * 3 + [b"new"]
    assert [event.retained for event in kept] == [True] * 3 + [False]


def at(crew: Subscriber, version: int) -> bool:
    found = crew.configuration
    return found is not None and found.version >= version and crew.settled()


def test_a_flow_without_filters_is_closed(
    site: tuple[FakeService, str, Relay], address: str
) -> None:
    service, url, relay = site
    service.set_plan({TOPICS[0]: 0, TOPICS[1]: 1})
    crew = Subscriber(url, id="crew", switch="core", address=address)
    for topic in TOPICS[:2]:
        crew.subscribe(topic, utility=LOG, on_event=print)
    with crew:
        assert len(relay.connections) == 2
        service.set_plan({TOPICS[0]: 0, TOPICS[1]: 0})
        wait_until(lambda: len(relay.connections) == 1, "the second to be closed")
        service.set_plan({TOPICS[0]: 0, TOPICS[1]: 1})
        wait_until(lambda: len(relay.connections) == 2, "it to be opened again")
    wait_until(lambda: not relay.connections, "all to be closed")


def test_a_flow_that_cannot_be_opened_leaves_its_filters_where_they_are(
    site: tuple[FakeService, str, Relay], broker: int, address: str
) -> None:
    service, url, _ = site
    service.set_plan({TOPICS[0]: 0})
    events: list[Event] = []
    crew = Subscriber(url, id="crew", switch="core", address=address)
    crew.subscribe(TOPICS[0], utility=LOG, on_event=events.append)
    with (
        socket.create_server((address, 20_002)),
        socket.create_server((address, 20_003)),
        crew,
        Publisher("127.0.0.1", broker, id="p") as client,
    ):
        version = service.set_plan({TOPICS[0]: 1})
        wait_until(lambda: crew.configuration.version >= version, "the plan")  # type: ignore[union-attr]
        sent = [client.publish(TOPICS[0], b"x") for _ in range(20)]
        wait_until(lambda: len(events) == len(sent), "all events")
        assert {event.flow for event in events} == {0}
        assert not crew.settled()


def test_priority_and_version_change_on_the_open_connection(
    site: tuple[FakeService, str, Relay], broker: int, address: str
) -> None:
    service, url, relay = site
    service.set_plan({TOPICS[0]: 0})
    events: list[Event] = []
    crew = Subscriber(url, id="crew", switch="core", address=address)
    crew.subscribe(TOPICS[0], utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", broker, id="p") as client:
        before: set[Any] = set(relay.connections)
        service.priorities[0] = 5
        version = service.set_plan({TOPICS[0]: 0})
        wait_until(lambda: at(crew, version), "the plan")
        client.publish(TOPICS[0], b"x")
        wait_until(lambda: bool(events), "an event")
        assert (events[-1].priority, events[-1].configuration_version) == (5, version)
        assert set(relay.connections) == before


@contextmanager
def gateway(broker: int, flows: FlowTable, service: FakeService) -> Iterator[None]:
    """Both transports on the ports that the service tells of."""
    relay = Relay(("127.0.0.1", broker), flows, coins())
    with (
        running_relay(relay, service.gateway_port),
        running_sn_gateway(broker, flows, port=service.udp_port),
    ):
        yield


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_what_is_unwanted_while_a_lasting_flow_is_down_ends(
    broker: int, address: str, transport: Transport
) -> None:
    """Its session at the broker knows nothing of that until it is told."""
    service = FakeService(free_port(), udp_port=free_port())
    flows, events = FlowTable(), list[Event]()
    with ExitStack() as running, Publisher("127.0.0.1", broker, id="p") as client:
        url = running.enter_context(running_service(service))
        with gateway(broker, flows, service):
            crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
            for topic in TOPICS[:2]:
                crew.subscribe(topic, utility=LOG, on_event=events.append, qos=1)
            running.enter_context(crew)
        wait_until(lambda: not crew.settled(), "the outage to be noticed")
        crew.unsubscribe(TOPICS[0])
        flows.follow(service.configuration())
        with gateway(broker, flows, service):
            wait_until(crew.settled, "the flow to be back")
            assert crew._flows is not None
            (place,) = crew._flows.places()
            wait_until(lambda: not place.connection.unsubscribing, "it to be unsubscribed")
            client.publish(TOPICS[0], b"no", qos=1)
            client.publish(TOPICS[1], b"yes", qos=1)
            wait_until(lambda: bool(events), "the event that is wanted")
            assert [event.payload for event in events] == [b"yes"]
            (flow,) = flows.flows()
            assert flow.counts.topic(TOPICS[0].encode()).offered == 0
            running.close()
