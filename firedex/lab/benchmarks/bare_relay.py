"""A relay that copies bytes without decoding them: the minimum cost of a relay in Python.

Run as ``python -m firedex.lab.benchmarks.bare_relay PORT BROKER_PORT``.
"""

import asyncio
import sys

__all__: list[str] = []


class _RelaySide(asyncio.Protocol):
    """One side of a connection; it writes what it receives to the other side."""

    def __init__(self, broker_port: int | None = None) -> None:
        self._broker_port = broker_port
        self._transport: asyncio.Transport | None = None
        self.other: _RelaySide | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._broker_port is not None and self._transport is not None:
            self._transport.pause_reading()
            self._connecting = asyncio.ensure_future(self._connect(self._broker_port))

    async def _connect(self, port: int) -> None:
        _, self.other = await asyncio.get_running_loop().create_connection(
            _RelaySide, "127.0.0.1", port
        )
        self.other.other = self
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()


async def _serve(port: int, broker_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _RelaySide(broker_port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
