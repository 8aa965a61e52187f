"""Both ends of a control channel: the switch's, which reconnects, and a test controller's."""

import logging
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from firedex_controller.framework import ofproto, parser
from tests.support.fake_switch.openflow_wire import DATAPATH, MessageReader, decode_reply

__all__ = ["ControlChannel", "RawChannel", "RawController"]

log = logging.getLogger("firedex.fake_switch")
RECONNECT_SECONDS = 0.2
CONNECT_SECONDS = 2.0


class ControlChannel:
    """Connects, reads messages in one thread, and writes replies in another.

    Writing never blocks reading: otherwise a controller that sends many messages before it reads
    would cause a deadlock.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        on_connect: Callable[[], None],
        handle: Callable[[bytes], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._address = address
        self._on_connect, self._handle, self._on_lost = on_connect, handle, on_lost
        self._should_connect = threading.Event()
        self._ended = threading.Event()
        self._connection: socket.socket | None = None
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.connected = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fake switch")

    def start(self) -> None:
        """Connect, and reconnect when the connection is lost."""
        self._should_connect.set()
        self._thread.start()

    def send(self, message: bytes) -> None:
        """Send a message; it is dropped if there is no connection."""
        if self.connected.is_set():
            self._outgoing.put(message)

    def disconnect(self) -> None:
        """Close the connection until ``reconnect``."""
        self._should_connect.clear()
        self._close_connection()

    def reconnect(self) -> None:
        """Connect again after ``disconnect``."""
        self._should_connect.set()

    def close(self) -> None:
        """Close the connection and stop."""
        self._ended.set()
        self._should_connect.set()
        self._close_connection()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _close_connection(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._should_connect.wait()
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
                if self._should_connect.is_set() and not self._ended.is_set():
                    self._on_connect()
                    self._read(connection)
            finally:
                self.connected.clear()
                self._connection = None
                self._outgoing.put(None)
                self._on_lost()
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                writer.join()

    def _read(self, connection: socket.socket) -> None:
        reader = MessageReader()
        while received := connection.recv(1 << 18):
            for message in reader.feed(received):
                try:
                    self._handle(message)
                except Exception:
                    # The switch continues; a test will miss the reply and show this log.
                    log.exception("cannot handle message %s", message.hex())


def _write(connection: socket.socket, outgoing: "queue.SimpleQueue[bytes | None]") -> None:
    with suppress(OSError):
        while (message := outgoing.get()) is not None:
            connection.sendall(message)


TIMEOUT_SECONDS = 60.0


class RawChannel:
    """The controller's end of the channel of one switch."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.settimeout(TIMEOUT_SECONDS)
        self._reader = MessageReader()
        self._arrived: list[Any] = []
        self._next_transaction = 1
        self.send(parser.OFPHello(DATAPATH))
        self.features = self.request(parser.OFPFeaturesRequest(DATAPATH))[0]

    def send(self, message: Any) -> int:
        """Send one message; return its transaction id."""
        transaction = self._assign_transaction(message)
        self.connection.sendall(message.buf)
        return transaction

    def send_all(self, messages: Sequence[Any]) -> list[int]:
        """Send several messages in one write; return their transaction ids."""
        transactions = [self._assign_transaction(message) for message in messages]
        self.connection.sendall(b"".join(message.buf for message in messages))
        return transactions

    def _assign_transaction(self, message: Any) -> int:
        if message.xid is None:
            message.set_xid(self._next_transaction)
        self._next_transaction = message.xid + 1
        message.serialize()
        transaction: int = message.xid
        return transaction

    def receive(self) -> Any:
        """Return the next message; echo requests are answered."""
        while True:
            while not self._arrived:
                received = self.connection.recv(1 << 16)
                if not received:
                    raise ConnectionError("the switch closed the control channel")
                self._arrived += map(decode_reply, self._reader.feed(received))
            message = self._arrived.pop(0)
            if message.msg_type != ofproto.OFPT_ECHO_REQUEST:
                return message
            reply = parser.OFPEchoReply(DATAPATH, data=message.data)
            reply.set_xid(message.xid)
            reply.serialize()
            self.connection.sendall(reply.buf)

    def barrier(self) -> list[Any]:
        """Return all messages that arrive before the reply to a barrier."""
        transaction = self.send(parser.OFPBarrierRequest(DATAPATH))
        received: list[Any] = []
        while True:
            message = self.receive()
            if message.msg_type == ofproto.OFPT_BARRIER_REPLY and message.xid == transaction:
                return received
            received.append(message)

    def request(self, message: Any) -> list[Any]:
        """Return all replies to one request: every part of a multipart reply, or the error."""
        transaction = self.send(message)
        answers = []
        while True:
            answer = self.receive()
            if answer.xid != transaction or answer.msg_type == ofproto.OFPT_HELLO:
                continue
            answers.append(answer)
            more = answer.msg_type == ofproto.OFPT_MULTIPART_REPLY and (
                answer.flags & ofproto.OFPMPF_REPLY_MORE
            )
            if not more:
                return answers

    def entries(self, request: Any) -> list[Any]:
        """Return the bodies of all parts of a multipart reply."""
        return [entry for answer in self.request(request) for entry in answer.body]

    def close(self) -> None:
        """Close the channel."""
        self.connection.close()


class RawController:
    """Listens for switches on a loopback port."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._listener = socket.create_server((host, port))
        self._listener.settimeout(TIMEOUT_SECONDS)
        self._channels: list[RawChannel] = []
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def accept(self) -> RawChannel:
        """Wait for the next switch, and exchange hello messages."""
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._channels.append(RawChannel(connection))
        return self._channels[-1]

    def close(self) -> None:
        """Stop listening, and close all channels."""
        self._listener.close()
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
