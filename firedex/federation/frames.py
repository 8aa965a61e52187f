"""Frames between federators: encoding and decoding. Pure.

A frame is a length (four bytes), a type (one byte) and a body. Control frames carry JSON. A routed
frame (event or message) has the list of its destination sites in front, so that a relay can divide
it between its links without reading the rest.

::

    EVENT, MESSAGE:  flags 1 | class 1 | hops left 1 | destinations 1 | destination ... | rest
    destination:     length 1 | site | (if RELIABLE) previous epoch 8 | previous number 8
    rest of EVENT:   see `events.encode_event`
    rest of MESSAGE: source length 1 | source site | JSON
"""

import json
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

__all__ = [
    "MAX_HOPS",
    "MAX_SITES_PER_FRAME",
    "PROTOCOL_VERSION",
    "Destination",
    "EventId",
    "FrameSplitter",
    "FrameType",
    "MalformedFrame",
    "RoutedFrame",
    "decode_json",
    "decode_message",
    "decode_routed",
    "encode_content",
    "encode_forwarded",
    "encode_frame",
    "encode_json",
    "encode_message",
    "encode_routed",
    "only_destination",
]

PROTOCOL_VERSION = 1
MAX_HOPS = 32
MAX_SITES_PER_FRAME = 255
RELIABLE = 0x01
_LENGTH = struct.Struct(">I")
_ID = struct.Struct(">QQ")
_ROUTED = struct.Struct(">IBBBBB")
"""Length and type of the frame, flags, class, hops left, number of destinations."""

EventId = tuple[int, int]
"""Epoch of the origin's federator, and the sequence number of the event within it."""
NO_EVENT: EventId = (0, 0)


class MalformedFrame(ValueError):
    """The bytes are not a valid frame."""


class FrameType(IntEnum):
    """The types of frames."""

    HELLO = 1
    REFUSAL = 2
    HEARTBEAT = 3
    RECORD = 4
    MESSAGE = 5
    EVENT = 6
    QUERY = 7
    ANSWER = 8
    TRACE = 9


class Destination(NamedTuple):
    """A destination site; ``previous`` is the reliable event sent to it before this one."""

    site: str
    previous: EventId = NO_EVENT


class RoutedFrame(NamedTuple):
    """A frame that is forwarded hop by hop to its destinations."""

    kind: FrameType
    destinations: tuple[Destination, ...]
    hops_left: int
    priority: int
    reliable: bool
    rest: bytes


class FrameSplitter:
    """Splits a byte stream into frames (type and body)."""

    def __init__(self, max_bytes: int) -> None:
        self._buffer = bytearray()
        self._missing = 0
        self.max_bytes = max_bytes

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add ``data`` and yield each frame that is complete now."""
        if self._buffer:
            self._buffer += data
            self._missing -= len(data)
            if self._missing > 0:  # a long frame in small parts is not copied with each of them
                return
            view = bytes(self._buffer)
        else:
            view = data
        at, end = 0, len(view)
        self._missing = 0
        while end - at >= 5:
            (length,) = _LENGTH.unpack_from(view, at)
            if not 1 <= length <= self.max_bytes:
                raise MalformedFrame(f"a frame of {length} bytes; the maximum is {self.max_bytes}")
            if end - at < 4 + length:
                self._missing = 4 + length - (end - at)
                break
            yield view[at + 4], view[at + 5 : at + 4 + length]
            at += 4 + length
        self._buffer = bytearray(view[at:])


def encode_frame(kind: FrameType, body: bytes = b"") -> bytes:
    """Return a complete frame."""
    return _LENGTH.pack(len(body) + 1) + bytes((kind,)) + body


def encode_json(kind: FrameType, content: Any) -> bytes:
    """Return a frame with JSON content."""
    return encode_frame(kind, encode_content(content))


def encode_content(content: Any) -> bytes:
    """Return content as compact JSON."""
    return json.dumps(content, separators=(",", ":")).encode()


def decode_json(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a frame."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"the content is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise MalformedFrame("the content is not a JSON object")
    return content


def encode_routed(frame: RoutedFrame) -> bytes:
    """Return a routed frame as bytes."""
    targets: list[bytes] = []
    size = 5 + len(frame.rest)
    for destination in frame.destinations:
        name = destination.site.encode()
        target = bytes((len(name),)) + name
        if frame.reliable:
            target += _ID.pack(*destination.previous)
        targets.append(target)
        size += len(target)
    flags = RELIABLE if frame.reliable else 0
    head = _ROUTED.pack(
        size, frame.kind, flags, frame.priority, frame.hops_left, len(frame.destinations)
    )
    return b"".join((head, *targets, frame.rest))


def only_destination(body: bytes) -> bytes | None:
    """Return the encoded site name of a routed frame with exactly one destination.

    Return None for every other frame, also for one that is not valid.
    """
    if len(body) < 5 or body[3] != 1:
        return None
    end = 5 + body[4]
    if len(body) < end + (_ID.size if body[0] & RELIABLE else 0):
        return None
    return body[5:end]


def encode_forwarded(kind: FrameType, body: bytes) -> bytes:
    """Return a received routed frame with one hop less, for the same destinations."""
    head = _ROUTED.pack(len(body) + 1, kind, body[0] & RELIABLE, body[1], body[2] - 1, body[3])
    return head + body[4:]


def decode_routed(kind: FrameType, body: bytes) -> RoutedFrame:
    """Return the routed frame of a body."""
    try:
        flags, priority, hops_left, count = body[0], body[1], body[2], body[3]
        reliable = bool(flags & RELIABLE)
        destinations: list[Destination] = []
        at = 4
        for _ in range(count):
            end = at + 1 + body[at]
            site = body[at + 1 : end].decode()
            if len(body) < end:
                raise MalformedFrame("a routed frame is too short")
            at = end
            previous = NO_EVENT
            if reliable:
                previous = _ID.unpack_from(body, at)
                at += _ID.size
            destinations.append(Destination(site, previous))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a routed frame is not valid: {error}") from error
    return RoutedFrame(kind, tuple(destinations), hops_left, priority, reliable, body[at:])


def encode_message(source: str, destinations: Sequence[str], content: Any) -> RoutedFrame:
    """Return a routed control message."""
    name = source.encode()
    rest = bytes((len(name),)) + name + encode_content(content)
    targets = tuple(Destination(site) for site in destinations)
    return RoutedFrame(FrameType.MESSAGE, targets, MAX_HOPS, 0, False, rest)


def decode_message(rest: bytes) -> tuple[str, dict[str, Any]]:
    """Return the source and the content of a routed control message."""
    if not rest or len(rest) < 1 + rest[0]:
        raise MalformedFrame("a message has no source")
    end = 1 + rest[0]
    try:
        return rest[1:end].decode(), decode_json(rest[end:])
    except UnicodeDecodeError as error:
        raise MalformedFrame("the source of a message is not text") from error
