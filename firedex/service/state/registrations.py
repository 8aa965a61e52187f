"""Publishers and subscribers in the state: register, change and remove them.

Every change can depend on the revision of the registration (optimistic concurrency).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, func, insert, select, update

from firedex.service.errors import Conflict, NotFound, PortsExhausted, PreconditionFailed
from firedex.service.state import tables
from firedex.service.state.change_ledger import ChangeResult, Entry
from firedex.service.state.site_state import FIRST_PORT, LAST_PORT, UNREGISTERED
from firedex.wire import (
    Network,
    PublisherRegistration,
    Scenario,
    SubscriberRegistration,
    Subscription,
    from_json,
    to_json,
)
from firedex.wire.network import missing_path_reason
from firedex.wire.packet_sizes import MAX_UDP_PAYLOAD_BYTES, STAMP_BYTES

__all__ = ["Condition", "Limits", "Ownership", "Registrations"]

Check = Callable[[SubscriberRegistration], None]
Registration = PublisherRegistration | SubscriberRegistration
PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
MAX_NAMES_PER_QUERY = 5_000
"""Databases limit the number of parameters of one query."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A precondition of a change: the revision that the caller expects.

    ``new``: the registration must not exist. ``exists``: it must exist, with any revision.
    """

    revision: int | None = None
    new: bool = False
    exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The owner of the token that registers a client; None if no tokens are required.

    ``keep``: a client that is registered already keeps its owner, because the caller acts for it.
    """

    owner: str | None = None
    keep: bool = False


UNOWNED, KEEP_OWNER = Ownership(), Ownership(keep=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of registrations; ``_each`` limits one subscriber or publisher."""

    clients: int = 10_000
    subscriptions_each: int = 2_000
    publications_each: int = 5_000
    events_per_second_each: float = 1e6
    topics_each: int = 5_000
    topics: int = 50_000


class Registrations:
    """Checks and stores registrations; every method runs in the caller's transaction."""

    def __init__(self, site: Scenario, limits: Limits) -> None:
        self._site, self._limits = site, limits

    def put_subscriber(
        self,
        connection: Connection,
        number: int,
        registration: SubscriberRegistration,
        condition: Condition,
        ownership: Ownership = UNOWNED,
    ) -> Entry | ChangeResult:
        """Store a subscriber with its subscriptions, in place of an earlier registration."""
        subscriber = registration.subscriber
        unchanged = self._unchanged(connection, SUBSCRIBER, subscriber.id, registration, condition)
        if unchanged is not None:
            return unchanged
        self._check_subscriber(connection, registration)
        self._check_ports(connection, registration)
        self._put(connection, number, SUBSCRIBER, subscriber.id, registration, condition, ownership)
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
        ownership: Ownership = UNOWNED,
    ) -> Entry | ChangeResult:
        """Store a publisher, and the topics that it is the first to declare."""
        publisher = registration.publisher
        unchanged = self._unchanged(connection, PUBLISHER, publisher.id, registration, condition)
        if unchanged is not None and not _orphaned_topics(connection, registration):
            return unchanged
        self._check_publisher(connection, registration)
        self._put(connection, number, PUBLISHER, publisher.id, registration, condition, ownership)
        self._declare(connection, number, registration)
        return Entry(
            action="register",
            subject=f"publisher {publisher.id}",
            detail={"publications": len(publisher.publications)},
        )

    def remove(
        self, connection: Connection, kind: str, identifier: str, condition: Condition
    ) -> Entry:
        """Remove a subscriber or a publisher."""
        self._check_condition(self._row(connection, kind, identifier), kind, identifier, condition)
        where = tables.registration.c
        found = connection.execute(
            delete(tables.registration).where(where.kind == kind, where.id == identifier)
        )
        if found.rowcount == 0:
            raise NotFound(f"there is no {kind} {identifier!r}")
        for publisher in self._site.publishers:
            if kind == PUBLISHER and publisher.id == identifier:
                self._check_switch(
                    connection, publisher.switch
                )  # the publisher of the scenario file applies again
        return Entry(action="remove", subject=f"{kind} {identifier}")

    def put_subscriptions(
        self,
        connection: Connection,
        number: int,
        identifier: str,
        given: Iterable[Subscription],
        condition: Condition,
        check: Check = lambda _: None,
    ) -> Entry | ChangeResult:
        """Add subscriptions, or replace those with the same filter.

        ``check`` is called with the registration before the change.
        """
        registration = self._subscriber(connection, identifier, condition)
        check(registration)
        subscriptions = {s.filter: s for s in registration.subscriber.subscriptions}
        new = list(given)
        subscriptions.update({s.filter: s for s in new})
        if len({s.filter for s in new}) < len(new):
            raise Conflict("a filter occurs twice; give each filter once")
        changed = _with_subscriptions(registration, subscriptions.values())
        result = self.put_subscriber(connection, number, changed, condition, KEEP_OWNER)
        if isinstance(result, ChangeResult):
            return result
        return Entry(
            action="subscribe",
            subject=f"subscriber {identifier}",
            detail={"filters": [s.filter for s in new][:50]},
        )

    def remove_subscriptions(
        self,
        connection: Connection,
        number: int,
        identifier: str,
        filters: Iterable[str],
        condition: Condition,
        check: Check = lambda _: None,
    ) -> Entry | ChangeResult:
        """Remove the subscriptions to ``filters``.

        ``check`` is called with the registration before the change.
        """
        registration = self._subscriber(connection, identifier, condition)
        check(registration)
        subscriptions = {s.filter: s for s in registration.subscriber.subscriptions}
        names = list(filters)
        for name in names:
            if subscriptions.pop(name, None) is None:
                raise NotFound(f"{identifier!r} has no subscription to {name!r}")
        changed = _with_subscriptions(registration, subscriptions.values())
        result = self.put_subscriber(connection, number, changed, condition, KEEP_OWNER)
        if isinstance(result, ChangeResult):
            return result
        return Entry(
            action="unsubscribe", subject=f"subscriber {identifier}", detail={"filters": names[:50]}
        )

    def _subscriber(
        self, connection: Connection, identifier: str, condition: Condition
    ) -> SubscriberRegistration:
        row = self._row(connection, SUBSCRIBER, identifier)
        self._check_condition(row, SUBSCRIBER, identifier, condition)
        if row is None:
            raise NotFound(f"there is no subscriber {identifier!r}")
        return from_json(SubscriberRegistration, row[0], tolerant=True)

    def _row(self, connection: Connection, kind: str, identifier: str) -> tuple[str, int] | None:
        where = tables.registration.c
        found = connection.execute(
            select(where.body, where.change).where(where.kind == kind, where.id == identifier)
        ).first()
        return (found.body, int(found.change)) if found else None

    def _check_condition(
        self, row: tuple[str, int] | None, kind: str, identifier: str, condition: Condition
    ) -> None:
        if condition.new and row is not None:
            raise PreconditionFailed(
                f"{kind} {identifier!r} exists already, with revision {row[1]}"
            )
        if condition.exists and row is None:
            raise PreconditionFailed(f"{kind} {identifier!r} does not exist")
        if condition.revision is not None and (row is None or row[1] != condition.revision):
            now = "does not exist" if row is None else f"has revision {row[1]}"
            raise PreconditionFailed(
                f"{kind} {identifier!r} {now}; revision {condition.revision} was expected"
            )

    def _unchanged(
        self,
        connection: Connection,
        kind: str,
        identifier: str,
        registration: Registration,
        condition: Condition,
    ) -> ChangeResult | None:
        """Return the change that stored an identical registration, if it is the present one."""
        row = self._row(connection, kind, identifier)
        self._check_condition(row, kind, identifier, condition)
        if row is None or row[0] != to_json(registration):
            return None
        return ChangeResult(row[1], repeated=True)

    def _put(
        self,
        connection: Connection,
        number: int,
        kind: str,
        identifier: str,
        registration: Registration,
        condition: Condition,
        ownership: Ownership,
    ) -> None:
        columns: dict[str, object] = {"body": to_json(registration), "change": number}
        if isinstance(registration, SubscriberRegistration):
            columns["address"] = str(registration.address)
            columns["subscriptions"] = len(registration.subscriber.subscriptions)
        row = self._row(connection, kind, identifier)
        self._check_condition(row, kind, identifier, condition)
        where = tables.registration.c
        if row is None or not ownership.keep:
            columns["owner"] = ownership.owner
        if row is not None:
            connection.execute(
                update(tables.registration)
                .where(where.kind == kind, where.id == identifier)
                .values(**columns)
            )
            return
        registered = connection.execute(
            select(func.count()).select_from(tables.registration).where(where.kind == kind)
        ).scalar_one()
        if registered >= self._limits.clients:
            raise Conflict(
                f"{registered} {kind}s are registered already; at most "
                f"{self._limits.clients} are allowed"
            )
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

    def _check_switch(
        self, connection: Connection, switch: str, *, must_be_reachable: bool = False
    ) -> None:
        network = self._network(connection)
        known = [s.id for s in network.switches]
        if switch not in known:
            raise Conflict(f"unknown switch {switch!r}; known switches: {', '.join(known[:8])}")
        links = [(link.from_, link.to) for link in network.links]
        reason = missing_path_reason(links, network.broker.switch, switch)
        linked = {end for link in links for end in link}
        if reason and (must_be_reachable or switch in linked):
            raise Conflict(reason)

    def _check_subscriber(
        self, connection: Connection, registration: SubscriberRegistration
    ) -> None:
        subscriptions = registration.subscriber.subscriptions
        names = [s.filter for s in subscriptions]
        duplicates = _duplicates(names)
        if duplicates:
            raise Conflict(
                f"filters occur twice: {', '.join(duplicates[:5])}; give each filter once"
            )
        if len(names) > self._limits.subscriptions_each:
            raise Conflict(
                f"a subscriber can have at most {self._limits.subscriptions_each} subscriptions"
            )
        self._check_switch(connection, registration.subscriber.switch, must_be_reachable=True)

    def _check_ports(self, connection: Connection, registration: SubscriberRegistration) -> None:
        """Check that the address has enough ports for all flows that a plan may create."""
        most = self._site.planning.flows_per_subscriber
        others = connection.execute(
            select(tables.registration.c.subscriptions).where(
                tables.registration.c.kind == SUBSCRIBER,
                tables.registration.c.address == str(registration.address),
                tables.registration.c.id != registration.subscriber.id,
            )
        ).scalars()
        flows = min(most, len(registration.subscriber.subscriptions))
        flows += sum(min(most, subscriptions) for subscriptions in others)
        if flows > (LAST_PORT - FIRST_PORT + 1) // 2:
            raise PortsExhausted(str(registration.address))

    def _check_publisher(self, connection: Connection, registration: PublisherRegistration) -> None:
        publisher = registration.publisher
        if publisher.id == UNREGISTERED:
            raise Conflict(
                f"{UNREGISTERED!r} stands for unregistered publishers; choose another id"
            )
        names = [p.topic for p in publisher.publications]
        if len(names) > self._limits.publications_each:
            raise Conflict(
                f"a publisher can have at most {self._limits.publications_each} publications"
            )
        rate = sum(p.rate_per_second for p in publisher.publications)
        if rate > self._limits.events_per_second_each:
            raise Conflict(
                f"{rate:g} events per second are declared; at most "
                f"{self._limits.events_per_second_each:g} are allowed for a publisher"
            )
        duplicates = _duplicates(names)
        if duplicates:
            raise Conflict(
                f"topics occur twice: {', '.join(duplicates[:5])}; list each topic once, with the "
                "sum of its rates"
            )
        self._check_switch(connection, publisher.switch)
        declared = [topic.name for topic in registration.topics]
        if len(set(declared)) < len(declared):
            raise Conflict("a topic is declared twice; declare each topic once")
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
            largest = MAX_UDP_PAYLOAD_BYTES - (STAMP_BYTES["udp"] if stamped else 0)
            if topic.event_bytes > largest:
                raise Conflict(
                    f"{topic.name!r}: {topic.event_bytes} bytes do not fit one UDP datagram; "
                    f"at most {largest} bytes fit"
                )

    def _declare(
        self, connection: Connection, number: int, registration: PublisherRegistration
    ) -> None:
        """Store the topics of a publisher.

        The first publisher that declares a topic defines it. After that publisher is removed, the
        next one that declares the topic defines it.
        """
        name = registration.publisher.id
        known = _declarers(connection, [topic.name for topic in registration.topics])
        orphaned = _orphaned_topics(connection, registration)
        for topic in registration.topics:
            row = {"body": to_json(topic), "declared_by": name, "change": number}
            if topic.name not in known:
                connection.execute(insert(tables.topic).values(name=topic.name, **row))
            elif known[topic.name] == name or topic.name in orphaned:
                where = tables.topic.c.name == topic.name
                connection.execute(update(tables.topic).where(where).values(**row))
        self._check_topic_counts(connection, name)

    def _check_topic_counts(self, connection: Connection, publisher: str) -> None:
        count = select(func.count()).select_from(tables.topic)
        own = connection.execute(count.where(tables.topic.c.declared_by == publisher)).scalar_one()
        if own > self._limits.topics_each:
            raise Conflict(
                f"{publisher!r} would have declared {own} topics; at most "
                f"{self._limits.topics_each} are allowed. Unused topics are deleted within a minute"
            )
        there = connection.execute(count).scalar_one()
        if there > self._limits.topics:
            raise Conflict(
                f"there would be {there} topics; at most {self._limits.topics} are allowed"
            )


def _declarers(connection: Connection, topics: list[str]) -> dict[str, str | None]:
    """Return the known topics among ``topics``, each with the publisher that declared it."""
    column = tables.topic.c
    found: dict[str, str | None] = {}
    for start in range(0, len(topics), MAX_NAMES_PER_QUERY):
        chosen = select(column.name, column.declared_by).where(
            column.name.in_(topics[start : start + MAX_NAMES_PER_QUERY])
        )
        found |= {row.name: row.declared_by for row in connection.execute(chosen)}
    return found


def _orphaned_topics(connection: Connection, registration: PublisherRegistration) -> set[str]:
    """Return the topics of a registration whose earlier publisher is no longer registered."""
    known = _declarers(connection, [topic.name for topic in registration.topics])
    gone = set(known.values()) - _registered(connection, set(known.values()))
    gone -= {registration.publisher.id}
    return {name for name, by in known.items() if by in gone}


def _registered(connection: Connection, publishers: set[str | None]) -> set[str | None]:
    column = tables.registration.c
    chosen = select(column.id).where(column.kind == PUBLISHER)
    if len(publishers) <= MAX_NAMES_PER_QUERY:
        chosen = chosen.where(column.id.in_(publishers))
    return set(connection.execute(chosen).scalars())


def _duplicates(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _with_subscriptions(
    registration: SubscriberRegistration, subscriptions: Iterable[Subscription]
) -> SubscriberRegistration:
    subscriber = replace(registration.subscriber, subscriptions=tuple(subscriptions))
    return replace(registration, subscriber=subscriber)
