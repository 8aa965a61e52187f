"""Where registrations live: SQLite, durable before they are answered."""

import sqlite3
import threading
from pathlib import Path

from firedex.wire import PublisherRegistration, SubscriberRegistration, from_json, to_json

__all__ = ["Registry"]

Kept = PublisherRegistration | SubscriberRegistration
KINDS: dict[type[Kept], str] = {
    PublisherRegistration: "publisher",
    SubscriberRegistration: "subscriber",
}


class Registry:
    """All registrations, by kind and id."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS registration "
            "(kind TEXT, id TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, id))"
        )
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS configuration (version INTEGER NOT NULL)"
        )
        self._database.commit()

    def next_version(self) -> int:
        """A number that no configuration had before, also not before a restart."""
        with self._lock, self._database:
            (last,) = self._database.execute("SELECT max(version) FROM configuration").fetchone()
            version = int(last or 0) + 1
            self._database.execute("DELETE FROM configuration")
            self._database.execute("INSERT INTO configuration VALUES (?)", (version,))
        return version

    def put(self, identifier: str, registration: Kept) -> None:
        """Keep a registration; it is on disk when this returns."""
        with self._lock, self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO registration VALUES (?, ?, ?)",
                (KINDS[type(registration)], identifier, to_json(registration)),
            )

    def publishers(self) -> list[PublisherRegistration]:
        """All publishers, by id."""
        return [from_json(PublisherRegistration, body) for body in self._bodies("publisher")]

    def subscribers(self) -> list[SubscriberRegistration]:
        """All subscribers, by id."""
        return [from_json(SubscriberRegistration, body) for body in self._bodies("subscriber")]

    def _bodies(self, kind: str) -> list[str]:
        with self._lock:
            rows = self._database.execute(
                "SELECT body FROM registration WHERE kind = ? ORDER BY id", (kind,)
            )
            return [body for (body,) in rows]
