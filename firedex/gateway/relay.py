"""MQTT over TCP, relayed: everything passes as it is but the events that a drop rate takes."""

import asyncio
import contextlib
import logging
import random
import socket

from firedex.gateway.flow_table import FlowTable
from firedex.gateway.mqtt_packets import MalformedPacket, PacketCutter, may_be_dropped

__all__ = ["Relay"]

log = logging.getLogger("firedex.gateway")
CHUNK_BYTES = 65_536


class Relay:
    """Relays connections to one broker."""

    def __init__(self, broker: tuple[str, int], flows: FlowTable, generator: random.Random) -> None:
        self._broker, self._flows, self._generator = broker, flows, generator
        self.offered_events = 0
        self.dropped_events = 0

    async def serve(self, host: str, port: int) -> None:
        """Accept connections until cancelled."""
        server = await asyncio.start_server(self._relay, host, port)
        async with server:
            await server.serve_forever()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("peername")[:2]
        try:
            from_broker, to_broker = await asyncio.open_connection(*self._broker)
        except OSError as error:
            log.warning("broker %s:%s does not answer: %s", *self._broker, error)
            writer.close()
            return
        for each in (writer, to_broker):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = [
            asyncio.create_task(self._upstream(reader, to_broker)),
            asyncio.create_task(self._downstream(from_broker, writer, address, port)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for way in ways:
            with contextlib.suppress(asyncio.CancelledError, OSError, MalformedPacket):
                await way
        for each in (writer, to_broker):
            each.close()

    async def _upstream(
        self, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            to_broker.write(data)
            await to_broker.drain()

    async def _downstream(
        self,
        from_broker: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        port: int,
    ) -> None:
        cutter = PacketCutter()
        while data := await from_broker.read(CHUNK_BYTES):
            drop_rate = self._flows.drop_rate(address, port)
            for packet in cutter.cut(data):
                if may_be_dropped(packet):
                    self.offered_events += 1
                    if drop_rate > 0 and self._generator.random() < drop_rate:
                        self.dropped_events += 1
                        continue
                writer.write(packet)
            await writer.drain()
