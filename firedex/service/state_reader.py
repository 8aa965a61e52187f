"""Reading the state: one moment of it, whole, for planning; rows that have not changed are kept."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from firedex.service import tables
from firedex.service.change_ledger import last_change
from firedex.service.database import Database
from firedex.service.offered_rates import OfferedRate
from firedex.service.site_state import DeclaredTopic, SiteState
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


def setting(connection: Connection, name: str, of: type[T]) -> T | None:
    """A single value of the state."""
    body = connection.execute(
        select(tables.setting.c.body).where(tables.setting.c.name == name)
    ).scalar()
    return None if body is None else from_json(of, body, tolerant=True)


class StateReader:
    """Reads from ``database``. Not for several threads at once."""

    def __init__(self, database: Database, default_budgets: Budgets | None = None) -> None:
        self._database = database
        self._default_budgets = default_budgets or Budgets()
        self._parsed: dict[tuple[str, str], tuple[int, Any]] = {}

    def read(self) -> SiteState:
        """The state as it is now."""
        with self._database.reading() as connection:
            return self.read_in(connection)

    def read_in(self, connection: Connection) -> SiteState:
        """The state as a transaction sees it."""
        parties = self._parties(connection)
        capabilities = setting(connection, "capabilities", tuple[SwitchCapabilities, ...]) or ()
        return SiteState(
            through_change=last_change(connection),
            publishers=parties["publisher"],
            subscribers=parties["subscriber"],
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
        )

    def read_topics(self) -> SiteState:
        """Topics, who publishes them and what was measured, and nothing else of the state."""
        with self._database.reading() as connection:
            return SiteState(
                through_change=last_change(connection),
                publishers=self._parties(connection, ("publisher",))["publisher"],
                topics=self._topics(connection),
                measured=self._measured(connection),
            )

    def budgets(self) -> Budgets:
        """What roles may claim, and nothing else of the state."""
        with self._database.reading() as connection:
            return self._budgets(connection)

    def profiles(self) -> dict[str, UtilityProfile]:
        """What phases make of utilities, likewise."""
        with self._database.reading() as connection:
            return self._profiles(connection)

    def measured(self) -> dict[str, OfferedRate]:
        """What is known of topics' rates, likewise."""
        with self._database.reading() as connection:
            return self._measured(connection)

    def _budgets(self, connection: Connection) -> Budgets:
        return setting(connection, "budgets", Budgets) or self._default_budgets

    def _profiles(self, connection: Connection) -> dict[str, UtilityProfile]:
        return {
            row.phase: self._once(("profile", row.phase), row, UtilityProfile)
            for row in connection.execute(select(tables.profile)).all()
        }

    def _measured(self, connection: Connection) -> dict[str, OfferedRate]:
        return {
            row.topic: from_json(OfferedRate, row.body, tolerant=True)
            for row in connection.execute(select(tables.measured)).all()
        }

    def _parties(
        self, connection: Connection, kinds: Sequence[str] = tuple(KINDS)
    ) -> dict[str, dict[str, Any]]:
        where = tables.registration.c
        rows = connection.execute(
            select(where.kind, where.id, where.change)
            .where(where.kind.in_(kinds))
            .order_by(where.first_change)
        ).all()
        stale = [row for row in rows if self._parsed.get((row.kind, row.id), (0,))[0] != row.change]
        # Few that changed are fetched by name, many as a whole.
        if len(stale) > 50:
            bodies = connection.execute(
                select(where.kind, where.id, where.change, where.body).where(where.kind.in_(kinds))
            )
            for found in bodies:
                self._once((found.kind, found.id), found, KINDS[found.kind])
        else:
            for row in stale:
                body = connection.execute(
                    select(where.change, where.body).where(
                        where.kind == row.kind, where.id == row.id
                    )
                ).one()
                self._once((row.kind, row.id), body, KINDS[row.kind])
        parties: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for row in rows:
            parties[row.kind][row.id] = self._parsed[row.kind, row.id][1]
        if len(self._parsed) > 2 * len(rows) + 1000:
            present = {(row.kind, row.id) for row in rows}
            self._parsed = {k: v for k, v in self._parsed.items() if k in present}
        return parties

    def _topics(self, connection: Connection) -> dict[str, DeclaredTopic]:
        rows = connection.execute(select(tables.topic).order_by(tables.topic.c.change)).all()
        return {
            row.name: DeclaredTopic(
                topic=self._once(("topic", row.name), row, Topic), declared_by=row.declared_by
            )
            for row in rows
        }

    def _once(self, key: tuple[str, str], row: Any, of: Callable[..., T] | type[T]) -> T:
        known = self._parsed.get(key)
        if known is None or known[0] != row.change:
            known = (row.change, from_json(of, row.body, tolerant=True))  # type: ignore[arg-type]
            self._parsed[key] = known
        value: T = known[1]
        return value
