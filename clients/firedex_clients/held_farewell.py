"""Leaving a TCP connection so that its local port is free at once.

paho closes as soon as DISCONNECT is written, which would leave our port in TIME_WAIT for a minute:
the connection is held until the other side has closed it.
"""

import socket
from collections.abc import Callable
from contextlib import suppress

from firedex_clients.connection_loop import ConnectionLoop

__all__ = ["HeldFarewell"]

FAREWELL_SECONDS = 1.0


class HeldFarewell:
    """Holds a socket of its own to the same connection; in the loop's thread."""

    def __init__(
        self, loop: ConnectionLoop, opened: socket.socket, on_closed: Callable[[], None]
    ) -> None:
        self._loop, self._on_closed = loop, on_closed
        self._held = opened.dup()
        self._held.setblocking(False)
        self._timer = loop.later(FAREWELL_SECONDS, self._end)
        loop.watch(self._held, self._readable)

    def _readable(self) -> None:
        with suppress(BlockingIOError, ConnectionError):
            if self._held.recv(65_536):
                return
        self._end()

    def _end(self) -> None:
        self._timer.cancel()
        self._loop.unwatch(self._held)
        self._held.close()
        self._on_closed()
