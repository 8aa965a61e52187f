"""Columns of delivery records as arrays, and which rows can be used. Pure."""

from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firedex.wire import Outcome

__all__ = [
    "CLASSES",
    "COLUMNS",
    "MAX_DELAY_SECONDS",
    "MAX_TIME_SECONDS",
    "TIME",
    "check_rows",
    "is_delivered",
    "is_received_early",
    "is_valid_time",
    "number_column",
    "plain_columns",
    "text_bytes",
    "text_codes",
]

TIME = "published_at_seconds"
COLUMNS = (
    "site",
    "run",
    "publication_id",
    "subscriber",
    "filter",
    "priority",
    "configuration_version",
    TIME,
    "received_at_seconds",
    "outcome",
)
CLASSES = 64
"""Priorities are below this number."""
MAX_TIME_SECONDS = 1e11
"""Latest valid time; with it slice numbers fit 64 bits. Times before 1970 are invalid too."""


def number_column(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a column of numbers; a missing value is NaN."""
    return np.asarray(table.column(name).to_numpy())


def is_valid_time(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which times can be times of a record; NaN cannot."""
    return np.asarray((times >= 0.0) & (times <= MAX_TIME_SECONDS))


def text_codes(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return a code for each text (−1 for none) and the texts."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, column.dictionary.to_pylist()


def is_delivered(table: pa.Table) -> NDArray[np.bool_]:
    """Return which rows were delivered."""
    code, outcomes = text_codes(table, "outcome")
    delivered_codes = np.array([outcome == "delivered" for outcome in outcomes] + [False])
    return np.asarray(delivered_codes[code])


def plain_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with plain text columns instead of views, and typed empty columns."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.string()))
        elif pa.types.is_null(field.type):
            kind = schema.field(field.name).type
            table = table.set_column(number, field.name, table.column(number).cast(kind))
    return table


def text_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a text column, plain or dictionary-encoded, as bytes."""
    if pa.types.is_dictionary(column.type):
        plain = [chunk.dictionary_decode() for chunk in column.chunks]
        column = pa.chunked_array(plain, column.type.value_type)
    return column.cast(pa.binary())


Booleans = NDArray[np.bool_]
REQUIRED = {*COLUMNS} - {TIME, "received_at_seconds"}
MAX_DELAY_SECONDS = 86_400.0
"""A longer delay means that a clock is wrong."""


def check_rows(table: pa.Table) -> tuple[dict[str, int], Booleans]:
    """Return the number of refused rows for each reason, and which rows are good."""
    good = np.ones(table.num_rows, dtype=bool)
    counts: dict[str, int] = {}

    def refuse(reason: str, rows: Booleans) -> None:
        counts[reason] = counts.get(reason, 0) + int((good & rows).sum())
        np.logical_and(good, ~rows, out=good)

    for name in sorted(REQUIRED & {*table.column_names}):
        if table.column(name).null_count:
            is_missing = table.column(name).is_null()
            refuse(f"{name} is missing", np.asarray(is_missing.to_numpy()))
    code, outcomes = text_codes(table, "outcome")
    known = np.array([outcome in get_args(Outcome) for outcome in outcomes] + [False])
    refuse("outcome is unknown", ~known[code])
    received, published = number_column(table, "received_at_seconds"), number_column(table, TIME)
    refuse("a time is not finite", np.isinf(received) | np.isinf(published))
    for times in (published, received):
        refuse(
            "a time is before 1970 or after the year 5138", ~is_valid_time(times) & ~np.isnan(times)
        )
    refuse("outcome and received_at_seconds contradict each other", _contradicts(table, received))
    refuse(
        "published_at_seconds and received_at_seconds are missing",
        np.isnan(received) & np.isnan(published),
    )
    with np.errstate(invalid="ignore", over="ignore"):
        refuse("received before it was published", received < published)
        refuse("delay is more than a day", received - published > MAX_DELAY_SECONDS)
    for name, limit in (("priority", CLASSES), ("configuration_version", 2**53)):
        values = table.column(name).fill_null(0).to_numpy()
        refuse(f"{name} is out of range", (values < 0) | (values >= limit))
    return {reason: count for reason, count in counts.items() if count}, good


def _contradicts(table: pa.Table, received: NDArray[np.float64]) -> Booleans:
    return np.asarray(is_delivered(table) == np.isnan(received))


def is_received_early(table: pa.Table) -> Booleans:
    """Return which rows were received before they were published and are otherwise valid."""
    received, published = number_column(table, "received_at_seconds"), number_column(table, TIME)
    early = is_delivered(table) & np.isfinite(received) & np.isfinite(published)
    early &= received < published
    for name in sorted(REQUIRED & {*table.column_names}):
        early &= np.asarray(table.column(name).is_valid().to_numpy())
    for name, limit in (("priority", CLASSES), ("configuration_version", 2**53)):
        values = table.column(name).fill_null(0).to_numpy()
        early &= (values >= 0) & (values < limit)
    return np.asarray(early)
