"""MQTT-SN 1.2 over UDP: the socket, and which client a datagram belongs to."""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firedex.gateway.broker_link import BrokerLink, BrokerUser, KnownLevel
from firedex.gateway.event_counts import Totals
from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import FlowTable, ManagedFlow, highest_qos
from firedex.gateway.sn_anonymous import AnonymousPublishing
from firedex.gateway.sn_delivery import Outlet, SnDelivery
from firedex.gateway.sn_session import SnSession
from firedex.gateway.sn_states import State, is_publishable
from firedex.gateway.sn_topics import SnTopics
from firedex.mqtt_sn import MalformedMessage, TopicKind, decode, encode
from firedex.mqtt_sn import messages as m

__all__ = ["SnGateway", "SnSettings"]

log = logging.getLogger("firedex.gateway")

TICK_SECONDS = 0.5
SOCKET_BYTES = 4 * 1024 * 1024
MOST_CLIENTS = 5000
LOG_LINES_A_SECOND = 10
Peer = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnSettings:
    """How MQTT-SN is served."""

    broker: Peer
    gateway_id: int = 1
    predefined: Mapping[int, str] = field(default_factory=dict)
    advertise: Peer | None = None
    advertise_seconds: int = 900
    retry_seconds: float = 5.0
    most_clients: int = MOST_CLIENTS
    limits: BufferLimits = field(default_factory=BufferLimits)


class SnGateway(asyncio.DatagramProtocol):
    """Serves MQTT-SN clients; each has a connection of its own to the broker."""

    def __init__(self, settings: SnSettings, flows: FlowTable, coins: random.Random) -> None:
        self._settings, self._flows, self._coins = settings, flows, coins
        self._predefined = {number: name.encode() for number, name in settings.predefined.items()}
        self.clients: dict[Peer, SnSession] = {}
        self.unmanaged = Totals()
        self.refused_datagrams = 0
        self._known_level = KnownLevel()
        self._congested = False
        self._anonymous = AnonymousPublishing(self._make_link)
        self._tasks: list[asyncio.Task[None]] = []
        self._transport: asyncio.DatagramTransport | None = None
        self._log_lines, self._log_second = 0, 0

    async def start(self, host: str, port: int) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            opened.bind((host, port))
        except OSError:
            opened.close()
            raise
        await loop.create_datagram_endpoint(lambda: self, sock=opened)
        self._tasks.append(asyncio.create_task(self._keep_time()))
        if self._settings.advertise is not None:
            self._tasks.append(asyncio.create_task(self._advertise(self._settings.advertise)))

    async def close(self) -> None:
        """Say goodbye to every client, and end."""
        for task in self._tasks:
            task.cancel()
        for session in self.clients.values():
            session.leave()
        self.clients.clear()
        self._anonymous.close()
        if self._transport is not None:
            self._transport.close()
        await asyncio.sleep(0)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for peer, session in tuple(self.clients.items()):
                session.tick(now)
                if session.state == State.GONE:
                    self.clients.pop(peer, None)
            self._anonymous.tick(now)

    async def _advertise(self, where: Peer) -> None:
        seconds = self._settings.advertise_seconds
        while True:
            self._send(
                where,
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
        log.debug("a datagram could not be sent: %s", error)

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
        if session is not None and not _anonymous(message):
            session.received(message, now)
            if session.state == State.GONE:
                self.clients.pop(peer, None)
        else:
            self._from_stranger(message, peer, now)

    def _refuse(self, peer: Peer, why: str) -> None:
        self.refused_datagrams += 1
        second = int(time.monotonic())
        if second != self._log_second:
            self._log_second, self._log_lines = second, 0
        self._log_lines += 1
        if self._log_lines <= LOG_LINES_A_SECOND:
            log.warning("datagram of %s:%s refused: %s", *peer, why)

    def _from_stranger(self, message: m.Message, peer: Peer, now: float) -> None:
        if isinstance(message, m.SearchGw):
            self._send(peer, encode(m.GwInfo(gateway_id=self._settings.gateway_id)))
        elif isinstance(message, m.Connect):
            if len(self.clients) >= self._settings.most_clients:
                self._refuse(peer, f"{len(self.clients)} clients are connected already")
                self._send(peer, encode(m.Connack(return_code=m.ReturnCode.CONGESTION)))
                return
            if not message.client_id:
                self._refuse(peer, "CONNECT without a client id")
                self._send(peer, encode(m.Connack(return_code=m.ReturnCode.NOT_SUPPORTED)))
                return
            self.clients[peer] = session = self._new_session(peer)
            session.received(message, now)
        elif isinstance(message, m.Publish) and message.qos < 0:
            self._publish_anonymously(message, peer, now)
        elif not isinstance(message, m.Disconnect | m.Advertise | m.GwInfo):
            # It believes itself connected.
            self._send(peer, encode(m.Disconnect()))

    def _publish_anonymously(self, message: m.Publish, peer: Peer, now: float) -> None:
        name = SnTopics(self._predefined).name(message.kind, message.topic_id)
        if message.kind == TopicKind.NORMAL or name is None or not is_publishable(name):
            self._refuse(peer, "QoS -1 with a topic id that is neither short nor pre-defined")
            return
        self._anonymous.publish(message, name, now)

    # -- sessions ----------------------------------------------------------------------------------

    def _new_session(self, peer: Peer) -> SnSession:
        find_flow = self._flow_finder(peer)

        def send(datagram: bytes) -> None:
            self._send(peer, datagram)

        def make_delivery(topics: SnTopics, outlet: Outlet) -> SnDelivery:
            return SnDelivery(
                outlet,
                topics,
                find_flow,
                coins=self._coins,
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
            SnTopics(self._predefined),
            lambda: highest_qos(find_flow()),
        )

    def _make_link(self, user: BrokerUser) -> BrokerLink:
        return BrokerLink(self._settings.broker, user, self._known_level)

    def _flow_finder(self, peer: Peer) -> Callable[[], ManagedFlow | None]:
        known: tuple[int, ManagedFlow | None] = (-1, None)

        def find() -> ManagedFlow | None:
            nonlocal known
            if known[0] != self._flows.generation:
                known = (self._flows.generation, self._flows.lookup("udp", *peer))
            return known[1]

        return find


def _anonymous(message: m.Message) -> bool:
    return isinstance(message, m.SearchGw) or (isinstance(message, m.Publish) and message.qos < 0)
