"""The topic filters that the clients of the gateway are subscribed to, counted over their sessions.

A session belongs to a client id and may outlive its connection, as in MQTT: it ends with the
connection, when it expires, or when the client starts a clean one. The broker decides; this table
follows what the broker acknowledges. Where the two may differ for a moment, the table has
too many filters rather than too few, because a missing filter loses events of other sites.

Pure: packets are read by `interest_packets`, and the clock is injected.
"""

import heapq
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from firedex.transport.mqtt.session_packets import NEVER_EXPIRES
from firedex.wire import FilterInterest, InterestReport
from firedex.wire.mqtt_names import check_filter

__all__ = [
    "InterestLimits",
    "InterestSnapshot",
    "InterestTable",
    "SessionConnection",
    "SessionLog",
    "StoredSession",
    "reported_filter",
]

log = logging.getLogger("firedex.gateway")

FILTER_BYTES = 200
"""Memory of one subscription beside the text of its filter, roughly."""
OUTDATED_EXPIRIES = 1000
"""Expiry times of sessions that were resumed; so many are kept before they are removed."""
Subscribed = tuple[str, int]
"""A filter as it is reported, and the granted QoS."""


def reported_filter(name: str) -> str | None:
    """Return the filter that a subscription is reported as, or None if it is not reported.

    A shared subscription counts as its filter. Topics that begin with ``$`` stay within the site.
    """
    if name.startswith("$share/"):
        name = name.split("/", 2)[-1] if name.count("/") > 1 else ""
    if name.startswith("$"):
        return None
    try:
        return check_filter(name)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterestLimits:
    """Bounds of the memory that clients can make the table use.

    A session that exceeds a limit counts as unknown: it may have subscribed to anything.
    """

    session_bytes: int = 1024 * 1024
    total_bytes: int = 256 * 1024 * 1024
    sessions: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A persistent session as it is stored; ``expires_in_seconds`` is None while it is connected.

    ``unknown``: the broker has filters of this session that the table does not know; until the
    client subscribes again. ``over_limit``: as unknown, until the session ends. ``filters`` are
    complete, with ``$share/…``, and with the granted QoS.
    """

    client_id: str
    expiry_seconds: int
    expires_in_seconds: float | None
    unknown: bool
    over_limit: bool
    filters: tuple[tuple[str, int], ...]


class SessionLog(Protocol):
    """A durable record of the persistent sessions."""

    def save_session(self, session: StoredSession) -> None:
        """Record a session without its filters."""

    def remove_session(self, client_id: str) -> None:
        """Remove a session and its filters."""

    def save_filter(self, client_id: str, name: str, qos: int) -> None:
        """Record a filter of a session."""

    def remove_filter(self, client_id: str, name: str) -> None:
        """Remove a filter of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterestSnapshot:
    """The content of the table at one moment."""

    instance: str
    version: int
    unknown_sessions: int
    clients: tuple[tuple[Subscribed, int], ...]

    def report(self) -> InterestReport:
        """Return the report for other processes, sorted by filter and QoS."""
        return InterestReport(
            instance=self.instance,
            version=self.version,
            unknown_sessions=self.unknown_sessions,
            filters=tuple(
                FilterInterest(filter=name, qos=qos, clients=clients)
                for (name, qos), clients in sorted(self.clients)
            ),
        )


@dataclass(slots=True, eq=False)
class _Session:
    client_id: str | None
    """None for a client without an id, whose session ends with its connection."""
    expiry_seconds: int
    connection: "SessionConnection | None" = None
    expires_at: float | None = None
    alive: bool = True
    stored: bool = False
    unknown: bool = False
    over_limit: bool = False
    filters: dict[str, int] = field(default_factory=dict)
    references: dict[Subscribed, int] = field(default_factory=dict)
    filter_bytes: int = 0

    @property
    def persistent(self) -> bool:
        return self.client_id is not None and self.expiry_seconds > 0

    @property
    def counts_as_unknown(self) -> bool:
        return self.unknown or self.over_limit


class SessionConnection:
    """The connection of a client, as far as its session is concerned."""

    __slots__ = ("session",)

    def __init__(self, session: _Session) -> None:
        self.session = session


class InterestTable:
    """The sessions of all clients, and the number of clients of each filter and QoS.

    ``on_change`` is called after each change of the report.
    """

    def __init__(
        self,
        *,
        instance: str,
        clock: Callable[[], float],
        limits: InterestLimits | None = None,
        sessions: SessionLog | None = None,
    ) -> None:
        self.instance, self.version, self.unknown_sessions = instance, 1, 0
        self.on_change: Callable[[], None] | None = None
        self._clock, self._limits, self._log = clock, limits or InterestLimits(), sessions
        self._by_client_id: dict[str, _Session] = {}
        self._disconnected: dict[_Session, None] = {}
        self._clients: dict[Subscribed, int] = {}
        self._expiries: list[tuple[float, int, _Session]] = []
        self._order = itertools.count()
        self._bytes = 0
        self._changed = False

    # -- what is reported --------------------------------------------------------------------------

    def snapshot(self) -> InterestSnapshot:
        """Return the present content."""
        self.expire()
        return InterestSnapshot(
            instance=self.instance,
            version=self.version,
            unknown_sessions=self.unknown_sessions,
            clients=tuple(self._clients.items()),
        )

    def stored_sessions(self) -> Iterator[StoredSession]:
        """Return all persistent sessions with their filters."""
        for session in self._by_client_id.values():
            if session.persistent:
                yield self._stored(session, tuple(session.filters.items()))

    # -- what the broker acknowledged --------------------------------------------------------------

    def connect(
        self, client_id: str | None, *, session_present: bool | None, expiry_seconds: int
    ) -> SessionConnection:
        """Record that the broker accepted a client; the connection takes over its session.

        ``session_present`` is None if the broker did not say whether it has the old session. Then
        the filters of an old session are kept.
        """
        old = None if client_id is None else self._by_client_id.get(client_id)
        if old is not None and session_present is False:
            self._end(old)
            old = None
        session = old
        if session is None:
            session = _Session(client_id, expiry_seconds)
            self._mark(session, unknown=bool(session_present))
            if client_id is not None:
                self._by_client_id[client_id] = session
                self._forget_oldest()
        connection = session.connection = SessionConnection(session)
        session.expiry_seconds, session.expires_at = expiry_seconds, None
        self._disconnected.pop(session, None)
        self._save(session)
        self._publish()
        return connection

    def grant(self, connection: SessionConnection, filters: Iterable[tuple[str, int]]) -> None:
        """Add filters with their QoS, or change the QoS of filters that are there."""
        session = connection.session
        if not session.alive:
            return
        if session.connection is connection:
            for name, qos in filters:
                self._set_filter(session, name, qos)
            if session.unknown:
                self._mark(session, unknown=False, over_limit=session.over_limit)
                self._save(session)
        else:  # taken over since: what the new connection did must not be undone
            self._add_at_least(session, filters)
        self._publish()

    def revoke(self, connection: SessionConnection, filters: Iterable[str]) -> None:
        """Remove filters."""
        session = connection.session
        if session.alive and session.connection is connection:
            for name in filters:
                self._drop_filter(session, name)
        self._publish()

    def lose_track(self, connection: SessionConnection) -> None:
        """Record that a subscription could not be read, so that the session counts as unknown."""
        if connection.session.alive:
            self._exceed_limit(connection.session)
        self._publish()

    def disconnect(
        self,
        connection: SessionConnection,
        *,
        expiry_seconds: int | None = None,
        unacknowledged: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Record the end of a connection; ``expiry_seconds`` is that of DISCONNECT.

        The broker may have processed the last SUBSCRIBE packets although their acknowledgements
        never came. A session that remains keeps the ``unacknowledged`` filters.
        """
        session = connection.session
        if not session.alive:
            return
        is_owner = session.connection is connection  # and no other connection has taken over
        if is_owner:
            session.connection = None
            # A session that was to end with its connection cannot be prolonged (§3.14.2.2.2).
            if expiry_seconds is not None and session.expiry_seconds:
                session.expiry_seconds = expiry_seconds
        if is_owner and not session.persistent:
            self._end(session)
        else:
            self._add_at_least(session, unacknowledged)
            if is_owner:
                self._keep(session, session.expiry_seconds)
                self._save(session)
        self._publish()

    def expire(self) -> None:
        """End the sessions whose time is over."""
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            at, _, session = heapq.heappop(self._expiries)
            if session.alive and session.expires_at == at:
                self._end(session)
        self._publish()

    def restore(self, stored: StoredSession) -> None:
        """Add a session of an earlier run; its client is not connected any more."""
        session = _Session(stored.client_id, stored.expiry_seconds)
        self._by_client_id[stored.client_id] = session
        self._mark(session, unknown=stored.unknown, over_limit=stored.over_limit)
        for name, qos in stored.filters:
            self._set_filter(session, name, qos)
        session.stored = True
        expires_in = stored.expires_in_seconds
        # The wall clock may have been set meanwhile.
        longest = float(stored.expiry_seconds)
        self._keep(session, longest if expires_in is None else min(expires_in, longest))
        if expires_in is None:
            self._save(session)
        self._forget_oldest()
        self._publish()

    # -- sessions ----------------------------------------------------------------------------------

    def _keep(self, session: _Session, seconds: float) -> None:
        self._disconnected[session] = None
        if session.expiry_seconds != NEVER_EXPIRES:
            session.expires_at = self._clock() + seconds
            heapq.heappush(self._expiries, (session.expires_at, next(self._order), session))
            if len(self._expiries) > 2 * len(self._disconnected) + OUTDATED_EXPIRIES:
                self._expiries = [
                    (each.expires_at, next(self._order), each)
                    for each in self._disconnected
                    if each.expires_at is not None
                ]
                heapq.heapify(self._expiries)

    def _end(self, session: _Session) -> None:
        session.alive, session.expires_at = False, None
        self._mark(session, unknown=False)
        for subscribed in session.references:
            self._count(subscribed, -1)
        self._bytes -= session.filter_bytes
        self._disconnected.pop(session, None)
        if session.client_id is not None:
            del self._by_client_id[session.client_id]
            if self._log is not None and session.stored:
                self._log.remove_session(session.client_id)

    def _forget_oldest(self) -> None:
        while len(self._by_client_id) > self._limits.sessions and self._disconnected:
            oldest = next(iter(self._disconnected))
            log.warning(
                "the filters of client %r are forgotten: the maximum of %d sessions is reached",
                oldest.client_id,
                self._limits.sessions,
            )
            self._end(oldest)

    def _save(self, session: _Session) -> None:
        if self._log is None or session.client_id is None:
            return
        if session.persistent:
            self._log.save_session(self._stored(session, ()))
            if not session.stored:
                for name, qos in session.filters.items():
                    self._log.save_filter(session.client_id, name, qos)
        elif session.stored:
            self._log.remove_session(session.client_id)
        session.stored = session.persistent

    def _stored(self, session: _Session, filters: tuple[tuple[str, int], ...]) -> StoredSession:
        expires_in = None
        if session.connection is None:
            expires_in = float(NEVER_EXPIRES)
            if session.expires_at is not None:
                expires_in = max(0.0, session.expires_at - self._clock())
        return StoredSession(
            client_id=session.client_id or "",
            expiry_seconds=session.expiry_seconds,
            expires_in_seconds=expires_in,
            unknown=session.unknown,
            over_limit=session.over_limit,
            filters=filters,
        )

    # -- filters and counts ------------------------------------------------------------------------

    def _set_filter(self, session: _Session, name: str, qos: int) -> None:
        reported = reported_filter(name)
        if reported is None:
            return
        before = session.filters.get(name)
        if before == qos:
            return
        if before is None:
            size = len(name) + FILTER_BYTES
            if (
                session.filter_bytes + size > self._limits.session_bytes
                or self._bytes + size > self._limits.total_bytes
            ):
                self._exceed_limit(session)
                return
            session.filter_bytes += size
            self._bytes += size
        else:
            self._refer(session, (reported, before), -1)
        session.filters[name] = qos
        self._refer(session, (reported, qos), 1)
        if self._log is not None and session.stored and session.client_id:
            self._log.save_filter(session.client_id, name, qos)

    def _add_at_least(self, session: _Session, filters: Iterable[tuple[str, int]]) -> None:
        """Add filters that the broker may have granted; a known filter keeps the higher QoS."""
        for name, qos in filters:
            self._set_filter(session, name, max(qos, session.filters.get(name, 0)))

    def _drop_filter(self, session: _Session, name: str) -> None:
        qos, reported = session.filters.pop(name, None), reported_filter(name)
        if qos is None or reported is None:
            return
        session.filter_bytes -= len(name) + FILTER_BYTES
        self._bytes -= len(name) + FILTER_BYTES
        self._refer(session, (reported, qos), -1)
        if self._log is not None and session.stored and session.client_id:
            self._log.remove_filter(session.client_id, name)

    def _refer(self, session: _Session, subscribed: Subscribed, difference: int) -> None:
        """Count a subscription of a session; the client counts once for each filter and QoS."""
        references = session.references.get(subscribed, 0) + difference
        if references:
            session.references[subscribed] = references
        else:
            del session.references[subscribed]
        if (references, difference) in ((0, -1), (1, 1)):
            self._count(subscribed, difference)

    def _count(self, subscribed: Subscribed, difference: int) -> None:
        clients = self._clients.get(subscribed, 0) + difference
        if clients:
            self._clients[subscribed] = clients
        else:
            del self._clients[subscribed]
        self._changed = True

    def _exceed_limit(self, session: _Session) -> None:
        if session.over_limit:
            return
        self._mark(session, unknown=session.unknown, over_limit=True)
        log.warning(
            "client %r has more or larger subscriptions than the gateway records;"
            " its filters count as unknown",
            session.client_id,
        )
        if session.stored:
            self._save(session)

    def _mark(self, session: _Session, *, unknown: bool, over_limit: bool = False) -> None:
        before = session.counts_as_unknown
        session.unknown, session.over_limit = unknown, over_limit
        if session.counts_as_unknown != before:
            self.unknown_sessions += 1 if session.counts_as_unknown else -1
            self._changed = True

    def _publish(self) -> None:
        if self._changed:
            self._changed = False
            self.version += 1
            if self.on_change is not None:
                self.on_change()
