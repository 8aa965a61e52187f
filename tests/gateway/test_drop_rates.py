"""Drop rates over both transports, with subscribers of the client library and a fake service.

One subscriber has five flows, one for each drop rate. Each flow is offered the same number of
events at the same times, so that the delivered events can be compared.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address

import pytest
from scipy.stats import binom

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.wire import LogUtility, SubscriberRegistration, Subscription
from firedex.wire import Subscriber as SubscriberValue
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, Subscriber
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.loopback_parts import running_relay, seeded_random
from tests.support.service_requests import ServiceRequests
from tests.support.sn_parts import running_sn_gateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DROP_RATES = [0.0, 0.1, 0.5, 0.9, 1.0]
EVENTS = 3000
GUARANTEED_EVENTS = 60
RATE_PER_SECOND = 600.0
CONFIDENCE = 0.999


class DeliveredEvents:
    """The events that were delivered at one drop rate."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.guaranteed: list[Event] = []

    def delays(self) -> dict[int, float]:
        """Return the delays by the number of the event."""
        return {int(e.payload): d for e in self.events if (d := e.delay_seconds) is not None}


@pytest.fixture
def site(broker: int) -> Iterator[tuple[FakeService, str, FlowTable]]:
    flows = FlowTable()
    with ExitStack() as running:
        relay = Relay(("127.0.0.1", broker), flows, seeded_random(11))
        port = running.enter_context(running_relay(relay))
        _, udp = running.enter_context(running_sn_gateway(broker, flows, port=free_port()))
        service = FakeService(port, udp_port=udp)
        url = running.enter_context(running_service(service))
        yield service, url, flows


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_delivered_events_match_each_drop_rate(
    site: tuple[FakeService, str, FlowTable], broker: int, address: str, transport: Transport
) -> None:
    service, url, flows = site
    # Each drop rate has one filter and one flow; the filters at QoS 1 and 2 have further flows.
    flows_by_filter = {f"rate/{n}/#": n for n in range(5)} | {
        f"guaranteed/{q}/#": 4 + q for q in (1, 2)
    }
    service.set_plan(flows_by_filter, dict(enumerate(DROP_RATES)) | {5: 1.0, 6: 1.0})
    delivered = [DeliveredEvents() for _ in DROP_RATES]
    guaranteed: list[Event] = []
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    for n, each in enumerate(delivered):
        crew.subscribe(f"rate/{n}/#", utility=LogUtility(weight=1.0), on_event=each.events.append)
    for qos in (1, 2):
        crew.subscribe(
            f"guaranteed/{qos}/#",
            utility=LogUtility(weight=1.0),
            on_event=guaranteed.append,
            qos=qos,
        )
    with crew, Publisher("127.0.0.1", broker, id="source") as client:
        flows.apply(service.configuration())
        never_set, order = threading.Event(), seeded_random(3)  # random order within each round
        start = time.monotonic()
        for number in range(EVENTS):
            for n in order.sample(range(len(DROP_RATES)), len(DROP_RATES)):
                client.publish(f"rate/{n}/x", b"%d" % number)
            if number % (EVENTS // GUARANTEED_EVENTS) == 0:
                for qos in (1, 2):
                    client.publish(f"guaranteed/{qos}/x", b"%d" % number, qos=qos)
            wait_seconds = start + number / RATE_PER_SECOND - time.monotonic()
            if wait_seconds > 0:
                never_set.wait(wait_seconds)
        wait_until(lambda: len(guaranteed) == 2 * GUARANTEED_EVENTS, "all events at QoS 1 and 2")
        wait_until(lambda: len(delivered[0].events) == EVENTS, "all events at drop rate 0")
        assert crew.settled(), "a connection was lost"
    for drop_rate, each in zip(DROP_RATES, delivered, strict=True):
        count = len({event.event_id for event in each.events})
        assert count == len(each.events)
        minimum, maximum = binom.interval(CONFIDENCE, EVENTS, 1 - drop_rate)
        print(f"{transport} {drop_rate}: {count} of {EVENTS}, median {_median_ms(each):.2f} ms")
        assert minimum <= count <= maximum, f"drop rate {drop_rate}: {count} of {EVENTS}"
    # A drop rate must not delay the delivered events. Each delay is compared with that of the event
    # published in the same round at drop rate 0, because other load of the machine affects both.
    reference_delays = delivered[0].delays()
    additional_delays = [
        delay - reference_delays[number] for number, delay in delivered[3].delays().items()
    ]
    assert statistics.median(additional_delays) <= 0.2e-3 + 0.2 * statistics.median(
        reference_delays.values()
    )


def _median_ms(delivered: DeliveredEvents) -> float:
    return 1e3 * statistics.median(delivered.delays().values()) if delivered.events else 0.0


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_retained_events_are_never_dropped(
    site: tuple[FakeService, str, FlowTable], broker: int, address: str, transport: Transport
) -> None:
    service, url, flows = site
    service.set_plan({"held/#": 0}, {0: 1.0})
    events: list[Event] = []
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    with Publisher("127.0.0.1", broker, id="source") as client:
        sent = {client.publish(f"held/{n}", b"x", qos=1, retain=True) for n in range(5)}
        # The gateway must know the flow before the client subscribes.
        crew.subscribe("held/#", utility=LogUtility(weight=1.0), on_event=events.append)
        register(url, address, transport)
        flows.apply(service.configuration())
        with crew:
            wait_until(lambda: len(events) == 5, "the retained events")
            (flow,) = flows.flows()
            assert flow.drop_rate == 1.0
        for n in range(5):
            client.publish(f"held/{n}", b"", qos=1, retain=True)
    assert {event.event_id for event in events} == sent
    assert {event.qos for event in events} == {0}


def register(url: str, address: str, transport: Transport) -> None:
    """Register the subscriber in the same way as the client library."""
    subscriptions = (Subscription(filter="held/#", utility=LogUtility(weight=1.0)),)
    subscriber = SubscriberValue(
        id="crew", switch="core", role="crew", transport=transport, subscriptions=subscriptions
    )
    ServiceRequests(url).register_subscriber(
        SubscriberRegistration(subscriber=subscriber, address=IPv4Address(address))
    )


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_connections_stay_open_longer_than_the_keep_alive_at_high_drop_rates(
    site: tuple[FakeService, str, FlowTable],
    broker: int,
    address: str,
    transport: Transport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that no connection is opened a second time although few events are delivered."""
    monkeypatch.setattr("firedex_clients.tcp_connection.KEEP_ALIVE_SECONDS", 2)
    monkeypatch.setattr("firedex_clients.sn_flow.KEEP_ALIVE_SECONDS", 2)
    service, url, flows = site
    service.set_plan({"kept/0": 0, "kept/1": 1}, {0: 0.9, 1: 1.0})
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    for n in range(2):
        crew.subscribe(f"kept/{n}", utility=LogUtility(weight=1.0), on_event=lambda _: None)
    with crew, Publisher("127.0.0.1", broker, id="source") as client:
        flows.apply(service.configuration())
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for n in range(2):
                client.publish(f"kept/{n}", b"x")
            time.sleep(0.01)
        assert crew._session is not None
        assert [slot.connection.connects for slot in crew._session.flows.slots()] == [1, 1]
