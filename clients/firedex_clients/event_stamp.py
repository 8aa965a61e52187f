"""The event stamp: who published, the how-manieth, and when. Sizes are in ``wire.packet_sizes``.

Over MQTT 5 it is the user property ``fdx``: origin (8 bytes), sequence (6), nanoseconds since the
epoch (8), in unpadded base64.
"""

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PROPERTY", "EventStamp", "new_origin"]

PROPERTY = "fdx"
ORIGIN_BYTES, SEQUENCE_BYTES, TIME_BYTES = 8, 6, 8
STAMP_BYTES = ORIGIN_BYTES + SEQUENCE_BYTES + TIME_BYTES


def new_origin() -> bytes:
    """A name that no other run of a publisher has."""
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

    def to_property(self) -> tuple[str, str]:
        """As an MQTT 5 user property."""
        packed = (
            self.origin
            + self.sequence.to_bytes(SEQUENCE_BYTES, "big")
            + self.published_at_nanoseconds.to_bytes(TIME_BYTES, "big")
        )
        return PROPERTY, b64encode(packed).decode().rstrip("=")

    @classmethod
    def from_properties(cls, properties: Iterable[tuple[str, str]]) -> "EventStamp | None":
        """The stamp among user properties; None if there is none that can be read."""
        for key, text in properties:
            if key == PROPERTY:
                try:
                    packed = b64decode(text + "==", validate=True)
                except ValueError:
                    continue
                if len(packed) != STAMP_BYTES:
                    continue
                middle = ORIGIN_BYTES + SEQUENCE_BYTES
                return cls(
                    origin=packed[:ORIGIN_BYTES],
                    sequence=int.from_bytes(packed[ORIGIN_BYTES:middle], "big"),
                    published_at_nanoseconds=int.from_bytes(packed[middle:], "big"),
                )
        return None
