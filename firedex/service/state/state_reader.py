"""Reads consistent snapshots of the state for planning; parsed rows are cached."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from firedex.service.state import tables
from firedex.service.state.change_ledger import last_change
from firedex.service.state.database import Database
from firedex.service.state.offered_rates import OfferedRate
from firedex.service.state.site_state import DeclaredTopic, SiteState
from firedex.wire import (
    Network,
    PublisherRegistration,
    SubscriberRegistration,
    SwitchCapabilities,
    Topic,
    from_json,
)
from firedex.wire.incident import Budgets, Incident, UtilityProfile

__all__ = ["StateReader", "setting"]

T = TypeVar("T")
KINDS: dict[str, type[Any]] = {
    "publisher": PublisherRegistration,
    "subscriber": SubscriberRegistration,
}


def setting(connection: Connection, name: str, kind: type[T]) -> T | None:
    """Return a single value of the state; None if it was never stored."""
    body = connection.execute(
        select(tables.setting.c.body).where(tables.setting.c.name == name)
    ).scalar()
    return None if body is None else from_json(kind, body, tolerant=True)


def _owners(connection: Connection) -> dict[tuple[str, str], str]:
    column = tables.registration.c
    rows = connection.execute(
        select(column.kind, column.id, column.owner).where(column.owner.is_not(None))
    ).all()
    return {(row.kind, row.id): row.owner for row in rows}


class StateReader:
    """Reads from ``database``; not thread-safe."""

    def __init__(self, database: Database, default_budgets: Budgets | None = None) -> None:
        self._database = database
        self._default_budgets = default_budgets or Budgets()
        self._parsed: dict[tuple[str, str], tuple[int, Any]] = {}

    def read(self) -> SiteState:
        """Return the present state."""
        with self._database.reading() as connection:
            return self.read_in(connection)

    def read_in(self, connection: Connection) -> SiteState:
        """Return the state as a transaction sees it."""
        clients = self._clients(connection)
        capabilities = setting(connection, "capabilities", tuple[SwitchCapabilities, ...]) or ()
        return SiteState(
            through_change=last_change(connection),
            publishers=clients["publisher"],
            subscribers=clients["subscriber"],
            topics=self._topics(connection),
            profiles=self._profiles(connection),
            budgets=self._budgets(connection),
            incident=setting(connection, "incident", Incident),
            network=setting(connection, "network", Network),
            measured=self._measured(connection),
            hosts={
                IPv4Address(row.address): row.switch
                for row in connection.execute(select(tables.host)).all()
            },
            priorities={each.switch: each.priorities for each in capabilities},
            owners=_owners(connection),
        )

    def read_topics(self) -> SiteState:
        """Return a state with only topics, publishers and measured rates."""
        with self._database.reading() as connection:
            return SiteState(
                through_change=last_change(connection),
                publishers=self._clients(connection, ("publisher",))["publisher"],
                topics=self._topics(connection),
                measured=self._measured(connection),
                budgets=self._budgets(connection),
                owners=_owners(connection),
            )

    def budgets(self) -> Budgets:
        """Return the budgets of roles."""
        with self._database.reading() as connection:
            return self._budgets(connection)

    def profiles(self) -> dict[str, UtilityProfile]:
        """Return the profiles of phases."""
        with self._database.reading() as connection:
            return self._profiles(connection)

    def measured(self) -> dict[str, OfferedRate]:
        """Return the measured rates of topics."""
        with self._database.reading() as connection:
            return self._measured(connection)

    def _budgets(self, connection: Connection) -> Budgets:
        return setting(connection, "budgets", Budgets) or self._default_budgets

    def _profiles(self, connection: Connection) -> dict[str, UtilityProfile]:
        return {
            row.phase: self._parse(("profile", row.phase), row, UtilityProfile)
            for row in connection.execute(select(tables.profile)).all()
        }

    def _measured(self, connection: Connection) -> dict[str, OfferedRate]:
        return {
            row.topic: from_json(OfferedRate, row.body, tolerant=True)
            for row in connection.execute(select(tables.offered_rate)).all()
        }

    def _clients(
        self, connection: Connection, kinds: Sequence[str] = tuple(KINDS)
    ) -> dict[str, dict[str, Any]]:
        where = tables.registration.c
        rows = connection.execute(
            select(where.kind, where.id, where.change)
            .where(where.kind.in_(kinds))
            .order_by(where.first_change)
        ).all()
        stale = [row for row in rows if self._parsed.get((row.kind, row.id), (0,))[0] != row.change]
        # A few changed rows are fetched by name, many with one query.
        if len(stale) > 50:
            bodies = connection.execute(
                select(where.kind, where.id, where.change, where.body).where(where.kind.in_(kinds))
            )
            for found in bodies:
                self._parse((found.kind, found.id), found, KINDS[found.kind])
        else:
            for row in stale:
                body = connection.execute(
                    select(where.change, where.body).where(
                        where.kind == row.kind, where.id == row.id
                    )
                ).one()
                self._parse((row.kind, row.id), body, KINDS[row.kind])
        clients: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for row in rows:
            clients[row.kind][row.id] = self._parsed[row.kind, row.id][1]
        if len(self._parsed) > 2 * len(rows) + 1000:
            present = {(row.kind, row.id) for row in rows}
            self._parsed = {k: v for k, v in self._parsed.items() if k in present}
        return clients

    def _topics(self, connection: Connection) -> dict[str, DeclaredTopic]:
        rows = connection.execute(select(tables.topic).order_by(tables.topic.c.change)).all()
        return {
            row.name: DeclaredTopic(
                topic=self._parse(("topic", row.name), row, Topic), declared_by=row.declared_by
            )
            for row in rows
        }

    def _parse(self, key: tuple[str, str], row: Any, kind: Callable[..., T] | type[T]) -> T:
        """Parse the body of a row, or return the cached value of this revision."""
        known = self._parsed.get(key)
        if known is None or known[0] != row.change:
            known = (row.change, from_json(kind, row.body, tolerant=True))  # type: ignore[arg-type]
            self._parsed[key] = known
        value: T = known[1]
        return value
