"""Mosquitto and the gateway as processes whose CPU time can be read, and plain MQTT sockets."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from firedex.system.processes import accepts_connections
from firedex.transport.mqtt.packets import (
    PublishPacket,
    encode_connect,
    encode_publish,
    encode_subscribe,
)
from firedex.transport.mqtt.version import MQTT_5

__all__ = [
    "Part",
    "event_packet",
    "free_port",
    "free_ports",
    "open_mqtt_session",
    "open_mqtt_socket",
    "process_cpu_seconds",
    "running_bare_relay",
    "running_broker",
    "running_gateway",
    "send_events",
]

START_SECONDS = 20.0
_CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
log_type error
"""


def free_port() -> int:
    """Return a TCP port that is not in use."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different TCP ports that are not in use."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def process_cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used so far, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Part:
    """A running process and its ports."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, udp_port: int = 0) -> None:
        self._process, self.port, self.udp_port = process, port, udp_port

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far, in user and system mode."""
        return process_cpu_seconds(self._process.pid)


@contextmanager
def _run_process(command: list[str], port: int, udp_port: int = 0) -> Iterator[Part]:
    with subprocess.Popen(  # a program of this project
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not accepts_connections("127.0.0.1", port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start within {START_SECONDS:g} s")
                time.sleep(0.02)
            yield Part(process, port, udp_port)
        finally:
            process.kill()
            process.wait()


@contextmanager
def running_broker() -> Iterator[Part]:
    """Run Mosquitto."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise RuntimeError("mosquitto is not installed (apt-get install mosquitto)")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mosquitto.conf"
        file.write_text(_CONFIGURATION.format(port=port))
        Path(folder).chmod(0o755)
        with _run_process([program, "-c", str(file)], port) as part:
            yield part


@contextmanager
def running_gateway(broker: Part) -> Iterator[Part]:
    """Run ``firedex gateway`` in front of a broker; without a service it drops no events."""
    port, udp_port = free_port(), free_port()
    command = [sys.executable, "-m", "firedex.gateway", f"--listen=127.0.0.1:{port}"]
    command += [f"--broker=127.0.0.1:{broker.port}", f"--udp-listen=127.0.0.1:{udp_port}"]
    command += ["--service=http://127.0.0.1:1"]
    with _run_process(command, port, udp_port) as part:
        yield part


@contextmanager
def running_bare_relay(broker: Part) -> Iterator[Part]:
    """Run a relay in front of a broker that copies bytes without reading them."""
    port = free_port()
    command = [sys.executable, "-m", "firedex.lab.benchmarks.bare_relay"]
    with _run_process([*command, str(port), str(broker.port)], port) as part:
        yield part


@contextmanager
def open_mqtt_socket(port: int, name: str, *filters: str, qos: int = 1) -> Iterator[socket.socket]:
    """Open an MQTT 5 connection on a plain socket, with subscriptions."""
    with socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS) as raw:
        open_mqtt_session(raw, name, *filters, qos=qos)
        yield raw


def open_mqtt_session(raw: socket.socket, name: str, *filters: str, qos: int) -> None:
    """Connect to a broker over an open TCP connection, and subscribe."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.sendall(encode_connect(name, level=MQTT_5, keep_alive_seconds=0))
    raw.recv(4096)
    for number, each in enumerate(filters, start=1):
        raw.sendall(encode_subscribe(number, each.encode(), qos, level=MQTT_5))
        raw.recv(4096)


def event_packet(
    topic: str, payload: bytes, *, qos: int = 0, packet_id: int = 0, retain: bool = False
) -> bytes:
    """Return a PUBLISH packet."""
    event = PublishPacket(
        topic=topic.encode(),
        payload=payload,
        qos=qos,
        packet_id=packet_id,
        retain=retain,
    )
    return encode_publish(event, level=MQTT_5)


def send_events(port: int, packets: list[bytes], last: bytes) -> None:
    """Send all packets, then one at QoS 1; return when the broker has acknowledged that one."""
    with open_mqtt_socket(port, "source") as raw:
        for begin in range(0, len(packets), 200):
            raw.sendall(b"".join(packets[begin : begin + 200]))
        raw.sendall(last)
        raw.recv(4096)
