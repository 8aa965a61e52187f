"""The link's sockets: subscribers on one side, the gateway on the other, queues between.

Upstream everything passes as it is. Downstream a datagram is a packet, and what arrives on a TCP
connection is cut into segments. Segments are never lost, as TCP would repeat them; a connection of
which a window's worth is under way is not read until there is less.
"""

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from firedex.wire.packet_sizes import (
    ETHERNET_HEADER_BYTES,
    IP_HEADER_BYTES,
    LARGEST_SEGMENT_BYTES,
    TCP_HEADER_BYTES,
    UDP_HEADER_BYTES,
)
from firedex_emulation.embedded.flow_classes import FlowClasses
from firedex_emulation.embedded.shaped_path import ShapedPort, travel

__all__ = ["LinkSides", "UserspaceLink"]

log = logging.getLogger("firedex.emulation.link")
Address = tuple[str, int]
DATAGRAM_HEADERS_BYTES = ETHERNET_HEADER_BYTES + IP_HEADER_BYTES + UDP_HEADER_BYTES
SEGMENT_HEADERS_BYTES = ETHERNET_HEADER_BYTES + IP_HEADER_BYTES + TCP_HEADER_BYTES
WINDOW_BYTES = 65_536
"""Of a TCP connection, in the queues: what TCP has under way where it does not scale its window."""
SOCKET_BYTES = 4 * 1024 * 1024
DATAGRAMS_AT_ONCE = 200
MOST_ENDPOINTS = 4096
IDLE_SECONDS = 60.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""So that a port can be bound again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSides:
    """Where subscribers reach the link, where it reaches the gateway, and who is who.

    ``known_as``: by the address that a subscriber's sockets leave from, the one that it is known
    by; ``ports``: by the latter, the way to it.
    """

    listen: Address
    gateway: Address
    known_as: Mapping[str, str]
    ports: Mapping[str, Sequence[ShapedPort]]


class UserspaceLink:
    """Serves until it is closed; ``unknown`` is called for endpoints that are in no plan."""

    def __init__(
        self, sides: LinkSides, classes: FlowClasses, unknown: Callable[[], None] = lambda: None
    ) -> None:
        self.sides, self.classes, self.unknown = sides, classes, unknown
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._datagrams: dict[Address, _DatagramEndpoint] = {}
        self.connections: set[_ClientSide] = set()

    async def start(self) -> None:
        """Listen, for both transports."""
        self._listening = _datagram_socket(self.sides.listen)
        self._loop.add_reader(self._listening, self._from_subscribers)
        self._server = await self._loop.create_server(lambda: _ClientSide(self), *self.sides.listen)

    def close(self) -> None:
        """Close every socket."""
        if self._server is not None:
            self._server.close()
        for endpoint in tuple(self._datagrams.values()):
            endpoint.close()
        self._datagrams.clear()
        for side in tuple(self.connections):
            side.abort()
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def known(self, peer: Address) -> Address | None:
        """Who a socket belongs to; None for strangers and for too many."""
        address = self.sides.known_as.get(peer[0])
        return None if address is None else (address, peer[1])

    def forget_idle(self) -> None:
        """Close the sockets of UDP endpoints that have long been silent."""
        oldest = time.monotonic() - IDLE_SECONDS
        for peer, endpoint in tuple(self._datagrams.items()):
            if endpoint.heard_at < oldest:
                endpoint.close()
                del self._datagrams[peer]

    def _from_subscribers(self) -> None:
        for _ in range(DATAGRAMS_AT_ONCE):
            if self._listening is None:
                return
            try:
                datagram, peer = self._listening.recvfrom(65_536)
            except OSError:  # nothing more, or a subscriber that is gone
                return
            endpoint = self._datagrams.get(peer) or self._new_endpoint(peer)
            if endpoint is not None:
                endpoint.to_gateway(datagram)

    def _new_endpoint(self, peer: Address) -> "_DatagramEndpoint | None":
        known = self.known(peer)
        if known is None or len(self._datagrams) >= MOST_ENDPOINTS:
            return None
        try:
            made = _DatagramEndpoint(self, peer, known)
        except OSError as error:
            log.warning("%s:%d: %s", *known, error)
            return None
        self._datagrams[peer] = made
        return made

    def to_subscriber(self, datagram: bytes, peer: Address) -> None:
        """It is through."""
        if self._listening is not None:
            with suppress(OSError):  # full, or gone: as on any wire
                self._listening.sendto(datagram, peer)


def _datagram_socket(address: Address) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        made.setblocking(False)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


class _DatagramEndpoint:
    """One UDP endpoint of a subscriber, as the gateway knows it."""

    def __init__(self, link: UserspaceLink, peer: Address, known: Address) -> None:
        self._link, self._peer, self._known = link, peer, known
        self._ports = link.sides.ports[known[0]]
        self.heard_at = time.monotonic()
        self._socket = _datagram_socket(known)
        self._socket.connect(link.sides.gateway)
        asyncio.get_running_loop().add_reader(self._socket, self._from_gateway)
        if not link.classes.knows("udp", *known):
            link.unknown()

    def to_gateway(self, datagram: bytes) -> None:
        self.heard_at = time.monotonic()
        with suppress(OSError):
            self._socket.send(datagram)

    def _from_gateway(self) -> None:
        for _ in range(DATAGRAMS_AT_ONCE):
            try:
                datagram = self._socket.recv(65_536)
            except OSError:  # nothing more, or no gateway
                return
            travel(
                self._ports,
                self._link.classes.class_of("udp", *self._known),
                len(datagram) + DATAGRAM_HEADERS_BYTES,
                droppable=True,
                arrived=partial(self._link.to_subscriber, datagram, self._peer),
            )

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


class _ClientSide(asyncio.Protocol):
    """A subscriber's TCP connection; opens the one to the gateway."""

    transport: asyncio.Transport

    def __init__(self, link: UserspaceLink) -> None:
        self._link = link
        self._gateway: _GatewaySide | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._early = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        known = self._link.known(transport.get_extra_info("peername")[:2])
        if known is None or len(self._link.connections) >= MOST_ENDPOINTS:
            transport.abort()
            return
        self._link.connections.add(self)
        if not self._link.classes.knows("tcp", *known):
            self._link.unknown()
        self._reaching = asyncio.ensure_future(self._reach(known))

    async def _reach(self, known: Address) -> None:
        loop = asyncio.get_running_loop()
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES // 2)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.bind(known)
            await loop.sock_connect(opened, self._link.sides.gateway)
        except BaseException as error:
            opened.close()
            self.transport.abort()
            if not isinstance(error, OSError):
                raise
            log.warning("%s:%d to the gateway: %s", *known, error)
            return
        side = _GatewaySide(self._link, self.transport, known)
        self._gateway = side
        await loop.create_connection(lambda: side, sock=opened)
        side.transport.write(bytes(self._early))
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._gateway is None or self._early or not self._gateway.is_open:
            self._early += data  # no more than a CONNECT: nobody says more before the answer
        else:
            self._gateway.transport.write(data)
        if len(self._early) > WINDOW_BYTES:
            self.transport.abort()

    def pause_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.client_is_full(True)

    def resume_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.client_is_full(False)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._link.connections.discard(self)
        if self._reaching is not None and not self._reaching.done():
            self._reaching.cancel()
        if self._gateway is not None:
            self._gateway.client_left()

    def abort(self) -> None:
        self.transport.abort()


class _GatewaySide(asyncio.Protocol):
    """The connection to the gateway on a subscriber's behalf."""

    transport: asyncio.Transport

    def __init__(self, link: UserspaceLink, client: asyncio.Transport, known: Address) -> None:
        self._link, self._client, self._known = link, client, known
        self._ports = link.sides.ports[known[0]]
        self._under_way = 0
        self._sent_count = self._through_count = 0
        self._early: dict[int, bytes] = {}
        self._paused = self._ended = self._left = self._client_is_full = False
        self.is_open = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.is_open = True
        if self._left:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), LARGEST_SEGMENT_BYTES):
            segment = data[start : start + LARGEST_SEGMENT_BYTES]
            self._under_way += len(segment)
            travel(
                self._ports,
                self._link.classes.class_of("tcp", *self._known),
                len(segment) + SEGMENT_HEADERS_BYTES,
                droppable=False,
                arrived=partial(self._arrived, self._sent_count, segment),
            )
            self._sent_count += 1
        self._read_or_not()

    def _arrived(self, number: int, segment: bytes) -> None:
        """In order to the client: a segment may overtake others when its flow changes class."""
        self._early[number] = segment
        while (here := self._early.pop(self._through_count, None)) is not None:
            self._through_count += 1
            self._under_way -= len(here)
            if not self._client.is_closing():
                self._client.write(here)
        self._read_or_not()
        self._close_when_through()

    def client_is_full(self, full: bool) -> None:
        """The client takes no more, or takes again."""
        self._client_is_full = full
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._ended:
            return
        limit = WINDOW_BYTES // 2 if self._paused else WINDOW_BYTES
        pause = self._client_is_full or self._under_way >= limit
        if pause != self._paused:
            self._paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._ended = True
        self.is_open = False
        self._close_when_through()

    def _close_when_through(self) -> None:
        """What is under way arrives before the end does."""
        if self._ended and self._under_way == 0:
            self._client.close()

    def client_left(self) -> None:
        self._left = True
        if self.is_open:
            self.transport.abort()
