"""A switch for experiments inside the sandbox: real Open vSwitch, controller and agent.

::

    source 10.0.0.10 ── [core] ═══ trunk ═══ [access] ── target 10.0.0.101

``core`` is controlled, ``access`` only forwards.
"""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firedex.wire import DesiredNetwork, to_json
from firedex_emulation.testbed.sandbox import RUN, enter_sandbox, start_open_vswitch

SOURCE, TARGET = "10.0.0.10", "10.0.0.101"
SOURCE_PORT = 1884
TRUNK = "core-trunk"
CONTROLLER_PORT, API_PORT, AGENT_PORT = 6653, 8080, 8082
FIREDEX = [sys.executable, "-W", "ignore", "-c", "from firedex.cli import main; main()"]
PROGRAM = [sys.executable, "-W", "ignore", "-m", "tests.on_switches.programs.udp_streams"]
TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class StreamResult:
    """The number of sent packets of each stream, and the packets that arrived."""

    sent: npt.NDArray[np.int64]
    stream: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    delay_seconds: npt.NDArray[np.float64]
    arrived_at_seconds: npt.NDArray[np.float64]

    @property
    def arrived_during_load(self) -> npt.NDArray[np.bool_]:
        """Whether each packet arrived before the last one was sent."""
        last_sent = float((self.arrived_at_seconds - self.delay_seconds).max())
        return self.arrived_at_seconds <= last_sent

    def delivered(self, stream: int) -> float:
        return float((self.stream == stream).sum() / self.sent[stream])

    def median_delay(self, stream: int) -> float:
        return float(np.median(self.delay_seconds[self.stream == stream]))


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


def until(condition: Callable[[], bool], what: str, seconds: float = TIMEOUT_SECONDS) -> float:
    """Wait until ``condition`` is true; return the time in seconds."""
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        with contextlib.suppress(OSError, LookupError, ValueError, RuntimeError):
            if condition():
                return time.monotonic() - start
        time.sleep(0.02)
    logs = "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in RUN.glob("*.log"))
    raise RuntimeError(f"timeout of {seconds:g} s: {what}\n{logs}")


class Parts(ABC):
    """Agent and controller as processes, and traffic between hosts. All end with the sandbox.

    ``switches`` are the options of the controller for its switches.
    """

    def __init__(self, framework: str, switches: list[str]) -> None:
        self.framework, self.switches = framework, switches
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._streams = 0

    @abstractmethod
    def address(self, host: str) -> str:
        """Return the address of a host."""

    @abstractmethod
    def start_on(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``udp_streams`` on a host."""

    def start(self, name: str, command: list[str]) -> None:
        with (RUN / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def start_agent(self) -> None:
        self.start("agent", [*FIREDEX, "switch-agent", "--listen", f"127.0.0.1:{AGENT_PORT}"])

    def start_controller(self) -> None:
        command = [*FIREDEX, "controller", *self.switches]
        command += ["--listen", f"127.0.0.1:{CONTROLLER_PORT}", "--api", f"127.0.0.1:{API_PORT}"]
        command += ["--state", str(RUN / "controller.json"), "--framework", self.framework]
        self.start("controller", command)
        until(lambda: self.ask("GET", "/v1/health")[0] == 200, "the controller answers")

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def put(self, network: DesiredNetwork) -> Any:
        status, answer = self.ask("PUT", "/v1/network", to_json(network))
        if status != http.client.OK:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def settled(self) -> bool:
        """Return whether all switches are connected and have the desired rules."""
        switches = self.ask("GET", "/v1/topology")[1]["switches"]
        return all(switch["connected"] and switch["settled"] for switch in switches)

    # -- traffic -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def traffic(
        self,
        seconds: npt.NDArray[np.float64],
        stream: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        port: npt.NDArray[np.int64],
        *,
        source: str = "source",
        target: str = "target",
    ) -> Iterator[Callable[[], StreamResult]]:
        """Send packets at the given times; yield a function that waits and returns the result."""
        self._streams += 1
        name = f"streams-{self._streams}"
        order = np.argsort(seconds, kind="stable")
        table = np.empty(
            len(seconds),
            dtype=[("seconds", "f8"), ("stream", "i8"), ("bytes", "i8"), ("port", "i8")],
        )
        for column, values in zip(
            table.dtype.names or (), (seconds, stream, size, port), strict=True
        ):
            table[column] = values[order]
        timetable, stop = RUN / f"{name}.npy", RUN / f"{name}.stop"
        sent, seen = RUN / f"{name}.sent.npy", RUN / f"{name}.seen.npy"
        np.save(timetable, table)
        ports = [str(int(port.min())), str(int(port.max()))]
        receiver = self.start_on(
            target, "receive", self.address(target), *ports, str(stop), str(seen)
        )
        until(lambda: Path(f"{seen}.ready").exists(), "the receiver is ready")
        ends = f"{self.address(source)}:{SOURCE_PORT}", self.address(target)
        sender = self.start_on(source, "send", str(timetable), *ends, str(sent))

        def receive_all() -> StreamResult:
            sender.wait(float(table["seconds"].max()) + TIMEOUT_SECONDS)
            time.sleep(1.0)  # wait for queued packets
            stop.touch()
            receiver.wait(TIMEOUT_SECONDS)
            rows = np.load(seen)
            return StreamResult(
                np.load(sent), rows[:, 0], rows[:, 1], rows[:, 2] / 1e9, rows[:, 3] / 1e9
            )

        try:
            yield receive_all
        finally:
            stop.touch()
            sender.kill()
            sender.wait()
            receiver.wait(TIMEOUT_SECONDS)


class Lab(Parts):
    """One controlled switch with agent and controller."""

    def __init__(self, framework: str = "os-ken") -> None:
        enter_sandbox()
        start_open_vswitch()
        super().__init__(framework, ["--switch", f"core=0000000000000001:{TRUNK}"])
        run("ovs-vsctl", "--", "add-br", "core", "--", "set", "bridge", "core",
            "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
            "other-config:datapath-id=0000000000000001")  # fmt: skip
        run("ovs-vsctl", "--", "add-br", "access", "--", "set", "bridge", "access",
            "datapath_type=netdev", "fail_mode=standalone")  # fmt: skip
        run("ip", "link", "add", TRUNK, "type", "veth", "peer", "name", "access-trunk")
        for bridge, port in (("core", TRUNK), ("access", "access-trunk")):
            run("ip", "link", "set", port, "addrgenmode", "none", "up")
            run("ovs-vsctl", "add-port", bridge, port)
        self.add_host("source", SOURCE, "core")
        self.add_host("target", TARGET, "access")

    def add_host(self, name: str, address: str, bridge: str) -> None:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"{bridge}-{name}", "type", "veth", "peer", "name", "eth0",
            "netns", name)  # fmt: skip
        run("ip", "link", "set", f"{bridge}-{name}", "addrgenmode", "none", "up")
        run("ovs-vsctl", "add-port", bridge, f"{bridge}-{name}")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "addrgenmode", "none", "up")
        run("ip", "netns", "exec", name, "ethtool", "-K", "eth0", "tx", "off")

    def start_parts(self) -> None:
        self.start_agent()
        self.start_controller()
        self.connect()
        until(self.settled, "the switch is settled")
        until(self.hosts_are_connected, "the hosts reach each other")

    def connect(self) -> None:
        run("ovs-vsctl", "set-controller", "core", f"tcp:127.0.0.1:{CONTROLLER_PORT}", "--",
            "set", "controller", "core", "max_backoff=1000", "inactivity_probe=2000")  # fmt: skip

    def disconnect(self) -> None:
        """Close the control channel; without any controller the switch would empty its tables."""
        run("ovs-vsctl", "set-controller", "core", "tcp:127.0.0.1:1")

    def channel(self) -> bool:
        """Return whether the control channel of the switch is open."""
        return "true" in run("ovs-vsctl", "get", "controller", "core", "is_connected")

    def restart_switch_daemon(self) -> None:
        """Kill the switch daemon and start it again; the database keeps running."""
        pid = int(Path("/run/openvswitch/ovs-vswitchd.pid").read_text())
        os.kill(pid, 9)
        os.waitpid(pid, 0)  # this process is the first one of the sandbox and inherits the daemon
        run("ovs-vswitchd", "unix:/run/openvswitch/db.sock", "--detach", "-vconsole:off",
            "--pidfile=/run/openvswitch/ovs-vswitchd.pid",
            "--log-file=/run/openvswitch/ovs-vswitchd.log")  # fmt: skip

    def hosts_are_connected(self) -> bool:
        """Return whether the source has resolved the target's hardware address."""
        program = f"import socket; socket.socket(2, 2).sendto(b'?', ('{TARGET}', 9))"
        run("ip", "netns", "exec", "source", sys.executable, "-c", program)
        return "lladdr" in run("ip", "-n", "source", "neigh", "show", TARGET)

    def queues(self) -> list[str]:
        """Return the queues and filters of the trunk as the kernel shows them, without counters."""
        shown = [run("tc", what, "show", "dev", TRUNK) for what in ("qdisc", "class", "filter")]
        return sorted(line.strip() for text in shown for line in text.splitlines())

    def meters(self) -> list[str]:
        shown = run("ovs-ofctl", "-O", "OpenFlow13", "dump-meters", "core")
        return sorted(shown.replace("\n", " ").split("meter=")[1:])

    def flows(self) -> list[str]:
        """Return FireDeX's flow entries as the switch shows them, without counters."""
        shown = run("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", "core")
        return sorted(line.strip() for line in shown.splitlines() if "cookie=0xf17e" in line)

    def address(self, host: str) -> str:
        return {"source": SOURCE, "target": TARGET}[host]

    def start_on(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["ip", "netns", "exec", host, *PROGRAM, *arguments]
        with (RUN / f"{host}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)
