"""Parts as processes that can be killed and restarted on the same port."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.free_ports import free_port
from tests.support.loopback_parts import TIMEOUT_SECONDS
from tests.support.waiting import wait_until

__all__ = ["BrokerProcess", "GatewayProcess", "Process"]

ROOT = Path(__file__).parents[2]
PERSISTENT_BROKER = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
set_tcp_nodelay true
max_queued_messages 0
log_type error
user {user}
"""


class Process(ABC):
    """A program that listens on a TCP port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line of the program."""

    def start(self) -> None:
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        what = f"{type(self).__name__} on {self.port}"
        wait_until(self._accepts_connections, what, timeout_seconds=3 * TIMEOUT_SECONDS)

    def _accepts_connections(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"exit code {self._process.returncode}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """Send SIGKILL, like a power failure."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(TIMEOUT_SECONDS)
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
    """Mosquitto with persistent sessions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(free_port())
        found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if found is None:
            pytest.skip("mosquitto is not installed")
        self._program, self._file, self.folder = found, folder / "lasting.conf", folder
        self._file.write_text(
            PERSISTENT_BROKER.format(port=self.port, folder=folder, user=getpass.getuser())
        )

    def command(self) -> list[str]:
        return [self._program, "-c", str(self._file)]

    def save(self, client_id: str) -> None:
        """Make the broker save its sessions, and wait until that of ``client_id`` is on disk."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._has_saved(client_id), "the session on disk")

    def _has_saved(self, client_id: str) -> bool:
        found = self.folder / "mosquitto.db"
        return found.exists() and client_id.encode() in found.read_bytes()


class GatewayProcess(Process):
    """``firedex gateway``."""

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
