"""The real parts on loopback: Mosquitto, a relay, the service, paho clients.

Every one is awaited until it answers and ended by its own handle. The one fake is the controller:
its real HTTP interface in front of an app that records what it is asked and refuses when told to.
"""

import asyncio
import itertools
import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from free_ports import free_port
from paho.mqtt.enums import CallbackAPIVersion

from firedex.gateway.relay import Relay
from firedex.service.core import ServiceOptions
from firedex.service.planner import SiteSettings
from firedex.service.planner_pace import PaceSettings
from firedex.service.running import ServeOptions, running_service
from firedex.service.site_plan import Gateway
from firedex.wire import (
    DesiredNetwork,
    NetworkChange,
    NetworkStatistics,
    NetworkTopology,
    Scenario,
    SwitchCapabilities,
    SwitchChange,
    SwitchStatus,
)
from firedex_controller.api import _Handler
from firedex_controller.errors import SwitchNotConnected, SwitchRefused
from firedex_controller.settings import ControllerSettings

__all__ = [
    "FakeController",
    "Listener",
    "coins",
    "fresh_address",
    "mosquitto",
    "running_controller",
    "running_relay",
    "served",
    "wait_until",
]

PATIENCE_SECONDS = 20.0
_MOSQUITTO_CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
log_type error
"""

# A local port cannot be bound again for a minute after a close, so each test has an address of its
# own out of 127/8; runs of different processes start at different places.
_addresses = (
    f"127.{64 + os.getpid() % 128}.{n // 250 + 1}.{n % 250 + 1}"
    for n in itertools.count(time.time_ns() % 50_000)
)


def fresh_address() -> str:
    """A loopback address that nothing was bound to lately."""
    return next(_addresses)


def coins(seed: int = 1) -> random.Random:
    """Injected into relays, so that a run can be had again."""
    return random.Random(seed)  # noqa: S311  # coins, not secrets


def wait_until(ready: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Ask until it is so; fail by name if it never is."""
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def mosquitto(folder: Path, port: int | None = None) -> Iterator[int]:
    """A broker of its own on loopback; its port."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    port = port or free_port()
    file = folder / "mosquitto.conf"
    file.write_text(_MOSQUITTO_CONFIGURATION.format(port=port))
    with subprocess.Popen(
        [program, "-c", str(file)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(port), f"mosquitto on {port}")
            assert process.poll() is None, f"mosquitto ended with {process.returncode}"
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


@contextmanager
def running_relay(relay: Relay, port: int | None = None) -> Iterator[int]:
    """A relay in a thread with its own event loop; its port."""
    port = port or free_port()
    ends: dict[str, Any] = {}

    async def serve() -> None:
        ends["loop"] = asyncio.get_running_loop()
        ends["task"] = asyncio.current_task()
        try:
            await relay.serve("127.0.0.1", port)
        finally:
            # Those whose clients have left close by themselves.
            open_ones = asyncio.all_tasks() - {asyncio.current_task()}
            if open_ones:
                await asyncio.wait(open_ones, timeout=1)

    def run() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(serve())

    thread = threading.Thread(target=run, name="relay")
    thread.start()
    try:
        wait_until(lambda: not thread.is_alive() or _answers(port), f"relay on {port}")
        assert thread.is_alive(), "the relay ended by itself"
        yield port
        assert thread.is_alive(), "the relay ended by itself"
    finally:
        if thread.is_alive():
            ends["loop"].call_soon_threadsafe(ends["task"].cancel)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@contextmanager
def served(site: Scenario, state: Path, gateway: Gateway) -> Iterator[str]:
    """The service, without tokens and controller, on a port of the system's choice; its URL."""
    settings = SiteSettings(site=site, gateway=gateway)
    options = ServeOptions(
        service=ServiceOptions(settings=settings, open_to_all=True),
        state=str(state),
        planner="thread",
        pace=PaceSettings(quiet_seconds=0.005),
    )
    with running_service(options) as running:
        yield running.url


class FakeController:
    """Stands for the OpenFlow app: records every network it is asked for, refuses when told to."""

    def __init__(self) -> None:
        self.settings = ControllerSettings(switches={})
        self.put: list[DesiredNetwork] = []
        self.refusing: set[str] = set()
        self.refused_rule: str | None = None

    def put_network(self, network: DesiredNetwork) -> NetworkChange:
        for switch in network.switches:
            if switch.switch in self.refusing:
                if self.refused_rule:
                    raise SwitchRefused(switch.switch, "the table is full", self.refused_rule)
                raise SwitchNotConnected(switch.switch)
        self.put.append(network)
        changes = tuple(SwitchChange(switch=each.switch) for each in network.switches)
        return NetworkChange(
            configuration_version=network.configuration_version, seconds=0.001, switches=changes
        )

    def network(self) -> DesiredNetwork | None:
        return self.put[-1] if self.put else None

    def topology(self) -> NetworkTopology:
        return NetworkTopology(
            switches=(
                SwitchStatus(
                    switch="core",
                    datapath_id="0000000000000001",
                    connected="core" not in self.refusing,
                    settled=True,
                ),
            )
        )

    def capabilities(self) -> list[SwitchCapabilities]:
        return [
            SwitchCapabilities(
                switch="core",
                datapath="userspace",
                priorities=16,
                meters=True,
                meter_packets_per_second=True,
                bundles=True,
            )
        ]

    def statistics(self) -> NetworkStatistics:
        return NetworkStatistics()


@contextmanager
def running_controller(app: FakeController) -> Iterator[str]:
    """The controller's own HTTP interface in front of ``app``; its URL."""

    class Handler(_Handler):
        pass

    Handler.app = app
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="controller")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)


class Listener:
    """A plain paho client that keeps what it receives, in order; use it as a context manager."""

    def __init__(self, port: int, *, bind: tuple[str, int] = ("", 0)) -> None:
        self.received: list[mqtt.MQTTMessage] = []
        self._granted = threading.Event()
        self._connected = threading.Event()
        self._port, self._bind = port, bind
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.on_message = lambda _c, _d, message: self.received.append(message)
        self._client.on_connect = lambda *_: self._connected.set()
        self._client.on_subscribe = lambda *_: self._granted.set()

    def __enter__(self) -> "Listener":
        self._client.connect(
            "127.0.0.1", self._port, bind_address=self._bind[0], bind_port=self._bind[1]
        )
        self._client.loop_start()
        assert self._connected.wait(PATIENCE_SECONDS), "no CONNACK"
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def subscribe(self, name: str, qos: int = 2) -> None:
        """Subscribe, and wait until the broker has granted it."""
        self._granted.clear()
        self._client.subscribe(name, qos)
        assert self._granted.wait(PATIENCE_SECONDS), "no SUBACK"

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False
    ) -> mqtt.MQTTMessageInfo:
        return self._client.publish(topic, payload, qos, retain)

    def publish_surely(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """At QoS 1, and wait until the broker has it."""
        info = self.publish(topic, payload, qos=1, retain=retain)
        info.wait_for_publish(PATIENCE_SECONDS)
        assert info.is_published()

    def payloads(self) -> list[bytes]:
        return [bytes(message.payload) for message in list(self.received)]

    def wait_for(self, payload: bytes) -> None:
        wait_until(lambda: payload in self.payloads(), f"{payload[:20]!r} among what is received")
