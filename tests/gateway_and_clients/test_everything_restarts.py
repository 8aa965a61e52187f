"""Broker, gateway and service killed and restarted under load: the subscriber is back by itself.

Within 5 seconds of the part being back, each time; and what was published at QoS 1 meanwhile
arrives, once. Only what the broker had taken and not passed on when it was killed is its own loss:
it writes to disk now and then.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from fake_service import FakeService, running_service
from free_ports import free_port
from loopback_parts import wait_until
from restarting_parts import BrokerProcess, GatewayProcess, within

from firedex.wire import LogUtility
from firedex.wire.workload import Transport
from firedex_clients import Event, Publisher, ServiceAbsent, Subscriber
from firedex_clients.tcp_flow import TcpFlow

LOG = LogUtility(weight=1.0)
BACK_SECONDS = 5.0
OWN_FLOW_SECONDS = 2.0


class Site:
    """Everything, each part of which can be restarted."""

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
    """QoS 0 for seeing that all is well, QoS 1 for counting, until left."""
    stop = threading.Event()
    with Publisher("127.0.0.1", broker, id="load") as client:

        def publish() -> None:
            while not stop.wait(0.01):
                client.publish("quick", b"x")
                at = time.monotonic()
                sent[client.publish("sure", b"y", qos=1)] = at

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield client
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_each_part_restarts_under_load(site: Site, address: str, transport: Transport) -> None:
    site.service.set_plan({"quick": 0, "sure": 1})
    quick, sure, sent = list[Event](), list[Event](), dict[str, float]()
    crew = Subscriber(site.url, id="crew", switch="core", address=address, transport=transport)
    crew.subscribe("quick", utility=LOG, on_event=quick.append)
    crew.subscribe("sure", utility=LOG, on_event=sure.append, qos=1)
    with crew:
        site.broker.save("crew-1")
        passed_on_at = 0.0
        with load(site.broker.port, sent):
            wait_until(lambda: len(quick) > 20 and len(sure) > 20, "events")
            restarts: list[Callable[[], None]] = [
                site.restart_gateway,
                site.restart_broker,
                site.restart_service,
            ]
            for restart in restarts:
                if restart == site.restart_broker:
                    passed_on_at = time.monotonic()
                before = set(sent)  # what waits in the broker's memory would go with it
                wait_until(lambda b=before: b <= {e.event_id for e in sure}, "to have caught up")
                restart()
                seen_quick, seen_sure = len(quick), len(sure)
                within(
                    BACK_SECONDS,
                    lambda q=seen_quick, s=seen_sure: (
                        len(quick) > q + 5 and len(sure) > s + 5 and crew.settled()
                    ),
                    f"to be back after {restart.__name__} ({transport})",
                )
            version = site.service.set_plan({"quick": 1, "sure": 0})
            within(
                BACK_SECONDS,
                lambda: crew.configuration is not None and crew.configuration.version >= version,
                "a new plan of the restarted service",
            )
        killed = site.broker_killed_at
        wanted = {name for name, at in sent.items() if not passed_on_at <= at <= killed}
        assert len(wanted) > len(sent) / 2
        wait_until(lambda: wanted <= {event.event_id for event in sure}, "every event at QoS 1")
    ids = [event.event_id for event in sure]
    assert len(ids) == len(set(ids)), "some came twice"


def test_a_client_side_close_is_back_on_its_own_flow(site: Site, address: str) -> None:
    """Several times in a row: a port that was used just now must not be in the way."""
    site.service.set_plan({"quick": 3})
    events: list[Event] = []
    crew = Subscriber(site.url, id="crew", switch="core", address=address)
    crew.subscribe("quick", utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", site.broker.port, id="p") as client:
        assert crew._flows is not None
        (place,) = crew._flows.places()
        connection = place.connection
        assert isinstance(connection, TcpFlow)
        used = []
        for turn in range(6):
            opened = connection._socket
            assert opened is not None
            used.append(opened.getsockname()[1])
            before = connection.connects
            opened.close()
            crew._loop.call(connection._lost)  # type: ignore[union-attr]
            within(
                OWN_FLOW_SECONDS,
                lambda b=before: connection.connects > b and crew.settled(),
                "to be back on its own flow",
            )
            heard = len(events)
            client.publish("quick", b"%d" % turn)
            wait_until(lambda h=heard: len(events) > h, "an event")
        assert {event.flow for event in events} == {3}
        assert set(used) == {20_006, 20_007}, "both ports of the flow, in turn"


def test_without_the_service_the_last_plan_stands(site: Site, address: str) -> None:
    site.service.set_plan({"quick": 2})
    events: list[Event] = []
    crew = Subscriber(site.url, id="crew", switch="core", address=address)
    crew.subscribe("quick", utility=LOG, on_event=events.append)
    with crew, Publisher("127.0.0.1", site.broker.port, id="p") as client:
        site.stop_service()
        site.restart_gateway()
        wait_until(lambda: (client.publish("quick", b"x"), bool(events))[1], "an event")
        assert events[-1].flow == 2


def test_a_kept_plan_serves_a_start_without_the_service(
    site: Site, address: str, tmp_path: Path
) -> None:
    site.service.set_plan({"quick": 2})
    kept = tmp_path / "plan.json"

    def crew() -> Subscriber:
        made = Subscriber(site.url, id="crew", switch="core", address=address, plan_file=kept)
        made.subscribe("quick", utility=LOG, on_event=events.append)
        return made

    events: list[Event] = []
    with crew():
        pass
    site.stop_service()
    with crew(), Publisher("127.0.0.1", site.broker.port, id="p") as client:
        client.publish("quick", b"x")
        wait_until(lambda: bool(events), "an event")
    assert (events[0].flow, events[0].managed) == (2, True)


def test_without_a_service_ever_one_plain_connection_does(site: Site, address: str) -> None:
    site.stop_service()
    site.service.set_plan({"quick": 2, "sure": 1})
    events: list[Event] = []
    crew = Subscriber(
        site.url,
        id="crew",
        switch="core",
        address=address,
        broker=f"127.0.0.1:{site.broker.port}",
    )
    crew.subscribe("quick", utility=LOG, on_event=events.append)
    crew.subscribe("sure", utility=LOG, on_event=events.append, qos=1)
    with crew, Publisher("127.0.0.1", site.broker.port, id="p") as client:
        assert crew.configuration is None
        client.publish("quick", b"x")
        client.publish("sure", b"x")
        wait_until(lambda: len(events) == 2, "both events")
        assert [event.managed for event in events] == [False, False]
        site.start_service()  # there it is
        wait_until(lambda: crew.configuration is not None and crew.settled(), "a plan")
        sent = client.publish("quick", b"y")
        wait_until(lambda: any(e.event_id == sent for e in events), "an event by plan")
        assert events[-1].flow == 2
    assert len({event.event_id for event in events}) == len(events)


def test_without_service_and_broker_it_says_so(address: str) -> None:
    crew = Subscriber(f"http://127.0.0.1:{free_port()}", id="c", switch="core", address=address)
    with pytest.raises(ServiceAbsent, match="does not answer"), crew:
        pass
