"""Data of one iteration of the event loop is written together, in order."""

import asyncio

from firedex.transport.batched_writer import MAX_UNWRITTEN_BYTES, BatchedWriter


class RecordingTransport:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing


def test_data_of_one_iteration_is_written_together() -> None:
    async def run() -> None:
        transport = RecordingTransport()
        writer = BatchedWriter(transport)
        writer.write(b"one ")
        writer.write(b"two")
        assert transport.written == []
        assert writer.unwritten_bytes == 7
        await asyncio.sleep(0)
        assert transport.written == [b"one two"]
        writer.write(b"three")
        await asyncio.sleep(0)
        assert transport.written == [b"one two", b"three"]

    asyncio.run(run())


def test_large_data_is_written_at_once() -> None:
    async def run() -> None:
        transport = RecordingTransport()
        writer = BatchedWriter(transport)
        writer.write(b"first")
        large = b"x" * MAX_UNWRITTEN_BYTES
        writer.write(large)
        assert transport.written == [b"first" + large]
        assert writer.unwritten_bytes == 0

    asyncio.run(run())


def test_nothing_is_written_to_a_closed_transport() -> None:
    async def run() -> None:
        transport = RecordingTransport()
        writer = BatchedWriter(transport)
        writer.write(b"late")
        transport.closing = True
        await asyncio.sleep(0)
        assert transport.written == []

    asyncio.run(run())
