"""The columns of delivery records that jobs look at, as numbers. Pure."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "CLASSES",
    "COLUMNS",
    "LATEST_SECONDS",
    "TIME",
    "codes_of",
    "column_of",
    "delivered_rows",
    "is_stamp",
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
"""Priorities are below that."""
LATEST_SECONDS = 1e11
"""No record is of a later time, nor of one before 1970: whole numbers of slices hold them all."""


def column_of(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of numbers; what is missing is NaN."""
    return np.asarray(table.column(name).to_numpy())


def is_stamp(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of them can be times of a record; NaN is none."""
    return np.asarray((times >= 0.0) & (times <= LATEST_SECONDS))


def codes_of(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """A number for each text, −1 for none; and the texts."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, column.dictionary.to_pylist()


def delivered_rows(table: pa.Table) -> NDArray[np.bool_]:
    """Which of them arrived."""
    code, outcomes = codes_of(table, "outcome")
    of = np.array([outcome == "delivered" for outcome in outcomes] + [False])
    return np.asarray(of[code])
