"""A switch's TCP connection to its controller: kept, and made again when it goes."""

import logging
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from firedex_controller.fake_switch.openflow_wire import MessageReader

__all__ = ["ControlChannel"]

log = logging.getLogger("firedex.fake_switch")
RECONNECT_SECONDS = 0.2
CONNECT_SECONDS = 2.0


class ControlChannel:
    """Connects, reads messages in one thread, writes answers in another.

    Writing never holds up reading, so that a controller which sends a lot before it reads cannot
    lock the two of them up.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        greet: Callable[[], None],
        digest: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> None:
        self._address = address
        self._greet, self._digest, self._lost = greet, digest, lost
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._connection: socket.socket | None = None
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.connected = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fake switch")

    def start(self) -> None:
        """Connect from now on."""
        self._wanted.set()
        self._thread.start()

    def send(self, message: bytes) -> None:
        """Send, or forget if there is no connection."""
        if self.connected.is_set():
            self._outgoing.put(message)

    def disconnect(self) -> None:
        """Hang up and stay away."""
        self._wanted.clear()
        self._hang_up()

    def reconnect(self) -> None:
        """Come back after ``disconnect``."""
        self._wanted.set()

    def close(self) -> None:
        """Hang up for good."""
        self._ended.set()
        self._wanted.set()
        self._hang_up()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _hang_up(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wanted.wait()
            if self._ended.is_set():
                return
            with suppress(OSError):
                self._serve(socket.create_connection(self._address, timeout=CONNECT_SECONDS))
            self._ended.wait(RECONNECT_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
            self._outgoing = queue.SimpleQueue()
            writer = threading.Thread(
                target=_write, args=(connection, self._outgoing), daemon=True, name="fake switch"
            )
            writer.start()
            self.connected.set()
            try:
                if self._wanted.is_set() and not self._ended.is_set():
                    self._greet()
                    self._read(connection)
            finally:
                self.connected.clear()
                self._connection = None
                self._outgoing.put(None)
                self._lost()
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                writer.join()

    def _read(self, connection: socket.socket) -> None:
        reader = MessageReader()
        while received := connection.recv(1 << 18):
            for message in reader.feed(received):
                try:
                    self._digest(message)
                except Exception:
                    # A switch does not die of a message; a test will miss the answer and see this.
                    log.exception("could not digest %s", message.hex())


def _write(connection: socket.socket, outgoing: "queue.SimpleQueue[bytes | None]") -> None:
    with suppress(OSError):
        while (message := outgoing.get()) is not None:
            connection.sendall(message)
