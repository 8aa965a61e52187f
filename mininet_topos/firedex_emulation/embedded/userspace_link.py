"""The sockets of the userspace link: subscribers on one side, the gateway on the other.

Upstream everything is forwarded unchanged. Downstream, a datagram is one packet, and the data of a
TCP connection is split into segments. Segments are never dropped, because TCP would repeat them; a
connection with a full window in the queues is not read until there is room.
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

from firedex.wire import Configuration
from firedex.wire.packet_sizes import (
    ETHERNET_HEADER_BYTES,
    IP_HEADER_BYTES,
    MAX_SEGMENT_BYTES,
    TCP_HEADER_BYTES,
    UDP_HEADER_BYTES,
)
from firedex.wire.workload import Transport
from firedex_emulation.embedded.priority_link import ShapedPort, send_over

__all__ = ["FlowClasses", "LinkSides", "UserspaceLink"]

LOWEST_CLASS = 63


class FlowClasses:
    """Classes of the active configuration; other flows have the lowest class."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, str, int], int] = {}

    def update(self, configuration: Configuration) -> None:
        """Replace all classes by those of ``configuration``."""
        self._classes = {
            (ends.transport, str(ends.subscriber_address), port): flow.priority
            for flow in configuration.flows
            if (ends := flow.endpoints) is not None
            for port in ends.subscriber_ports
        }

    def contains(self, transport: Transport, address: str, port: int) -> bool:
        """Return whether the flow is in the configuration."""
        return (transport, address, port) in self._classes

    def class_of(self, transport: Transport, address: str, port: int) -> int:
        """Return the class of a flow; 0 is the highest."""
        return self._classes.get((transport, address, port), LOWEST_CLASS)


log = logging.getLogger("firedex.emulation.link")
Address = tuple[str, int]
DATAGRAM_HEADERS_BYTES = ETHERNET_HEADER_BYTES + IP_HEADER_BYTES + UDP_HEADER_BYTES
SEGMENT_HEADERS_BYTES = ETHERNET_HEADER_BYTES + IP_HEADER_BYTES + TCP_HEADER_BYTES
WINDOW_BYTES = 65_536
"""Maximum number of queued bytes of one TCP connection: a TCP window without scaling."""
SOCKET_BYTES = 4 * 1024 * 1024
MAX_DATAGRAMS_PER_TURN = 200
MAX_ENDPOINTS = 4096
IDLE_SECONDS = 60.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER value that resets on close, so that the port can be bound again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSides:
    """Addresses of both sides of the link.

    ``visible_addresses`` maps the address of a subscriber's sockets to that which the gateway sees;
    ``ports`` maps the latter to the ports on the path to the subscriber.
    """

    listen: Address
    gateway: Address
    visible_addresses: Mapping[str, str]
    ports: Mapping[str, Sequence[ShapedPort]]


class UserspaceLink:
    """Relays packets until it is closed; calls ``on_unknown_flow`` for flows without a class."""

    def __init__(
        self,
        sides: LinkSides,
        classes: FlowClasses,
        on_unknown_flow: Callable[[], None] = lambda: None,
    ) -> None:
        self.sides, self.classes = sides, classes
        self.on_unknown_flow = on_unknown_flow
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._datagrams: dict[Address, _DatagramEndpoint] = {}
        self.connections: set[_ClientSide] = set()

    async def start(self) -> None:
        """Listen on TCP and UDP."""
        self._listening = _open_datagram_socket(self.sides.listen)
        self._loop.add_reader(self._listening, self._relay_from_subscribers)
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

    def visible_address(self, peer: Address) -> Address | None:
        """Return the address that the gateway sees; None for unknown sockets."""
        address = self.sides.visible_addresses.get(peer[0])
        return None if address is None else (address, peer[1])

    def close_idle(self) -> None:
        """Close the sockets of UDP endpoints that were idle for ``IDLE_SECONDS``."""
        oldest = time.monotonic() - IDLE_SECONDS
        for peer, endpoint in tuple(self._datagrams.items()):
            if endpoint.last_received_at < oldest:
                endpoint.close()
                del self._datagrams[peer]

    def _relay_from_subscribers(self) -> None:
        for _ in range(MAX_DATAGRAMS_PER_TURN):
            if self._listening is None:
                return
            try:
                datagram, peer = self._listening.recvfrom(65_536)
            except OSError:  # no more datagrams, or the subscriber has closed its socket
                return
            endpoint = self._datagrams.get(peer) or self._new_endpoint(peer)
            if endpoint is not None:
                endpoint.send_to_gateway(datagram)

    def _new_endpoint(self, peer: Address) -> "_DatagramEndpoint | None":
        visible_address = self.visible_address(peer)
        if visible_address is None or len(self._datagrams) >= MAX_ENDPOINTS:
            return None
        try:
            endpoint = _DatagramEndpoint(self, peer, visible_address)
        except OSError as error:
            log.warning("%s:%d: cannot open a UDP socket: %s", *visible_address, error)
            return None
        self._datagrams[peer] = endpoint
        return endpoint

    def send_to_subscriber(self, datagram: bytes, peer: Address) -> None:
        """Send a datagram that has passed the queues."""
        if self._listening is not None:
            with suppress(OSError):  # the socket is full or closed: the packet is lost
                self._listening.sendto(datagram, peer)


def _open_datagram_socket(address: Address) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        opened.setblocking(False)
        opened.bind(address)
    except OSError:
        opened.close()
        raise
    return opened


class _DatagramEndpoint:
    """One UDP endpoint of a subscriber, with the address that the gateway sees."""

    def __init__(self, link: UserspaceLink, peer: Address, visible_address: Address) -> None:
        self._link, self._peer, self._visible_address = link, peer, visible_address
        self._ports = link.sides.ports[visible_address[0]]
        self.last_received_at = time.monotonic()
        self._socket = _open_datagram_socket(visible_address)
        self._socket.connect(link.sides.gateway)
        asyncio.get_running_loop().add_reader(self._socket, self._relay_from_gateway)
        if not link.classes.contains("udp", *visible_address):
            link.on_unknown_flow()

    def send_to_gateway(self, datagram: bytes) -> None:
        self.last_received_at = time.monotonic()
        with suppress(OSError):
            self._socket.send(datagram)

    def _relay_from_gateway(self) -> None:
        for _ in range(MAX_DATAGRAMS_PER_TURN):
            try:
                datagram = self._socket.recv(65_536)
            except OSError:  # no more datagrams, or the gateway does not run
                return
            send_over(
                self._ports,
                self._link.classes.class_of("udp", *self._visible_address),
                len(datagram) + DATAGRAM_HEADERS_BYTES,
                droppable=True,
                on_arrival=partial(self._link.send_to_subscriber, datagram, self._peer),
            )

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


class _ClientSide(asyncio.Protocol):
    """A subscriber's TCP connection; opens the connection to the gateway."""

    transport: asyncio.Transport

    def __init__(self, link: UserspaceLink) -> None:
        self._link = link
        self._gateway: _GatewaySide | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._early = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visible_address = self._link.visible_address(transport.get_extra_info("peername")[:2])
        if visible_address is None or len(self._link.connections) >= MAX_ENDPOINTS:
            transport.abort()
            return
        self._link.connections.add(self)
        if not self._link.classes.contains("tcp", *visible_address):
            self._link.on_unknown_flow()
        self._connecting = asyncio.ensure_future(self._connect(visible_address))

    async def _connect(self, visible_address: Address) -> None:
        loop = asyncio.get_running_loop()
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES // 2)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.bind(visible_address)
            await loop.sock_connect(opened, self._link.sides.gateway)
        except BaseException as error:
            opened.close()
            self.transport.abort()
            if not isinstance(error, OSError):
                raise
            log.warning("%s:%d: connection to the gateway failed: %s", *visible_address, error)
            return
        side = _GatewaySide(self._link, self.transport, visible_address)
        self._gateway = side
        await loop.create_connection(lambda: side, sock=opened)
        side.transport.write(bytes(self._early))
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._gateway is None or self._early or not self._gateway.is_open:
            self._early += data  # at most a CONNECT packet: clients wait for its reply
        else:
            self._gateway.transport.write(data)
        if len(self._early) > WINDOW_BYTES:
            self.transport.abort()

    def pause_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.set_client_full(True)

    def resume_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.set_client_full(False)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._link.connections.discard(self)
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        if self._gateway is not None:
            self._gateway.close()

    def abort(self) -> None:
        self.transport.abort()


class _GatewaySide(asyncio.Protocol):
    """The connection to the gateway for one subscriber connection."""

    transport: asyncio.Transport

    def __init__(
        self, link: UserspaceLink, client: asyncio.Transport, visible_address: Address
    ) -> None:
        self._link, self._client, self._visible_address = link, client, visible_address
        self._ports = link.sides.ports[visible_address[0]]
        self._in_flight = 0
        self._sent_count = self._delivered_count = 0
        self._early: dict[int, bytes] = {}
        self._paused = self._gateway_closed = self._client_closed = self._client_is_full = False
        self.is_open = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.is_open = True
        if self._client_closed:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), MAX_SEGMENT_BYTES):
            segment = data[start : start + MAX_SEGMENT_BYTES]
            self._in_flight += len(segment)
            send_over(
                self._ports,
                self._link.classes.class_of("tcp", *self._visible_address),
                len(segment) + SEGMENT_HEADERS_BYTES,
                droppable=False,
                on_arrival=partial(self._deliver_in_order, self._sent_count, segment),
            )
            self._sent_count += 1
        self._update_reading()

    def _deliver_in_order(self, number: int, segment: bytes) -> None:
        """Write segments in order: one may overtake others when its flow changes class."""
        self._early[number] = segment
        while (here := self._early.pop(self._delivered_count, None)) is not None:
            self._delivered_count += 1
            self._in_flight -= len(here)
            if not self._client.is_closing():
                self._client.write(here)
        self._update_reading()
        self._close_when_drained()

    def set_client_full(self, full: bool) -> None:
        """Stop reading while the client's send buffer is full."""
        self._client_is_full = full
        self._update_reading()

    def _update_reading(self) -> None:
        if self._gateway_closed:
            return
        limit = WINDOW_BYTES // 2 if self._paused else WINDOW_BYTES
        pause = self._client_is_full or self._in_flight >= limit
        if pause != self._paused:
            self._paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._gateway_closed = True
        self.is_open = False
        self._close_when_drained()

    def _close_when_drained(self) -> None:
        """Close the client connection after all segments were delivered."""
        if self._gateway_closed and self._in_flight == 0:
            self._client.close()

    def close(self) -> None:
        self._client_closed = True
        if self.is_open:
            self.transport.abort()
