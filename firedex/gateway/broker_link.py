"""One connection to the broker on behalf of an MQTT-SN client: the socket."""

import asyncio
import logging
import socket
from typing import Any, Protocol

from firedex.gateway.errors import ProtocolViolation
from firedex.gateway.mqtt_packets import PacketCutter, PacketKind

__all__ = ["BrokerLink", "BrokerUser"]

log = logging.getLogger("firedex.gateway")
REACH_SECONDS = 5.0


class BrokerUser(Protocol):
    """Who is told what the broker says."""

    def broker_opened(self) -> None:
        """The connection is there; nothing has been said."""

    def broker_said(self, packet: bytes) -> None:
        """One packet."""

    def broker_lost(self, why: str) -> None:
        """The connection could not be opened, or has ended."""


class BrokerLink(asyncio.Protocol):
    """Opens, sends, receives; told nothing more once it is closed."""

    def __init__(self, address: tuple[str, int], user: BrokerUser) -> None:
        self._address, self._user = address, user
        self._cutter = PacketCutter()
        self._transport: asyncio.Transport | None = None
        self._open = True
        self._task = asyncio.ensure_future(self._reach())

    async def _reach(self) -> None:
        try:
            async with asyncio.timeout(REACH_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except OSError as error:
            host, port = self._address
            self._lost(f"broker {host}:{port} does not answer: {error}")

    def connection_made(self, transport: Any) -> None:  # noqa: D102
        if not self._open:
            transport.abort()
            return
        self._transport = transport
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._user.broker_opened()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        try:
            for packet in self._cutter.cut(data):
                if not self._open:
                    return
                self._user.broker_said(packet)
        except (ProtocolViolation, IndexError) as error:
            self.abort()
            self._user.broker_lost(f"the broker sent what is not MQTT: {error}")

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        self._transport = None
        self._lost("the broker has closed" if error is None else str(error))

    def _lost(self, why: str) -> None:
        if self._open:
            self._open = False
            self._user.broker_lost(why)

    def send(self, packet: bytes) -> None:
        """To the broker."""
        if self._transport is not None:
            self._transport.write(packet)

    def close(self) -> None:
        """Say DISCONNECT: no will is published."""
        self._open = False
        if self._transport is not None:
            self._transport.write(bytes((PacketKind.DISCONNECT << 4, 0)))
            self._transport.close()

    def abort(self) -> None:
        """End without a word: the broker publishes the will."""
        self._open = False
        if self._transport is not None:
            self._transport.abort()
        self._task.cancel()
