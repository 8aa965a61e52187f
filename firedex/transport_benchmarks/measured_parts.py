"""Mosquitto and the gateway as processes, whose processor time can be read, and bare sockets."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firedex.gateway import broker_packets
from firedex.gateway.broker_packets import BrokerEvent

__all__ = [
    "Part",
    "event_packet",
    "free_port",
    "opened",
    "running_broker",
    "running_gateway",
    "send_events",
]

FIVE = 5
PATIENCE_SECONDS = 20.0
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
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Part:
    """A running process, and where it listens."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, udp_port: int = 0) -> None:
        self._process, self.port, self.udp_port = process, port, udp_port

    def processor_seconds(self) -> float:
        """What it has used so far, in user and system mode."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _running(command: list[str], port: int, udp_port: int = 0) -> Iterator[Part]:
    with subprocess.Popen(  # noqa: S603  # our own program, arguments as a list
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{command[0]} does not start")
                time.sleep(0.02)
            yield Part(process, port, udp_port)
        finally:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def running_broker() -> Iterator[Part]:
    """A Mosquitto of its own."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise RuntimeError("mosquitto is not installed (apt-get install mosquitto)")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mosquitto.conf"
        file.write_text(_CONFIGURATION.format(port=port))
        Path(folder).chmod(0o755)
        with _running([program, "-c", str(file)], port) as part:
            yield part


@contextmanager
def running_gateway(broker: Part) -> Iterator[Part]:
    """``firedex gateway`` in front of a broker, without a service: nothing is dropped."""
    port, udp_port = free_port(), free_port()
    command = [sys.executable, "-m", "firedex.gateway", f"--listen=127.0.0.1:{port}"]
    command += [f"--broker=127.0.0.1:{broker.port}", f"--udp-listen=127.0.0.1:{udp_port}"]
    command += ["--service=http://127.0.0.1:1"]
    with _running(command, port, udp_port) as part:
        yield part


@contextmanager
def opened(port: int, name: str, *filters: str) -> Iterator[socket.socket]:
    """A bare MQTT 5 connection, subscribed at QoS 1."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.sendall(
            broker_packets.connect(name, level=FIVE, clean=True, keep_alive_seconds=0, will=None)
        )
        raw.recv(4096)
        for number, each in enumerate(filters, start=1):
            raw.sendall(broker_packets.subscribe(number, each.encode(), 1, level=FIVE))
            raw.recv(4096)
        yield raw


def event_packet(topic: str, payload: bytes, *, qos: int = 0, message_id: int = 0) -> bytes:
    """A PUBLISH."""
    event = BrokerEvent(
        topic=topic.encode(),
        payload=payload,
        qos=qos,
        retain=False,
        dup=False,
        message_id=message_id,
    )
    return broker_packets.publish(event, level=FIVE)


def send_events(port: int, packets: list[bytes], last: bytes) -> None:
    """All packets, then one at QoS 1; returns when the broker has acknowledged that."""
    with opened(port, "source") as raw:
        for begin in range(0, len(packets), 200):
            raw.sendall(b"".join(packets[begin : begin + 200]))
        raw.sendall(last)
        raw.recv(4096)
