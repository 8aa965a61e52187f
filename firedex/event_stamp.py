"""The event stamp: which stream of events, the how-manieth, and when. Sizes: ``wire.packet_sizes``.

A stream is what one run of a publisher publishes to one topic; its name (8 random bytes) and the
sequence number (6 bytes, from 1) make the event's id, and the numbers that are missing tell what
was lost. Then 8 bytes of nanoseconds since the epoch, by the publisher's clock.

Over MQTT 5 it is the user property ``fdx``, in unpadded base64. MQTT 3.1.1 and MQTT-SN have no
properties: there it goes before the payload, after a mark of two bytes. A payload of others that
happens to begin with the mark *and* a time of these decades would be taken for stamped: one in
nearly two million of random ones.
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
"""MQTT-SN clients whose id begins so are given stamps before payloads; others never are."""
MARK = b"\xfd\xe8"
ORIGIN_BYTES, SEQUENCE_BYTES, TIME_BYTES = 8, 6, 8
STAMP_BYTES = ORIGIN_BYTES + SEQUENCE_BYTES + TIME_BYTES
HEADER_BYTES = len(MARK) + STAMP_BYTES
_PACKED = struct.Struct(">8sHLQ")
_PROPERTY_LETTERS = 30
_MIDDLE = ORIGIN_BYTES + SEQUENCE_BYTES
PLAUSIBLE_NANOSECONDS = 10 * 365 * 86_400 * 10**9
"""A stamp in a payload is believed within ten years of now."""


def new_origin() -> bytes:
    """A name that no other stream has."""
    return secrets.token_bytes(ORIGIN_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStamp:
    """One event's stamp."""

    origin: bytes
    sequence: int
    published_at_nanoseconds: int

    @property
    def event_id(self) -> str:
        """Origin and sequence: no other event has it."""
        return f"{self.origin.hex()}-{self.sequence}"

    def to_bytes(self) -> bytes:
        """The 22 bytes that both forms carry."""
        return (
            self.origin
            + self.sequence.to_bytes(SEQUENCE_BYTES, "big")
            + self.published_at_nanoseconds.to_bytes(TIME_BYTES, "big")
        )

    @classmethod
    def from_bytes(cls, packed: bytes) -> "EventStamp":
        """Of exactly 22 bytes."""
        return cls(
            origin=packed[:ORIGIN_BYTES],
            sequence=int.from_bytes(packed[ORIGIN_BYTES:_MIDDLE], "big"),
            published_at_nanoseconds=int.from_bytes(packed[_MIDDLE:], "big"),
        )

    def to_property(self) -> tuple[str, str]:
        """As an MQTT 5 user property."""
        return PROPERTY, b64encode(self.to_bytes()).decode().rstrip("=")

    def to_header(self) -> bytes:
        """As what goes before a payload."""
        return MARK + self.to_bytes()

    @classmethod
    def from_properties(cls, properties: Iterable[tuple[str, str]]) -> "EventStamp | None":
        """The stamp among user properties; None if there is none that can be read."""
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
    """Origin, sequence and time among user properties: `EventStamp` without the value."""
    for key, text in properties:
        if key == PROPERTY and len(text) == _PROPERTY_LETTERS:
            try:
                origin, high, low, nanoseconds = _PACKED.unpack(a2b_base64(text + "=="))
            except (ValueError, struct.error):
                continue
            return origin, high << 32 | low, nanoseconds
    return None


def split_header(payload: bytes) -> tuple[EventStamp | None, bytes]:
    """The stamp before a payload, and the payload itself; all of it where there is no stamp."""
    if len(payload) < HEADER_BYTES or not payload.startswith(MARK):
        return None, payload
    stamp = EventStamp.from_bytes(payload[len(MARK) : HEADER_BYTES])
    if abs(stamp.published_at_nanoseconds - time.time_ns()) > PLAUSIBLE_NANOSECONDS:
        return None, payload
    return stamp, payload[HEADER_BYTES:]
