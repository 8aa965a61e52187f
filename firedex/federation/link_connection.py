"""One connection between two federators, or of an observer: handshake, frames and heartbeats.

A connection becomes a link when both sides have checked the other's certificate and HELLO. `Links`
opens and accepts connections, and keeps one for each neighbour.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

from firedex.federation.frames import (
    PROTOCOL_VERSION,
    FrameSplitter,
    FrameType,
    MalformedFrame,
    decode_json,
    encode_frame,
    encode_json,
)
from firedex.transport.batched_writer import BatchedWriter
from firedex.wire.values import is_identifier

if TYPE_CHECKING:
    from firedex.federation.links import Links

__all__ = ["HANDSHAKE_SECONDS", "MAX_HANDSHAKES", "MAX_OBSERVERS", "Connection"]

log = logging.getLogger("firedex.federation")

HANDSHAKE_SECONDS = 5.0
MAX_HANDSHAKES = 64
MAX_OBSERVERS = 64
MAX_HELLO_BYTES = 16_384
CONGESTED_BYTES = 1024 * 1024
MAX_UNSENT_BYTES = 64 * 1024 * 1024
BAN_SECONDS = 5.0
RECORD_WEIGHT = 10.0
"""A record counts as this many events: it is sent on to all sites, which compute paths again."""


class Connection(asyncio.Protocol):
    """One connection between two federators, or of an observer."""

    def __init__(self, links: "Links", dialed: str | None) -> None:
        self._links, self._dialed = links, dialed
        self.peer = dialed or ""
        self.is_link = self.is_observer = False
        self.decided, self.ended = asyncio.Event(), asyncio.Event()
        self._transport: Any = None
        self._writer: BatchedWriter
        self._splitter = FrameSplitter(MAX_HELLO_BYTES)
        self._opened_at = self._heard_at = self._sent_at = links.clock()
        self._congested = False
        self._fingerprint: str | None = None
        self._address = ""
        self._allowance, self._allowance_at = 0.0, links.clock()
        self._paused_until: asyncio.TimerHandle | None = None
        self.received_bytes = self.sent_bytes = 0
        self.since = 0.0

    # -- asyncio -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Identify the peer by its certificate; the side that opened the connection sends HELLO."""
        self._transport, self._writer = transport, BatchedWriter(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=CONGESTED_BYTES)
        peer_address = transport.get_extra_info("peername")
        self._address = f"{peer_address[0]}:{peer_address[1]}" if peer_address else "?"
        if len(self._links.handshakes) >= MAX_HANDSHAKES:
            self._links.refuse(self._address, "too many connections without a handshake")
            transport.abort()
            return
        self._links.handshakes.add(self)
        security = self._links.security
        if security is not None:
            try:
                identity = security.peer_identity(transport.get_extra_info("ssl_object"))
            except Exception as error:  # whatever is wrong with it, it is refused
                self._refuse(str(error))
                return
            if security.is_revoked(identity.fingerprint):
                self._refuse(f"the certificate of site {identity.site} is revoked")
                return
            self._fingerprint = identity.fingerprint
            self.peer = identity.site
            if self._dialed is not None and identity.site != self._dialed:
                self._refuse(f"expected site {self._dialed}, but the certificate is of {self.peer}")
                return
        if self._dialed is not None:
            self._write(self._links.hello())

    def data_received(self, data: bytes) -> None:
        """Handle each frame that is complete."""
        self._heard_at = self._links.clock()
        self.received_bytes += len(data)
        try:
            for kind, body in self._splitter.feed(data):
                if self._transport.is_closing():
                    return
                if kind != FrameType.HEARTBEAT:
                    self._allowance -= RECORD_WEIGHT if kind == FrameType.RECORD else 1.0
                self._receive(kind, body)
        except MalformedFrame as error:
            self._links.banned[self.peer] = self._links.clock() + BAN_SECONDS
            self._refuse(f"malformed frame: {error}")
            return
        except Exception:
            log.exception(
                "internal error while handling a frame from site %s; closing the link", self.peer
            )
            self.abort("internal error")
            return
        if self._allowance < 0:
            self._limit_rate()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end of the connection."""
        if self._paused_until is not None:
            self._paused_until.cancel()
        if self.is_link:
            log.info("link to %s ended%s", self.peer, f": {error}" if error else "")
        self._links.ended(self)
        self.decided.set()
        self.ended.set()

    def pause_writing(self) -> None:
        """Drop droppable frames until the peer has read more."""
        self._congested = True

    def resume_writing(self) -> None:
        """Send all frames again."""
        self._congested = False

    # -- sending -------------------------------------------------------------------------------

    def send(self, frame: bytes, *, droppable: bool) -> bool:
        """Send a frame; a droppable one only if the link is not congested."""
        if self._congested:
            if droppable:
                return False
            if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                self.abort("the neighbour does not read")
                return False
        self._write(frame)
        return True

    def _write(self, frame: bytes) -> None:
        self._sent_at = self._links.clock()
        self.sent_bytes += len(frame)
        self._writer.write(frame)

    def abort(self, reason: str, *, report: bool = True) -> None:
        """Close the connection at once."""
        if report and self.is_link:
            log.info("link to %s closed: %s", self.peer, reason)
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, reason: str) -> None:
        name = f"site {self.peer} ({self._address})" if self.peer else self._address
        self._links.refuse(name, reason)
        self._write(encode_json(FrameType.REFUSAL, {"reason": reason}))
        self._writer.flush()
        self._transport.close()

    # -- time ----------------------------------------------------------------------------------

    def is_silent(self, now: float) -> bool:
        """Return whether nothing was received for the lease."""
        return now - self._heard_at > self._links.settings.lease_seconds

    def is_from(self, host: str) -> bool:
        """Return whether the other side opened this connection, from this IP address."""
        return self._dialed is None and self._address.rpartition(":")[0] == host

    def is_preferred(self) -> bool:
        """Return whether the site with the smaller name opened this connection."""
        opened_here = self._dialed is not None
        return opened_here == (self._links.settings.site < self.peer)

    def tick(self, now: float, *, check_silence: bool = True) -> None:
        """Send a heartbeat if due; end a silent connection."""
        settings = self._links.settings
        if not self.is_link:
            limit = 60.0 if self.is_observer else HANDSHAKE_SECONDS
            if now - (self._heard_at if self.is_observer else self._opened_at) > limit:
                self.abort("no handshake")
            return
        security = self._links.security
        if security is not None and self._fingerprint and security.is_revoked(self._fingerprint):
            self._refuse(f"the certificate of site {self.peer} is revoked")
            return
        if check_silence and self.is_silent(now) and self._paused_until is None:
            self.abort(f"silent for more than {settings.lease_seconds:g} s")
        elif now - self._sent_at >= settings.lease_seconds / 3.5:
            content = self._links.listener.heartbeat_content()
            self._write(encode_frame(FrameType.HEARTBEAT, content))

    def _limit_rate(self) -> None:
        """Stop reading from a neighbour that sends more events than its limit allows."""
        now, rate = self._links.clock(), self._links.settings.max_events_per_second
        self._allowance = min(self._allowance + (now - self._allowance_at) * rate, rate / 10)
        self._allowance_at = now
        if self._allowance < 0 and self._paused_until is None:
            self._transport.pause_reading()
            loop = asyncio.get_running_loop()
            self._paused_until = loop.call_later(-self._allowance / rate, self._resume)

    def _resume(self) -> None:
        self._paused_until = None
        self._heard_at = self._links.clock()
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._limit_rate()

    # -- frames --------------------------------------------------------------------------------

    def _receive(self, kind: int, body: bytes) -> None:
        listener = self._links.listener
        if self.is_link:
            if kind == FrameType.HEARTBEAT:
                listener.heartbeat_received(self.peer, body)
            elif kind == FrameType.REFUSAL:
                self._refused(body)
            elif self._links.connections.get(self.peer) is self:
                listener.frame_received(self.peer, kind, body)
        elif kind == FrameType.HELLO:
            self._greet(decode_json(body))
        elif kind == FrameType.QUERY and self.is_observer:
            query = decode_json(body)
            listener.query_received(query, self._answer)
        elif kind == FrameType.REFUSAL:
            self._refused(body)
        else:
            raise MalformedFrame("the first frame must be HELLO")

    def _refused(self, body: bytes) -> None:
        reason = str(decode_json(body).get("reason"))[:200]
        log.warning("site %s (%s) refuses this site: %s", self.peer, self._address, reason)
        self._transport.close()

    def _answer(self, content: Any) -> None:
        if not self._transport.is_closing():
            self._write(encode_json(FrameType.ANSWER, content))

    def _greet(self, hello: dict[str, Any]) -> None:
        """Check the HELLO of the other side."""
        settings = self._links.settings
        versions = hello.get("protocol")
        if not _speaks(versions):
            self._refuse(
                f"protocol versions {versions} are not supported; this site speaks "
                f"{PROTOCOL_VERSION}"
            )
            return
        if hello.get("federation") != settings.federation:
            self._refuse(
                f"federation {hello.get('federation')!r} does not match federation "
                f"{settings.federation!r}"
            )
            return
        if hello.get("role") == "observer":
            if len(self._links.observers) >= MAX_OBSERVERS:
                self._refuse("too many observers")
                return
            self.is_observer = True
            self._links.handshakes.discard(self)
            self._links.observers.add(self)
            return
        site = hello.get("site")
        if not isinstance(site, str) or not is_identifier(site):
            raise MalformedFrame("HELLO has no valid site")
        problem = self._site_problem(site)
        if problem:
            self.peer = self.peer or site
            self._refuse(problem)
            return
        self.peer = site
        self._links.handshakes.discard(self)
        if not self._links.may_replace(self):
            # without HELLO, so that the other side does not consider this a link
            self.abort("another connection is kept", report=False)
            return
        if self._dialed is None:
            self._write(self._links.hello())
        self._splitter.max_bytes = settings.max_frame_bytes
        self._links.admit(self)
        self.is_link = True
        self.since = self._links.clock()
        log.info("link to %s is up", site)
        self.decided.set()

    def _site_problem(self, site: str) -> str | None:
        settings = self._links.settings
        if site == settings.site:
            return f"the name {site} is the name of the site that was contacted"
        if self._dialed is not None and site != self._dialed:
            return f"expected site {self._dialed}, not {site}"
        if self._links.security is not None and site != self.peer:
            return f"HELLO names site {site}, but the certificate is of site {self.peer}"
        if settings.members is not None and site not in settings.members:
            return f"site {site} is not in the federation file, and its membership is 'listed'"
        if self._links.banned.get(site, 0.0) > self._links.clock():
            return f"site {site} sent a malformed frame less than {BAN_SECONDS:g} s ago"
        return None


def _speaks(versions: Any) -> bool:
    return (
        isinstance(versions, list)
        and len(versions) == 2
        and all(isinstance(version, int) for version in versions)
        and versions[0] <= PROTOCOL_VERSION <= versions[1]
    )
