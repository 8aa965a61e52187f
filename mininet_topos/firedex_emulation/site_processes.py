"""The parts of an emulated site as processes on their hosts, each awaited until it answers."""

import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firedex.service_access import ServiceAccess
from firedex_controller.agent import AgentClient, AgentError
from firedex_controller.agent.messages import AgentHealth
from firedex_emulation.emulated_network import (
    EDGE_MANAGEMENT,
    HOST_MANAGEMENT,
    EmulatedNetwork,
)
from firedex_emulation.errors import EmulationError, PartFailed
from firedex_emulation.network_plan import EDGE_ADDRESS
from firedex_emulation.sandbox import RUN

__all__ = ["CONTROLLER_PORT", "SERVICE_URL", "SiteProcesses", "health_notes"]

CONTROLLER_PORT = 6653
CONTROLLER_API_PORT = 8080
AGENT_PORT = 8082
SERVICE_PORT = 8088
BROKER_PORT = 1883
GATEWAY_PORT = 1884
SERVICE_URL = f"http://{EDGE_ADDRESS}:{SERVICE_PORT}"
PATIENCE_SECONDS = 30.0

MOSQUITTO_CONFIGURATION = f"""\
listener {BROKER_PORT} 0.0.0.0
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 1000
log_type none
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """How a part is started, and how to see that it is ready."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    on: object = None


class SiteProcesses:
    """Starts the parts in order. They end with the sandbox; ``check`` says if one died before."""

    def __init__(self, network: EmulatedNetwork) -> None:
        self._network = network
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._parts: dict[str, _Part] = {}
        self._restarter = ThreadPoolExecutor(max_workers=8, thread_name_prefix="restart")
        self._restarts: list[Future[None]] = []
        self._token = secrets.token_urlsafe(16)

    def start(self, name: str, command: Sequence[str], on: object = None) -> None:
        """Start a part on a Mininet host (or beside the switch); its output goes to a log."""
        log = (RUN / f"{name}.log").open("ab")
        options = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        launch: Callable[..., subprocess.Popen[bytes]] = (
            subprocess.Popen if on is None else on.popen  # type: ignore[attr-defined]
        )
        self._running[name] = launch(list(command), **options)

    def kill(self, name: str, down_seconds: float) -> None:
        """Kill a part without warning; it is started again as it was, after a while."""
        part = self._parts[name]
        process = self._running.pop(name, None)
        if process is None:
            raise EmulationError(f"{name} is down already")
        process.kill()
        process.wait()
        self._restarts.append(self._restarter.submit(self._restart, part, down_seconds))

    def _restart(self, part: _Part, down_seconds: float) -> None:
        time.sleep(down_seconds)
        self._start_part(part)

    def wait_for_parts(self) -> None:
        """Wait until all that were killed run again; raise if one does not."""
        for restart in self._restarts:
            restart.result()

    def _start_part(self, part: _Part) -> None:
        self._parts[part.name] = part
        self.start(part.name, part.command, part.on)
        self.wait_for(part.name, part.ready)

    def start_controller(self, framework: str) -> None:
        """The switch agent and the controller, beside the switches."""
        self._start_part(
            _Part(
                name="switch-agent",
                command=[*_firedex("switch-agent"), "--listen", f"127.0.0.1:{AGENT_PORT}"],
                ready=lambda: _answers("127.0.0.1", AGENT_PORT),
            )
        )
        url = f"http://{HOST_MANAGEMENT}:{CONTROLLER_API_PORT}/v1/topology"

        def all_settled() -> bool:
            return all(switch["settled"] for switch in _fetch(url, self._token)["switches"])

        self._start_part(
            _Part(
                name="controller",
                command=[*_firedex("controller"), *self._network.controller_options()]
                + ["--framework", framework, "--listen", f"127.0.0.1:{CONTROLLER_PORT}"]
                + ["--api", f"{HOST_MANAGEMENT}:{CONTROLLER_API_PORT}", "--token", self._token]
                + ["--agent", f"http://127.0.0.1:{AGENT_PORT}"]
                + ["--state", str(RUN / "controller.json")],
                ready=all_settled,
            )
        )

    def start_edge(self, site: Path, *, bounded: bool = True) -> None:
        """Broker, configuration service and gateway, on the edge host.

        Unless it is ``bounded``, the gateway passes everything on, however old, as a broker does.
        """
        configuration = RUN / "mosquitto.conf"
        configuration.write_text(MOSQUITTO_CONFIGURATION)
        edge = self._network.edge.node
        health = f"http://{EDGE_MANAGEMENT}:{SERVICE_PORT}/v1/health"
        for part in (
            _Part(
                name="broker",
                command=["mosquitto", "-c", str(configuration)],
                ready=lambda: _answers(EDGE_MANAGEMENT, BROKER_PORT),
                on=edge,
            ),
            _Part(
                name="service",
                command=[*_firedex("serve"), str(site), "--listen", f"0.0.0.0:{SERVICE_PORT}"]
                + ["--open-anywhere"]
                + ["--controller", f"http://{HOST_MANAGEMENT}:{CONTROLLER_API_PORT}"]
                + ["--controller-token", self._token]
                + ["--gateway", f"{EDGE_ADDRESS}:{GATEWAY_PORT}"]
                + ["--state", str(RUN / "service.sqlite")],
                ready=lambda: _fetch(health)["status"] == "ok",
                on=edge,
            ),
            _Part(
                name="gateway",
                command=[*_firedex("gateway"), "--listen", f"0.0.0.0:{GATEWAY_PORT}"]
                + ["--udp-listen", f"0.0.0.0:{GATEWAY_PORT}", "--seed", "1"]
                + ["--broker", f"127.0.0.1:{BROKER_PORT}"]
                + ["--service", f"http://127.0.0.1:{SERVICE_PORT}"]
                + ([] if bounded else ["--buffer-bytes", str(2**30), "--buffer-seconds", "3600"]),
                ready=lambda: _answers(EDGE_MANAGEMENT, GATEWAY_PORT),
                on=edge,
            ),
        ):
            self._start_part(part)

    @property
    def service(self) -> ServiceAccess:
        """The configuration service, as reached from the switch host."""
        return ServiceAccess(f"http://{EDGE_MANAGEMENT}:{SERVICE_PORT}")

    def switch_notes(self) -> tuple[str, ...]:
        """What is wrong with the switches' queues, by their agent."""
        try:
            return health_notes(AgentClient(f"http://127.0.0.1:{AGENT_PORT}").health())
        except AgentError as error:
            return (str(error),)

    def wait_for(
        self, name: str, ready: Callable[[], bool], seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until ``ready``; raise with the part's last words if it dies or takes too long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            try:
                if ready():
                    return
            except (OSError, LookupError, ValueError):
                pass
            time.sleep(0.05)
        raise PartFailed(name, f"not ready after {seconds:.0f} s\n{self._last_words(name)}")

    def wait_for_file(self, name: str, suffix: str, seconds: float = PATIENCE_SECONDS) -> Path:
        """Wait until the part has left the file ``name.suffix``; return its place."""
        path = RUN / f"{name}.{suffix}"
        self.wait_for(name, path.exists, seconds)
        return path

    def check(self) -> None:
        """Raise if a part has failed."""
        for name, process in list(self._running.items()):
            if process.poll() not in (None, 0):
                raise PartFailed(
                    name, f"ended with code {process.returncode}\n{self._last_words(name)}"
                )

    def _last_words(self, name: str) -> str:
        log = RUN / f"{name}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def health_notes(health: AgentHealth) -> tuple[str, ...]:
    """What a switch agent finds wrong, in words; nothing while all is well."""
    notes = [f"switch agent: {problem}" for problem in health.problems]
    notes += [f"queues of {each.port}: {each.detail}" for each in health.troubled_ports]
    if health.shaped_ports and health.send_buffer_bytes is None:
        notes.append(
            "switch agent: the socket that Open vSwitch sends by was not found; with long queues "
            "packets of every class may be lost in it"
        )
    return tuple(notes)


def _firedex(command: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", "from firedex.cli import main; main()", command]


def _fetch(url: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(url, headers=headers)  # noqa: S310  # our own addresses
    with urllib.request.urlopen(asked, timeout=2) as answer:  # noqa: S310
        return json.load(answer)


def _answers(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=1):
        return True
