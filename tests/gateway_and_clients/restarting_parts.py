"""Parts as processes of their own that can be killed and started again at the same port."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from free_ports import free_port
from loopback_parts import PATIENCE_SECONDS, wait_until

from firedex_emulation.stall_meter import StallMeter

__all__ = ["BrokerProcess", "GatewayProcess", "Process", "within"]

ROOT = Path(__file__).parents[2]
LASTING_BROKER = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
set_tcp_nodelay true
max_queued_messages 0
log_type error
user {user}
"""


def within(seconds: float, ready: Callable[[], bool], what: str) -> None:
    """It becomes so in time. When the machine stands still, so do all processes, one by one."""
    begin = time.monotonic()
    with StallMeter() as stalls:
        wait_until(ready, what, seconds=seconds + PATIENCE_SECONDS)
    took = time.monotonic() - begin
    print(f"{what}: {took:.2f} s, the machine stood still for {stalls.stalled_seconds:.2f} s")
    assert took <= seconds + 3 * stalls.stalled_seconds, what


class Process(ABC):
    """A program that listens on a TCP port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """How it is started."""

    def start(self) -> None:
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        what = f"{type(self).__name__} on {self.port}"
        wait_until(self._answers, what, seconds=3 * PATIENCE_SECONDS)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended with {self._process.returncode}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """As if the power had failed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    @property
    def resident_bytes(self) -> int:
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @contextmanager
    def running(self) -> Iterator["Process"]:
        self.start()
        try:
            yield self
        finally:
            self.kill()


class BrokerProcess(Process):
    """Mosquitto, which writes its sessions down."""

    def __init__(self, folder: Path) -> None:
        super().__init__(free_port())
        found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if found is None:
            pytest.skip("mosquitto is not installed")
        self._program, self._file, self.folder = found, folder / "lasting.conf", folder
        self._file.write_text(
            LASTING_BROKER.format(port=self.port, folder=folder, user=getpass.getuser())
        )

    def command(self) -> list[str]:
        return [self._program, "-c", str(self._file)]

    def save(self, client_id: str) -> None:
        """Have it write its sessions down, and wait until one of them is there."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._remembers(client_id), "the session on disk")

    def _remembers(self, client_id: str) -> bool:
        found = self.folder / "mosquitto.db"
        return found.exists() and client_id.encode() in found.read_bytes()


class GatewayProcess(Process):
    """``firedex gateway``, as it is run."""

    def __init__(self, broker: int, service: str, *options: str) -> None:
        super().__init__(free_port())
        self.udp_port = free_port()
        self._options = [
            f"--broker=127.0.0.1:{broker}",
            f"--service={service}",
            f"--udp-listen=127.0.0.1:{self.udp_port}",
            *options,
        ]

    def command(self) -> list[str]:
        listen = f"--listen=127.0.0.1:{self.port}"
        return [sys.executable, "-m", "firedex.gateway", listen, *self._options]
