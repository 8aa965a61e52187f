"""A relay for tests that records the addresses of clients and can delay data to the broker."""

import asyncio
from collections.abc import Callable

from firedex.gateway.flow_table import FlowTable, ManagedFlow
from firedex.gateway.relay import Relay
from firedex.wire.workload import Transport
from tests.support.loopback_parts import seeded_random

__all__ = ["ObservedRelay"]


class _RecordingFlowTable(FlowTable):
    """An empty flow table that records each connection: the relay looks up each of them once."""

    def __init__(self, peers: list[tuple[str, int]]) -> None:
        super().__init__()
        self._peers = peers

    def lookup(self, transport: Transport, address: str, port: int) -> ManagedFlow | None:
        self._peers.append((address, port))
        return super().lookup(transport, address, port)


class ObservedRelay(Relay):
    """Appends the address of each client to ``peers``; delays the data to the broker."""

    def __init__(self, broker: int, peers: list[tuple[str, int]], delay_seconds: float = 0) -> None:
        super().__init__(("127.0.0.1", broker), _RecordingFlowTable(peers), seeded_random())
        self._delay_seconds, self._broker_port = delay_seconds, broker

    async def serve(self, host: str, port: int) -> None:
        if not self._delay_seconds:
            await super().serve(host, port)
            return
        async with await asyncio.start_server(self._delay, "127.0.0.1", 0) as server:
            self.broker = server.sockets[0].getsockname()[:2]
            await super().serve(host, port)

    async def _delay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        call_later = asyncio.get_running_loop().call_later

        def write_later(data: bytes) -> None:
            call_later(self._delay_seconds, to_broker.write, data)

        copies = [
            asyncio.ensure_future(_copy(reader, write_later)),
            asyncio.ensure_future(_copy(from_broker, writer.write)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            to_broker.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
    while data := await reader.read(65_536):
        write(data)
