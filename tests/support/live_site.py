"""A site on loopback with a real service, Mosquitto, gateway and clients.

::

    p0 ─▶ lan (unmanaged) ─▶ broker ─▶ core (managed) ─▶ crew-1, crew-2
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from firedex.service.core import ServiceOptions
from firedex.service.planner.planner import SiteSettings
from firedex.service.planner.schedule import ScheduleSettings
from firedex.service.planner.site_plan import Gateway
from firedex.service.running import RunningService, ServeOptions, running_service
from firedex.wire import LogUtility, Scenario, to_plain
from firedex_clients import Publisher, Subscriber
from tests.support.free_ports import free_port
from tests.support.loopback_parts import fresh_address, mosquitto
from tests.support.parts_site import publisher, site
from tests.support.service_site import Client, wait_until

RATES = {"alarm/1": 5.0, "camera/1": 40.0}
REPORT_SECONDS = 0.5
CLIENT = """\
import sys, time
from firedex.wire import LogUtility
from firedex_clients import Subscriber
url, name, address, token = sys.argv[1:]
one = Subscriber(url, id=name, switch="core", address=address, token=token, report_seconds=0.5)
one.subscribe("alarm/#", utility=LogUtility(weight=10.0), on_event=lambda event: None)
with one:
    time.sleep(3600)
"""


@dataclass(kw_only=True)
class ServedSite:
    """The options and the URL of a service, so that a test can stop and restart it."""

    options: ServeOptions
    url: str = ""
    running: RunningService | None = None

    @contextmanager
    def serving(self) -> Iterator["ServedSite"]:
        with running_service(self.options) as running:
            self.url, self.running = running.url, running
            yield self

    def token(self, name: str, role: Any, client: str | None = None) -> str:
        assert self.running is not None
        return self.running.service.tokens.create(name, role, client)


def served_site(
    folder: Path,
    *,
    gateway_port: int = 1884,
    port: int = 0,
    of: Scenario | None = None,
    **service_options: Any,
) -> ServedSite:
    """Return the options of a service with tokens."""
    gateway = Gateway(address=IPv4Address("127.0.0.1"), port=gateway_port)
    settings = SiteSettings(site=of or site(), gateway=gateway)
    return ServedSite(
        options=ServeOptions(
            service=ServiceOptions(settings=settings, request_rate=None, **service_options),
            state=str(folder / "state.sqlite"),
            port=port,
            planner="thread",
            schedule=ScheduleSettings(quiet_seconds=0.005),
        )
    )


@dataclass(kw_only=True)
class LiveSite:
    """A running site; ``chief`` is a client with a token of the role ``command``."""

    service: ServedSite
    token: str
    chief: Client
    stack: ExitStack

    def subscriber(self, name: str, **weights: float) -> Subscriber:
        """Start a subscriber in this process; ``alarm=10`` is ``alarm/#`` with weight 10."""
        client = Subscriber(
            self.service.url,
            id=name,
            switch="core",
            address=fresh_address(),
            token=self.token,
            report_seconds=REPORT_SECONDS,
        )
        for topic, weight in weights.items():
            client.subscribe(
                f"{topic}/#",
                utility=LogUtility(weight=weight),
                deadline_seconds=2.0,
                on_event=lambda _: None,
            )
        return self.stack.enter_context(client)

    def client_process(self, name: str) -> "subprocess.Popen[bytes]":
        """Start a subscriber in a process that can be killed."""
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, self.service.url, name, fresh_address(), self.token]
        )
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process


def _publish(broker: int, stop: threading.Event) -> None:
    with Publisher("127.0.0.1", broker, id="p0") as sender:
        while not stop.wait(0.05):
            sender.publish("alarm/1", b"smoke")
            sender.publish("camera/1", b"x" * 500)


@contextmanager
def _running_publisher(broker: int) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=_publish, args=(broker, stop), name="publisher")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def live_site(folder: Path, *, publishing: bool) -> Iterator[LiveSite]:
    """Run a site; without ``publishing``, plans use the declared rates because none is measured."""
    gateway_port, port = free_port(), free_port()
    service = served_site(folder, gateway_port=gateway_port, port=port)
    with ExitStack() as stack:
        broker = stack.enter_context(mosquitto(folder))
        stack.enter_context(service.serving())
        token = service.token("chief", "command")
        chief = Client(service.url, token)
        chief.register(to_plain(publisher("p0", RATES)), wait=0)
        gateway = subprocess.Popen(
            [sys.executable, "-m", "firedex.gateway", "--listen", f"127.0.0.1:{gateway_port}"]
            + ["--broker", f"127.0.0.1:{broker}", "--service", service.url, "--token", token]
            + ["--report-seconds", str(REPORT_SECONDS)],
            env={**os.environ},
            stderr=subprocess.DEVNULL,
        )
        stack.callback(gateway.wait)
        stack.callback(gateway.terminate)
        wait_until(
            lambda: any(
                kept["heartbeat"]["kind"] == "gateway" for kept in chief.get("/v1/heartbeats").json
            ),
            "the gateway's heartbeat",
        )
        if publishing:
            stack.enter_context(_running_publisher(broker))
        yield LiveSite(service=service, token=token, chief=chief, stack=stack)
