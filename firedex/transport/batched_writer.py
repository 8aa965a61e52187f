"""Writing to a socket once in each iteration of the event loop.

Each write of an asyncio transport costs a system call or, with TLS, a record. Many small packets
that are sent one after the other are therefore joined and written together.
"""

import asyncio
from typing import Any

__all__ = ["MAX_UNWRITTEN_BYTES", "BatchedWriter"]

MAX_UNWRITTEN_BYTES = 64 * 1024
"""More is written at once, so that the transport notices in time that the peer does not read."""


class BatchedWriter:
    """Joins what is written in one iteration of the event loop."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._parts: list[bytes] = []
        self.unwritten_bytes = 0

    def write(self, data: bytes) -> None:
        """Write data at the end of this iteration, after what was written before."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)
        self.unwritten_bytes += len(data)
        if self.unwritten_bytes > MAX_UNWRITTEN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write everything now; call it before the transport is closed."""
        parts, self._parts, self.unwritten_bytes = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
