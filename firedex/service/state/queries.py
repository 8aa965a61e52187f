"""Read-only queries that requests need: registrations, their number, and the log of changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import func, select

from firedex.service.state import tables
from firedex.service.state.database import Database
from firedex.service.state.state_reader import setting
from firedex.wire import EncodedJson
from firedex.wire.incident import Incident
from firedex.wire.service_api import AuditEntry

__all__ = [
    "BandwidthReduction",
    "Kind",
    "RegistrationCount",
    "StoredRegistration",
    "all_registrations",
    "audit_entries",
    "bandwidth_reductions",
    "current_incident",
    "registration",
    "registration_counts",
    "subscribers_with_subscriptions",
]

Kind = Literal["publisher", "subscriber"]
_registration = tables.registration.c
_change = tables.change.c


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRegistration:
    """A registration as it is stored, and its revision: the number of the change that wrote it."""

    body: EncodedJson
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationCount:
    """The number of registrations, and of the subscriptions in them."""

    registered: int = 0
    subscriptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthReduction:
    """A change of the network: the ports that have less bandwidth than the site states.

    A port is a switch and the next switch; None stands for the ports to hosts.
    """

    at: datetime
    ports: frozenset[tuple[str, str | None]]


def registration(database: Database, kind: Kind, identifier: str) -> StoredRegistration | None:
    """Return a registration, or None if it does not exist."""
    chosen = select(_registration.body, _registration.change).where(
        _registration.kind == kind, _registration.id == identifier
    )
    with database.reading() as connection:
        row = connection.execute(chosen).first()
    return None if row is None else StoredRegistration(body=EncodedJson(row[0]), revision=row[1])


def all_registrations(database: Database, kind: Kind) -> EncodedJson:
    """Return a list of all registrations, oldest first."""
    chosen = select(_registration.body).where(_registration.kind == kind)
    with database.reading() as connection:
        bodies = connection.execute(chosen.order_by(_registration.first_change)).scalars()
        return EncodedJson(f"[{','.join(bodies)}]")


def registration_counts(database: Database) -> Mapping[str, RegistrationCount]:
    """Return the number of registrations of each kind that has any."""
    counted = select(
        _registration.kind, func.count(), func.sum(_registration.subscriptions)
    ).group_by(_registration.kind)
    with database.reading() as connection:
        return {
            name: RegistrationCount(registered=count, subscriptions=int(subscriptions or 0))
            for name, count, subscriptions in connection.execute(counted).all()
        }


def subscribers_with_subscriptions(database: Database) -> list[str]:
    """Return the ids of subscribers that have at least one subscription, oldest first."""
    chosen = select(_registration.id).where(
        _registration.kind == "subscriber", _registration.subscriptions > 0
    )
    with database.reading() as connection:
        return list(connection.execute(chosen.order_by(_registration.first_change)).scalars())


def audit_entries(database: Database, before: int | None, limit: int) -> tuple[AuditEntry, ...]:
    """Return at most ``limit`` changes with a number below ``before``, newest first."""
    chosen = select(tables.change).order_by(_change.number.desc()).limit(limit)
    if before is not None:
        chosen = chosen.where(_change.number < before)
    with database.reading() as connection:
        rows = connection.execute(chosen).all()
    return tuple(
        AuditEntry(
            change=row.number,
            at=datetime.fromtimestamp(row.at_seconds, UTC),
            actor=row.actor,
            action=row.action,
            subject=row.subject,
            detail=json.loads(row.detail) if row.detail else None,
        )
        for row in rows
    )


def bandwidth_reductions(database: Database, limit: int) -> list[BandwidthReduction]:
    """Return the last ``limit`` changes of the network, newest first."""
    chosen = select(_change.at_seconds, _change.detail).where(_change.action == "network")
    with database.reading() as connection:
        rows = connection.execute(chosen.order_by(_change.number.desc()).limit(limit)).all()
    return [
        BandwidthReduction(
            at=datetime.fromtimestamp(row.at_seconds, UTC),
            ports=frozenset(
                (switch, neighbour)
                for switch, neighbour in (json.loads(row.detail)["reduced"] if row.detail else ())
            ),
        )
        for row in rows
    ]


def current_incident(database: Database) -> Incident | None:
    """Return the open incident, or the last one if none is open."""
    with database.reading() as connection:
        return setting(connection, "incident", Incident)
