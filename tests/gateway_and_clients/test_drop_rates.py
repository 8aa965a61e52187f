"""Ω on both transports: as many are dropped as it says, and nothing else is.

Five subscribers, one for each drop rate, take the same events at the same time, so that what they
see can be compared. All are of the library, on flows that the fake service plans.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fake_service import FakeService, running_service
from free_ports import free_port
from loopback_parts import coins, running_relay, wait_until
from scipy.stats import binom
from sn_parts import running_sn_gateway

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.relay import Relay
from firedex.wire import Configuration, LogUtility
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, Subscriber

DROP_RATES = [0.0, 0.1, 0.5, 0.9, 1.0]
EVENTS = 3000
SURE_EVENTS = 60
RATE_PER_SECOND = 600.0
CONFIDENCE = 0.999


class Taken:
    """What one drop rate let through."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.sure: list[Event] = []

    def delays(self) -> dict[int, float]:
        """By the event's number."""
        return {int(e.payload): d for e in self.events if (d := e.delay_seconds) is not None}


@pytest.fixture
def site(broker: int) -> Iterator[tuple[FakeService, str, FlowTable]]:
    flows = FlowTable()
    with ExitStack() as running:
        relay = Relay(("127.0.0.1", broker), flows, coins(11))
        port = running.enter_context(running_relay(relay))
        _, udp = running.enter_context(running_sn_gateway(broker, flows, port=free_port()))
        service = FakeService(port, udp_port=udp)
        url = running.enter_context(running_service(service))
        yield service, url, flows


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_what_each_drop_rate_lets_through(
    site: tuple[FakeService, str, FlowTable], broker: int, address: str, transport: Transport
) -> None:
    service, url, flows = site
    # One filter for each drop rate, on a flow of its own; those at QoS 1 and 2 on further flows.
    places = {f"rate/{n}/#": n for n in range(5)} | {f"sure/{q}/#": 4 + q for q in (1, 2)}
    service.set_plan(places, dict(enumerate(DROP_RATES)) | {5: 1.0, 6: 1.0})
    taken = [Taken() for _ in DROP_RATES]
    sure: list[Event] = []
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    for n, each in enumerate(taken):
        crew.subscribe(f"rate/{n}/#", utility=LogUtility(weight=1.0), on_event=each.events.append)
    for quality in (1, 2):
        crew.subscribe(
            f"sure/{quality}/#",
            utility=LogUtility(weight=1.0),
            on_event=sure.append,
            qos=quality,
        )
    with crew, Publisher("127.0.0.1", broker, id="source") as client:
        flows.follow(service.configuration())
        marks, order = threading.Event(), coins(3)  # no rate is always the first
        start = time.monotonic()
        for number in range(EVENTS):
            for n in order.sample(range(len(DROP_RATES)), len(DROP_RATES)):
                client.publish(f"rate/{n}/x", b"%d" % number)
            if number % (EVENTS // SURE_EVENTS) == 0:
                for quality in (1, 2):
                    client.publish(f"sure/{quality}/x", b"%d" % number, qos=quality)
            ahead = start + number / RATE_PER_SECOND - time.monotonic()
            if ahead > 0:
                marks.wait(ahead)
        wait_until(lambda: len(sure) == 2 * SURE_EVENTS, "everything at QoS 1 and 2")
        wait_until(lambda: len(taken[0].events) == EVENTS, "everything at a drop rate of 0")
        assert crew.settled(), "a connection was lost"
    for drop_rate, each in zip(DROP_RATES, taken, strict=True):
        found = len({event.event_id for event in each.events})
        assert found == len(each.events)
        least, most = binom.interval(CONFIDENCE, EVENTS, 1 - drop_rate)
        print(f"{transport} {drop_rate}: {found} of {EVENTS}, median {_median_ms(each):.2f} ms")
        assert least <= found <= most, f"drop rate {drop_rate}: {found} of {EVENTS}"
    # A drop rate must not make the rest wait: compared with the event that was published beside it,
    # so that whatever else the machine did befell both.
    beside = taken[0].delays()
    longer = [delay - beside[number] for number, delay in taken[3].delays().items()]
    assert statistics.median(longer) <= 0.2e-3 + 0.2 * statistics.median(beside.values())


def _median_ms(taken: Taken) -> float:
    return 1e3 * statistics.median(taken.delays().values()) if taken.events else 0.0


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_what_is_retained_is_never_dropped(
    site: tuple[FakeService, str, FlowTable], broker: int, address: str, transport: Transport
) -> None:
    service, url, flows = site
    service.set_plan({"held/#": 0}, {0: 1.0})
    events: list[Event] = []
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    with Publisher("127.0.0.1", broker, id="source") as client:
        sent = {client.publish(f"held/{n}", b"x", qos=1, retain=True) for n in range(5)}
        # The gateway knows the flow before anything is subscribed.
        crew.subscribe("held/#", utility=LogUtility(weight=1.0), on_event=events.append)
        flows.follow(planned_for(crew, service))
        with crew:
            wait_until(lambda: len(events) == 5, "what is retained")
            (flow,) = flows.flows()
            assert flow.drop_rate == 1.0
        for n in range(5):
            client.publish(f"held/{n}", b"", qos=1, retain=True)
    assert {event.event_id for event in events} == sent
    assert {event.qos for event in events} == {0}


def planned_for(crew: Subscriber, service: FakeService) -> Configuration:
    """What the service will answer when the subscriber is entered."""
    crew._register()
    return service.configuration()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_keep_alive_survives(
    site: tuple[FakeService, str, FlowTable],
    broker: int,
    address: str,
    transport: Transport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Longer than the keep-alive, nearly nothing delivered: the connections are still the first."""
    monkeypatch.setattr("firedex_clients.tcp_flow.KEEP_ALIVE_SECONDS", 2)
    monkeypatch.setattr("firedex_clients.sn_flow.KEEP_ALIVE_SECONDS", 2)
    service, url, flows = site
    service.set_plan({"kept/0": 0, "kept/1": 1}, {0: 0.9, 1: 1.0})
    crew = Subscriber(url, id="crew", switch="core", address=address, transport=transport)
    for n in range(2):
        crew.subscribe(f"kept/{n}", utility=LogUtility(weight=1.0), on_event=lambda _: None)
    with crew, Publisher("127.0.0.1", broker, id="source") as client:
        flows.follow(service.configuration())
        until = time.monotonic() + 5
        while time.monotonic() < until:
            for n in range(2):
                client.publish(f"kept/{n}", b"x")
            time.sleep(0.01)
        assert crew._flows is not None
        assert [place.connection.connects for place in crew._flows.places()] == [1, 1]
