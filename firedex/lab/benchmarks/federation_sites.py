"""Sites: a Mosquitto and ``firedex federator`` at each; and a pair of brokers with a bridge."""

import asyncio
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from firedex.federation.observer import NoAnswer, ask
from firedex.lab.benchmarks.measured_parts import (
    event_packet,
    free_port,
    free_ports,
    open_mqtt_session,
    open_mqtt_socket,
    process_cpu_seconds,
)
from firedex.system.processes import (
    ChildProcess,
    accepts_connections,
    find_program,
    firedex_command,
)
from firedex_emulation.site_networks.hosts import SiteHosts

__all__ = ["Bridge", "RunningFederation", "running_bridge", "wait_until", "wait_until_served"]

START_SECONDS = 60.0
START_SECONDS_PER_SITE = 4.0
FEDERATION = "bench"
BROKER_PORT, LINK_PORT = 1883, 7447
"""Ports at sites that have a host of their own."""
_BROKER = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 1000
log_dest topic
log_type subscribe
log_type unsubscribe
log_type notice
"""
# The receiving broker opens the connection: Mosquitto sets TCP_NODELAY on accepted connections
# only, and without it the bridge holds events back.
_BRIDGE = """\
connection bench
address 127.0.0.1:{port}
bridge_protocol_version mqttv50
notifications false
cleansession true
topic # in 1
"""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Wait until a condition holds; raise RuntimeError if it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def wait_until_served(publisher_port: int, subscriber_ports: Iterable[int], topic: str) -> None:
    """Publish at one broker until each of the others has delivered an event."""
    for port in subscriber_ports:
        with (
            open_mqtt_socket(port, "probe-sink", topic, qos=0) as sink,
            open_mqtt_socket(publisher_port, "probe-source") as source,
        ):
            sink.settimeout(0.05)

            def arrived(sink: socket.socket = sink, source: socket.socket = source) -> bool:
                source.sendall(event_packet(topic, struct.pack(">d", 0.0)))
                try:
                    return bool(sink.recv(65_536))
                except TimeoutError:
                    return False

            wait_until(arrived, f"events arrive at the broker on port {port}")


def _start_broker(
    folder: Path,
    name: str,
    port: int,
    more: str = "",
    *,
    wrap: Callable[[list[str]], list[str]] = lambda command: command,
    connect: Callable[[], None] | None = None,
) -> ChildProcess:
    file = folder / f"{name}.conf"
    file.write_text(_BROKER.format(port=port) + more)
    command = [find_program("mosquitto", "mosquitto"), "-c", str(file)]
    broker = ChildProcess(wrap(command), folder / f"{name}-broker.log")

    def listens() -> bool:
        if broker.exit_code() is not None:
            raise RuntimeError(f"mosquitto ended: {broker.end_of_log()}")
        if connect is None:
            return accepts_connections("127.0.0.1", port)
        try:
            connect()
        except OSError:
            return False
        return True

    try:
        wait_until(listens, f"broker {name} listens")
    except BaseException:
        broker.kill()
        raise
    return broker


@dataclass(frozen=True, slots=True)
class Bridge:
    """Two running brokers; what is published at the first arrives at the second."""

    first_port: int
    second_port: int
    _brokers: list[ChildProcess]

    def cpu_seconds(self) -> float:
        """Return the CPU time of both brokers."""
        return sum(process_cpu_seconds(broker.pid) for broker in self._brokers)


@contextmanager
def running_bridge(folder: Path) -> Iterator[Bridge]:
    """Run two brokers with a bridge."""
    folder.chmod(0o755)
    first_port, second_port = free_port(), free_port()
    brokers: list[ChildProcess] = []
    try:
        brokers.append(_start_broker(folder, "bridge-first", first_port))
        more = _BRIDGE.format(port=first_port)
        brokers.append(_start_broker(folder, "bridge-second", second_port, more))
        yield Bridge(first_port, second_port, brokers)
    finally:
        for broker in brokers:
            broker.kill()


class RunningFederation:
    """A running federation; every site wants the filters in ``interest``.

    Without ``hosts`` all sites are on the loopback of this machine. With ``hosts`` each site is on
    its own host of an emulated network, whose links need ``certificates``.
    """

    def __init__(
        self,
        folder: Path,
        links: Iterable[tuple[str, str]],
        *,
        interest: Mapping[str, Iterable[str]],
        lease_seconds: float,
        broker_log: bool = False,
        certificates: Path | None = None,
        hosts: SiteHosts | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        self._folder = folder
        self._links = list(links)
        self.sites = sorted({site for pair in self._links for site in pair})
        self._hosts = hosts
        if hosts is None:
            ports = free_ports(2 * len(self.sites))
            self.broker_ports = dict(zip(self.sites, ports[::2], strict=True))
            listen = zip(self.sites, ports[1::2], strict=True)
            self._listen = {site: ("127.0.0.1", port) for site, port in listen}
        else:
            self.broker_ports = dict.fromkeys(self.sites, BROKER_PORT)
            address = hosts.network.address
            self._listen = {site: (address(site), LINK_PORT) for site in self.sites}
        self._brokers: dict[str, ChildProcess] = {}
        self._federators: dict[str, ChildProcess] = {}
        self._log_starts: dict[str, int] = {}
        self._file = folder / "federation.yaml"
        content: dict[str, Any] = {
            "name": FEDERATION,
            "sites": [
                {
                    "id": site,
                    "listen": ":".join(map(str, self._listen[site])),
                    "broker": f"127.0.0.1:{self.broker_ports[site]}",
                    "interest": {
                        "static": list(interest.get(site, ())),
                        "broker_log": broker_log,
                    },
                }
                for site in self.sites
            ],
            "links": [self._link_entry(one, other) for one, other in self._links],
            "timers": {"lease_seconds": lease_seconds},
        }
        if certificates is not None:
            content["security"] = {"certificates": str(certificates)}
        self._file.write_text(yaml.safe_dump(content))

    def _link_entry(self, one: str, other: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"between": [one, other]}
        if self._hosts is not None:
            link = self._hosts.network.neighbours[one][other]
            entry["bandwidth_bits_per_second"] = link.bandwidth_bits_per_second
            entry["propagation_seconds"] = link.delay_seconds
        return entry

    def __enter__(self) -> Self:
        try:
            for site in self.sites:
                port = self.broker_ports[site]
                self._brokers[site] = self._start_broker(site, port)
            for site in self.sites:
                self._start(site)
            for site in self.sites:
                self._wait_until_ready(site)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._federators.values(), *self._brokers.values()):
            process.kill()

    def _start_broker(self, site: str, port: int) -> ChildProcess:
        hosts = self._hosts
        if hosts is None:
            return _start_broker(self._folder, site, port)
        return _start_broker(
            self._folder, site, port,
            wrap=lambda command: hosts.command(site, command),
            connect=lambda: hosts.connect(site, port).close(),
        )  # fmt: skip

    def _start(self, site: str) -> None:
        command = firedex_command(
            "federator", str(self._file), "--site", site,
            "--state", str(self._folder / f"{site}-state"),
        )  # fmt: skip
        if self._hosts is not None:
            command = self._hosts.command(site, command)
        log = self._folder / f"{site}.log"
        self._log_starts[site] = log.stat().st_size if log.exists() else 0
        self._federators[site] = ChildProcess(command, log)

    def _wait_until_ready(self, site: str) -> None:
        process = self._federators[site]

        def is_ready() -> bool:
            if process.exit_code() is not None:
                raise RuntimeError(f"the federator of {site} ended: {process.end_of_log()}")
            # Not only the end of the log: many sites that become reachable fill it quickly.
            with (self._folder / f"{site}.log").open("rb") as log:
                log.seek(self._log_starts[site])
                return b"ready" in log.read().splitlines()

        # All federators start at once and share the cores.
        seconds = START_SECONDS + START_SECONDS_PER_SITE * len(self.sites)
        wait_until(is_ready, f"the federator of {site} is ready", seconds)

    def kill(self, site: str) -> None:
        """Kill the federator of a site."""
        self._federators[site].kill()

    def kill_all(self, sites: Iterable[str]) -> None:
        """Kill the federators of several sites at once, and do not wait until they have ended."""
        for site in sites:
            os.kill(self._federators[site].pid, signal.SIGKILL)

    def restart(self, site: str) -> None:
        """Start the federator of a site again."""
        self.restart_all([site])

    def restart_all(self, sites: Iterable[str]) -> None:
        """Start the federators of several sites again."""
        again = list(sites)
        for site in again:
            ended = self._federators[site]
            wait_until(lambda: ended.exit_code() is not None, f"the federator of {site} has ended")  # noqa: B023
            self._start(site)
        for site in again:
            self._wait_until_ready(site)

    def suspend(self, site: str) -> None:
        """Stop the federator of a site without closing its connections (SIGSTOP)."""
        os.kill(self._federators[site].pid, signal.SIGSTOP)

    def resume(self, site: str) -> None:
        """Let a suspended federator continue."""
        os.kill(self._federators[site].pid, signal.SIGCONT)

    @contextmanager
    def client(self, site: str, name: str, *filters: str) -> Iterator[socket.socket]:
        """Open an MQTT 5 connection to the broker of a site, with subscriptions at QoS 0."""
        port = self.broker_ports[site]
        if self._hosts is None:
            with open_mqtt_socket(port, name, *filters, qos=0) as raw:
                yield raw
        else:
            with self._hosts.connect(site, port) as raw:
                open_mqtt_session(raw, name, *filters, qos=0)
                yield raw

    def cpu_seconds(self, site: str) -> float:
        """Return the CPU time of the federator of a site."""
        return process_cpu_seconds(self._federators[site].pid)

    def memory_bytes(self, site: str) -> int:
        """Return the memory of the federator of a site that is in RAM."""
        pages = Path(f"/proc/{self._federators[site].pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def status(self, site: str) -> dict[str, Any]:
        """Return the status of a federator; only on loopback and without certificates."""
        return asyncio.run(ask(self._listen[site], FEDERATION, {"query": "status"}))

    def wait_until_connected(self) -> None:
        """Wait until every federator has a path to every other site."""
        for site in self.sites:

            def reaches_all(site: str = site) -> bool:
                try:
                    known = self.status(site)["sites"]
                except NoAnswer:
                    return False
                return len([e for e in known if e["reachable"]]) == len(self.sites)

            wait_until(reaches_all, f"site {site} reaches all sites")
