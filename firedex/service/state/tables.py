"""The tables of the state at the latest schema revision (see ``migrations``)."""

from sqlalchemy import (
    BigInteger,
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
    "class_history",
    "configuration",
    "heartbeat",
    "host",
    "idempotency",
    "metadata",
    "offered_rate",
    "profile",
    "registration",
    "setting",
    "statistic",
    "token",
    "topic",
]

metadata = MetaData()
Long = BigInteger().with_variant(Integer, "sqlite")
"""64 bits. SQLite numbers rows by itself only if the type is INTEGER, which has 64 bits there."""

# Every change of the state, numbered without gaps. It is also the audit log.
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

# Publishers and subscribers. `change` is the revision, `first_change` the order of registration,
# `owner` the owner of the token that registered it; null if the service requires no tokens.
registration = Table(
    "registration",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("body", Text, nullable=False),
    Column("change", Integer, nullable=False),
    Column("first_change", Integer, nullable=False),
    Column("address", String(40)),
    Column("subscriptions", Integer, nullable=False, default=0),
    Column("owner", String(128)),
)
Index("registration_address", registration.c.address)

# The first publisher that declares a topic defines it. Unused topics are deleted.
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
    Column("rate_snapshot", LargeBinary),
    Column("planned_seconds", Float),
    Column("pushed_seconds", Float),
    Column("active_since_seconds", Float),
    Column("error", Text),
)
Index("configuration_state", configuration.c.state)

token = Table(
    "token",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("name", String(128), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("client", String(128)),
    Column("crew_role", String(128)),
    Column("owner", String(128)),
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
Index("idempotency_at", idempotency.c.at_seconds)

statistic = Table(
    "statistic",
    metadata,
    Column("number", Long, primary_key=True),
    Column("at_seconds", Float, nullable=False),
    Column("reporter", String(128), nullable=False),
    Column("subscriber", String(128), nullable=False),
    Column("flow", Long, nullable=False),
    Column("body", Text, nullable=False),
)
Index("statistic_flow", statistic.c.subscriber, statistic.c.flow, statistic.c.number)
Index("statistic_reporter", statistic.c.reporter, statistic.c.number)
Index("statistic_at", statistic.c.at_seconds)

# Measurements of each class in steps of some seconds, kept for a day. `numbered`: delivered
# events with sequence numbers; the success rate is known only for these.
class_history = Table(
    "class_history",
    metadata,
    Column("at_seconds", Float, primary_key=True),
    Column("priority", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("missing", BigInteger, nullable=False),
    Column("timed", BigInteger, nullable=False),
    Column("delay_sum_seconds", Float, nullable=False),
    Column("delay_p95_seconds", Float),
    Column("numbered", BigInteger, nullable=False, server_default="0"),
)

offered_rate = Table(
    "offered_rate",
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

# `client`: the client whose token sent the heartbeat; null for command and operators.
heartbeat = Table(
    "heartbeat",
    metadata,
    Column("part", String(128), primary_key=True),
    Column("at_seconds", Float, nullable=False),
    Column("body", Text, nullable=False),
    Column("client", String(128)),
)
Index("heartbeat_client", heartbeat.c.client)
