"""Create all tables of the first released state."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# SQLite numbers rows by itself only in a primary key of type INTEGER, which has 64 bits there.
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "change",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "class_history",
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("priority", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("timed", sa.BigInteger(), nullable=False),
        sa.Column("delay_sum_seconds", sa.Float(), nullable=False),
        sa.Column("delay_p95_seconds", sa.Float(), nullable=True),
        sa.Column("numbered", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("at_seconds", "priority"),
    )
    op.create_table(
        "configuration",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("through_change", sa.Integer(), nullable=False),
        sa.Column("created_seconds", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=True),
        sa.Column("rate_snapshot", sa.LargeBinary(), nullable=True),
        sa.Column("planned_seconds", sa.Float(), nullable=True),
        sa.Column("pushed_seconds", sa.Float(), nullable=True),
        sa.Column("active_since_seconds", sa.Float(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("version"),
    )
    op.create_index("configuration_state", "configuration", ["state"], unique=False)
    op.create_table(
        "heartbeat",
        sa.Column("part", sa.String(length=128), nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("party", sa.String(length=128), nullable=True),
        sa.PrimaryKeyConstraint("part"),
    )
    op.create_index("heartbeat_party", "heartbeat", ["party"], unique=False)
    op.create_table(
        "host",
        sa.Column("address", sa.String(length=40), nullable=False),
        sa.Column("switch", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("address"),
    )
    op.create_table(
        "idempotency",
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("actor", "key"),
    )
    op.create_index("idempotency_at", "idempotency", ["at_seconds"], unique=False)
    op.create_table(
        "offered_rate",
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("topic"),
    )
    op.create_table(
        "profile",
        sa.Column("phase", sa.String(length=128), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("phase"),
    )
    op.create_table(
        "registration",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.Column("first_change", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(length=40), nullable=True),
        sa.Column("subscriptions", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id"),
    )
    op.create_index("registration_address", "registration", ["address"], unique=False)
    op.create_table(
        "setting",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "statistic",
        sa.Column("number", LONG, nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("reporter", sa.String(length=128), nullable=False),
        sa.Column("subscriber", sa.String(length=128), nullable=False),
        sa.Column("flow", LONG, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("statistic_at", "statistic", ["at_seconds"], unique=False)
    op.create_index("statistic_flow", "statistic", ["subscriber", "flow", "number"], unique=False)
    op.create_index("statistic_reporter", "statistic", ["reporter", "number"], unique=False)
    op.create_table(
        "token",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("party", sa.String(length=128), nullable=True),
        sa.Column("crew_role", sa.String(length=128), nullable=True),
        sa.Column("created_seconds", sa.Float(), nullable=False),
        sa.Column("revoked_seconds", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("digest"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "topic",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("declared_by", sa.String(length=128), nullable=True),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
