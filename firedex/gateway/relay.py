"""The sockets of the MQTT relay over TCP. `downstream` and `upstream` process the packets."""

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from firedex.gateway.downstream import Downstream, TopicAliases
from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import EventTotals, FlowTable, ManagedFlow
from firedex.gateway.interest import InterestTable
from firedex.gateway.interest_packets import ConnectionObserver
from firedex.gateway.upstream import MAX_CONNECT_BYTES, Upstream, read_connect, reason_not_mqtt
from firedex.transport.mqtt.encoding import MalformedPacket, packet_size

__all__ = ["Relay"]

log = logging.getLogger("firedex.gateway")

HANDSHAKE_SECONDS = 10.0
"""Timeout for a client to send CONNECT, and for the connection to the broker."""
CLOSE_SECONDS = 5.0
"""Timeout for a peer to receive the data that is left when its connection is closed."""
CLOSE_POLL_SECONDS = 0.01
EMPTY_POLLS = 5
"""Polls without open sockets before the relay counts as closed.

A connection that was accepted just before the server closed appears a little later.
"""
WRITE_AHEAD_BYTES = 16_384
TO_BROKER_BYTES = 262_144
TCP_NOTSENT_LOWAT = 25


class Relay:
    """Relay connections of subscribers to one broker."""

    def __init__(
        self,
        broker: tuple[str, int],
        flows: FlowTable,
        generator: random.Random,
        *,
        limits: BufferLimits | None = None,
        max_connections: int = 10_000,
        interest: InterestTable | None = None,
    ) -> None:
        self.broker, self.flows, self.generator = broker, flows, generator
        self.limits = limits or BufferLimits()
        self.max_connections, self.interest = max_connections, interest
        self.connections: set[_RelayedConnection] = set()
        self.sides: set[_Side] = set()
        self.unmanaged = EventTotals()
        self.refused_connections = 0

    @property
    def offered_events(self) -> int:
        """Number of events that are subject to drop rates, of all connections."""
        return sum(totals.offered for totals in self._totals())

    @property
    def dropped_events(self) -> int:
        """Number of events dropped because of a drop rate."""
        return sum(totals.dropped for totals in self._totals())

    def _totals(self) -> list[EventTotals]:
        by_flow = (flow.counts.totals for flow in self.flows.flows())
        return [self.unmanaged, self.flows.retired, *by_flow]

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> asyncio.Server:
        """Listen on an address and return the server, which the caller closes."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: _ClientSide(self, tls=tls is not None), host, port, ssl=tls, backlog=1024
        )

    async def serve(self, host: str, port: int) -> None:
        """Listen on an address and relay connections until cancelled."""
        server = await self.start(host, port)
        try:
            await server.serve_forever()
        finally:
            server.close()
            await self.close()

    async def close(self) -> None:
        """Close every connection, and wait until all sockets are closed."""
        async with asyncio.timeout(CLOSE_SECONDS):
            empty = 0
            while empty < EMPTY_POLLS:
                for side in tuple(self.sides):
                    side.transport.abort()
                await asyncio.sleep(CLOSE_POLL_SECONDS)
                empty = 0 if self.sides else empty + 1

    def refuse(self, client: str, reason: str) -> None:
        """Count and log the rejection of a client."""
        self.refused_connections += 1
        log.warning("connection of %s closed: %s", client, reason)


class _RelayedConnection:
    """One relayed connection: both sockets, and the packet processing between them."""

    def __init__(self, relay: Relay, client: "_ClientSide", first: bytes) -> None:
        properties = read_connect(first)
        self._relay, self._client = relay, client
        aliases = None
        if properties.topic_alias_maximum:
            aliases = TopicAliases(properties.maximum_packet_bytes)
        self._broker: _BrokerSide | None = None
        self._generation = -1
        self._flow: ManagedFlow | None = None
        self._observer = None
        if relay.interest is not None:
            self._observer = ConnectionObserver(relay.interest, first)
        self.down = Downstream(
            client,
            self._find_flow,
            level=properties.level,
            aliases=aliases,
            limits=relay.limits,
            generator=relay.generator,
            unmanaged=relay.unmanaged,
            observer=self._observer,
        )
        self.up = Upstream(self._find_flow, level=properties.level, observer=self._observer)
        relay.connections.add(self)

    def _find_flow(self) -> ManagedFlow | None:
        flows = self._relay.flows
        if flows.generation != self._generation:
            self._generation = flows.generation
            self._flow = flows.lookup("tcp", *self._client.peer)
        return self._flow

    async def connect_to_broker(self, first: bytes) -> None:
        """Connect to the broker and send it the bytes received so far."""
        loop = asyncio.get_running_loop()
        host, port = self._relay.broker
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                _, self._broker = await loop.create_connection(
                    lambda: _BrokerSide(self._relay, self), host, port
                )
        except OSError as error:
            reason = f"cannot connect to broker {host}:{port}: {error}"
            self._relay.refuse(self._client.name, reason)
            self.abort()
            return
        if self._client.closed:
            self._broker.transport.abort()
            return
        log.debug("%s connected", self._client.name)
        self.to_broker(first)
        self._client.resume_reading()

    def to_broker(self, data: bytes) -> None:
        """Process bytes from the client."""
        if self._broker is None:
            return
        try:
            passed = self.up.receive(data)
        except MalformedPacket as error:
            self._relay.refuse(self._client.name, f"malformed packet: {error}")
            self.abort()
            return
        if passed:
            self._broker.transport.write(passed)

    def from_broker(self, data: bytes) -> None:
        """Process bytes from the broker."""
        try:
            self.down.receive(data, time.monotonic())
        except (MalformedPacket, IndexError) as error:
            self._relay.refuse(self._client.name, f"the broker sent a malformed packet: {error}")
            self.abort()
            return
        if self.down.full and self._broker is not None:
            self._broker.pause_reading(True)

    def client_writable(self) -> None:
        """Send waiting packets, because the client's socket accepts data again."""
        self.down.drain(time.monotonic())
        if not self.down.full and self._broker is not None:
            self._broker.pause_reading(False)

    def pause_client(self, paused: bool) -> None:
        """Pause or resume reading from the client, because of the broker's socket."""
        if paused:
            self._client.pause_reading()
        else:
            self._client.resume_reading()

    def _end(self) -> None:
        self._relay.connections.discard(self)
        if self._observer is not None:
            self._observer.closed()

    def client_closed(self) -> None:
        """Close the socket to the broker, which publishes the will if it got no DISCONNECT."""
        self._end()
        if self._broker is not None:
            _close(self._broker.transport)

    def broker_closed(self) -> None:
        """Send the waiting packets to the client, and close its socket."""
        self._end()
        if not self._client.closed:
            self.down.drain(time.monotonic(), final=True)
            _close(self._client.transport)

    def abort(self) -> None:
        """Close both sockets."""
        self._end()
        _close(self._client.transport)
        if self._broker is not None:
            self._broker.transport.abort()


def _close(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.close()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, transport.abort)


class _Side(asyncio.Protocol):
    """One of the two sockets of a relayed connection."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._relay.sides.add(self)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._relay.sides.discard(self)


class _ClientSide(_Side):
    def __init__(self, relay: Relay, *, tls: bool) -> None:
        super().__init__(relay)
        self._tls = tls
        self._received = bytearray()
        self._connection: _RelayedConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self.congested = False
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer: tuple[str, int] = transport.get_extra_info("peername")[:2]
        self.name = f"client {self.peer[0]}:{self.peer[1]}"
        # Data in the kernel cannot be shed any more, so keep little there.
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, WRITE_AHEAD_BYTES
        )
        # Not 0: with TLS, asyncio would never resume writing.
        transport.set_write_buffer_limits(high=1, low=0)
        loop = asyncio.get_running_loop()
        self._connect_timeout = loop.call_later(HANDSHAKE_SECONDS, self._on_connect_timeout)
        if len(self._relay.sides) > 2 * self._relay.max_connections:
            self._refuse(f"the maximum of {self._relay.max_connections} connections is reached")

    def _on_connect_timeout(self) -> None:
        self._refuse(f"no CONNECT packet within {HANDSHAKE_SECONDS:g} s")

    def _refuse(self, reason: str) -> None:
        self._relay.refuse(self.name, reason)
        self._connect_timeout.cancel()
        _close(self.transport)

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.to_broker(data)
        elif not self.transport.is_closing():
            self._receive_connect(data)

    def _receive_connect(self, data: bytes) -> None:
        self._received += data
        reason = reason_not_mqtt(self._received, tls=self._tls)
        if reason is not None:
            self._refuse(reason)
            return
        try:
            size = packet_size(self._received, 0, MAX_CONNECT_BYTES)
            if size > len(self._received):
                return
            self._connection = _RelayedConnection(self._relay, self, bytes(self._received[:size]))
        except MalformedPacket as error:
            self._refuse(f"malformed packet: {error}")
            return
        self._connect_timeout.cancel()
        self.transport.pause_reading()
        # Bytes after CONNECT are for the broker too.
        received, self._received = bytes(self._received), bytearray()
        self._task = asyncio.ensure_future(self._connection.connect_to_broker(received))

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send data to the client."""
        if not self.closed:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._connection is not None:
            self._connection.client_writable()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.closed = True
        self._connect_timeout.cancel()
        if self._connection is not None:
            self._connection.client_closed()


class _BrokerSide(_Side):
    def __init__(self, relay: Relay, connection: _RelayedConnection) -> None:
        super().__init__(relay)
        self._connection = connection
        self._paused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=TO_BROKER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._connection.from_broker(data)

    def pause_reading(self, paused: bool) -> None:
        """Pause or resume reading from the broker."""
        if paused != self._paused and not self.transport.is_closing():
            self._paused = paused
            change: Callable[[], None] = (
                self.transport.pause_reading if paused else self.transport.resume_reading
            )
            change()

    def pause_writing(self) -> None:
        self._connection.pause_client(True)

    def resume_writing(self) -> None:
        self._connection.pause_client(False)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._connection.broker_closed()
