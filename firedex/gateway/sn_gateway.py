"""MQTT-SN 1.2 over UDP: the socket, and the sessions of its clients."""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import EventTotals, FlowTable, ManagedFlow, max_qos
from firedex.gateway.interest import InterestTable
from firedex.gateway.interest_packets import ConnectionObserver
from firedex.gateway.sn_delivery import Outlets, SnDelivery
from firedex.gateway.sn_publishing import AnonymousPublisher
from firedex.gateway.sn_session import SessionState, SnSession
from firedex.gateway.sn_topics import TopicIds, is_publishable
from firedex.transport.broker_link import BrokerLevel, BrokerLink, BrokerLinkListener
from firedex.transport.mqtt_sn import MalformedMessage, TopicKind, decode, encode
from firedex.transport.mqtt_sn import messages as m

__all__ = ["SnGateway", "SnSettings"]

log = logging.getLogger("firedex.gateway")

TICK_SECONDS = 0.5
SOCKET_BYTES = 4 * 1024 * 1024
MAX_CLIENTS = 5000
MAX_LOG_LINES_PER_SECOND = 10
Peer = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnSettings:
    """Settings of the MQTT-SN gateway."""

    broker: Peer
    gateway_id: int = 1
    predefined: Mapping[int, str] = field(default_factory=dict)
    advertise: Peer | None = None
    advertise_seconds: int = 900
    retry_seconds: float = 5.0
    max_clients: int = MAX_CLIENTS
    limits: BufferLimits = field(default_factory=BufferLimits)


class SnGateway(asyncio.DatagramProtocol):
    """Serve MQTT-SN clients; each has its own connection to the broker."""

    def __init__(
        self,
        settings: SnSettings,
        flows: FlowTable,
        generator: random.Random,
        interest: InterestTable | None = None,
    ) -> None:
        self._interest = interest
        self._settings, self._flows, self._generator = settings, flows, generator
        self._predefined = {number: name.encode() for number, name in settings.predefined.items()}
        self.clients: dict[Peer, SnSession] = {}
        self.unmanaged = EventTotals()
        self.refused_datagrams = 0
        self._broker_level = BrokerLevel()
        self._congested = False
        self._anonymous = AnonymousPublisher(self._make_link)
        self._tasks: list[asyncio.Task[None]] = []
        self._transport: asyncio.DatagramTransport | None = None
        self._log_lines, self._log_second = 0, 0

    async def start(self, host: str, port: int) -> None:
        """Listen on an address."""
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            sock.bind((host, port))
        except OSError:
            sock.close()
            raise
        await loop.create_datagram_endpoint(lambda: self, sock=sock)
        self._tasks.append(asyncio.create_task(self._tick_repeatedly()))
        if self._settings.advertise is not None:
            self._tasks.append(asyncio.create_task(self._advertise(self._settings.advertise)))

    async def close(self) -> None:
        """Send DISCONNECT to every client, and close the socket."""
        for task in self._tasks:
            task.cancel()
        for session in self.clients.values():
            session.close()
        self.clients.clear()
        self._anonymous.close()
        if self._transport is not None:
            self._transport.close()
        await asyncio.sleep(0)

    async def _tick_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for peer, session in tuple(self.clients.items()):
                session.tick(now)
                if session.state == SessionState.DISCONNECTED:
                    self.clients.pop(peer, None)
            self._anonymous.tick(now)

    async def _advertise(self, address: Peer) -> None:
        seconds = self._settings.advertise_seconds
        while True:
            self._send(
                address,
                encode(m.Advertise(gateway_id=self._settings.gateway_id, duration_seconds=seconds)),
            )
            await asyncio.sleep(seconds)

    # -- the socket --------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:  # noqa: D102
        self._transport = transport

    def pause_writing(self) -> None:  # noqa: D102
        self._congested = True

    def resume_writing(self) -> None:  # noqa: D102
        self._congested = False
        now = time.monotonic()
        for session in tuple(self.clients.values()):
            session.delivery.drain(now)

    def error_received(self, error: Exception) -> None:  # noqa: D102
        log.debug("cannot send a datagram: %s", error)

    def _send(self, peer: Peer, datagram: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(datagram, peer)

    def datagram_received(self, data: bytes, peer: Any) -> None:  # noqa: D102
        try:
            message = decode(data)
        except MalformedMessage as error:
            self._refuse(peer, str(error))
            return
        session = self.clients.get(peer)
        now = time.monotonic()
        if session is not None and not _needs_no_session(message):
            session.receive(message, now)
            if session.state == SessionState.DISCONNECTED:
                self.clients.pop(peer, None)
        else:
            self._receive_without_session(message, peer, now)

    def _refuse(self, peer: Peer, reason: str) -> None:
        self.refused_datagrams += 1
        second = int(time.monotonic())
        if second != self._log_second:
            self._log_second, self._log_lines = second, 0
        self._log_lines += 1
        if self._log_lines <= MAX_LOG_LINES_PER_SECOND:
            log.warning("datagram from %s:%s refused: %s", *peer, reason)

    def _receive_without_session(self, message: m.Message, peer: Peer, now: float) -> None:
        if isinstance(message, m.SearchGw):
            self._send(peer, encode(m.GwInfo(gateway_id=self._settings.gateway_id)))
        elif isinstance(message, m.Connect):
            if len(self.clients) >= self._settings.max_clients:
                self._refuse(peer, f"the maximum of {len(self.clients)} clients is reached")
                self._send(peer, encode(m.Connack(return_code=m.ReturnCode.CONGESTION)))
                return
            if not message.client_id:
                self._refuse(peer, "CONNECT without a client id")
                self._send(peer, encode(m.Connack(return_code=m.ReturnCode.NOT_SUPPORTED)))
                return
            self.clients[peer] = session = self._new_session(peer)
            session.receive(message, now)
        elif isinstance(message, m.Publish) and message.qos < 0:
            self._publish_without_session(message, peer, now)
        elif not isinstance(message, m.Disconnect | m.Advertise | m.GwInfo):
            # The client sends a message for a session that does not exist.
            self._send(peer, encode(m.Disconnect()))

    def _publish_without_session(self, message: m.Publish, peer: Peer, now: float) -> None:
        name = TopicIds(self._predefined).name(message.kind, message.topic_id)
        if message.kind == TopicKind.NORMAL or name is None or not is_publishable(name):
            self._refuse(peer, "an event at QoS -1 needs a short or pre-defined topic id")
            return
        self._anonymous.publish(message, name, now)

    # -- sessions ----------------------------------------------------------------------------------

    def _new_session(self, peer: Peer) -> SnSession:
        find_flow = self._flow_finder(peer)

        def send(datagram: bytes) -> None:
            self._send(peer, datagram)

        def make_delivery(topics: TopicIds, outlets: Outlets) -> SnDelivery:
            return SnDelivery(
                outlets,
                topics,
                find_flow,
                generator=self._generator,
                unmanaged=self.unmanaged,
                retry_seconds=self._settings.retry_seconds,
                limits=self._settings.limits,
            )

        return SnSession(
            f"MQTT-SN client {peer[0]}:{peer[1]}",
            self._make_link,
            send,
            lambda: self._congested,
            make_delivery,
            TopicIds(self._predefined),
            lambda: max_qos(find_flow()),
        )

    def _make_link(self, listener: BrokerLinkListener) -> BrokerLink:
        interest = self._interest
        observe = None if interest is None else partial(ConnectionObserver, interest)
        return BrokerLink(self._settings.broker, listener, self._broker_level, observe=observe)

    def _flow_finder(self, peer: Peer) -> Callable[[], ManagedFlow | None]:
        cached: tuple[int, ManagedFlow | None] = (-1, None)

        def find() -> ManagedFlow | None:
            nonlocal cached
            if cached[0] != self._flows.generation:
                cached = (self._flows.generation, self._flows.lookup("udp", *peer))
            return cached[1]

        return find


def _needs_no_session(message: m.Message) -> bool:
    return isinstance(message, m.SearchGw) or (isinstance(message, m.Publish) and message.qos < 0)
