"""From any older form of the state to the present one, step by step, each in one transaction.

Form 0 is what the first release left behind (SQLite: ``registration`` and ``configuration`` with
JSON bodies); a new database starts there too, with nothing in it. A step is never changed once
released, nor are the tables that it makes: what comes later is a further step.
"""

import time
from collections.abc import Callable

from sqlalchemy import Column, Connection, Integer, MetaData, Table, insert, inspect, text

from firedex.service import form_1_tables as form_1
from firedex.service.errors import StateError
from firedex.wire import PublisherRegistration, SubscriberRegistration, from_json, to_json

__all__ = ["FORM", "is_state", "migrate"]

_form = Table("form", MetaData(), Column("number", Integer, nullable=False))


def is_state(connection: Connection) -> bool:
    """Whether a service has kept anything there, of whatever form."""
    return bool({"form", "registration"} & set(inspect(connection).get_table_names()))


def migrate(connection: Connection) -> None:
    """Bring the database to the present form; refuse one that is newer."""
    existing = set(inspect(connection).get_table_names())
    if "form" not in existing:
        _form.create(connection)
        connection.execute(insert(_form).values(number=0))
    number = int(connection.execute(text("SELECT number FROM form")).scalar_one())
    if number > FORM:
        raise StateError(
            f"the state has form {number}, and this release knows forms up to {FORM}; "
            "use the release that wrote it, or a newer one"
        )
    for step in STEPS[number:]:
        step(connection)
    connection.execute(text("UPDATE form SET number = :number"), {"number": FORM})


def _first(connection: Connection) -> None:
    """Changes, tokens, incidents, statistics; registrations of form 0 are taken over."""
    existing = set(inspect(connection).get_table_names())
    old: list[tuple[str, str, str]] = []
    last_version = 0
    if "registration" in existing:
        rows = connection.execute(
            text("SELECT kind, id, body FROM registration ORDER BY rowid")
        ).all()
        old = [(row[0], row[1], row[2]) for row in rows]
        last_version = connection.execute(
            text("SELECT coalesce(max(version), 0) FROM configuration")
        ).scalar_one()
        connection.execute(text("ALTER TABLE registration RENAME TO registration_form_0"))
        connection.execute(text("ALTER TABLE configuration RENAME TO configuration_form_0"))
    form_1.metadata.create_all(connection)
    for number, (kind, name, body) in enumerate(old, 1):
        connection.execute(
            insert(form_1.change).values(
                number=number,
                at_seconds=time.time(),
                actor="migration",
                action="register",
                subject=f"{kind} {name}",
            )
        )
        connection.execute(
            insert(form_1.registration).values(
                kind=kind,
                id=name,
                body=body,
                change=number,
                first_change=number,
                **_port_columns(kind, body),
            )
        )
        if kind == "publisher":
            _take_over_topics(connection, name, body, number)
    if last_version:
        # Its number must not be given to other rules.
        connection.execute(
            insert(form_1.configuration).values(
                version=last_version,
                state="replaced",
                through_change=0,
                created_seconds=time.time(),
                reason="of a former release",
            )
        )


def _port_columns(kind: str, body: str) -> dict[str, object]:
    if kind != "subscriber":
        return {}
    registration = from_json(SubscriberRegistration, body, tolerant=True)
    wants = len(registration.subscriber.subscriptions)
    return {"address": str(registration.address), "wants": wants}


def _take_over_topics(connection: Connection, name: str, body: str, number: int) -> None:
    known = set(connection.execute(text("SELECT name FROM topic")).scalars())
    for topic in from_json(PublisherRegistration, body, tolerant=True).topics:
        if topic.name not in known:
            known.add(topic.name)
            connection.execute(
                insert(form_1.topic).values(
                    name=topic.name, body=to_json(topic), declared_by=name, change=number
                )
            )


def _second(connection: Connection) -> None:
    """Numbers of 64 bits; what is looked up by time, reporter or party is found by an index."""
    statements = [
        "CREATE INDEX idempotency_at ON idempotency (at_seconds)",
        "CREATE INDEX statistic_reporter ON statistic (reporter, number)",
        "CREATE INDEX statistic_at ON statistic (at_seconds)",
        "ALTER TABLE heartbeat ADD COLUMN party VARCHAR(128)",
        "CREATE INDEX heartbeat_party ON heartbeat (party)",
    ]
    if connection.dialect.name == "postgresql":  # SQLite's integers are as long as they need be
        statements += [
            "ALTER TABLE statistic ALTER COLUMN number TYPE BIGINT, ALTER COLUMN flow TYPE BIGINT",
            "ALTER SEQUENCE statistic_number_seq AS BIGINT",
        ]
    for statement in statements:
        connection.execute(text(statement))


def _third(connection: Connection) -> None:
    """How classes have done, over time."""
    connection.execute(
        text(
            "CREATE TABLE class_history (at_seconds FLOAT NOT NULL, priority INTEGER NOT NULL, "
            "version INTEGER NOT NULL, delivered BIGINT NOT NULL, missing BIGINT NOT NULL, "
            "timed BIGINT NOT NULL, delay_sum_seconds FLOAT NOT NULL, delay_p95_seconds FLOAT, "
            "PRIMARY KEY (at_seconds, priority))"
        )
    )


def _fourth(connection: Connection) -> None:
    """Of class history, events that are numbered, apart; all that were timed are taken for it."""
    for statement in (
        "ALTER TABLE class_history ADD COLUMN numbered BIGINT DEFAULT 0 NOT NULL",
        "UPDATE class_history SET numbered = delivered WHERE timed > 0 OR missing > 0",
    ):
        connection.execute(text(statement))


STEPS: tuple[Callable[[Connection], None], ...] = (_first, _second, _third, _fourth)
FORM = len(STEPS)
