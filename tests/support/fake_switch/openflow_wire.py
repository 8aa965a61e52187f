"""OpenFlow 1.3 messages as bytes, and OpenFlow errors.

The framework decodes messages that controllers receive. Messages that only switches receive are
decoded in `requests`, with the framework's layouts (``..._PACK_STR``) and its parsers of parts.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firedex_controller.errors import ControllerError
from firedex_controller.framework import ofproto, parser

__all__ = [
    "DATAPATH",
    "ONF_EXPERIMENTER",
    "Header",
    "MessageReader",
    "Refusal",
    "bundle_refusal",
    "decode_header",
    "decode_reply",
]


class _Datapath:
    """The part of a datapath that the framework's messages need: the protocol version."""

    ofproto = ofproto
    ofproto_parser = parser


DATAPATH = _Datapath()


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a message, its first eight bytes."""

    version: int
    type: int
    length: int
    transaction: int


def decode_header(message: bytes) -> Header:
    """Return the header of an encoded message."""
    return Header(*struct.unpack_from(ofproto.OFP_HEADER_PACK_STR, message))


class MessageReader:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, received: bytes) -> Iterator[bytes]:
        """Add received bytes; return the messages that are complete."""
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
    """Decode a message that a controller receives."""
    header = decode_header(message)
    return parser.msg_parser(
        DATAPATH, header.version, header.type, header.length, header.transaction, message
    )


ONF_EXPERIMENTER = 0x4F4E4600


class Refusal(ControllerError):
    """A message that the fake switch answers with an error."""

    def __init__(self, error_type: int, code: int, *, experimenter: int | None = None) -> None:
        self.error_type, self.code, self.experimenter = error_type, code, experimenter
        super().__init__(f"error type {error_type} code {code}")

    def facts(self) -> tuple[int, int]:
        """Return type and code; an experimenter's error has its own codes."""
        return (self.error_type, self.code)


def bundle_refusal(kind: int) -> Refusal:
    """Return an error of the bundle extension (``ONFERR_ET_…``)."""
    experimenter_type: Any = ofproto.OFPET_EXPERIMENTER
    return Refusal(experimenter_type, kind, experimenter=ONF_EXPERIMENTER)
