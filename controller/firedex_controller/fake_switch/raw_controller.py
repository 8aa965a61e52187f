"""The controller's end of a control channel, by hand: sends messages, collects what comes back.

It decides nothing. Tests and comparisons drive a switch with it, fake or real, message by message.
"""

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from firedex_controller.fake_switch.openflow_wire import DATAPATH, MessageReader, decode_reply
from firedex_controller.framework import ofproto, parser

__all__ = ["RawChannel", "RawController"]

PATIENCE_SECONDS = 10.0


class RawChannel:
    """One accepted and greeted switch."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.settimeout(PATIENCE_SECONDS)
        self._reader = MessageReader()
        self._arrived: list[Any] = []
        self._next_transaction = 1
        self.send(parser.OFPHello(DATAPATH))
        self.features = self.request(parser.OFPFeaturesRequest(DATAPATH))[0]

    def send(self, message: Any) -> int:
        """Send one message under a new transaction id, and return that."""
        transaction = self._number(message)
        self.connection.sendall(message.buf)
        return transaction

    def send_all(self, messages: Sequence[Any]) -> list[int]:
        """Send many in one write; return their transaction ids."""
        transactions = [self._number(message) for message in messages]
        self.connection.sendall(b"".join(message.buf for message in messages))
        return transactions

    def _number(self, message: Any) -> int:
        if message.xid is None:
            message.set_xid(self._next_transaction)
        self._next_transaction = message.xid + 1
        message.serialize()
        transaction: int = message.xid
        return transaction

    def receive(self) -> Any:
        """The next message; echo requests are answered and not shown."""
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
        """Everything that the switch says until it has digested all that was sent."""
        transaction = self.send(parser.OFPBarrierRequest(DATAPATH))
        said: list[Any] = []
        while True:
            message = self.receive()
            if message.msg_type == ofproto.OFPT_BARRIER_REPLY and message.xid == transaction:
                return said
            said.append(message)

    def request(self, message: Any) -> list[Any]:
        """All the answers to one request: every part of a multipart reply, or the error."""
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
        """The bodies of all parts of a multipart reply, in one list."""
        return [entry for answer in self.request(request) for entry in answer.body]

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


class RawController:
    """Listens for switches on a loopback port."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._listener = socket.create_server((host, port))
        self._listener.settimeout(PATIENCE_SECONDS)
        self._channels: list[RawChannel] = []
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def accept(self) -> RawChannel:
        """Wait for the next switch to connect, and greet it."""
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._channels.append(RawChannel(connection))
        return self._channels[-1]

    def close(self) -> None:
        """Stop listening, and hang up on all that were accepted."""
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
