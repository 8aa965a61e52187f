"""Publishers and subscribers in the state: put, change in part, remove, each under conditions."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, func, insert, select, update

from firedex.service import tables
from firedex.service.change_ledger import Done, Entry
from firedex.service.errors import Changed, Conflict, PortsExhausted, Unknown
from firedex.service.planning_scenario import UNREGISTERED
from firedex.service.site_plan import FIRST_PORT, LAST_PORT
from firedex.wire import (
    Network,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    Subscription,
    from_json,
    to_json,
)
from firedex.wire.network_paths import path_problem
from firedex.wire.packet_sizes import LARGEST_UDP_PAYLOAD_BYTES, STAMP_BYTES

__all__ = ["Condition", "Limits", "Registrations"]

Check = Callable[[SubscriberRegistration], None]
Kept = PublisherRegistration | SubscriberRegistration
PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
AT_ONCE = 5_000
"""Names in one question; databases take no more than some ten thousand."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Optimistic concurrency: the revision that the caller has seen; ``new`` for none at all,
    ``there`` for whichever.
    """

    revision: int | None = None
    new: bool = False
    there: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much anybody may register."""

    parties: int = 10_000
    subscriptions_each: int = 2_000
    publications_each: int = 5_000
    events_per_second_each: float = 1e6
    topics_each: int = 5_000
    topics: int = 50_000


class Registrations:
    """The rules of registering; every method runs within a change's transaction."""

    def __init__(self, site: Scenario, limits: Limits) -> None:
        self._site, self._limits = site, limits

    def put_subscriber(
        self,
        connection: Connection,
        number: int,
        registration: SubscriberRegistration,
        condition: Condition,
    ) -> Entry | Done:
        """Keep a subscriber with all it wants; replaces what it had."""
        subscriber = registration.subscriber
        same = self._same(connection, SUBSCRIBER, subscriber.id, registration, condition)
        if same is not None:
            return same
        self._check_subscriber(connection, registration)
        self._check_ports(connection, registration)
        self._put(connection, number, SUBSCRIBER, subscriber.id, registration, condition)
        return Entry(
            action="register",
            subject=f"subscriber {subscriber.id}",
            detail={"subscriptions": len(subscriber.subscriptions), "role": subscriber.role},
        )

    def put_publisher(
        self,
        connection: Connection,
        number: int,
        registration: PublisherRegistration,
        condition: Condition,
    ) -> Entry | Done:
        """Keep a publisher and the topics that it is the first to declare."""
        publisher = registration.publisher
        same = self._same(connection, PUBLISHER, publisher.id, registration, condition)
        if same is not None and not _inherited(connection, registration):
            return same
        self._check_publisher(connection, registration)
        self._put(connection, number, PUBLISHER, publisher.id, registration, condition)
        self._declare(connection, number, registration)
        return Entry(
            action="register",
            subject=f"publisher {publisher.id}",
            detail={"publications": len(publisher.publications)},
        )

    def remove(
        self, connection: Connection, kind: str, identifier: str, condition: Condition
    ) -> Entry:
        """Forget a party."""
        self._meets(self._row(connection, kind, identifier), kind, identifier, condition)
        where = tables.registration.c
        found = connection.execute(
            delete(tables.registration).where(where.kind == kind, where.id == identifier)
        )
        if found.rowcount == 0:
            raise Unknown(f"there is no {kind} {identifier!r}")
        for publisher in self._site.publishers:
            if kind == PUBLISHER and publisher.id == identifier:
                self._check_place(connection, publisher.switch)  # the site's own is back
        return Entry(action="remove", subject=f"{kind} {identifier}")

    def put_subscriptions(
        self,
        connection: Connection,
        number: int,
        identifier: str,
        wanted: Iterable[Subscription],
        condition: Condition,
        check: Check = lambda _: None,
    ) -> Entry | Done:
        """Add subscriptions, or change those of the same filter; ``check`` sees what is there."""
        registration = self._subscriber(connection, identifier, condition)
        check(registration)
        subscriptions = {s.filter: s for s in registration.subscriber.subscriptions}
        coming = list(wanted)
        subscriptions.update({s.filter: s for s in coming})
        if len({s.filter for s in coming}) < len(coming):
            raise Conflict("a filter is there twice; give each once")
        changed = _with_subscriptions(registration, subscriptions.values())
        made = self.put_subscriber(connection, number, changed, condition)
        if isinstance(made, Done):
            return made
        return Entry(
            action="subscribe",
            subject=f"subscriber {identifier}",
            detail={"filters": [s.filter for s in coming][:50]},
        )

    def remove_subscriptions(
        self,
        connection: Connection,
        number: int,
        identifier: str,
        filters: Iterable[str],
        condition: Condition,
        check: Check = lambda _: None,
    ) -> Entry | Done:
        """Remove the subscriptions to ``filters``; ``check`` sees what is there."""
        registration = self._subscriber(connection, identifier, condition)
        check(registration)
        subscriptions = {s.filter: s for s in registration.subscriber.subscriptions}
        names = list(filters)
        for name in names:
            if subscriptions.pop(name, None) is None:
                raise Unknown(f"{identifier!r} has no subscription to {name!r}")
        changed = _with_subscriptions(registration, subscriptions.values())
        made = self.put_subscriber(connection, number, changed, condition)
        if isinstance(made, Done):
            return made
        return Entry(
            action="unsubscribe", subject=f"subscriber {identifier}", detail={"filters": names[:50]}
        )

    def _subscriber(
        self, connection: Connection, identifier: str, condition: Condition
    ) -> SubscriberRegistration:
        row = self._row(connection, SUBSCRIBER, identifier)
        self._meets(row, SUBSCRIBER, identifier, condition)
        if row is None:
            raise Unknown(f"there is no subscriber {identifier!r}")
        return from_json(SubscriberRegistration, row[0], tolerant=True)

    def _row(self, connection: Connection, kind: str, identifier: str) -> tuple[str, int] | None:
        where = tables.registration.c
        found = connection.execute(
            select(where.body, where.change).where(where.kind == kind, where.id == identifier)
        ).first()
        return (found.body, int(found.change)) if found else None

    def _meets(
        self, row: tuple[str, int] | None, kind: str, identifier: str, condition: Condition
    ) -> None:
        if condition.new and row is not None:
            raise Changed(f"{kind} {identifier!r} is there already, with revision {row[1]}")
        if condition.there and row is None:
            raise Changed(f"{kind} {identifier!r} is not there")
        if condition.revision is not None and (row is None or row[1] != condition.revision):
            now = "is not there" if row is None else f"has revision {row[1]}"
            raise Changed(f"{kind} {identifier!r} {now}, not {condition.revision}")

    def _same(
        self,
        connection: Connection,
        kind: str,
        identifier: str,
        registration: Kept,
        condition: Condition,
    ) -> Done | None:
        """The change that registered the very same, if that is what is there."""
        row = self._row(connection, kind, identifier)
        self._meets(row, kind, identifier, condition)
        if row is None or row[0] != to_json(registration):
            return None
        return Done(row[1], repeated=True)

    def _put(
        self,
        connection: Connection,
        number: int,
        kind: str,
        identifier: str,
        registration: Kept,
        condition: Condition,
    ) -> None:
        columns: dict[str, object] = {"body": to_json(registration), "change": number}
        if isinstance(registration, SubscriberRegistration):
            columns["address"] = str(registration.address)
            columns["wants"] = len(registration.subscriber.subscriptions)
        row = self._row(connection, kind, identifier)
        self._meets(row, kind, identifier, condition)
        where = tables.registration.c
        if row is not None:
            connection.execute(
                update(tables.registration)
                .where(where.kind == kind, where.id == identifier)
                .values(**columns)
            )
            return
        there = connection.execute(
            select(func.count()).select_from(tables.registration).where(where.kind == kind)
        ).scalar_one()
        if there >= self._limits.parties:
            raise Conflict(f"there are {there} {kind}s already, as many as may be")
        connection.execute(
            insert(tables.registration).values(
                kind=kind, id=identifier, first_change=number, **columns
            )
        )

    def _network(self, connection: Connection) -> Network:
        body = connection.execute(
            select(tables.setting.c.body).where(tables.setting.c.name == "network")
        ).scalar()
        return from_json(Network, body) if body else self._site.network

    def _check_place(
        self, connection: Connection, switch: str, *, must_be_reached: bool = False
    ) -> None:
        network = self._network(connection)
        known = [s.id for s in network.switches]
        if switch not in known:
            raise Conflict(f"unknown switch {switch!r}; known are {', '.join(known[:8])}")
        links = [(link.from_, link.to) for link in network.links]
        reason = path_problem(links, network.broker.switch, switch)
        linked = {end for link in links for end in link}
        if reason and (must_be_reached or switch in linked):
            raise Conflict(reason)

    def _check_subscriber(
        self, connection: Connection, registration: SubscriberRegistration
    ) -> None:
        subscriptions = registration.subscriber.subscriptions
        names = [s.filter for s in subscriptions]
        doubled = _doubled(names)
        if doubled:
            raise Conflict(f"subscribed to twice: {', '.join(doubled[:5])}; give each filter once")
        if len(names) > self._limits.subscriptions_each:
            raise Conflict(f"at most {self._limits.subscriptions_each} subscriptions each")
        self._check_place(connection, registration.subscriber.switch, must_be_reached=True)

    def _check_ports(self, connection: Connection, registration: SubscriberRegistration) -> None:
        """Whether all on this address find ports, however the plan cuts their flows."""
        most = self._site.planning.flows_per_subscriber
        others = connection.execute(
            select(tables.registration.c.wants).where(
                tables.registration.c.kind == SUBSCRIBER,
                tables.registration.c.address == str(registration.address),
                tables.registration.c.id != registration.subscriber.id,
            )
        ).scalars()
        flows = min(most, len(registration.subscriber.subscriptions))
        flows += sum(min(most, wants) for wants in others)
        if flows > (LAST_PORT - FIRST_PORT + 1) // 2:
            raise PortsExhausted(str(registration.address))

    def _check_publisher(self, connection: Connection, registration: PublisherRegistration) -> None:
        publisher = registration.publisher
        if publisher.id == UNREGISTERED:
            raise Conflict(
                f"{UNREGISTERED!r} stands for all who have not registered; choose another"
            )
        names = [p.topic for p in publisher.publications]
        if len(names) > self._limits.publications_each:
            raise Conflict(f"at most {self._limits.publications_each} publications each")
        rate = sum(p.rate_per_second for p in publisher.publications)
        if rate > self._limits.events_per_second_each:
            raise Conflict(
                f"{rate:g} events per second are declared; at most "
                f"{self._limits.events_per_second_each:g} each may be"
            )
        doubled = _doubled(names)
        if doubled:
            raise Conflict(f"published twice: {', '.join(doubled[:5])}; add the rates")
        self._check_place(connection, publisher.switch)
        declared = [topic.name for topic in registration.topics]
        if len(set(declared)) < len(declared):
            raise Conflict("a topic is declared twice")
        known = {topic.name for topic in self._site.topics} | set(declared)
        known |= _declarers(connection, names).keys()
        unknown = [name for name in names if name not in known]
        if unknown:
            raise Conflict(
                f"unknown topic {unknown[0]!r}: declare it under 'topics', with its event_bytes"
            )
        self._check_sizes(registration)

    def _check_sizes(self, registration: PublisherRegistration) -> None:
        if self._site.transport != "udp":
            return
        for topic in registration.topics:
            stamped = self._site.stamped_events if topic.stamped is None else topic.stamped
            largest = LARGEST_UDP_PAYLOAD_BYTES - (STAMP_BYTES["udp"] if stamped else 0)
            if topic.event_bytes > largest:
                raise Conflict(
                    f"{topic.name!r}: {topic.event_bytes} bytes do not fit one UDP datagram; "
                    f"at most {largest} do"
                )

    def _declare(
        self, connection: Connection, number: int, registration: PublisherRegistration
    ) -> None:
        """Who is first defines a topic, and after it is gone the next who declares it."""
        name = registration.publisher.id
        known = _declarers(connection, [topic.name for topic in registration.topics])
        inherited = _inherited(connection, registration)
        for topic in registration.topics:
            row = {"body": to_json(topic), "declared_by": name, "change": number}
            if topic.name not in known:
                connection.execute(insert(tables.topic).values(name=topic.name, **row))
            elif known[topic.name] == name or topic.name in inherited:
                where = tables.topic.c.name == topic.name
                connection.execute(update(tables.topic).where(where).values(**row))
        self._check_topic_counts(connection, name)

    def _check_topic_counts(self, connection: Connection, publisher: str) -> None:
        count = select(func.count()).select_from(tables.topic)
        own = connection.execute(count.where(tables.topic.c.declared_by == publisher)).scalar_one()
        if own > self._limits.topics_each:
            raise Conflict(
                f"{publisher!r} would have declared {own} topics; at most "
                f"{self._limits.topics_each} each, and those that nobody needs go within a minute"
            )
        there = connection.execute(count).scalar_one()
        if there > self._limits.topics:
            raise Conflict(f"there would be {there} topics; at most {self._limits.topics} may be")


def _declarers(connection: Connection, topics: list[str]) -> dict[str, str | None]:
    """Those of ``topics`` that are known, and who declared each."""
    column = tables.topic.c
    found: dict[str, str | None] = {}
    for start in range(0, len(topics), AT_ONCE):
        chosen = select(column.name, column.declared_by).where(
            column.name.in_(topics[start : start + AT_ONCE])
        )
        found |= {row.name: row.declared_by for row in connection.execute(chosen)}
    return found


def _inherited(connection: Connection, registration: PublisherRegistration) -> set[str]:
    """The topics of a registration whose definition has fallen to it: who gave it is gone."""
    known = _declarers(connection, [topic.name for topic in registration.topics])
    gone = set(known.values()) - _registered(connection, set(known.values()))
    gone -= {registration.publisher.id}
    return {name for name, by in known.items() if by in gone}


def _registered(connection: Connection, publishers: set[str | None]) -> set[str | None]:
    column = tables.registration.c
    chosen = select(column.id).where(column.kind == PUBLISHER)
    if len(publishers) <= AT_ONCE:
        chosen = chosen.where(column.id.in_(publishers))
    return set(connection.execute(chosen).scalars())


def _doubled(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _with_subscriptions(
    registration: SubscriberRegistration, subscriptions: Iterable[Subscription]
) -> SubscriberRegistration:
    subscriber = replace(registration.subscriber, subscriptions=tuple(subscriptions))
    return replace(registration, subscriber=subscriber)
