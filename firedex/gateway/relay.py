"""MQTT over TCP, relayed: the sockets. What passes is decided in `downstream` and `upstream`."""

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from firedex.gateway.connect_packet import LONGEST_CONNECT_BYTES, read_connect, why_not_mqtt
from firedex.gateway.downstream import Downstream
from firedex.gateway.errors import ProtocolViolation
from firedex.gateway.event_counts import Totals
from firedex.gateway.flow_buffer import BufferLimits
from firedex.gateway.flow_table import FlowTable, ManagedFlow
from firedex.gateway.mqtt_packets import packet_size
from firedex.gateway.topic_aliases import TopicAliases
from firedex.gateway.upstream import Upstream

__all__ = ["Relay"]

log = logging.getLogger("firedex.gateway")

HANDSHAKE_SECONDS = 10.0
"""How long a client may take to send its whole CONNECT, and the broker to be reached."""
FAREWELL_SECONDS = 5.0
"""How long a closed side may take to receive what was still to be sent."""
ACCEPT_SECONDS = 0.01
QUIET_ROUNDS = 5
"""Until what was accepted just before the end is known."""
WRITE_AHEAD_BYTES = 16_384
TO_BROKER_BYTES = 262_144
TCP_NOTSENT_LOWAT = 25


class Relay:
    """Relays connections to one broker."""

    def __init__(
        self,
        broker: tuple[str, int],
        flows: FlowTable,
        generator: random.Random,
        *,
        limits: BufferLimits | None = None,
        most_connections: int = 10_000,
    ) -> None:
        self.broker, self.flows, self.generator = broker, flows, generator
        self.limits = limits or BufferLimits()
        self.most_connections = most_connections
        self.connections: set[_Relayed] = set()
        self.sides: set[_Side] = set()
        self.unmanaged = Totals()
        self.refused_connections = 0

    @property
    def offered_events(self) -> int:
        """Events that a drop rate may apply to, of all flows that are known and of none."""
        return sum(totals.offered for totals in self._totals())

    @property
    def dropped_events(self) -> int:
        """Those that a drop rate took."""
        return sum(totals.dropped for totals in self._totals())

    def _totals(self) -> list[Totals]:
        of_flows = (flow.counts.totals for flow in self.flows.flows())
        return [self.unmanaged, self.flows.retired, *of_flows]

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> asyncio.Server:
        """Listen; the caller keeps the server."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: _ClientSide(self, tls=tls is not None), host, port, ssl=tls, backlog=1024
        )

    async def serve(self, host: str, port: int) -> None:
        """Accept connections until cancelled."""
        server = await self.start(host, port)
        try:
            await server.serve_forever()
        finally:
            server.close()
            await self.close()

    async def close(self) -> None:
        """End every connection, and wait until all sockets are closed."""
        async with asyncio.timeout(FAREWELL_SECONDS):
            quiet = 0
            while quiet < QUIET_ROUNDS:  # what was accepted or connected just before comes late
                for side in tuple(self.sides):
                    side.transport.abort()
                await asyncio.sleep(ACCEPT_SECONDS)
                quiet = 0 if self.sides else quiet + 1

    def connected(self, peer: tuple[str, int]) -> None:
        """A client has connected; for whoever wants to know."""
        log.debug("client %s:%s connected", *peer)

    def upstream(self, send: Callable[[bytes], None], data: bytes) -> None:
        """What goes to the broker of what a client sends; for whoever wants to know."""
        send(data)

    def refuse(self, who: str, why: str) -> None:
        """Count and tell that a client was sent away."""
        self.refused_connections += 1
        log.warning("%s closed: %s", who, why)


class _Relayed:
    """One relayed connection: both sides and what lies between."""

    def __init__(self, relay: Relay, client: "_ClientSide", first: bytes) -> None:
        facts = read_connect(first)
        self._relay, self._client = relay, client
        self._broker: _BrokerSide | None = None
        self._generation = -1
        self._flow: ManagedFlow | None = None
        self.down = Downstream(
            client,
            self._find_flow,
            level=facts.level,
            aliases=TopicAliases(facts.maximum_packet_bytes) if facts.topic_alias_maximum else None,
            limits=relay.limits,
            coins=relay.generator,
            unmanaged=relay.unmanaged,
        )
        self.up = Upstream(self._find_flow, level=facts.level)
        relay.connections.add(self)

    def _find_flow(self) -> ManagedFlow | None:
        flows = self._relay.flows
        if flows.generation != self._generation:
            self._generation = flows.generation
            self._flow = flows.lookup("tcp", *self._client.peer)
        return self._flow

    async def reach_broker(self, first: bytes) -> None:
        """Connect to the broker and hand on what has come so far."""
        loop = asyncio.get_running_loop()
        host, port = self._relay.broker
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                _, self._broker = await loop.create_connection(
                    lambda: _BrokerSide(self._relay, self), host, port
                )
        except OSError as error:
            self._relay.refuse(self._client.who, f"broker {host}:{port} does not answer: {error}")
            self.abort()
            return
        if self._client.closed:
            self._broker.transport.abort()
            return
        self._relay.connected(self._client.peer)
        self.to_broker(first)
        self._client.resume_reading()

    def to_broker(self, data: bytes) -> None:
        """From the client, through what decides."""
        if self._broker is None:
            return
        try:
            passed = self.up.passed(data)
        except ProtocolViolation as error:
            self._relay.refuse(self._client.who, f"not MQTT: {error}")
            self.abort()
            return
        if passed:
            self._relay.upstream(self._broker.transport.write, passed)

    def from_broker(self, data: bytes) -> None:
        """From the broker, through what decides."""
        try:
            self.down.received(data, time.monotonic())
        except (ProtocolViolation, IndexError) as error:
            self._relay.refuse(self._client.who, f"the broker sent what is not MQTT: {error}")
            self.abort()
            return
        if self.down.full and self._broker is not None:
            self._broker.hold_back(True)

    def client_takes_more(self) -> None:
        """The client's socket has room again."""
        self.down.drain(time.monotonic())
        if not self.down.full and self._broker is not None:
            self._broker.hold_back(False)

    def hold_client_back(self, on: bool) -> None:
        """The broker's socket takes no more, or again."""
        if on:
            self._client.pause_reading()
        else:
            self._client.resume_reading()

    def client_closed(self) -> None:
        """Let the broker know in the same way; it publishes wills."""
        self._relay.connections.discard(self)
        if self._broker is not None:
            _close(self._broker.transport)

    def broker_closed(self) -> None:
        """What was still to be sent goes out first."""
        self._relay.connections.discard(self)
        if not self._client.closed:
            self.down.finish(time.monotonic())
            _close(self._client.transport)

    def abort(self) -> None:
        """Close both sides."""
        self._relay.connections.discard(self)
        _close(self._client.transport)
        if self._broker is not None:
            self._broker.transport.abort()


def _close(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.close()
        asyncio.get_running_loop().call_later(FAREWELL_SECONDS, transport.abort)


class _Side(asyncio.Protocol):
    """One of the two sockets of a relayed connection."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._relay.sides.add(self)
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._relay.sides.discard(self)


class _ClientSide(_Side):
    def __init__(self, relay: Relay, *, tls: bool) -> None:
        super().__init__(relay)
        self._tls = tls
        self._first = bytearray()
        self._relayed: _Relayed | None = None
        self._task: asyncio.Task[None] | None = None
        self.congested = False
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer: tuple[str, int] = transport.get_extra_info("peername")[:2]
        self.who = f"client {self.peer[0]}:{self.peer[1]}"
        # What the kernel holds is beyond the reach of shedding: let it hold little.
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, WRITE_AHEAD_BYTES
        )
        # Not 0: with TLS, asyncio would then take an empty buffer for a full one, and stay so.
        transport.set_write_buffer_limits(high=1, low=0)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(HANDSHAKE_SECONDS, self._too_slow)
        if len(self._relay.sides) > 2 * self._relay.most_connections:
            self._refuse(f"{self._relay.most_connections} connections are open already")

    def _too_slow(self) -> None:
        self._refuse(f"no CONNECT within {HANDSHAKE_SECONDS:g} s")

    def _refuse(self, why: str) -> None:
        self._relay.refuse(self.who, why)
        self._patience.cancel()
        _close(self.transport)

    def data_received(self, data: bytes) -> None:
        if self._relayed is not None:
            self._relayed.to_broker(data)
        elif not self.transport.is_closing():
            self._before_connect(data)

    def _before_connect(self, data: bytes) -> None:
        self._first += data
        why = why_not_mqtt(self._first, tls=self._tls)
        if why is not None:
            self._refuse(why)
            return
        try:
            size = packet_size(self._first, 0, LONGEST_CONNECT_BYTES)
            if size > len(self._first):
                return
            self._relayed = _Relayed(self._relay, self, bytes(self._first[:size]))
        except ProtocolViolation as error:
            self._refuse(f"not MQTT: {error}")
            return
        self._patience.cancel()
        self.transport.pause_reading()
        # What follows in the same bytes belongs to the broker just as much.
        so_far, self._first = bytes(self._first), bytearray()
        self._task = asyncio.ensure_future(self._relayed.reach_broker(so_far))

    def pause_reading(self) -> None:
        """Take no more from the client."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send to the client."""
        if not self.closed:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._relayed is not None:
            self._relayed.client_takes_more()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.closed = True
        self._patience.cancel()
        if self._relayed is not None:
            self._relayed.client_closed()


class _BrokerSide(_Side):
    def __init__(self, relay: Relay, relayed: _Relayed) -> None:
        super().__init__(relay)
        self._relayed = relayed
        self._held_back = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=TO_BROKER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._relayed.from_broker(data)

    def hold_back(self, on: bool) -> None:
        """Take no more from the broker for now, or again."""
        if on != self._held_back and not self.transport.is_closing():
            self._held_back = on
            change: Callable[[], None] = (
                self.transport.pause_reading if on else self.transport.resume_reading
            )
            change()

    def pause_writing(self) -> None:
        self._relayed.hold_client_back(True)

    def resume_writing(self) -> None:
        self._relayed.hold_client_back(False)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._relayed.broker_closed()
