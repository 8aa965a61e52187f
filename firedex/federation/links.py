"""Links between federators: listening, connecting, and one connection for each neighbour.

Both ends of a link may connect, so one reachable end is enough. If two connections result, the one
that the site with the smaller name opened is kept. A neighbour that is silent for the lease is
disconnected. All reading and writing happens in the event loop; a slow neighbour fills the buffer
of its own link only.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from firedex.federation.frames import PROTOCOL_VERSION, FrameType, encode_json
from firedex.federation.link_connection import HANDSHAKE_SECONDS, MAX_HANDSHAKES, Connection
from firedex.transport.back_off import BackOff

__all__ = ["LinkListener", "LinkSettings", "Links", "Security"]

log = logging.getLogger("firedex.federation")

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 0.5
"""Between attempts to connect: a neighbour that can be reached again is found soon."""
YIELD_SECONDS = 0.1
"""The site with the greater name waits this long, so that not both ends connect at once."""
MAX_HANDSHAKES_PER_ADDRESS = 32
"""One address may not take all places, so that others can still connect."""


class Security(Protocol):
    """How a federator proves who it is and learns who its peer is."""

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context for accepted connections."""

    def client_context(self) -> ssl.SSLContext:
        """Return the TLS context for opened connections."""

    def peer_identity(self, ssl_object: Any) -> Any:
        """Return the identity of the peer: ``site`` and ``fingerprint``."""

    def is_revoked(self, fingerprint: str) -> bool:
        """Return whether a certificate is revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """The addresses and limits of a federator's links."""

    site: str
    federation: str
    listen: tuple[str, int]
    neighbours: Mapping[str, tuple[str, int]]
    """Address of each configured neighbour."""
    costs: Mapping[str, float]
    lease_seconds: float = 0.5
    max_frame_bytes: int = 4 * 1024 * 1024
    max_events_per_second: float = 50_000.0
    members: frozenset[str] | None = None
    """Sites that may connect; None: every site, with certificates if their authority is trusted."""


class LinkListener(Protocol):
    """The owner of the links."""

    def link_up(self, neighbour: str, cost: float) -> None:
        """Handle a new link."""

    def link_down(self, neighbour: str) -> None:
        """Handle the end of a link."""

    def frame_received(self, neighbour: str, kind: int, body: bytes) -> None:
        """Handle a frame; raise MalformedFrame if it is not valid."""

    def heartbeat_content(self) -> bytes:
        """Return what heartbeats carry."""

    def heartbeat_received(self, neighbour: str, content: bytes) -> None:
        """Handle a heartbeat."""

    def query_received(self, query: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """Answer the query of an observer, such as ``firedex federation status``."""

    def peer_refused(self, peer: str, reason: str) -> None:
        """Record that a peer was refused."""


class Links:
    """All links of a federator."""

    def __init__(
        self,
        settings: LinkSettings,
        listener: LinkListener,
        security: Security | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.listener, self.security = settings, listener, security
        self.clock = clock
        self.connections: dict[str, Connection] = {}
        self.handshakes: set[Connection] = set()
        self.observers: set[Connection] = set()
        self.banned: dict[str, float] = {}
        self._accepting: Counter[str] = Counter()
        """Number of TLS handshakes of accepted connections, by IP address."""
        self._dialers: dict[str, asyncio.Task[None]] = {}
        self._socket: socket.socket | None = None
        self._ticked_at = clock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self) -> None:
        """Listen, and connect to the configured neighbours."""
        self._socket = socket.create_server(self.settings.listen, backlog=128)
        self._socket.setblocking(False)
        self._tasks.add(asyncio.create_task(self._accept(self._socket)))
        for neighbour in self.settings.neighbours:
            self._dial(neighbour)

    async def close(self) -> None:
        """Close all links."""
        self._closing = True
        tasks = [*self._dialers.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        for connection in [*self.connections.values(), *self.handshakes, *self.observers]:
            connection.abort("closing")

    def send(self, neighbour: str, frame: bytes, *, droppable: bool = False) -> bool:
        """Send a frame; return False if the link is down or too congested for it."""
        connection = self.connections.get(neighbour)
        return connection is not None and connection.send(frame, droppable=droppable)

    def tick(self) -> None:
        """Send heartbeats, and end links that are silent or whose certificate is revoked."""
        now = self.clock()
        # If this process did not run for a while, heartbeats may wait in its sockets.
        was_stopped = now - self._ticked_at > self.settings.lease_seconds / 3
        self._ticked_at = now
        for connection in [*self.connections.values(), *self.handshakes, *self.observers]:
            connection.tick(now, check_silence=not was_stopped)

    # -- connecting ----------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections; a server of asyncio would not report why a TLS peer is refused."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("cannot accept connections: %s", error)
                await asyncio.sleep(0.1)
                continue
            address = f"{peer[0]}:{peer[1]}"
            if len(self._tasks) + len(self.handshakes) > MAX_HANDSHAKES:
                self.refuse(address, "too many connections without a handshake")
                accepted.close()
                continue
            if self._half_open(peer[0]) >= MAX_HANDSHAKES_PER_ADDRESS:
                self.refuse(address, f"too many connections without a handshake from {peer[0]}")
                accepted.close()
                continue
            task = asyncio.create_task(self._shake_hands(accepted, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _half_open(self, host: str) -> int:
        """Return the number of connections from an IP address that have sent no HELLO yet."""
        return self._accepting[host] + sum(each.is_from(host) for each in self.handshakes)

    async def _shake_hands(self, accepted: socket.socket, address: str) -> None:
        """Make a connection of an accepted socket, with TLS if there are certificates."""
        loop = asyncio.get_running_loop()
        context = self.security.server_context() if self.security else None
        timeout = HANDSHAKE_SECONDS if context else None
        host = address.rpartition(":")[0]
        self._accepting[host] += 1
        try:
            await loop.connect_accepted_socket(
                lambda: Connection(self, None), accepted, ssl=context, ssl_handshake_timeout=timeout
            )
        except (OSError, ssl.SSLError) as error:
            accepted.close()
            self.refuse(address, self._explain(error))
        finally:
            self._accepting[host] -= 1
            if not self._accepting[host]:
                del self._accepting[host]

    def _explain(self, error: OSError) -> str:
        if self.security is None:
            return str(error)
        from firedex.certificates.site_credentials import explain_tls_error  # with TLS only

        return explain_tls_error(error)

    def _dial(self, neighbour: str) -> None:
        self._dialers[neighbour] = asyncio.create_task(self._keep_connected(neighbour))

    async def _keep_connected(self, neighbour: str) -> None:
        """Connect to a neighbour whenever there is no link to it."""
        back_off = BackOff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS)
        yield_seconds = YIELD_SECONDS if neighbour < self.settings.site else 0.0
        loop = asyncio.get_running_loop()
        address = self.settings.neighbours[neighbour]
        unanswered = 0
        while True:
            context = self.security.client_context() if self.security else None
            if neighbour in self.connections:
                back_off.reset()
                await self.connections[neighbour].ended.wait()
                await asyncio.sleep(yield_seconds)
                continue
            if self.banned.get(neighbour, 0.0) <= self.clock():
                try:
                    async with asyncio.timeout(HANDSHAKE_SECONDS):
                        _, connection = await loop.create_connection(
                            lambda: Connection(self, neighbour),
                            *address,
                            ssl=context,
                            server_hostname="" if context else None,
                        )
                        await connection.decided.wait()
                        if connection.is_link:
                            unanswered = 0
                            continue
                        unanswered += not connection.received_bytes
                        if unanswered == 2 and context and neighbour not in self.connections:
                            # asyncio sends no TLS alert to a client whose certificate it refuses
                            log.warning(
                                "site %s (%s:%d) closed the connection without an answer; "
                                "it may not trust the authority of this site's certificate: "
                                "see its log", neighbour, *address,
                            )  # fmt: skip
                except ssl.SSLError as error:
                    self.refuse(f"site {neighbour}", self._explain(error))
                except Exception as error:  # also a host name that is not valid; try again
                    log.debug("cannot connect to site %s: %s", neighbour, error)
            await asyncio.sleep(back_off.next_seconds())

    def hello(self) -> bytes:
        """Return the HELLO frame of this federator."""
        return encode_json(
            FrameType.HELLO,
            {
                "federation": self.settings.federation,
                "site": self.settings.site,
                "role": "peer",
                "protocol": [PROTOCOL_VERSION, PROTOCOL_VERSION],
            },
        )

    def may_replace(self, connection: Connection) -> bool:
        """Return whether a connection becomes the link to its site, or another one is kept."""
        old = self.connections.get(connection.peer)
        if old is None or old.is_silent(self.clock()):
            return True
        return connection.is_preferred() and not old.is_preferred()

    def admit(self, connection: Connection) -> None:
        """Make a connection the link to its site."""
        old = self.connections.pop(connection.peer, None)
        if old is not None:
            old.abort("replaced by another connection", report=False)
        self.connections[connection.peer] = connection
        # if only the socket changes, the sites stay connected, and records are exchanged again
        self.listener.link_up(connection.peer, self.cost(connection.peer))

    def cost(self, neighbour: str) -> float:
        """Return the cost of a link."""
        return self.settings.costs.get(neighbour, 1.0)

    def ended(self, connection: Connection) -> None:
        """Handle the end of a connection."""
        self.handshakes.discard(connection)
        self.observers.discard(connection)
        if self.connections.get(connection.peer) is connection:
            del self.connections[connection.peer]
            if not self._closing:
                self.listener.link_down(connection.peer)

    def refuse(self, peer: str, reason: str) -> None:
        """Report a peer that was refused."""
        log.warning("refused %s: %s", peer, reason)
        self.listener.peer_refused(peer, reason)
