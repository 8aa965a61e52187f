"""Suppression of echoes on a broker without the no-local option (MQTT 3.1.1). Pure.

The federator receives its own publications back. It counts what it published, by topic and payload,
and ignores as many copies. A sentinel is published from time to time: when it returns, every echo
older than it must have returned, so its count is cleared and cannot swallow a real event later.
"""

import hashlib
from collections import Counter

from firedex.federation.events import Publication

__all__ = ["EchoFilter"]

SENTINEL_SECONDS = 5.0


class EchoFilter:
    """Counts publications whose echo has not returned."""

    def __init__(self, client_id: str) -> None:
        self.topic = f"firedex/federation/echo/{client_id}".encode()
        self._counts: Counter[bytes] = Counter()
        self._older: Counter[bytes] = Counter()
        self._sentinel = 0
        self._sentinel_pending = False
        self._next_at = 0.0

    def __len__(self) -> int:
        return self._counts.total() + self._older.total()

    def published(self, topic: bytes, payload: bytes) -> None:
        """Count a publication whose echo will return."""
        self._counts[_key(topic, payload)] += 1

    def is_echo(self, topic: bytes, payload: bytes) -> bool:
        """Return whether a received event is an echo or the sentinel, and uncount it."""
        if topic == self.topic:
            if payload == str(self._sentinel).encode():
                self._older.clear()
                self._sentinel_pending = False
            return True
        key = _key(topic, payload)
        for counts in (self._older, self._counts):
            if counts[key] > 0:
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
                return True
            del counts[key]
        return False

    def sentinel_due(self, now: float) -> Publication | None:
        """Return the sentinel to publish, if one is due."""
        if self._sentinel_pending or now < self._next_at or not len(self):
            return None
        self._next_at = now + SENTINEL_SECONDS
        self._sentinel += 1
        self._sentinel_pending = True
        self._older.update(self._counts)
        self._counts.clear()
        return Publication(topic=self.topic, payload=str(self._sentinel).encode())

    def disconnected(self) -> None:
        """Forget everything: no echo of the old session returns."""
        self._counts.clear()
        self._older.clear()
        self._sentinel_pending = False


def _key(topic: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(len(topic).to_bytes(2, "big") + topic + payload, digest_size=16).digest()
