"""In a few words, what changes a configuration was made for."""

from sqlalchemy import Connection, func, select

from firedex.service import tables
from firedex.service.change_ledger import NO_PLAN_FOLLOWS

__all__ = ["summarise"]


def summarise(connection: Connection, after: int, through: int) -> str:
    """Say what happened in the changes after ``after``, up to ``through``.

    Nothing, if no plan follows from any of them.
    """
    column = tables.change.c
    within = (
        (column.number > after) & (column.number <= through) & column.action.not_in(NO_PLAN_FOLLOWS)
    )
    first = connection.execute(select(column.action, column.subject).where(within).limit(2)).all()
    if not first:
        return ""
    if len(first) == 1:
        return f"{first[0].action} {first[0].subject}"
    rows = connection.execute(
        select(column.action, func.count().label("times"))
        .where(within)
        .group_by(column.action)
        .order_by(column.action)
    ).all()
    words = ", ".join(f"{row.action} × {row.times}" for row in rows)
    return f"{sum(row.times for row in rows)} changes: {words}"
