"""Subscriptions that move between flows: no event is lost or duplicated, and the order is kept."""

import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.transport.mqtt.version import MQTT_3
from firedex.wire import LogUtility
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, Subscriber
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.loopback_parts import Listener, running_relay, seeded_random
from tests.support.sn_parts import running_sn_gateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LOG = LogUtility(weight=1.0)
TOPICS = [f"move/{n}" for n in range(4)]
MOVES = 200
RATE_PER_SECOND = 400.0


@pytest.fixture
def site(broker: int) -> Iterator[tuple[FakeService, str, Relay]]:
    relay = Relay(("127.0.0.1", broker), FlowTable(), seeded_random())
    with running_relay(relay) as port, running_sn_gateway(broker) as (_, udp):
        service = FakeService(port, udp_port=udp)
        with running_service(service) as url:
            yield service, url, relay


@contextmanager
def load(broker: int, sent: list[tuple[str, str]], qos: int = 0) -> Iterator[threading.Event]:
    """Publish events of all topics until the context ends."""
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
    """Return the sequence numbers by topic and flow, in order of arrival."""
    by_topic_and_flow: dict[tuple[str, int], list[int]] = defaultdict(list)
    for event in events:
        assert event.event_id is not None
        by_topic_and_flow[event.topic, event.flow].append(int(event.event_id.split("-")[1]))
    return by_topic_and_flow


@pytest.mark.parametrize(("qos", "transport"), [(0, "tcp"), (1, "tcp"), (0, "udp"), (1, "udp")])
def test_moves_under_load_lose_and_duplicate_no_event(
    site: tuple[FakeService, str, Relay],
    broker: int,
    address: str,
    qos: int,
    transport: Transport,
) -> None:
    service, url, _ = site
    events: list[Event] = []
    generator = seeded_random(qos)
    service.set_plan({topic: n % 2 for n, topic in enumerate(TOPICS)})
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    for topic in TOPICS:
        crew.subscribe(topic, utility=LOG, on_event=events.append, qos=qos)
    sent: list[tuple[str, str]] = []
    with crew, load(broker, sent, qos) as stop:
        wait_until(lambda: len(events) > 20, "events")
        for _ in range(MOVES):
            version = service.set_plan(move_to_other_flows(service.flow_numbers, generator))
            wait_until(partial(has_applied, crew, version), "the move")
        assert crew.moves >= MOVES * len(TOPICS) * 0.9
        stop.set()
        expected = {event_id for event_id, _ in sent}
        wait_until(lambda: len(events) >= len(expected), "all events")
        wait_until(lambda: crew.settled(), "the last move")
    received_ids = [event.event_id for event in events]
    lost = expected - set(received_ids)
    assert not lost, f"{len(lost)} of {len(expected)} lost"
    assert len(received_ids) == len(set(received_ids)), "some events arrived twice"
    for (topic, flow), numbers in sequences(events).items():
        assert numbers == sorted(numbers), f"order of {topic} on flow {flow}"
    assert len({event.flow for event in events}) == 4, "nothing moved"


def move_to_other_flows(places: dict[str, int], generator: random.Random) -> dict[str, int]:
    """Return a plan in which each filter has another one of four flows."""
    return {topic: (flow + generator.randrange(1, 4)) % 4 for topic, flow in places.items()}


@pytest.mark.parametrize("protocol", ["MQTT 5", "MQTT 3.1.1", "MQTT-SN"])
def test_move_does_not_repeat_retained_messages(
    site: tuple[FakeService, str, Relay], broker: int, address: str, protocol: str
) -> None:
    service, url, _ = site
    service.set_plan({"kept/#": 0, "live": 0})
    retained_events, live_events = list[Event](), list[Event]()
    transport: Transport = "udp" if protocol == "MQTT-SN" else "tcp"
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    if protocol == "MQTT 3.1.1":
        crew._levels["127.0.0.1", service.gateway_port] = MQTT_3
    crew.subscribe("kept/#", utility=LOG, on_event=retained_events.append)
    crew.subscribe("live", utility=LOG, on_event=live_events.append)
    with Listener(broker) as plain:
        for n in range(3):
            plain.publish_and_wait(f"kept/{n}", b"unstamped", retain=True)

        def arrives_over(flow: int) -> bool:
            """Publish once more; soon after a move an event may still take the old flow only."""
            plain.publish_and_wait("live", b"%d" % flow)
            return any(event.flow == flow for event in live_events)

        try:
            with crew:
                wait_until(lambda: len(retained_events) == 3, "the retained messages")
                for flow in (1, 0, 2):
                    version = service.set_plan({"kept/#": flow, "live": flow})
                    wait_until(partial(has_applied, crew, version), "the move")
                    wait_until(partial(arrives_over, flow), "a live event", poll_seconds=0.1)
                assert crew._session is not None
                places = crew._session.flows.slots
                wait_until(
                    lambda: not any(each.connection.unsubscribing for each in places()),
                    "the old flows to close, because events without stamp would arrive over both",
                )
                plain.publish_and_wait("kept/1", b"new", retain=True)
                wait_until(lambda: retained_events[-1].payload == b"new", "the new value")
        finally:
            for n in range(3):
                plain.publish_and_wait(f"kept/{n}", b"", retain=True)
    assert [event.payload for event in retained_events] == [b"unstamped"] * 3 + [b"new"]
    assert [event.retained for event in retained_events] == [True] * 3 + [False]


def has_applied(crew: Subscriber, version: int) -> bool:
    by_topic_and_flow = crew.configuration
    return by_topic_and_flow is not None and by_topic_and_flow.version >= version and crew.settled()


def test_flow_without_filters_is_closed(site: tuple[FakeService, str, Relay], address: str) -> None:
    service, url, relay = site
    service.set_plan({TOPICS[0]: 0, TOPICS[1]: 1})
    crew = Subscriber(url, id="crew", switch="core", address=address)
    for topic in TOPICS[:2]:
        crew.subscribe(topic, utility=LOG, on_event=print)
    with crew:
        assert len(relay.connections) == 2
        service.set_plan({TOPICS[0]: 0, TOPICS[1]: 0})
        wait_until(lambda: len(relay.connections) == 1, "the second flow to be closed")
        service.set_plan({TOPICS[0]: 0, TOPICS[1]: 1})
        wait_until(lambda: len(relay.connections) == 2, "the second flow to be opened again")
    wait_until(lambda: not relay.connections, "all flows to be closed")


def test_filters_stay_on_their_flow_if_the_new_flow_cannot_be_opened(
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
        wait_until(lambda: has_applied(crew, version), "the plan")
        client.publish(TOPICS[0], b"x")
        wait_until(lambda: bool(events), "an event")
        assert (events[-1].priority, events[-1].configuration_version) == (5, version)
        assert set(relay.connections) == before


@contextmanager
def running_gateway(broker: int, flows: FlowTable, service: FakeService) -> Iterator[None]:
    """Run a gateway for both transports on the ports that the service announces."""
    relay = Relay(("127.0.0.1", broker), flows, seeded_random())
    with (
        running_relay(relay, service.gateway_port),
        running_sn_gateway(broker, flows, port=service.udp_port),
    ):
        yield


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_filter_unsubscribed_during_an_outage_of_a_persistent_flow_is_removed(
    broker: int, address: str, transport: Transport
) -> None:
    """The session at the broker keeps the filter until the client reconnects."""
    service = FakeService(free_port(), udp_port=free_port())
    flows, events = FlowTable(), list[Event]()
    with ExitStack() as running, Publisher("127.0.0.1", broker, id="p") as client:
        url = running.enter_context(running_service(service))
        with running_gateway(broker, flows, service):
            crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
            for topic in TOPICS[:2]:
                crew.subscribe(topic, utility=LOG, on_event=events.append, qos=1)
            running.enter_context(crew)
        wait_until(lambda: not crew.settled(), "the outage to be noticed")
        crew.unsubscribe(TOPICS[0])
        flows.apply(service.configuration())
        with running_gateway(broker, flows, service):
            wait_until(crew.settled, "the flow to be back")
            assert crew._session is not None
            (slot,) = crew._session.flows.slots()
            wait_until(
                lambda: not slot.connection.unsubscribing, "the unsubscription to be acknowledged"
            )
            client.publish(TOPICS[0], b"no", qos=1)
            client.publish(TOPICS[1], b"yes", qos=1)
            wait_until(lambda: bool(events), "the event of the other filter")
            assert [event.payload for event in events] == [b"yes"]
            (flow,) = flows.flows()
            assert flow.counts.topic(TOPICS[0].encode()).offered == 0
            running.close()
