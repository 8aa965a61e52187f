"""Retained values of all sites: the last writer wins, by stamp, then by site. Pure.

A retained message with an empty payload deletes the value. It is kept as a tombstone for a limited
time, so that an older value of a site that was cut off does not return.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from firedex.federation.events import Event

__all__ = ["RetainedValues"]

TOMBSTONE_SECONDS = 7 * 24 * 3600.0
MAX_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class _Value:
    event: Event
    changed_at: float


class RetainedValues:
    """The retained value or tombstone of each topic that this site has written or received."""

    def __init__(self) -> None:
        self._values: dict[bytes, _Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, topic: bytes) -> Event | None:
        """Return the last write to a topic; an empty payload is a tombstone."""
        found = self._values.get(topic)
        return found.event if found else None

    def age(self, topic: bytes, now: float) -> float:
        """Return the seconds since the value of a topic was stored here."""
        return now - self._values[topic].changed_at

    def is_newer(self, event: Event) -> bool:
        """Return whether a write is newer than the known one."""
        known = self.get(event.topic)
        return known is None or (event.stamp, event.origin) > (known.stamp, known.origin)

    def put(self, event: Event, now: float) -> bool:
        """Store a write; return False if the limit of values is reached."""
        if event.topic not in self._values and len(self._values) >= MAX_VALUES:
            return False
        self._values[event.topic] = _Value(event, now)
        return True

    def remove_old_tombstones(self, now: float) -> list[bytes]:
        """Remove the tombstones whose lifetime is over; return their topics."""
        old = [
            topic
            for topic, value in self._values.items()
            if not value.event.payload and now - value.changed_at > TOMBSTONE_SECONDS
        ]
        for topic in old:
            del self._values[topic]
        return old

    def events(self) -> Iterator[Event]:
        """Yield all values and tombstones."""
        for value in list(self._values.values()):
            yield value.event
