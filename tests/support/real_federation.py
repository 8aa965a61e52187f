"""Real federations for tests: a Mosquitto and a federator process at every site, on loopback."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
import yaml
from paho.mqtt.enums import CallbackAPIVersion

from firedex.certificates.site_credentials import read_credentials
from firedex.federation.observer import ask
from firedex.system.processes import (
    ChildProcess,
    accepts_connections,
    find_program,
    firedex_command,
)
from tests.support.free_ports import free_port
from tests.support.waiting import wait_until

__all__ = ["Collector", "RealFederation", "connected_client"]

LEASE_SECONDS = 3.0
"""A busy machine may stop a process for a second; tests of failure detection set less."""


@contextmanager
def connected_client(
    port: int, *, client_id: str = "", clean: bool = True, protocol: int = paho.MQTTv5
) -> Iterator[paho.Client]:
    """Return a paho client that is connected to a broker on loopback."""
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        protocol=protocol,  # type: ignore[arg-type]
        clean_session=clean if protocol != paho.MQTTv5 else None,
    )
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        wait_until(client.is_connected, f"a client of port {port} is connected")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


class Collector:
    """A subscriber that keeps what it receives; the subscription is acknowledged when it starts."""

    def __init__(self, client: paho.Client, topic_filter: str, qos: int = 2) -> None:
        self.messages: list[paho.MQTTMessage] = []
        granted: list[int] = []
        client.on_message = lambda _client, _data, message: self.messages.append(message)
        client.on_subscribe = lambda _client, _data, number, _codes, _more: granted.append(number)
        number = client.subscribe(topic_filter, qos)[1]
        wait_until(lambda: number in granted, f"the subscription to {topic_filter} is granted")

    def wait_for(self, payload: str) -> None:
        """Wait until a payload has arrived."""
        wait_until(lambda: payload in self.payloads(), f"{payload!r} arrives")

    def wait_for_count(self, count: int) -> None:
        """Wait until this number of events has arrived."""
        wait_until(lambda: len(self.messages) >= count, f"{count} events arrive")

    def payloads(self, topic: str | None = None) -> list[str]:
        """Return the payloads in the order of arrival."""
        return [
            message.payload.decode()
            for message in list(self.messages)
            if topic is None or message.topic == topic
        ]


class RealFederation:
    """Sites with real processes; ``interest`` are the static filters of each site."""

    def __init__(
        self,
        folder: Path,
        links: Iterable[tuple[str, str]],
        *,
        interest: Mapping[str, Iterable[str]] | None = None,
        broker_log: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        broker_options: str = "",
        external_brokers: Mapping[str, int] | None = None,
        security: dict[str, Any] | None = None,
        own_certificates: Mapping[str, str] | None = None,
        authorities: Mapping[str, str] | None = None,
        metrics: bool = False,
        more_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.links = [tuple(sorted(pair)) for pair in links]
        self.sites = sorted({site for pair in self.links for site in pair})
        external = dict(external_brokers or {})
        self.broker_ports = {site: external.get(site) or free_port() for site in self.sites}
        self.link_ports = {site: free_port() for site in self.sites}
        self.metrics_ports = {site: free_port() for site in self.sites} if metrics else {}
        self._external = set(external)
        self._broker_options = broker_options
        self.brokers: dict[str, ChildProcess] = {}
        self.federators: dict[str, ChildProcess] = {}
        self._running = ExitStack()
        wanted = interest or {}
        self.file = folder / "federation.yaml"
        content: dict[str, Any] = {
            "name": "test",
            "sites": [
                {
                    "id": site,
                    "listen": f"127.0.0.1:{self.link_ports[site]}",
                    "broker": f"127.0.0.1:{self.broker_ports[site]}",
                    "interest": {
                        "static": list(wanted.get(site, ())),
                        "broker_log": broker_log and site not in external,
                    },
                }
                for site in self.sites
            ],
            "links": [{"between": list(pair)} for pair in self.links],
            "timers": {"lease_seconds": lease_seconds},
            **(more_settings or {}),
        }
        self._security = security
        self._own_certificates = dict(own_certificates or {})
        self._joined: set[str] = set()
        self._more_options: dict[str, list[str]] = {}
        self._timers = content["timers"]
        if security is not None:
            content["security"] = security
        for entry in content["sites"]:
            if authorities is not None:
                entry["authority"] = authorities[entry["id"]]
        self.file.write_text(yaml.safe_dump(content))
        for site, certificates in self._own_certificates.items():
            content["security"] = {"certificates": certificates}
            self._file_of(site).write_text(yaml.safe_dump(content))

    def add_site(
        self,
        site: str,
        *,
        join: str,
        security: dict[str, Any] | None = None,
        interest: Iterable[str] = (),
        by_option: bool = False,
    ) -> None:
        """Start a broker and a federator that joins with an invitation; no other file changes.

        The invitation is in the file of the site, or given by the option ``--join``.
        """
        self.sites = sorted([*self.sites, site])
        self.broker_ports[site], self.link_ports[site] = free_port(), free_port()
        if self.metrics_ports:
            self.metrics_ports[site] = free_port()
        entry = {
            "id": site,
            "listen": f"127.0.0.1:{self.link_ports[site]}",
            "broker": f"127.0.0.1:{self.broker_ports[site]}",
            "interest": {"static": list(interest)},
        }
        content = {"name": "test", "sites": [entry], "timers": self._timers}
        if by_option:
            self._more_options[site] = ["--join", join]
        else:
            content["join"] = [join]
        if security is not None:
            content["security"] = security
            self._own_certificates[site] = security["certificates"]
        self._joined.add(site)
        self._file_of(site).write_text(yaml.safe_dump(content))
        self.start_broker(site)
        self.start(site)

    def log_of(self, site: str) -> str:
        """Return what the federator of a site has logged."""
        return (self.folder / f"{site}.log").read_text()

    def _file_of(self, site: str) -> Path:
        """Return the file of a site; one that joined or has its own certificates has its own."""
        if site in self._own_certificates or site in self._joined:
            return self.folder / f"federation-{site}.yaml"
        return self.file

    def __enter__(self) -> Self:
        try:
            for site in self.sites:
                if site not in self._external:
                    self.start_broker(site)
            for site in self.sites:
                self.start(site)
            for site in self.sites:
                self.wait_ready(site)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.federators.values(), *self.brokers.values()]:
            os.kill(process.pid, signal.SIGCONT) if process.exit_code() is None else None
            process.kill()

    # -- processes -----------------------------------------------------------------------------

    def start_broker(self, site: str, more_options: str = "") -> None:
        """Start the Mosquitto of a site."""
        port, folder = self.broker_ports[site], self.folder / f"{site}-broker"
        folder.mkdir(exist_ok=True)
        configuration = folder / "mosquitto.conf"
        configuration.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nautosave_interval 1\nmax_queued_messages 0\n"
            "log_dest topic\nlog_type subscribe\nlog_type unsubscribe\nlog_type notice\n"
            f"user root\n{self._broker_options}\n{more_options}\n"
        )
        program = find_program("mosquitto", "mosquitto")
        self.brokers[site] = ChildProcess(
            [program, "-c", str(configuration)], folder / "mosquitto.log"
        )
        wait_until(lambda: accepts_connections("127.0.0.1", port), f"the broker of {site} listens")

    def start(self, site: str) -> None:
        """Start the federator of a site."""
        options = self._more_options.get(site, [])
        if self.metrics_ports:
            options = [*options, "--metrics", f"127.0.0.1:{self.metrics_ports[site]}"]
        self.federators[site] = ChildProcess(
            firedex_command(
                "federator", str(self._file_of(site)), "--site", site,
                "--state", str(self.folder / f"{site}-state"), *options,
            ),
            self.folder / f"{site}.log",
        )  # fmt: skip

    def wait_ready(self, site: str) -> None:
        """Wait until a federator has printed that it is ready."""

        def is_ready() -> bool:
            process = self.federators[site]
            assert process.exit_code() is None, process.end_of_log()
            return "\nready\n" in f"\n{process.end_of_log()}\n"

        wait_until(is_ready, f"the federator of {site} is ready")

    def kill(self, site: str) -> None:
        """Kill the federator of a site (SIGKILL)."""
        self.federators[site].kill()

    def restart(self, site: str) -> None:
        """Start a killed federator again, and wait until it is ready."""
        self.start(site)
        self.wait_ready(site)

    def suspend(self, site: str) -> None:
        """Stop the federator of a site without closing its connections (SIGSTOP)."""
        os.kill(self.federators[site].pid, signal.SIGSTOP)

    def resume(self, site: str) -> None:
        """Let a suspended federator continue."""
        os.kill(self.federators[site].pid, signal.SIGCONT)

    # -- what tests look at --------------------------------------------------------------------

    def command(self, *words: str) -> list[str]:
        """Return the command line of ``firedex federation``."""
        name, *rest = words
        return firedex_command("federation", name, str(self.file), *rest)

    def status(self, site: str) -> dict[str, Any]:
        """Return the status of one federator."""
        credentials = None
        if self._security is not None:
            folder = self._own_certificates.get(site, self._security["certificates"])
            credentials = read_credentials(Path(folder), site)
        address = ("127.0.0.1", self.link_ports[site])
        question = {"query": "status"}
        return asyncio.run(
            ask(address, "test", question, security=credentials, timeout_seconds=60.0)
        )

    def wait_for_interest(self, site: str, topic_filter: str, count: int | None = None) -> None:
        """Wait until other sites know that ``site`` wants a filter."""
        others = [name for name in self.sites if name != site and self._runs(name)]
        for other in others[:count]:
            wait_until(
                lambda other=other: (
                    topic_filter  # type: ignore[misc]
                    in self.status(other)["interest"]["remote"].get(site, {})
                ),
                f"{other} knows that {site} wants {topic_filter}",
                poll_seconds=0.05,
            )

    def _runs(self, site: str) -> bool:
        return self.federators[site].exit_code() is None

    def journals_are_empty(self) -> bool:
        """Return whether no federator has an unacknowledged event."""
        return all(self.status(site)["journal"]["events"] == 0 for site in self.sites)


def print_status(federation: RealFederation) -> None:
    """Print the status of every site, for a failing test."""
    for site in federation.sites:
        json.dump(federation.status(site), sys.stderr, indent=1)
