"""Restarts of broker, gateway and service under load: the subscriber recovers without help.

It receives every QoS 1 event exactly once. Events that the broker had accepted but not delivered
when it was killed may be lost, because the broker saves its state to disk only from time to time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from firedex.wire import LogUtility
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, ServiceUnreachable, Subscriber
from firedex_clients.tcp_flow import TcpFlow
from tests.support.fake_service import FakeService, running_service
from tests.support.free_ports import free_port
from tests.support.restarting_parts import BrokerProcess, GatewayProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LOG = LogUtility(weight=1.0)


class Site:
    """A site in which each part can be restarted."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.broker = BrokerProcess(folder)
        self._service_port = free_port()
        self.url = f"http://127.0.0.1:{self._service_port}"
        self.gateway = GatewayProcess(self.broker.port, self.url)
        self.service = FakeService(self.gateway.port, udp_port=self.gateway.udp_port)
        self._serving = ExitStack()
        self.broker_killed_at = 0.0
        running.enter_context(self.broker.running())
        running.enter_context(self.gateway.running())
        running.callback(self.stop_service)
        self.start_service()

    def start_service(self) -> None:
        self._serving.enter_context(running_service(self.service, self._service_port))

    def stop_service(self) -> None:
        self._serving.close()

    def restart_broker(self) -> None:
        self.broker_killed_at = time.monotonic()
        self.broker.kill()
        self.broker.start()

    def restart_gateway(self) -> None:
        self.gateway.kill()
        self.gateway.start()

    def restart_service(self) -> None:
        self.stop_service()
        self.start_service()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(tmp_path, running)


@contextmanager
def load(broker: int, sent: dict[str, float]) -> Iterator[Publisher]:
    """Publish events at QoS 0 and 1 until the context ends; record the QoS 1 events in ``sent``."""
    stop = threading.Event()
    with Publisher("127.0.0.1", broker, id="load") as client:

        def publish() -> None:
            while not stop.wait(0.01):
                client.publish("qos_0_events", b"x")
                at = time.monotonic()
                sent[client.publish("qos_1_events", b"y", qos=1)] = at

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield client
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_subscriber_recovers_after_each_part_restarts_under_load(
    site: Site, address: str, transport: Transport
) -> None:
    site.service.set_plan({"qos_0_events": 0, "qos_1_events": 1})
    qos_0_events, qos_1_events, sent = list[Event](), list[Event](), dict[str, float]()
    crew = Subscriber(site.url, id="crew", switch="core", address=address, transport=transport)
    crew.subscribe("qos_0_events", utility=LOG, on_event=qos_0_events.append)
    crew.subscribe("qos_1_events", utility=LOG, on_event=qos_1_events.append, qos=1)

    def all_arrived(published: set[str]) -> bool:
        return published <= {event.event_id for event in qos_1_events}

    def has_recovered(qos_0_before: int, qos_1_before: int) -> bool:
        return (
            len(qos_0_events) > qos_0_before + 5
            and len(qos_1_events) > qos_1_before + 5
            and crew.settled()
        )

    with crew:
        site.broker.save("crew-1")
        all_delivered_at = 0.0
        with load(site.broker.port, sent):
            wait_until(lambda: len(qos_0_events) > 20 and len(qos_1_events) > 20, "events")
            restarts: list[Callable[[], None]] = [
                site.restart_gateway,
                site.restart_broker,
                site.restart_service,
            ]
            for restart in restarts:
                if restart == site.restart_broker:
                    all_delivered_at = time.monotonic()
                before = set(sent)  # events in the memory of the broker would be lost
                wait_until(partial(all_arrived, before), "all earlier events to arrive")
                restart()
                wait_until(
                    partial(has_recovered, len(qos_0_events), len(qos_1_events)),
                    f"the subscriber to recover after {restart.__name__} ({transport})",
                )
            version = site.service.set_plan({"qos_0_events": 1, "qos_1_events": 0})
            wait_until(
                lambda: crew.configuration is not None and crew.configuration.version >= version,
                "a new plan of the restarted service",
            )
        killed = site.broker_killed_at
        expected = {name for name, at in sent.items() if not all_delivered_at <= at <= killed}
        assert len(expected) > len(sent) / 2
        wait_until(
            lambda: expected <= {event.event_id for event in qos_1_events}, "every event at QoS 1"
        )
    ids = [event.event_id for event in qos_1_events]
    assert len(ids) == len(set(ids)), "some events arrived twice"


def test_subscriber_reconnects_on_its_own_flow_after_closing_its_socket(
    site: Site, address: str
) -> None:
    """Repeat this several times: a port that was used just before must not prevent it."""
    site.service.set_plan({"qos_0_events": 3})
    events: list[Event] = []
    crew = Subscriber(site.url, id="crew", switch="core", address=address)
    crew.subscribe("qos_0_events", utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", site.broker.port, id="p") as client:
        assert crew._session is not None
        (slot,) = crew._session.flows.slots()
        connection = slot.connection
        assert isinstance(connection, TcpFlow)
        used_ports = []

        def reconnected(connects_before: int) -> bool:
            return connection.connects > connects_before and crew.settled()

        def has_more_than(count: int) -> bool:
            return len(events) > count

        for round_number in range(6):
            sock = connection._socket
            assert sock is not None
            used_ports.append(sock.getsockname()[1])
            before = connection.connects
            crew._thread.call(connection._drop)  # type: ignore[union-attr]
            wait_until(
                partial(reconnected, before),
                "the flow to reconnect",
            )
            events_before = len(events)
            client.publish("qos_0_events", b"%d" % round_number)
            wait_until(partial(has_more_than, events_before), "an event")
        assert {event.flow for event in events} == {3}
        assert set(used_ports) == {20_006, 20_007}, "the two ports of the flow are used in turn"


def test_last_plan_stays_active_while_the_service_is_unreachable(site: Site, address: str) -> None:
    site.service.set_plan({"qos_0_events": 2})
    events: list[Event] = []
    crew = Subscriber(site.url, id="crew", switch="core", address=address)
    crew.subscribe("qos_0_events", utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", site.broker.port, id="p") as client:
        site.stop_service()
        site.restart_gateway()
        wait_until(lambda: (client.publish("qos_0_events", b"x"), bool(events))[1], "an event")
        assert events[-1].flow == 2


def test_subscriber_starts_with_the_saved_plan_if_the_service_is_unreachable(
    site: Site, address: str, tmp_path: Path
) -> None:
    site.service.set_plan({"qos_0_events": 2})
    plan_file = tmp_path / "plan.json"

    def crew() -> Subscriber:
        subscriber = Subscriber(
            site.url, id="crew", switch="core", address=address, plan_file=plan_file
        )
        subscriber.subscribe("qos_0_events", utility=LOG, on_event=events.append)
        return subscriber

    events: list[Event] = []
    with crew():
        pass
    site.stop_service()
    with crew(), Publisher("127.0.0.1", site.broker.port, id="p") as client:
        client.publish("qos_0_events", b"x")
        wait_until(lambda: bool(events), "an event")
    assert (events[0].flow, events[0].managed) == (2, True)


def test_subscriber_connects_to_the_broker_until_the_service_is_reachable(
    site: Site, address: str
) -> None:
    site.stop_service()
    site.service.set_plan({"qos_0_events": 2, "qos_1_events": 1})
    events: list[Event] = []
    crew = Subscriber(
        site.url,
        id="crew",
        switch="core",
        address=address,
        broker=f"127.0.0.1:{site.broker.port}",
    )
    crew.subscribe("qos_0_events", utility=LOG, on_event=events.append)
    crew.subscribe("qos_1_events", utility=LOG, on_event=events.append, qos=1)
    with crew, Publisher("127.0.0.1", site.broker.port, id="p") as client:
        assert crew.configuration is None
        client.publish("qos_0_events", b"x")
        client.publish("qos_1_events", b"x")
        wait_until(lambda: len(events) == 2, "both events")
        assert [event.managed for event in events] == [False, False]
        site.start_service()
        wait_until(lambda: crew.configuration is not None and crew.settled(), "a plan")

        def arrives_over_the_planned_flow() -> bool:
            """Publish once more; the copy over the old connection may arrive first for a moment."""
            client.publish("qos_0_events", b"y")
            return events[-1].flow == 2

        wait_until(
            arrives_over_the_planned_flow, "an event over the planned flow", poll_seconds=0.1
        )
    assert len({event.event_id for event in events}) == len(events)


def test_start_without_service_and_broker_address_fails(address: str) -> None:
    crew = Subscriber(f"http://127.0.0.1:{free_port()}", id="c", switch="core", address=address)
    with pytest.raises(ServiceUnreachable, match="does not answer"), crew:
        pass
