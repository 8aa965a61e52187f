"""The parts of an emulated site: processes on their hosts, each started and checked."""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from firedex.system.processes import accepts_connections
from firedex.transport.http import HttpClient, HttpError, HttpTarget
from firedex_controller.agent import AgentClient, AgentError
from firedex_controller.agent.messages import AgentHealth
from firedex_emulation.errors import EmulationError, PartFailed
from firedex_emulation.testbed.emulated_network import (
    EDGE_MANAGEMENT,
    HOST_MANAGEMENT,
    EmulatedNetwork,
)
from firedex_emulation.testbed.sandbox import RUN
from firedex_emulation.topologies.network_plan import EDGE_ADDRESS

__all__ = ["CONTROLLER_PORT", "SERVICE_URL", "SiteProcesses", "health_notes"]

CONTROLLER_PORT = 6653
CONTROLLER_API_PORT = 8080
AGENT_PORT = 8082
SERVICE_PORT = 8088
BROKER_PORT = 1883
GATEWAY_PORT = 1884
SERVICE_URL = f"http://{EDGE_ADDRESS}:{SERVICE_PORT}"
TIMEOUT_SECONDS = 60.0

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
    """Command of a part, and the check that the part is ready."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    on: object = None


class SiteProcesses:
    """Starts the parts in order. They end with the sandbox; ``check`` raises if one failed."""

    def __init__(self, network: EmulatedNetwork) -> None:
        self._network = network
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._parts: dict[str, _Part] = {}
        self._restarter = ThreadPoolExecutor(max_workers=8, thread_name_prefix="restart")
        self._restarts: list[Future[None]] = []
        self._token = secrets.token_urlsafe(16)

    def start(self, name: str, command: Sequence[str], on: object = None) -> None:
        """Start a part on a Mininet host, or on the switch host; its output goes to a log."""
        log = (RUN / f"{name}.log").open("ab")
        options = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        launch: Callable[..., subprocess.Popen[bytes]] = (
            subprocess.Popen if on is None else on.popen  # type: ignore[attr-defined]
        )
        self._running[name] = launch(list(command), **options)

    def kill(self, name: str, down_seconds: float) -> None:
        """Send SIGKILL to a part and start it again after ``down_seconds``."""
        part = self._parts[name]
        process = self._running.pop(name, None)
        if process is None:
            raise EmulationError(f"{name} is not running, so it cannot be killed")
        process.kill()
        process.wait()
        self._restarts.append(self._restarter.submit(self._restart, part, down_seconds))

    def _restart(self, part: _Part, down_seconds: float) -> None:
        time.sleep(down_seconds)
        self._start_part(part)

    def wait_for_parts(self) -> None:
        """Wait until all killed parts run again; raise if one does not."""
        for restart in self._restarts:
            restart.result()

    def _start_part(self, part: _Part) -> None:
        self._parts[part.name] = part
        self.start(part.name, part.command, part.on)
        self.wait_for(part.name, part.ready)

    def start_controller(self, framework: str) -> None:
        """Start the switch agent and the controller on the switch host."""
        self._start_part(
            _Part(
                name="switch-agent",
                command=[*_firedex_command("switch-agent"), "--listen", f"127.0.0.1:{AGENT_PORT}"],
                ready=lambda: accepts_connections("127.0.0.1", AGENT_PORT),
            )
        )
        url = f"http://{HOST_MANAGEMENT}:{CONTROLLER_API_PORT}"

        def all_settled() -> bool:
            topology = _fetch(url, "/v1/topology", self._token)
            return all(switch["settled"] for switch in topology["switches"])

        self._start_part(
            _Part(
                name="controller",
                command=[*_firedex_command("controller"), *self._network.controller_options()]
                + ["--framework", framework, "--listen", f"127.0.0.1:{CONTROLLER_PORT}"]
                + ["--api", f"{HOST_MANAGEMENT}:{CONTROLLER_API_PORT}", "--token", self._token]
                + ["--agent", f"http://127.0.0.1:{AGENT_PORT}"]
                + ["--state", str(RUN / "controller.json")],
                ready=all_settled,
            )
        )

    def start_edge(self, site: Path, *, bounded: bool = True) -> None:
        """Start broker, configuration service and gateway on the edge host.

        If ``bounded`` is false, the gateway forwards events of any age, as a broker does.
        """
        configuration = RUN / "mosquitto.conf"
        configuration.write_text(MOSQUITTO_CONFIGURATION)
        edge = self._network.edge.node
        service = f"http://{EDGE_MANAGEMENT}:{SERVICE_PORT}"
        for part in (
            _Part(
                name="broker",
                command=["mosquitto", "-c", str(configuration)],
                ready=lambda: accepts_connections(EDGE_MANAGEMENT, BROKER_PORT),
                on=edge,
            ),
            _Part(
                name="service",
                command=[
                    *_firedex_command("serve"),
                    str(site),
                    "--listen",
                    f"0.0.0.0:{SERVICE_PORT}",
                ]
                + ["--open-anywhere"]
                + ["--controller", f"http://{HOST_MANAGEMENT}:{CONTROLLER_API_PORT}"]
                + ["--controller-token", self._token]
                + ["--gateway", f"{EDGE_ADDRESS}:{GATEWAY_PORT}"]
                + ["--state", str(RUN / "service.sqlite")],
                ready=lambda: _fetch(service, "/v1/health")["status"] == "ok",
                on=edge,
            ),
            _Part(
                name="gateway",
                command=[*_firedex_command("gateway"), "--listen", f"0.0.0.0:{GATEWAY_PORT}"]
                + ["--udp-listen", f"0.0.0.0:{GATEWAY_PORT}", "--seed", "1"]
                + ["--broker", f"127.0.0.1:{BROKER_PORT}"]
                + ["--service", f"http://127.0.0.1:{SERVICE_PORT}"]
                + ([] if bounded else ["--buffer-bytes", str(2**30), "--buffer-seconds", "3600"]),
                ready=lambda: accepts_connections(EDGE_MANAGEMENT, GATEWAY_PORT),
                on=edge,
            ),
        ):
            self._start_part(part)

    @cached_property
    def service(self) -> HttpClient:
        """Client of the configuration service from the switch host."""
        return HttpClient(HttpTarget(url=f"http://{EDGE_MANAGEMENT}:{SERVICE_PORT}"))

    def switch_notes(self) -> tuple[str, ...]:
        """Return the queue problems that the switch agent reports."""
        try:
            return health_notes(AgentClient(f"http://127.0.0.1:{AGENT_PORT}").health())
        except AgentError as error:
            return (str(error),)

    def wait_for(
        self, name: str, ready: Callable[[], bool], seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Wait until ``ready``; raise PartFailed with the end of the log otherwise."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            try:
                if ready():
                    return
            except (OSError, HttpError, LookupError, ValueError):
                pass
            time.sleep(0.05)
        raise PartFailed(name, f"not ready after {seconds:.0f} s\n{self._end_of_log(name)}")

    def wait_for_file(self, name: str, suffix: str, seconds: float = TIMEOUT_SECONDS) -> Path:
        """Wait until the file ``name.suffix`` exists; return its path."""
        path = RUN / f"{name}.{suffix}"
        self.wait_for(name, path.exists, seconds)
        return path

    def check(self) -> None:
        """Raise PartFailed if a part has ended with an error."""
        for name, process in list(self._running.items()):
            if process.poll() not in (None, 0):
                raise PartFailed(name, f"exit code {process.returncode}\n{self._end_of_log(name)}")

    def _end_of_log(self, name: str) -> str:
        log = RUN / f"{name}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def health_notes(health: AgentHealth) -> tuple[str, ...]:
    """Return the problems in the health report of a switch agent."""
    notes = [f"switch agent: {problem}" for problem in health.problems]
    notes += [f"queues of {each.port}: {each.detail}" for each in health.port_problems]
    if health.shaped_ports and health.send_buffer_bytes is None:
        notes.append(
            "switch agent: the send socket of Open vSwitch was not found, so its buffer may be "
            "too small; packets of every class may then be lost when queues are long"
        )
    return tuple(notes)


def _firedex_command(command: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", "from firedex.cli import main; main()", command]


def _fetch(url: str, path: str, token: str | None = None) -> Any:
    target = HttpTarget(url=url, token=token, timeout_seconds=2.0)
    with HttpClient(target) as client:
        return json.loads(client.request("GET", path).body)
