"""OpenFlow 1.3 bytes to messages and back, both ways, with the framework's own layouts.

The framework decodes what controllers receive. What only switches receive, it can merely encode;
here are the decoders for that, built from its layouts (``..._PACK_STR``) and its parsers of parts.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firedex_controller.framework import ofproto, parser

__all__ = ["DATAPATH", "Header", "MessageReader", "decode_reply", "header_of"]


class _Datapath:
    """What the framework's messages need of a datapath: to which version they are encoded."""

    ofproto = ofproto
    ofproto_parser = parser


DATAPATH = _Datapath()


@dataclass(frozen=True, slots=True)
class Header:
    """The first eight bytes of every message."""

    version: int
    type: int
    length: int
    transaction: int


def header_of(message: bytes) -> Header:
    """The header of an encoded message."""
    return Header(*struct.unpack_from(ofproto.OFP_HEADER_PACK_STR, message))


class MessageReader:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, received: bytes) -> Iterator[bytes]:
        """The messages that are complete with what has just been received."""
        self._rest += received
        start = 0
        while len(self._rest) - start >= ofproto.OFP_HEADER_SIZE:
            length = int.from_bytes(self._rest[start + 2 : start + 4], "big")
            if length < ofproto.OFP_HEADER_SIZE or len(self._rest) - start < length:
                break
            yield bytes(self._rest[start : start + length])
            start += length
        del self._rest[:start]


def decode_reply(message: bytes) -> Any:
    """A message that a controller receives."""
    header = header_of(message)
    return parser.msg_parser(
        DATAPATH, header.version, header.type, header.length, header.transaction, message
    )
