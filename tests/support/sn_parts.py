"""A gateway with both transports in a thread, and a bare MQTT-SN client on a socket."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.sn_gateway import SnGateway, SnSettings
from firedex.transport.mqtt_sn import (
    Connack,
    Connect,
    Message,
    Publish,
    Regack,
    Register,
    ReturnCode,
    Suback,
    Subscribe,
    TopicKind,
    decode,
    encode,
)
from tests.support.free_ports import free_port
from tests.support.loopback_parts import TIMEOUT_SECONDS, seeded_random

__all__ = ["BareClient", "running_sn_gateway"]

T = TypeVar("T")


@contextmanager
def running_sn_gateway(
    broker: int, flows: FlowTable | None = None, *, port: int | None = None, **settings: Any
) -> Iterator[tuple[SnGateway, int]]:
    """Run an MQTT-SN gateway in a thread with its own event loop; yield it and its port."""
    settings.setdefault("retry_seconds", 0.3)
    gateway = SnGateway(
        SnSettings(broker=("127.0.0.1", broker), **settings), flows or FlowTable(), seeded_random(7)
    )
    port = port or free_port()
    ready, ends = threading.Event(), dict[str, Any]()

    async def serve() -> None:
        ends["loop"], ends["stop"] = asyncio.get_running_loop(), asyncio.Event()
        await gateway.start("127.0.0.1", port)
        ready.set()
        await ends["stop"].wait()
        await gateway.close()
        await asyncio.sleep(0.02)

    def run() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(serve())

    thread = threading.Thread(target=run, name="sn gateway")
    thread.start()
    try:
        assert ready.wait(TIMEOUT_SECONDS)
        yield gateway, port
        assert thread.is_alive(), "the gateway ended by itself"
    finally:
        if thread.is_alive():
            ends["loop"].call_soon_threadsafe(ends["stop"].set)
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()


class BareClient:
    """Sends and receives MQTT-SN messages only when a test calls it."""

    def __init__(self, port: int, name: str = "bare", bind: tuple[str, int] = ("127.0.0.1", 0)):
        self.name = name
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self._socket.bind(bind)
        self._socket.connect(("127.0.0.1", port))
        self._socket.settimeout(TIMEOUT_SECONDS)
        self._ids = 0

    def __enter__(self) -> "BareClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def send(self, message: Message) -> None:
        self._socket.send(encode(message))

    def send_bytes(self, data: bytes) -> None:
        self._socket.send(data)

    def receive(self, seconds: float = TIMEOUT_SECONDS) -> Message:
        self._socket.settimeout(seconds)
        return decode(self._socket.recv(65_536))

    def is_quiet(self, seconds: float = 0.3) -> bool:
        try:
            self.receive(seconds)
        except TimeoutError:
            return True
        return False

    def expect(self, kind: type[T]) -> T:
        found = self.receive()
        assert isinstance(found, kind), found
        return found

    def ask(self, message: Message, kind: type[T]) -> T:
        self.send(message)
        return self.expect(kind)

    def await_kind(self, kind: type[T]) -> T:
        """Return the next message of a kind; skip others, which may be retransmissions."""
        while not isinstance(found := self.receive(), kind):
            pass
        return found

    def connect(self, seconds: int = 30, **more: Any) -> "BareClient":
        connect = Connect(client_id=self.name, duration_seconds=seconds, **more)
        assert self.ask(connect, Connack).return_code == ReturnCode.ACCEPTED
        return self

    def subscribe(self, topic: str, qos: int = 0, **more: Any) -> int:
        message = Subscribe(message_id=self.next_id(), topic=topic, qos=qos, **more)
        found = self.ask(message, Suback)
        assert (found.return_code, found.message_id) == (0, message.message_id)
        return found.topic_id

    def register(self, topic: str) -> int:
        found = self.ask(Register(topic_id=0, message_id=self.next_id(), topic=topic), Regack)
        assert found.return_code == ReturnCode.ACCEPTED
        return found.topic_id

    def take_event(self) -> tuple[Publish, str | None]:
        """Return the next event, and its topic if the gateway registered it just before."""
        found, topic = self.receive(), None
        while isinstance(found, Register):
            topic = found.topic
            self.send(Regack(topic_id=found.topic_id, message_id=found.message_id, return_code=0))
            found = self.receive()
        assert isinstance(found, Publish), found
        if found.kind == TopicKind.SHORT:
            topic = found.topic_id.to_bytes(2, "big").decode()
        return found, topic
