"""One connection to the broker on behalf of an MQTT-SN client, or of the gateway itself.

Opens the socket, finds the MQTT level that the broker takes (`mqtt_level_choice`), keeps the
connection alive and notices when the broker does not answer any more. The level is fixed with each
socket: what has been said at one level is never read at another.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from firedex.gateway.broker_packets import read_connack
from firedex.gateway.errors import ProtocolViolation
from firedex.gateway.mqtt_packets import PacketCutter, PacketKind
from firedex.mqtt_level_choice import MQTT_3, MQTT_5, LevelChoice

__all__ = ["KEEP_ALIVE_SECONDS", "BrokerLink", "BrokerUser", "KnownLevel"]

log = logging.getLogger("firedex.gateway")

KEEP_ALIVE_SECONDS = 60
REACH_SECONDS = 5.0
SILENT_SECONDS = 1.0
"""Until a broker that says nothing to MQTT 5 is tried with 3.1.1."""
CONNACK_SECONDS = 5.0
TO_BROKER_BYTES = 65_536
"""What may wait for a slow broker before its user is told to hold back."""
MOST_TO_BROKER_BYTES = 1_048_576
UNSUPPORTED_LEVEL = (0x01, 0x84)
PUBLISH = int(PacketKind.PUBLISH)
PING = bytes((PacketKind.PINGREQ << 4, 0))


@dataclass(slots=True)
class KnownLevel:
    """What all links of a gateway know of their broker."""

    level: int | None = None


class BrokerUser(Protocol):
    """Who is told what the broker says."""

    def hello(self, level: int) -> bytes:
        """CONNECT, as it is written at a level."""

    def broker_accepted(self) -> None:
        """The broker has taken the CONNECT."""

    def broker_said(self, packet: bytes) -> None:
        """Any other packet."""

    def broker_lost(self, why: str, *, refused: bool) -> None:
        """The connection could not be had, or has ended; it stays so."""


class BrokerLink:
    """Told nothing more once it is closed."""

    def __init__(
        self,
        address: tuple[str, int],
        user: BrokerUser,
        known: KnownLevel,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._user, self._known, self._clock = address, user, known, clock
        self._choice = LevelChoice(known.level)
        self._begin()

    def _begin(self) -> None:
        self.level = self._choice.level
        self._up = self._pinged = self.congested = self._held_back = False
        self._silent_at: float | None = None
        self._ping_at = 0.0
        self._socket: _Socket | None = _Socket(self._address, self)

    def _end(self) -> None:
        ended, self._socket = self._socket, None
        if ended is not None:
            ended.abort()

    # -- for its user ------------------------------------------------------------------------------

    def send(self, packet: bytes) -> None:
        """To the broker."""
        if self._socket is None:
            return
        self._socket.write(packet)
        if self.congested and self._socket.waiting_bytes > MOST_TO_BROKER_BYTES:
            self._fail("the broker takes nothing any more")

    def hold_back(self, on: bool) -> None:
        """Take no more from the broker for now, or again."""
        if on != self._held_back and self._socket is not None:
            self._held_back, self._pinged = on, False  # an answer may wait to be read
            self._socket.hold_back(on)

    def tick(self, now: float) -> None:
        """Keep-alive, and giving up."""
        if self._socket is None:
            return
        if not self._up:
            if self._silent_at is not None and now > self._silent_at:
                self.unanswered("the broker says nothing")
        elif now > self._ping_at:
            if self._pinged and not self._held_back:
                self._fail("the broker does not answer any more")
                return
            self._ping_at, self._pinged = now + KEEP_ALIVE_SECONDS / 2, True
            self._socket.write(PING)

    def close(self) -> None:
        """Say DISCONNECT: no will is published."""
        ended, self._socket = self._socket, None
        if ended is not None:
            ended.close()

    def abort(self) -> None:
        """End without a word: the broker publishes the will."""
        self._end()

    # -- from its socket ---------------------------------------------------------------------------

    def opened(self) -> None:
        """Nothing has been said yet."""
        unsure = self.level == MQTT_5 and not self._choice.sure
        self._silent_at = self._clock() + (SILENT_SECONDS if unsure else CONNACK_SECONDS)
        self.send(self._user.hello(self.level))

    def heard(self) -> None:
        """The broker lives."""
        self._pinged = False

    def said(self, packet: bytes) -> None:
        """One packet."""
        kind = packet[0] >> 4
        if kind == PUBLISH:  # by far the most
            self._user.broker_said(packet)
        elif kind == PacketKind.CONNACK:
            self._on_connack(read_connack(packet))
        elif kind != PacketKind.PINGRESP:
            self._user.broker_said(packet)

    def _on_connack(self, code: int) -> None:
        if code == 0 and self._choice.accepted():
            self._up, self._known.level = True, self.level
            self._ping_at = self._clock() + KEEP_ALIVE_SECONDS / 2
            self._user.broker_accepted()
            return
        if code in UNSUPPORTED_LEVEL and self.level == MQTT_5:
            log.info("the broker does not take MQTT 5: going on with 3.1.1")
            self._choice.refused()
        elif code:
            self._fail(f"the broker says 0x{code:02x}", refused=True)
            return
        self._end()
        self._begin()

    def unanswered(self, why: str) -> None:
        """It has closed before it said a word, or said none in time."""
        self._choice.unanswered()
        if self.level == MQTT_3 or self._choice.level == self.level:
            self._fail(why)
        else:
            self._end()
            self._begin()

    def ended(self, why: str) -> None:
        """The socket has been closed."""
        if self._up:
            self._fail(why)
        else:
            self.unanswered(why)

    def not_reached(self, why: str) -> None:
        """There is nobody there."""
        self._fail(why)

    def _fail(self, why: str, *, refused: bool = False) -> None:
        self._end()
        self._user.broker_lost(why, refused=refused)


class _Socket(asyncio.Protocol):
    """One attempt: told of nothing more once it is closed."""

    def __init__(self, address: tuple[str, int], link: BrokerLink) -> None:
        self._address, self._link = address, link
        self._cutter = PacketCutter()
        self._transport: asyncio.Transport | None = None
        self._open = True
        self._task = asyncio.ensure_future(self._reach())

    async def _reach(self) -> None:
        try:
            async with asyncio.timeout(REACH_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except OSError as error:
            if self._open:
                self._open = False
                host, port = self._address
                self._link.not_reached(f"broker {host}:{port} does not answer: {error}")

    def connection_made(self, transport: Any) -> None:
        if not self._open:
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=TO_BROKER_BYTES)
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link.opened()

    def data_received(self, data: bytes) -> None:
        self._link.heard()
        try:
            for packet in self._cutter.cut(data):
                if not self._open:
                    return
                self._link.said(packet)
        except (ProtocolViolation, IndexError) as error:
            if self._open:
                self._link.ended(f"the broker sent what is not MQTT: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._open:
            self._open = False
            self._link.ended("the broker has closed" if error is None else str(error))

    def pause_writing(self) -> None:
        self._link.congested = True

    def resume_writing(self) -> None:
        self._link.congested = False

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, packet: bytes) -> None:
        if self._transport is not None:
            self._transport.write(packet)

    def hold_back(self, on: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if on:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self) -> None:
        self._open = False
        if self._transport is not None:
            self._transport.write(bytes((PacketKind.DISCONNECT << 4, 0)))
            self._transport.close()
        else:
            self._task.cancel()

    def abort(self) -> None:
        self._open = False
        if self._transport is not None:
            self._transport.abort()
        self._task.cancel()
