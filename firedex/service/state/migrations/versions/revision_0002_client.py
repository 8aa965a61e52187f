"""Rename the column ``party`` to ``client``, the word that the API uses."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Rename the columns and the index, and keep their contents."""
    op.drop_index("heartbeat_party", "heartbeat")
    # Alembic's alter_column copies the whole table on SQLite; this statement does not.
    for table in ("token", "heartbeat"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN party TO client")
    op.create_index("heartbeat_client", "heartbeat", ["client"], unique=False)
