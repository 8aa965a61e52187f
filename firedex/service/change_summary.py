"""In a few words, what changes a configuration was made for."""

from sqlalchemy import Connection, func, select

from firedex.service import tables

__all__ = ["summarise"]


def summarise(connection: Connection, after: int, through: int) -> str:
    """Say what happened in the changes after ``after``, up to ``through``."""
    column = tables.change.c
    within = (column.number > after) & (column.number <= through)
    if through == after + 1:
        row = connection.execute(select(column.action, column.subject).where(within)).first()
        if row is not None:
            return f"{row.action} {row.subject}"
    rows = connection.execute(
        select(column.action, func.count().label("times"))
        .where(within)
        .group_by(column.action)
        .order_by(column.action)
    ).all()
    words = ", ".join(f"{row.action} × {row.times}" for row in rows)
    return f"{through - after} changes: {words}"
