"""Where registrations live: SQLite, durable before they are answered."""

import sqlite3
import threading
from pathlib import Path

from firedex.wire import (
    Configuration,
    PublisherRegistration,
    SubscriberRegistration,
    from_json,
    to_json,
)

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
            "CREATE TABLE IF NOT EXISTS configuration (version INTEGER PRIMARY KEY, body TEXT)"
        )
        self._database.commit()

    def next_version(self) -> int:
        """A number that no configuration had before, also not before a restart."""
        with self._lock, self._database:
            (last,) = self._database.execute("SELECT max(version) FROM configuration").fetchone()
            version = int(last or 0) + 1
            self._database.execute("INSERT INTO configuration VALUES (?, NULL)", (version,))
        return version

    def keep_configuration(self, configuration: Configuration) -> None:
        """Keep a configuration that has come into force."""
        with self._lock, self._database:
            self._database.execute(
                "UPDATE configuration SET body = ? WHERE version = ?",
                (to_json(configuration), configuration.version),
            )

    def last_configuration(self) -> Configuration | None:
        """The configuration that was last in force, also before a restart."""
        with self._lock:
            row = self._database.execute(
                "SELECT body FROM configuration WHERE body IS NOT NULL "
                "ORDER BY version DESC LIMIT 1"
            ).fetchone()
        return from_json(Configuration, row[0], tolerant=True) if row else None

    def put(self, identifier: str, registration: Kept) -> None:
        """Keep a registration; it is on disk when this returns."""
        with self._lock, self._database:
            self._database.execute(
                "INSERT INTO registration VALUES (?, ?, ?) "
                "ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body",
                (KINDS[type(registration)], identifier, to_json(registration)),
            )

    def publishers(self) -> list[PublisherRegistration]:
        """All publishers, in the order in which they first came."""
        return [from_json(PublisherRegistration, body) for body in self._bodies("publisher")]

    def subscribers(self) -> list[SubscriberRegistration]:
        """All subscribers, in the order in which they first came."""
        return [from_json(SubscriberRegistration, body) for body in self._bodies("subscriber")]

    def _bodies(self, kind: str) -> list[str]:
        with self._lock:
            rows = self._database.execute(
                "SELECT body FROM registration WHERE kind = ? ORDER BY rowid", (kind,)
            )
            return [body for (body,) in rows]
