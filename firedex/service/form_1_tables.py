"""The tables of form 1, as they were released. Never changed: migrations begin here."""

from sqlalchemy import (
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

__all__ = [
    "change",
    "configuration",
    "heartbeat",
    "host",
    "idempotency",
    "measured",
    "metadata",
    "profile",
    "registration",
    "setting",
    "statistic",
    "token",
    "topic",
]

metadata = MetaData()

# Every change of the state, numbered without gaps: the order of things, and the audit log.
change = Table(
    "change",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at_seconds", Float, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text),
)

# Publishers and subscribers. `change` is the revision; `first_change` the order they came in.
registration = Table(
    "registered",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("body", Text, nullable=False),
    Column("change", Integer, nullable=False),
    Column("first_change", Integer, nullable=False),
    Column("address", String(40)),
    Column("wants", Integer, nullable=False, default=0),
)
Index("registered_address", registration.c.address)

# Who declared a topic first defines it; it stays when its publisher leaves.
topic = Table(
    "topic",
    metadata,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("declared_by", String(128)),
    Column("change", Integer, nullable=False),
)

profile = Table(
    "profile",
    metadata,
    Column("phase", String(128), primary_key=True),
    Column("body", Text, nullable=False),
    Column("change", Integer, nullable=False),
)

# Single values: incident, budgets, network, capabilities.
setting = Table(
    "setting",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("body", Text, nullable=False),
    Column("change", Integer, nullable=False),
)

configuration = Table(
    "configuration",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    Column("through_change", Integer, nullable=False),
    Column("created_seconds", Float, nullable=False),
    Column("reason", Text, nullable=False),
    Column("document", LargeBinary),
    Column("basis", LargeBinary),
    Column("planned_seconds", Float),
    Column("pushed_seconds", Float),
    Column("in_force_seconds", Float),
    Column("error", Text),
)
Index("configuration_state", configuration.c.state)

token = Table(
    "token",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("name", String(128), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("party", String(128)),
    Column("crew_role", String(128)),
    Column("created_seconds", Float, nullable=False),
    Column("revoked_seconds", Float),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("actor", String(200), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("change", Integer, nullable=False),
    Column("at_seconds", Float, nullable=False),
)

statistic = Table(
    "statistic",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at_seconds", Float, nullable=False),
    Column("reporter", String(128), nullable=False),
    Column("subscriber", String(128), nullable=False),
    Column("flow", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
Index("statistic_flow", statistic.c.subscriber, statistic.c.flow, statistic.c.number)

measured = Table(
    "measured",
    metadata,
    Column("topic", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

host = Table(
    "host",
    metadata,
    Column("address", String(40), primary_key=True),
    Column("switch", String(128), nullable=False),
)

heartbeat = Table(
    "heartbeat",
    metadata,
    Column("part", String(128), primary_key=True),
    Column("at_seconds", Float, nullable=False),
    Column("body", Text, nullable=False),
)
