"""One connection to the broker, made for an MQTT-SN client, the gateway or the federator.

It opens the socket, finds the MQTT version that the broker supports (`transport.mqtt.version`),
keeps the connection alive and detects a broker that no longer responds. Each attempt uses a new
socket, so that packets of one protocol level are never read at another.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from firedex.transport.batched_writer import BatchedWriter
from firedex.transport.mqtt.encoding import (
    MAX_PACKET_BYTES,
    MalformedPacket,
    PacketSplitter,
    PacketType,
)
from firedex.transport.mqtt.packets import DISCONNECT, PINGREQ, Connack, read_connack
from firedex.transport.mqtt.version import MQTT_3, MQTT_5, LevelChoice

__all__ = ["KEEP_ALIVE_SECONDS", "BrokerLevel", "BrokerLink", "BrokerLinkListener", "Link"]

log = logging.getLogger("firedex.mqtt")

KEEP_ALIVE_SECONDS = 60
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 1.0
"""Timeout for CONNACK after which a broker that may not support MQTT 5 is tried with 3.1.1."""
CONNACK_SECONDS = 5.0
CONGESTED_BYTES = 65_536
"""The link counts as congested when more than this many bytes are unsent."""
MAX_UNSENT_BYTES = 1_048_576
UNSUPPORTED_LEVEL = (0x01, 0x84)
PUBLISH = int(PacketType.PUBLISH)
SUBSCRIBE = PacketType.SUBSCRIBE << 4


@dataclass(slots=True)
class BrokerLevel:
    """The protocol level of the broker once it is known; shared by all links of a gateway."""

    level: int | None = None


class BrokerLinkListener(Protocol):
    """The owner of a link: it receives the packets, and is notified when the link ends."""

    def connect_packet(self, level: int) -> bytes:
        """Return the CONNECT packet at a protocol level."""

    def broker_connected(self) -> None:
        """Handle the acceptance of CONNECT."""

    def packet_received(self, packet: bytes) -> None:
        """Handle any packet except CONNACK and PINGRESP."""

    def broker_disconnected(self, reason: str, *, refused: bool) -> None:
        """Handle the end of the link; ``refused`` if the broker rejected CONNECT."""


class PacketObserver(Protocol):
    """Sees the packets of a link, except PUBLISH packets."""

    def client_sent(self, packet: bytes) -> None:
        """Handle a packet to the broker."""

    def broker_sent(self, packet: bytes) -> None:
        """Handle a packet of the broker."""

    def closed(self) -> None:
        """Handle the end of the connection."""


class Link(Protocol):
    """A connection to the broker that keeps itself alive."""

    level: int
    """The MQTT protocol level."""
    congested: bool
    """Whether the broker accepts no more data at present."""

    def send(self, packet: bytes) -> None:
        """Send a packet to the broker."""

    def pause_reading(self, paused: bool) -> None:
        """Pause or resume reading from the broker."""

    def tick(self, now: float) -> None:
        """Handle everything that is due at the time ``now``."""

    def close(self) -> None:
        """Send DISCONNECT and close the connection."""

    def abort(self) -> None:
        """Close the connection at once."""


class BrokerLink:
    """A link over TCP; after ``close`` or ``abort`` its listener is not called any more."""

    def __init__(
        self,
        address: tuple[str, int],
        listener: BrokerLinkListener,
        broker_level: BrokerLevel,
        clock: Callable[[], float] = time.monotonic,
        *,
        observe: Callable[[bytes], PacketObserver] | None = None,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
    ) -> None:
        self._address, self._listener, self._broker_level = address, listener, broker_level
        self._max_unsent_bytes, self._observe = max_unsent_bytes, observe
        self._clock = clock
        self._choice = LevelChoice(broker_level.level)
        self._open_socket()

    def _open_socket(self) -> None:
        self.level = self._choice.level
        self._connected = self._ping_pending = self.congested = self._paused = False
        self.session_present, self.receive_maximum = False, 65_535
        self.maximum_packet_bytes = MAX_PACKET_BYTES
        self._connack_deadline: float | None = None
        self._ping_at = 0.0
        self._observer: PacketObserver | None = None
        self._socket: _Socket | None = _Socket(self._address, self)

    def _take_socket(self) -> "_Socket | None":
        taken, self._socket = self._socket, None
        if self._observer is not None:
            self._observer.closed()
        return taken

    def _drop_socket(self) -> None:
        dropped = self._take_socket()
        if dropped is not None:
            dropped.abort()

    # -- called by the owner -----------------------------------------------------------------------

    def send(self, packet: bytes) -> None:
        """Send a packet to the broker."""
        if self._socket is None:
            return
        if packet[0] >= SUBSCRIBE and self._observer is not None:
            self._observer.client_sent(packet)
        self._socket.write(packet)
        if self.congested and self._socket.unsent_bytes > self._max_unsent_bytes:
            self._fail("the broker does not read from its socket")

    def pause_reading(self, paused: bool) -> None:
        """Pause or resume reading from the broker."""
        if paused != self._paused and self._socket is not None:
            # While reading is paused, an unread PINGRESP does not mean that the broker is silent.
            self._paused, self._ping_pending = paused, False
            self._socket.pause_reading(paused)

    def tick(self, now: float) -> None:
        """Send PINGREQ when due, and end the link if the broker does not respond."""
        if self._socket is None:
            return
        if not self._connected:
            if self._connack_deadline is not None and now > self._connack_deadline:
                self.on_no_connack("the broker did not send CONNACK in time")
        elif now > self._ping_at:
            if self._ping_pending and not self._paused:
                self._fail("the broker does not respond to PINGREQ")
                return
            self._ping_at, self._ping_pending = now + KEEP_ALIVE_SECONDS / 2, True
            self._socket.write(PINGREQ)

    def close(self) -> None:
        """Send DISCONNECT and close the connection: the broker publishes no will."""
        closed = self._take_socket()
        if closed is not None:
            closed.close()

    def abort(self) -> None:
        """Close the connection without DISCONNECT: the broker publishes the will."""
        self._drop_socket()

    # -- called by the socket ----------------------------------------------------------------------

    def on_open(self) -> None:
        """Send CONNECT."""
        probing = self.level == MQTT_5 and not self._choice.sure
        self._connack_deadline = self._clock() + (PROBE_SECONDS if probing else CONNACK_SECONDS)
        connect = self._listener.connect_packet(self.level)
        if self._observe is not None:
            self._observer = self._observe(connect)
        self.send(connect)

    def on_data(self) -> None:
        """Record that the broker has sent data."""
        self._ping_pending = False

    def on_packet(self, packet: bytes) -> None:
        """Handle one packet."""
        packet_type = packet[0] >> 4
        if packet_type == PUBLISH:  # by far the most frequent
            self._listener.packet_received(packet)
            return
        if self._observer is not None:
            self._observer.broker_sent(packet)
        if packet_type == PacketType.CONNACK:
            self._on_connack(read_connack(packet, level=self.level))
        elif packet_type != PacketType.PINGRESP:
            self._listener.packet_received(packet)

    def _on_connack(self, connack: Connack) -> None:
        code = connack.code
        if code == 0 and self._choice.accepted():
            self._connected, self._broker_level.level = True, self.level
            self.session_present = connack.session_present
            self.receive_maximum = connack.receive_maximum
            self.maximum_packet_bytes = connack.maximum_packet_bytes
            self._ping_at = self._clock() + KEEP_ALIVE_SECONDS / 2
            self._listener.broker_connected()
            return
        if code in UNSUPPORTED_LEVEL and self.level == MQTT_5:
            log.info("the broker does not support MQTT 5; using MQTT 3.1.1")
            self._choice.refused()
        elif code:
            self._fail(f"the broker rejected CONNECT with code 0x{code:02x}", refused=True)
            return
        self._drop_socket()
        self._open_socket()

    def on_no_connack(self, reason: str) -> None:
        """Try another protocol level after a missing CONNACK, or fail if none is left."""
        self._choice.unanswered()
        if self.level == MQTT_3 or self._choice.level == self.level:
            self._fail(reason)
        else:
            self._drop_socket()
            self._open_socket()

    def on_close(self, reason: str) -> None:
        """Handle the end of the connection."""
        if self._connected:
            self._fail(reason)
        else:
            self.on_no_connack(reason)

    def on_unreachable(self, reason: str) -> None:
        """Handle that no connection could be opened."""
        self._fail(reason)

    def _fail(self, reason: str, *, refused: bool = False) -> None:
        self._drop_socket()
        self._listener.broker_disconnected(reason, refused=refused)


class _Socket(asyncio.Protocol):
    """The socket of one connection attempt; after ``close`` or ``abort`` it calls nothing."""

    def __init__(self, address: tuple[str, int], link: BrokerLink) -> None:
        self._address, self._link = address, link
        self._splitter = PacketSplitter()
        self._transport: asyncio.Transport | None = None
        self._writer: BatchedWriter
        self._active = True
        self._task = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except OSError as error:
            if self._active:
                self._active = False
                host, port = self._address
                self._link.on_unreachable(f"cannot connect to broker {host}:{port}: {error}")

    def connection_made(self, transport: Any) -> None:
        if not self._active:
            transport.abort()
            return
        self._transport, self._writer = transport, BatchedWriter(transport)
        transport.set_write_buffer_limits(high=CONGESTED_BYTES)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link.on_open()

    def data_received(self, data: bytes) -> None:
        self._link.on_data()
        try:
            for packet in self._splitter.feed(data):
                if not self._active:
                    return
                self._link.on_packet(packet)
        except (MalformedPacket, IndexError) as error:
            if self._active:
                self._link.on_close(f"the broker sent a malformed packet: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._active:
            self._active = False
            reason = "the broker closed the connection" if error is None else str(error)
            self._link.on_close(reason)

    def pause_writing(self) -> None:
        self._link.congested = True

    def resume_writing(self) -> None:
        self._link.congested = False

    @property
    def unsent_bytes(self) -> int:
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + self._writer.unwritten_bytes

    def write(self, packet: bytes) -> None:
        if self._transport is not None:
            self._writer.write(packet)

    def pause_reading(self, paused: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self) -> None:
        self._active = False
        if self._transport is not None:
            self._writer.write(DISCONNECT)
            self._writer.flush()
            self._transport.close()
        else:
            self._task.cancel()

    def abort(self) -> None:
        self._active = False
        if self._transport is not None:
            self._transport.abort()
        self._task.cancel()
