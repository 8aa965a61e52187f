"""Delivery records summed up: by slice of time, and by bucket of delay. Pure.

Sums are of whole nanoseconds and counts, so that sums of parts of the data add up to the same
whatever the order. Of the copies of one notification the one delivered first counts.
"""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from firedex.wire import Outcome
from firedex_spark.delay_sketch import NANOSECONDS, bucket_of

__all__ = ["CELL_SCHEMA", "COLUMNS", "REFUSED", "SLICES_OF_A_BATCH", "SUMS", "Cells", "cells_of"]

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

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
REQUIRED = {*COLUMNS} - {TIME, "received_at_seconds"}
NAMED = ("site", "run", "subscriber", "filter")
CELL_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("site", pa.string()),
        ("configuration_version", pa.int64()),
        ("priority", pa.int64()),
        ("subscriber", pa.string()),
        ("filter", pa.string()),
        ("run", pa.string()),
        ("count", pa.int64()),
        ("slices", pa.binary()),
        ("buckets", pa.binary()),
    ]
)
"""One row for each subscription of a window, its numbers packed (``Cells``); and what was wrong:
``refused`` rows (``filter`` says why, ``count`` how many)."""
SUMS, REFUSED = "sums", "refused"
SLICES_OF_A_BATCH = 64
CLASSES = 64
NEVER = np.iinfo(np.int64).max
LOW_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Numbers of one subscription, rows in any order.

    ``slices``: slice, offered, delivered, with a known delay, their sum in nanoseconds.
    ``buckets``: batch of slices, bucket of delay, how many.
    """

    slices: Integers
    buckets: Integers

    @classmethod
    def unpacked(cls, slices: bytes, buckets: bytes) -> "Cells":
        """From the columns of ``CELL_SCHEMA``."""
        return cls(
            slices=np.frombuffer(slices, dtype=np.int64).reshape(-1, 5),
            buckets=np.frombuffer(buckets, dtype=np.int64).reshape(-1, 3),
        )

    def coarser(self, factor: int) -> "Cells":
        """As if slices were so many times as wide; what then falls together is not added up yet."""
        slices, buckets = self.slices.copy(), self.buckets.copy()
        slices[:, 0] //= factor
        buckets[:, 0] //= factor
        return Cells(slices=slices, buckets=buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notifications:
    """One row for each.

    ``row``: subscription under a version and a class; ``subscription``: whatever they are;
    ``delay`` in nanoseconds, NEVER where none is known.
    """

    row: Integers
    subscription: Integers
    publication: Integers
    slice_: Integers
    delivered: Booleans
    delay: Integers

    def take(self, rows: Any) -> "_Notifications":
        return _Notifications(
            row=self.row[rows],
            subscription=self.subscription[rows],
            publication=self.publication[rows],
            slice_=self.slice_[rows],
            delivered=self.delivered[rows],
            delay=self.delay[rows],
        )


def cells_of(table: pa.Table, site: str | None, slice_seconds: float) -> pa.Table:
    """The sums of a window's records; ``site``: whose they all are, if the path says."""
    refused, good = _refused(table)
    if not good.all():
        table = table.filter(pa.array(good))
    if not table.num_rows:
        return refused
    subscription, texts = _subscriptions(table, site)
    version = _column(table, "configuration_version") * CLASSES + _column(table, "priority")
    versions, version = _numbered(version)
    rows, row = _numbered(subscription * len(versions) + version)
    found = _without_copies(_notifications(table, row, subscription, slice_seconds))
    names = _names(rows // len(versions), texts, site)
    numbers = versions[rows % len(versions)]
    names |= {"configuration_version": numbers // CLASSES, "priority": numbers % CLASSES}
    names |= {"slices": _packed(_slices(found), len(rows))}
    names |= {"buckets": _packed(_buckets(found), len(rows))}
    return pa.concat_tables([refused, _rows(SUMS, len(rows), names)])


def _rows(kind: str, count: int, given: dict[str, Any]) -> pa.Table:
    columns = [
        pa.array(given[f.name], type=f.type)
        if f.name in given
        else pa.repeat(pa.scalar(kind if f.name == "kind" else _blank(f.type), f.type), count)
        for f in CELL_SCHEMA
    ]
    return pa.table(columns, schema=CELL_SCHEMA)


def _blank(of: pa.DataType) -> Any:
    return "" if pa.types.is_string(of) else b"" if pa.types.is_binary(of) else 0


def _column(table: pa.Table, name: str) -> NDArray[Any]:
    return np.asarray(table.column(name).to_numpy())


def _codes(table: pa.Table, name: str) -> tuple[Integers, list[str]]:
    """A number for each text, −1 for none; and the texts."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, column.dictionary.to_pylist()


def _refused(table: pa.Table) -> tuple[pa.Table, Booleans]:
    """Rows that say nothing or contradict themselves, counted by reason."""
    good = np.ones(table.num_rows, dtype=bool)
    counts: dict[str, int] = {}

    def refuse(reason: str, rows: Booleans) -> None:
        counts[reason] = int((good & rows).sum())
        np.logical_and(good, ~rows, out=good)

    for name in sorted(REQUIRED & {*table.column_names}):
        if table.column(name).null_count:
            nothing = table.column(name).is_null()
            refuse(f"{name} is missing", np.asarray(nothing.to_numpy()))
    code, outcomes = _codes(table, "outcome")
    known = np.array([outcome in get_args(Outcome) for outcome in outcomes] + [False])
    refuse("outcome is unknown", ~known[code])
    received, published = _column(table, "received_at_seconds"), _column(table, TIME)
    refuse("received, but not delivered; or the other way", _delivered(table) == np.isnan(received))
    with np.errstate(invalid="ignore"):
        refuse("received before it was published", received < published)
    for name, most in (("priority", CLASSES), ("configuration_version", 2**53)):
        values = table.column(name).fill_null(0).to_numpy()
        refuse(f"{name} is out of range", (values < 0) | (values >= most))
    some = {reason: count for reason, count in counts.items() if count}
    return _rows(REFUSED, len(some), {"filter": list(some), "count": list(some.values())}), good


def _delivered(table: pa.Table) -> Booleans:
    code, outcomes = _codes(table, "outcome")
    of = np.array([outcome == "delivered" for outcome in outcomes] + [False])
    return np.asarray(of[code])


def _subscriptions(table: pa.Table, site: str | None) -> tuple[Integers, dict[str, list[str]]]:
    """A number for each subscription, and the texts that it is composed of."""
    combined = np.zeros(table.num_rows, dtype=np.int64)
    texts: dict[str, list[str]] = {}
    for name in NAMED:
        if name != "site" or site is None:
            code, texts[name] = _codes(table, name)
            combined = combined * len(texts[name]) + code
    return combined, texts


def _names(subscription: Integers, texts: dict[str, list[str]], site: str | None) -> dict[str, Any]:
    names: dict[str, Any] = {} if site is None else {"site": [site] * len(subscription)}
    for name in reversed(texts):
        subscription, code = np.divmod(subscription, len(texts[name]))
        names[name] = [texts[name][c] for c in code]
    return names


def _numbered(key: Integers) -> tuple[Integers, Integers]:
    """The different values, rising, and the position of each among them."""
    codes, values = pd.factorize(key)
    order = np.argsort(values, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return np.asarray(values)[order], rank[codes]


def _notifications(
    table: pa.Table, row: Integers, subscription: Integers, slice_seconds: float
) -> _Notifications:
    received, published = _column(table, "received_at_seconds"), _column(table, TIME)
    timed = ~np.isnan(received) & ~np.isnan(published)
    delay = np.full(len(received), NEVER)
    delay[timed] = np.rint((received - published)[timed] * NANOSECONDS).astype(np.int64)
    when = np.where(np.isnan(published), received, published)
    publication, names = _codes(table, "publication_id")
    if "" in names:
        publication = np.where(publication == names.index(""), -1, publication)
    return _Notifications(
        row=row,
        subscription=subscription,
        publication=publication,
        slice_=np.floor(np.where(np.isnan(when), 0.0, when) / slice_seconds).astype(np.int64),
        delivered=_delivered(table),
        delay=delay,
    )


def _without_copies(rows: _Notifications) -> _Notifications:
    """One of each; what has no name has no copies."""
    key = rows.publication * (int(rows.subscription.max()) + 1) + rows.subscription
    copied = pd.Series(key).duplicated(keep=False).to_numpy() & (rows.publication >= 0)
    if not copied.any():
        return rows
    several = np.flatnonzero(copied)
    by = (rows.row, rows.delay, ~rows.delivered, key)  # the last decides first
    several = several[np.lexsort(tuple(column[several] for column in by))]
    first = np.concatenate([[True], key[several][1:] != key[several][:-1]])
    return rows.take(np.concatenate([np.flatnonzero(~copied), several[first]]))


def _exact_sums(group: Integers, values: Integers, groups: int) -> Integers:
    """Sums of whole numbers, in two parts that floating point holds exactly."""
    high, low = values >> LOW_BITS, values & (2**LOW_BITS - 1)
    tops = np.bincount(group, high, groups).astype(np.int64)
    return (tops << LOW_BITS) + np.bincount(group, low, groups).astype(np.int64)


def _slices(rows: _Notifications) -> tuple[Integers, Integers]:
    """The row of each cell, rising, and its numbers."""
    base = rows.slice_.min()
    span = int(rows.slice_.max() - base) + 1
    found, group = _numbered(rows.row * span + rows.slice_ - base)
    timed, count = rows.delay != NEVER, len(found)
    numbers = [
        found % span + base,
        np.bincount(group, minlength=count),
        np.bincount(group[rows.delivered], minlength=count),
        np.bincount(group[timed], minlength=count),
        _exact_sums(group[timed], rows.delay[timed], count),
    ]
    return found // span, np.stack(numbers, axis=1)


def _buckets(rows: _Notifications) -> tuple[Integers, Integers]:
    """The row of each cell, rising, and its numbers."""
    rows = rows.take(rows.delay != NEVER)
    if not len(rows.delay):
        return np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    bucket, batch = bucket_of(rows.delay), rows.slice_ // SLICES_OF_A_BATCH
    low, span = bucket.min(), int(bucket.max() - bucket.min()) + 1
    first, batches = batch.min(), int(batch.max() - batch.min()) + 1
    found, group = _numbered((rows.row * batches + batch - first) * span + bucket - low)
    rest, offset = np.divmod(found, span)
    numbers = [rest % batches + first, offset + low, np.bincount(group, minlength=len(found))]
    return rest // batches, np.stack(numbers, axis=1)


def _packed(cells: tuple[Integers, Integers], rows: int) -> list[bytes]:
    row, numbers = cells
    bounds = np.searchsorted(row, np.arange(rows + 1))
    return [numbers[bounds[r] : bounds[r + 1]].tobytes() for r in range(rows)]
