"""Questions to running federators, for ``firedex federation``."""

import asyncio
import ssl
from typing import Any

from firedex.federation.frames import (
    PROTOCOL_VERSION,
    FrameSplitter,
    FrameType,
    decode_json,
    encode_json,
)
from firedex.federation.links import Security

__all__ = ["NoAnswer", "ask"]

MAX_ANSWER_BYTES = 64 * 1024 * 1024


class NoAnswer(Exception):
    """A federator did not answer, or refused to."""


async def ask(
    address: tuple[str, int],
    federation: str,
    query: dict[str, Any],
    *,
    security: Security | None = None,
    timeout_seconds: float = 5.0,
) -> dict[str, Any]:
    """Return the answer of the federator at an address; raise NoAnswer if there is none."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _ask(address, federation, query, security)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {timeout_seconds:g} s") from error
    except (OSError, ssl.SSLError, ValueError) as error:
        raise NoAnswer(str(error)) from error


async def _ask(
    address: tuple[str, int], federation: str, query: dict[str, Any], security: Security | None
) -> dict[str, Any]:
    context = security.client_context() if security is not None else None
    reader, writer = await asyncio.open_connection(
        *address, ssl=context, server_hostname="" if context else None
    )
    try:
        hello = {
            "federation": federation,
            "role": "observer",
            "protocol": [PROTOCOL_VERSION, PROTOCOL_VERSION],
        }
        writer.write(encode_json(FrameType.HELLO, hello) + encode_json(FrameType.QUERY, query))
        splitter = FrameSplitter(MAX_ANSWER_BYTES)
        while True:
            data = await reader.read(65_536)
            if not data:
                raise NoAnswer("the federator closed the connection")
            for kind, body in splitter.feed(data):
                if kind == FrameType.ANSWER:
                    return decode_json(body)
                if kind == FrameType.REFUSAL:
                    raise NoAnswer(f"refused: {decode_json(body).get('reason')}")
    finally:
        writer.close()
