"""Loopback addresses that are one run's alone, so that runs may stand side by side."""

import errno
import socket
from collections.abc import Sequence

from firedex_emulation.errors import CannotEmulate

__all__ = ["MOST_SUBSCRIBERS", "RunAddresses"]

MOST_SUBSCRIBERS = 250
GUARD_PORT = 19_999
RUNS = 256


class RunAddresses:
    """Addresses of run R: taken as long as this is open, by a socket that nobody else can bind."""

    def __init__(self, subscribers: Sequence[str]) -> None:
        self._guard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        run = self._take()
        self.parts, self.link = f"127.1.{run}.253", f"127.1.{run}.254"
        self.source = {name: f"127.1.{run}.{k}" for k, name in enumerate(subscribers, 1)}
        self.known = {name: f"127.2.{run}.{k}" for k, name in enumerate(subscribers, 1)}

    def _take(self) -> int:
        for run in range(RUNS):
            try:
                self._guard.bind((f"127.1.{run}.252", GUARD_PORT))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                self._guard.close()
                raise CannotEmulate(
                    f"an embedded run needs loopback addresses such as 127.1.0.1 ({error})"
                ) from error
            else:
                return run
        self._guard.close()
        raise CannotEmulate(f"{RUNS} embedded runs are under way already")

    def free_port(self, address: str) -> int:
        """A port of one of our addresses that nobody listens on, for TCP and UDP."""
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind((address, 0))
            port: int = tcp.getsockname()[1]
            udp.bind((address, port))
            return port

    def close(self) -> None:
        """Leave the addresses to others."""
        self._guard.close()
