"""Real parts on loopback: Mosquitto, a relay, the service, paho clients.

Each helper waits until its part is ready, and stops it at the end. Only the controller is a fake:
its real HTTP interface with an app that records networks, and rejects them if the test says so.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from firedex.gateway.relay import Relay
from firedex.service.core import ServiceOptions
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.schedule import ScheduleSettings
from firedex.service.planner.site_plan import Gateway
from firedex.service.running import ServeOptions, running_service
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
from firedex_controller.api import api_server
from firedex_controller.errors import SwitchNotConnected, SwitchRefused
from tests.support.free_ports import free_port
from tests.support.waiting import wait_until

__all__ = [
    "FakeOpenFlowApp",
    "Listener",
    "fresh_address",
    "mosquitto",
    "running_controller_api",
    "running_mosquitto",
    "running_relay",
    "seeded_random",
    "serve_site",
]

TIMEOUT_SECONDS = 60.0
_MOSQUITTO_CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
log_type error
"""

# A local port cannot be bound again for a minute after a close, so each test has its own address in
# 127/8; different processes start at different addresses.
_addresses = (
    f"127.{64 + os.getpid() % 128}.{n // 250 + 1}.{n % 250 + 1}"
    for n in itertools.count(time.time_ns() % 50_000)
)


def fresh_address() -> str:
    """Return a loopback address that was not used recently."""
    return next(_addresses)


def seeded_random(seed: int = 1) -> random.Random:
    """Return a seeded generator for relays, so that a test run can be repeated."""
    return random.Random(seed)  # noqa: S311  # seeded_random, not secrets


def _accepts_connections(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def mosquitto(folder: Path, port: int | None = None) -> Iterator[int]:
    """Run a Mosquitto on loopback; yield its port."""
    port = port or free_port()
    file = folder / "mosquitto.conf"
    file.write_text(_MOSQUITTO_CONFIGURATION.format(port=port))
    with running_mosquitto(file, port):
        yield port


@contextmanager
def running_mosquitto(file: Path, port: int) -> Iterator[None]:
    """Run a Mosquitto with a configuration file until it listens on its port."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    with subprocess.Popen(
        [program, "-c", str(file)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(
                lambda: process.poll() is not None or _accepts_connections(port),
                f"mosquitto on {port}",
            )
            assert process.poll() is None, f"mosquitto ended with {process.returncode}"
            yield
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


@contextmanager
def running_relay(relay: Relay, port: int | None = None) -> Iterator[int]:
    """Run a relay in a thread with its own event loop; yield its port."""
    port = port or free_port()
    ends: dict[str, Any] = {}

    async def serve() -> None:
        ends["loop"] = asyncio.get_running_loop()
        ends["task"] = asyncio.current_task()
        try:
            await relay.serve("127.0.0.1", port)
        finally:
            # Connections whose clients have left close by themselves.
            open_connections = asyncio.all_tasks() - {asyncio.current_task()}
            if open_connections:
                await asyncio.wait(open_connections, timeout=1)

    def run() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(serve())

    thread = threading.Thread(target=run, name="relay")
    thread.start()
    try:
        wait_until(lambda: not thread.is_alive() or _accepts_connections(port), f"relay on {port}")
        assert thread.is_alive(), "the relay ended by itself"
        yield port
        assert thread.is_alive(), "the relay ended by itself"
    finally:
        if thread.is_alive():
            ends["loop"].call_soon_threadsafe(ends["task"].cancel)
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()


@contextmanager
def serve_site(site: Scenario, state: Path, gateway: Gateway) -> Iterator[str]:
    """Run the service without tokens and controller on a free port; yield its URL."""
    settings = SiteSettings(site=site, gateway=gateway)
    options = ServeOptions(
        service=ServiceOptions(settings=settings, open_to_all=True),
        state=str(state),
        planner="thread",
        schedule=ScheduleSettings(quiet_seconds=0.005),
    )
    with running_service(options) as running:
        yield running.url


class FakeOpenFlowApp:
    """A fake OpenFlow app that records networks; it rejects those with a switch in ``refusing``."""

    def __init__(self) -> None:
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
def running_controller_api(app: FakeOpenFlowApp, token: str | None = None) -> Iterator[str]:
    """Serve the controller's HTTP interface in front of ``app``; yield its URL."""
    with api_server(app, ("127.0.0.1", 0), token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="controller")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(TIMEOUT_SECONDS)


class Listener:
    """A paho client that stores received messages in order; a context manager."""

    def __init__(self, port: int, *, bind: tuple[str, int] = ("", 0)) -> None:
        self.received: list[mqtt.MQTTMessage] = []
        self._subscribed = threading.Event()
        self._connected = threading.Event()
        self._port, self._bind = port, bind
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.on_message = lambda _c, _d, message: self.received.append(message)
        self._client.on_connect = lambda *_: self._connected.set()
        self._client.on_subscribe = lambda *_: self._subscribed.set()

    def __enter__(self) -> "Listener":
        self._client.connect(
            "127.0.0.1", self._port, bind_address=self._bind[0], bind_port=self._bind[1]
        )
        self._client.loop_start()
        assert self._connected.wait(TIMEOUT_SECONDS), "no CONNACK"
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def subscribe(self, name: str, qos: int = 2) -> None:
        """Subscribe, and wait until the broker has granted it."""
        self._subscribed.clear()
        self._client.subscribe(name, qos)
        assert self._subscribed.wait(TIMEOUT_SECONDS), "no SUBACK"

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False
    ) -> mqtt.MQTTMessageInfo:
        return self._client.publish(topic, payload, qos, retain)

    def publish_and_wait(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1 and wait for the acknowledgement of the broker."""
        info = self.publish(topic, payload, qos=1, retain=retain)
        info.wait_for_publish(TIMEOUT_SECONDS)
        assert info.is_published()

    def payloads(self) -> list[bytes]:
        return [bytes(message.payload) for message in list(self.received)]

    def wait_for(self, payload: bytes) -> None:
        wait_until(lambda: payload in self.payloads(), f"reception of {payload[:20]!r}")
