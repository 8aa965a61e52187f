"""Rows of delivery records that say nothing or contradict themselves: counted, not summed. Pure."""

from typing import get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firedex.wire import Outcome
from firedex_spark.record_columns import (
    CLASSES,
    COLUMNS,
    TIME,
    codes_of,
    column_of,
    delivered_rows,
    is_stamp,
)

__all__ = ["LONGEST_DELAY_SECONDS", "early_rows", "refused_rows"]

Booleans = NDArray[np.bool_]
REQUIRED = {*COLUMNS} - {TIME, "received_at_seconds"}
LONGEST_DELAY_SECONDS = 86_400.0
"""Nothing waits a day in a network: a clock is wrong."""


def refused_rows(table: pa.Table) -> tuple[dict[str, int], Booleans]:
    """How many for which reason, and which are left."""
    good = np.ones(table.num_rows, dtype=bool)
    counts: dict[str, int] = {}

    def refuse(reason: str, rows: Booleans) -> None:
        counts[reason] = counts.get(reason, 0) + int((good & rows).sum())
        np.logical_and(good, ~rows, out=good)

    for name in sorted(REQUIRED & {*table.column_names}):
        if table.column(name).null_count:
            nothing = table.column(name).is_null()
            refuse(f"{name} is missing", np.asarray(nothing.to_numpy()))
    code, outcomes = codes_of(table, "outcome")
    known = np.array([outcome in get_args(Outcome) for outcome in outcomes] + [False])
    refuse("outcome is unknown", ~known[code])
    received, published = column_of(table, "received_at_seconds"), column_of(table, TIME)
    refuse("a time is not finite", np.isinf(received) | np.isinf(published))
    for times in (published, received):
        refuse("a time is before 1970 or after the year 5138", ~is_stamp(times) & ~np.isnan(times))
    refuse("received, but not delivered; or the other way", _contradicts(table, received))
    refuse("neither published nor received at any time", np.isnan(received) & np.isnan(published))
    with np.errstate(invalid="ignore", over="ignore"):
        refuse("received before it was published", received < published)
        refuse("took more than a day", received - published > LONGEST_DELAY_SECONDS)
    for name, most in (("priority", CLASSES), ("configuration_version", 2**53)):
        values = table.column(name).fill_null(0).to_numpy()
        refuse(f"{name} is out of range", (values < 0) | (values >= most))
    return {reason: count for reason, count in counts.items() if count}, good


def _contradicts(table: pa.Table, received: NDArray[np.float64]) -> Booleans:
    return np.asarray(delivered_rows(table) == np.isnan(received))


def early_rows(table: pa.Table) -> Booleans:
    """Those that were received before they were published, and are in order otherwise."""
    received, published = column_of(table, "received_at_seconds"), column_of(table, TIME)
    early = delivered_rows(table) & np.isfinite(received) & np.isfinite(published)
    early &= received < published
    for name in sorted(REQUIRED & {*table.column_names}):
        early &= np.asarray(table.column(name).is_valid().to_numpy())
    for name, most in (("priority", CLASSES), ("configuration_version", 2**53)):
        values = table.column(name).fill_null(0).to_numpy()
        early &= (values >= 0) & (values < most)
    return np.asarray(early)
