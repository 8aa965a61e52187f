"""The report of topic filters by a real gateway, with a real Mosquitto and real clients."""

import json
import signal
import socket
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from firedex.transport.mqtt_sn import Disconnect, Unsuback, Unsubscribe
from firedex.wire import InterestReport, from_json
from tests.support.free_ports import free_port
from tests.support.loopback_parts import TIMEOUT_SECONDS
from tests.support.restarting_parts import BrokerProcess, GatewayProcess
from tests.support.session_packets import connect, subscribe
from tests.support.sn_parts import BareClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

V3, V5 = mqtt.MQTTv311, mqtt.MQTTv5


class Site:
    """A broker and a gateway, both of which can be restarted."""

    def __init__(self, folder: Path) -> None:
        self.broker = BrokerProcess(folder)
        self.interest_port = free_port()
        self.state = folder / "gateway.sqlite"
        self.gateway = GatewayProcess(
            self.broker.port,
            "http://127.0.0.1:1",
            f"--interest=127.0.0.1:{self.interest_port}",
            f"--state={self.state}",
        )

    def url(self, **query: object) -> str:
        return f"http://127.0.0.1:{self.interest_port}/interest?{urlencode(query)}"

    def report(self, **query: object) -> InterestReport:
        with urllib.request.urlopen(self.url(**query), timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            return from_json(InterestReport, response.read())

    def filters(self) -> dict[tuple[str, int], int]:
        return {(each.filter, each.qos): each.clients for each in self.report().filters}

    def wait_for(self, expected: dict[tuple[str, int], int]) -> None:
        wait_until(lambda: self.filters() == expected, f"{expected}, not {self.filters()}")

    def wait_for_unknown(self, count: int) -> None:
        wait_until(lambda: self.report().unknown_sessions == count, f"{count} unknown sessions")

    def has_stored(self, name: str) -> bool:
        """Whether a filter is in the state file, which the gateway has locked."""
        files = (self.state, self.state.with_name(f"{self.state.name}-wal"))
        return any(name.encode() in file.read_bytes() for file in files if file.exists())

    def restart_gateway(self) -> None:
        self.gateway.kill()
        self.gateway.start()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a site that tests leave without sessions."""
    made = Site(tmp_path_factory.mktemp("site"))
    with made.broker.running(), made.gateway.running():
        yield made


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """Run a site whose parts a test restarts."""
    made = Site(tmp_path)
    with made.broker.running(), made.gateway.running():
        yield made


class Client:
    """A paho client that waits for each acknowledgement."""

    def __init__(self, port: int, name: str, version: Any = V5, **session: Any) -> None:
        clean, expiry = session.pop("clean", True), session.pop("expiry", None)
        more = {"clean_session": clean} if version == V3 else {}
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=version, **more
        )
        self._connected, self._acknowledged = threading.Event(), threading.Event()
        self.paho.on_connect = lambda *_: self._connected.set()
        self.paho.on_subscribe = self.paho.on_unsubscribe = lambda *_: self._acknowledged.set()
        options: dict[str, Any] = {}
        if version == V5:
            options = {"clean_start": clean, "properties": Properties(PacketTypes.CONNECT)}
            if expiry is not None:
                options["properties"].SessionExpiryInterval = expiry
        self.paho.connect("127.0.0.1", port, **options)
        self.paho.loop_start()
        assert self._connected.wait(TIMEOUT_SECONDS)

    def subscribe(self, *names: str, qos: int = 1) -> None:
        self._acknowledged.clear()
        self.paho.subscribe([(name, qos) for name in names])
        assert self._acknowledged.wait(TIMEOUT_SECONDS)

    def unsubscribe(self, name: str) -> None:
        self._acknowledged.clear()
        self.paho.unsubscribe(name)
        assert self._acknowledged.wait(TIMEOUT_SECONDS)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def break_connection(self) -> None:
        """Close the socket without DISCONNECT, and do not connect again."""
        self.paho.loop_stop()
        opened = self.paho.socket()
        if isinstance(opened, socket.socket):  # otherwise the gateway closed it
            opened.shutdown(socket.SHUT_RDWR)
            opened.close()


@contextmanager
def connected(port: int, name: str, version: Any = V5, **session: Any) -> Iterator[Client]:
    client = Client(port, name, version, **session)
    try:
        yield client
    finally:
        client.close()


# -- subscriptions and sessions --------------------------------------------------------------------


def test_filters_of_all_kinds_of_clients_are_counted(site: Site) -> None:
    port = site.gateway.port
    site.wait_for({})
    with ExitStack() as clients:
        older = clients.enter_context(connected(port, "older", V3))
        newer = clients.enter_context(connected(port, "newer", V5))
        unnamed = [clients.enter_context(connected(port, "", version)) for version in (V3, V5)]
        sensor = clients.enter_context(BareClient(site.gateway.udp_port, "sensor")).connect()
        older.subscribe("smoke/#", "$SYS/broker/uptime", "$share/crew/heat/+")
        newer.subscribe("smoke/#")
        sensor.subscribe("smoke/#", qos=1)
        sensor.subscribe("co", qos=0)
        for client in unnamed:
            client.subscribe("heat/+", qos=2)
        site.wait_for({("smoke/#", 1): 3, ("heat/+", 1): 1, ("heat/+", 2): 2, ("co", 0): 1})
        newer.subscribe("smoke/#", qos=0)
        older.unsubscribe("$share/crew/heat/+")
        sensor.ask(Unsubscribe(message_id=sensor.next_id(), topic="co"), Unsuback)
        site.wait_for({("smoke/#", 0): 1, ("smoke/#", 1): 2, ("heat/+", 2): 2})
        sensor.ask(Disconnect(), Disconnect)
        site.wait_for({("smoke/#", 0): 1, ("smoke/#", 1): 1, ("heat/+", 2): 2})
        older.break_connection()
        site.wait_for({("smoke/#", 0): 1, ("heat/+", 2): 2})
    site.wait_for({})
    assert site.report().unknown_sessions == 0


def test_persistent_sessions_survive_restarts_of_the_gateway(own_site: Site) -> None:
    port = own_site.gateway.port
    sessions: list[tuple[str, Any, dict[str, Any]]] = [
        ("older", V3, {"clean": False}),
        ("newer", V5, {"clean": False, "expiry": 600}),
    ]
    clients = []
    for name, version, session in sessions:
        clients.append(Client(port, name, version, **session))
        clients[-1].subscribe(f"of/{name}", "shared")
    away = Client(port, "away", V3, clean=False)
    away.subscribe("of/away")
    away.close()
    passing = Client(port, "passing", V5)
    passing.subscribe("of/passing")
    sensor = BareClient(own_site.gateway.udp_port, "sensor").connect(clean_session=False)
    sensor.subscribe("of/sensor", qos=1)
    kept = {("of/older", 1): 1, ("of/newer", 1): 1, ("shared", 1): 2}
    kept |= {("of/away", 1): 1, ("of/sensor", 1): 1}
    own_site.wait_for({**kept, ("of/passing", 1): 1})
    instance = own_site.report().instance
    for client in (*clients, passing):
        client.break_connection()
    own_site.wait_for(kept)
    own_site.restart_gateway()
    assert own_site.filters() == kept
    assert own_site.report().instance != instance
    with ExitStack() as back:
        for name, version, session in sessions:
            back.enter_context(connected(port, name, version, **session))
        sensor.connect(clean_session=False)
        assert (own_site.filters(), own_site.report().unknown_sessions) == (kept, 0)
        with connected(port, "older", V3, clean=True):  # takes over
            del kept["of/older", 1]
            own_site.wait_for({**kept, ("shared", 1): 1})
    sensor.__exit__()


def test_subscription_just_before_a_kill_is_kept(own_site: Site) -> None:
    """A gateway that is killed does not lose a filter that its state file has."""
    for turn in range(3):
        client = Client(own_site.gateway.port, f"crew-{turn}", V3, clean=False)
        client.subscribe(f"last/{turn}")
        wait_until(partial(own_site.has_stored, f"last/{turn}"), "the stored filter")
        own_site.gateway.kill()
        client.break_connection()
        own_site.gateway.start()
        assert own_site.filters() == {(f"last/{each}", 1): 1 for each in range(turn + 1)}


def test_graceful_shutdown_writes_the_state(own_site: Site) -> None:
    client = Client(own_site.gateway.port, "crew", V3, clean=False)
    client.subscribe("smoke/#")
    process = own_site.gateway._process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_SECONDS) == 0
    client.break_connection()
    own_site.gateway.start()
    assert own_site.filters() == {("smoke/#", 1): 1}


def test_session_without_a_record_is_unknown_until_it_subscribes(site: Site) -> None:
    with connected(site.broker.port, "crew", V3, clean=False) as direct:
        direct.subscribe("smoke/#")
    with connected(site.gateway.port, "crew", V3, clean=False) as client:
        site.wait_for_unknown(1)
        client.subscribe("heat")
        site.wait_for_unknown(0)
        assert site.filters() == {("heat", 1): 1}
    with connected(site.gateway.port, "crew", V3, clean=True):
        site.wait_for({})


def test_expired_session_is_removed(site: Site) -> None:
    client = Client(site.gateway.port, "crew", V5, clean=False, expiry=1)
    client.subscribe("smoke/#")
    client.break_connection()
    assert site.filters() == {("smoke/#", 1): 1}
    site.wait_for({})


def test_sessions_that_the_broker_has_lost_are_removed(own_site: Site) -> None:
    with connected(own_site.gateway.port, "crew", V3, clean=False) as client:
        client.subscribe("smoke/#")
    own_site.wait_for({("smoke/#", 1): 1})
    own_site.broker.kill()  # before it wrote its sessions down
    own_site.broker.start()
    with connected(own_site.gateway.port, "crew", V3, clean=False):
        own_site.wait_for({})


def test_malformed_packets_change_nothing(site: Site) -> None:
    with connected(site.gateway.port, "crew") as client:
        client.subscribe("smoke/#")
        for garbage in (
            subscribe(1, [("x", 1)])[:-1] + b"\xff\xff",
            b"\x82\x05\x00\x01\xff\xff\xff",
            b"\x82\x00\xa2\x00\xe0\x02\x00\xff",
            b"\xe0\x03\x00\x05\x11",
        ):
            with socket.create_connection(("127.0.0.1", site.gateway.port)) as raw:
                raw.settimeout(TIMEOUT_SECONDS)
                raw.sendall(connect("raw") + garbage)
                while raw.recv(4096):  # until the broker closes the connection
                    pass
        client.subscribe("heat")
        site.wait_for({("smoke/#", 1): 1, ("heat", 1): 1})
    assert site.gateway.alive


def test_subscription_that_is_too_large_to_read_is_unknown(site: Site) -> None:
    names = [f"{number}/{'x' * 60_000}" for number in range(20)]
    with connected(site.gateway.port, "crew") as client:
        client.subscribe(*names)
        site.wait_for_unknown(1)
    site.wait_for_unknown(0)


# -- HTTP ------------------------------------------------------------------------------------------


def timed_report(site: Site, query: dict[str, object]) -> tuple[InterestReport, float]:
    """Return a report, and when it came."""
    return site.report(**query), time.monotonic()


def test_long_poll_is_answered_by_a_change(site: Site) -> None:
    delays = []
    with connected(site.gateway.port, "crew") as client, ThreadPoolExecutor(1) as pool:
        for turn in range(20):
            known = site.report()
            query: dict[str, object] = {"after": known.version, "instance": known.instance}
            query["wait_seconds"] = 30
            answered = pool.submit(timed_report, site, query)
            time.sleep(0.02)  # so that the request waits
            assert not answered.done()
            client.subscribe(f"topic/{turn}")
            changed_at = time.monotonic()
            report, answered_at = answered.result(TIMEOUT_SECONDS)
            assert report.version > known.version
            assert f"topic/{turn}" in {each.filter for each in report.filters}
            delays.append(answered_at - changed_at)
    print(f"answer after SUBACK: median {statistics.median(delays) * 1000:.1f} ms")
    assert statistics.median(delays) < 0.1


def test_long_poll_ends_after_its_time(site: Site) -> None:
    known = site.report()
    begin = time.monotonic()
    same = site.report(after=known.version, instance=known.instance, wait_seconds=0.3)
    assert same == known
    assert time.monotonic() - begin >= 0.3


def test_request_with_an_old_version_or_instance_is_answered_at_once(site: Site) -> None:
    known = site.report()
    for query in ({"after": known.version + 7}, {"after": known.version, "instance": "other"}):
        begin = time.monotonic()
        assert site.report(wait_seconds=60, **query) == known
        assert time.monotonic() - begin < 30


def test_too_many_waiting_requests_are_refused(site: Site) -> None:
    known = site.report()
    query = {"after": known.version, "instance": known.instance, "wait_seconds": 60}
    with connected(site.gateway.port, "crew") as client, ThreadPoolExecutor(40) as pool:

        def ask() -> int:
            try:
                return site.report(**query).version
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        waiting = [pool.submit(ask) for _ in range(40)]
        wait_until(lambda: sum(each.done() for each in waiting) == 8, "8 refused requests")
        assert {each.result() for each in waiting if each.done()} == {503}
        client.subscribe("smoke/#")
        wait_until(lambda: all(each.done() for each in waiting), "32 answers")
        assert site.report().version in {each.result() for each in waiting}


@pytest.mark.parametrize(
    "query", [{"after": "x"}, {"wait_seconds": 61}, {"wait_seconds": "nan"}, {"since": 1}]
)
def test_invalid_parameter_returns_400(site: Site, query: dict[str, Any]) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        site.report(**query)
    with error.value:
        assert error.value.code == 400
        assert next(iter(query)) in json.loads(error.value.read())["error"]
