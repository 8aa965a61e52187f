"""The event stamp: stream id, sequence number and publication time of an event.

A stream consists of the events that one run of a publisher publishes to one topic. Its id (8 random
bytes) and the sequence number (6 bytes, starting at 1) identify an event; missing sequence numbers
show how many events were lost. The last 8 bytes are nanoseconds since the epoch, by the publisher's
clock. `firedex.wire.packet_sizes` accounts for the size.

Over MQTT 5 the stamp is the user property ``fdx``, in base64 without padding. MQTT 3.1.1 and
MQTT-SN have no properties: there the stamp precedes the payload, after a marker of two bytes.
A payload without a stamp is mistaken for a stamped one only if it starts with the marker and has a
time within ten years of now at the right place: about one in two million random payloads.
"""

import secrets
import struct
import time
from base64 import b64decode, b64encode
from binascii import a2b_base64
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "HEADER_BYTES",
    "PROPERTY",
    "STAMPED_CLIENT_PREFIX",
    "EventStamp",
    "new_origin",
    "read_stamp",
    "split_header",
]

PROPERTY = "fdx"
STAMPED_CLIENT_PREFIX = "fdx/"
"""The gateway puts stamps before payloads only for MQTT-SN clients whose id has this prefix."""
MARKER = b"\xfd\xe8"
ORIGIN_BYTES, SEQUENCE_BYTES, TIME_BYTES = 8, 6, 8
STAMP_BYTES = ORIGIN_BYTES + SEQUENCE_BYTES + TIME_BYTES
HEADER_BYTES = len(MARKER) + STAMP_BYTES
_STAMP_STRUCT = struct.Struct(">8sHLQ")
_PROPERTY_CHARACTERS = 30
_TIME_OFFSET = ORIGIN_BYTES + SEQUENCE_BYTES
PLAUSIBLE_NANOSECONDS = 10 * 365 * 86_400 * 10**9
"""A stamp before a payload must have a time within ten years of now."""


def new_origin() -> bytes:
    """Return a random stream id."""
    return secrets.token_bytes(ORIGIN_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStamp:
    """The stamp of one event; ``origin`` is the stream id."""

    origin: bytes
    sequence: int
    published_at_nanoseconds: int

    @property
    def event_id(self) -> str:
        """Stream id and sequence number: unique for each event."""
        return f"{self.origin.hex()}-{self.sequence}"

    def to_bytes(self) -> bytes:
        """Return the 22 bytes that both forms carry."""
        return (
            self.origin
            + self.sequence.to_bytes(SEQUENCE_BYTES, "big")
            + self.published_at_nanoseconds.to_bytes(TIME_BYTES, "big")
        )

    @classmethod
    def from_bytes(cls, packed: bytes) -> "EventStamp":
        """Return the stamp in exactly 22 bytes."""
        return cls(
            origin=packed[:ORIGIN_BYTES],
            sequence=int.from_bytes(packed[ORIGIN_BYTES:_TIME_OFFSET], "big"),
            published_at_nanoseconds=int.from_bytes(packed[_TIME_OFFSET:], "big"),
        )

    def to_property(self) -> tuple[str, str]:
        """Return the stamp as an MQTT 5 user property."""
        return PROPERTY, b64encode(self.to_bytes()).decode().rstrip("=")

    def to_header(self) -> bytes:
        """Return the stamp as the header of a payload."""
        return MARKER + self.to_bytes()

    @classmethod
    def from_properties(cls, properties: Iterable[tuple[str, str]]) -> "EventStamp | None":
        """Return the stamp among user properties, or None if there is no valid one."""
        for key, text in properties:
            if key == PROPERTY:
                try:
                    packed = b64decode(text + "==", validate=True)
                except ValueError:
                    continue
                if len(packed) == STAMP_BYTES:
                    return cls.from_bytes(packed)
        return None


def read_stamp(properties: Iterable[tuple[str, str]]) -> tuple[bytes, int, int] | None:
    """Return origin, sequence and time of the stamp among user properties, or None.

    Faster than `EventStamp.from_properties`, for receivers of many events.
    """
    for key, text in properties:
        if key == PROPERTY and len(text) == _PROPERTY_CHARACTERS:
            try:
                origin, high, low, nanoseconds = _STAMP_STRUCT.unpack(a2b_base64(text + "=="))
            except (ValueError, struct.error):
                continue
            return origin, high << 32 | low, nanoseconds
    return None


def split_header(payload: bytes) -> tuple[EventStamp | None, bytes]:
    """Return the stamp before a payload, if any, and the payload without it."""
    if len(payload) < HEADER_BYTES or not payload.startswith(MARKER):
        return None, payload
    stamp = EventStamp.from_bytes(payload[len(MARKER) : HEADER_BYTES])
    if abs(stamp.published_at_nanoseconds - time.time_ns()) > PLAUSIBLE_NANOSECONDS:
        return None, payload
    return stamp, payload[HEADER_BYTES:]
