"""Add the owner of tokens and of registrations; all clients of one owner share one budget."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns. A token without an owner owns itself."""
    for table in ("token", "registration"):
        op.add_column(table, sa.Column("owner", sa.String(128)))
