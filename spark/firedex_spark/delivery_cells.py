"""Delivery records summed up: by slice of time, and by bucket of delay. Pure.

Sums are of whole nanoseconds and counts, so that sums of parts of the data add up to the same
whatever the order. Of the copies of one notification the one delivered first counts.

Slices are a power of two of seconds wide: as narrow as the time that a row covers allows. Rows of
other windows have other widths; the narrower joins exactly into the wider (``Cells.coarser``).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from firedex_spark.delay_sketch import NANOSECONDS, bucket_of
from firedex_spark.record_columns import CLASSES, TIME, codes_of, column_of, delivered_rows
from firedex_spark.record_rows import early_rows, refused_rows

__all__ = [
    "CELL_SCHEMA",
    "EARLY",
    "ERA_SECONDS",
    "MOST_SLICES",
    "REFUSED",
    "SUMS",
    "Cells",
    "added_up",
    "cells_of",
    "slice_width",
]

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
        ("lost", pa.int64()),
        ("earliest", pa.float64()),
        ("latest", pa.float64()),
        ("slice_seconds", pa.float64()),
        ("slices", pa.binary()),
        ("buckets", pa.binary()),
    ]
)
"""One row for each subscription and era of a window, its numbers packed (``Cells``), how many it
has and how many of them did not arrive; and what was wrong: ``refused`` rows (``filter`` says why,
``count`` how many), and those of them that came too ``early`` for their stamps once more, as
notifications by subscription."""
SUMS, REFUSED, EARLY = "sums", "refused", "early"
ERA_SECONDS = 2.0**17
"""A row is of one era (a day and a half): what a wrong clock says is apart from the rest."""
SLICES_OF_A_BATCH = 32
MOST_SLICES = 512
NEVER = np.iinfo(np.int64).max
LOW_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Numbers of one subscription, rows in any order.

    ``slices``: slice, offered, delivered, with a known delay, their sum in nanoseconds.
    ``buckets``: batch of so many slices (``SLICES_OF_A_BATCH``), bucket of delay, how many.
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
        """As if slices were so many times as wide."""
        slices, buckets = self.slices.copy(), self.buckets.copy()
        slices[:, 0] //= factor
        buckets[:, 0] //= factor
        return Cells(slices=added_up(slices, keys=1), buckets=added_up(buckets, keys=2))


def added_up(numbers: Integers, keys: int) -> Integers:
    """Rows whose first ``keys`` columns are the same, added up; in rising order of those."""
    if not len(numbers):
        return numbers
    numbers = numbers[np.lexsort([numbers[:, key] for key in reversed(range(keys))])]
    same = (np.diff(numbers[:, :keys], axis=0) == 0).all(axis=1)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    sums = np.add.reduceat(numbers[:, keys:], first, axis=0)
    return np.concatenate([numbers[first, :keys], sums], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notifications:
    """One row for each.

    ``version``: configuration and class in one number; ``when``: published, else received;
    ``delay`` in nanoseconds, NEVER where none is known.
    """

    subscription: Integers
    version: Integers
    publication: Integers
    when: Floats
    delivered: Booleans
    delay: Integers

    def take(self, rows: Any) -> "_Notifications":
        return _Notifications(
            subscription=self.subscription[rows],
            version=self.version[rows],
            publication=self.publication[rows],
            when=self.when[rows],
            delivered=self.delivered[rows],
            delay=self.delay[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where each notification belongs: its row, and the slice of that row's width."""

    row: Integers
    slice_: Integers
    earliest: Floats
    latest: Floats
    width: Floats


def slice_width(seconds: Floats) -> Floats:
    """How wide slices are over so long a time."""
    wanted = np.maximum(seconds, 1e-3) / MOST_SLICES
    return np.asarray(2.0 ** np.ceil(np.log2(wanted)))


def cells_of(table: pa.Table, site: str | None) -> pa.Table:
    """The sums of a window's records; ``site``: whose they all are, if the path says."""
    counts, good = refused_rows(table)
    given = {"filter": list(counts), "count": list(counts.values())}
    refused = _rows(REFUSED, len(counts), given)
    if not good.all():
        early = _early(table.filter(pa.array(early_rows(table))), site)
        refused = pa.concat_tables([refused, early])
        table = table.filter(pa.array(good))
    if not table.num_rows:
        return refused
    subscription, names = _subscriptions(table, site)
    found = _without_copies(_notifications(table, subscription))
    versions, version = _numbered(found.version)
    eras, era = _numbered(np.floor(found.when / ERA_SECONDS).astype(np.int64))
    keys, row = _numbered((found.subscription * len(versions) + version) * len(eras) + era)
    rows = keys // len(eras)
    placed = _placed(row, found.when, len(rows))
    numbers = versions[rows % len(versions)]
    columns = {name: pa.array(texts).take(rows // len(versions)) for name, texts in names.items()}
    columns |= {"count": np.bincount(row), "lost": np.bincount(row, ~found.delivered).astype(int)}
    columns |= {"configuration_version": numbers // CLASSES, "priority": numbers % CLASSES}
    columns |= {"earliest": placed.earliest, "latest": placed.latest}
    columns |= {"slice_seconds": placed.width}
    columns |= {"slices": _packed(_slices(found, placed), len(rows))}
    columns |= {"buckets": _packed(_buckets(found, placed), len(rows))}
    return pa.concat_tables([refused, _rows(SUMS, len(rows), columns)])


def _early(table: pa.Table, site: str | None) -> pa.Table:
    """How many notifications came too early, copies counted once, by subscription and class."""
    if not table.num_rows:
        return _rows(EARLY, 0, {})
    subscription, names = _subscriptions(table, site)
    found = _without_copies(_notifications(table, subscription))
    versions, version = _numbered(found.version)
    keys, row = _numbered(found.subscription * len(versions) + version)
    numbers = versions[keys % len(versions)]
    columns = {name: pa.array(texts).take(keys // len(versions)) for name, texts in names.items()}
    columns |= {"configuration_version": numbers // CLASSES, "priority": numbers % CLASSES}
    return _rows(EARLY, len(keys), columns | {"count": np.bincount(row)})


def _placed(row: Integers, when: Floats, rows: int) -> _Placed:
    earliest, latest = np.full(rows, np.inf), np.full(rows, -np.inf)
    np.minimum.at(earliest, row, when)
    np.maximum.at(latest, row, when)
    width = slice_width(latest - earliest)
    slice_ = np.floor(when / width[row]).astype(np.int64)
    return _Placed(row=row, slice_=slice_, earliest=earliest, latest=latest, width=width)


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


def _subscriptions(table: pa.Table, site: str | None) -> tuple[Integers, dict[str, list[str]]]:
    """A number for each subscription of a run, and the names of each."""
    number = np.zeros(table.num_rows, dtype=np.int64)
    coded: dict[str, tuple[Integers, list[str]]] = {}
    for name in NAMED:
        if name != "site" or site is None:
            code, texts = coded[name] = codes_of(table, name)
            _, number = _numbered(number * len(texts) + code)
    _, first = np.unique(number, return_index=True)
    names = {name: [texts[c] for c in code[first]] for name, (code, texts) in coded.items()}
    return number, names if site is None else {**names, "site": [site] * len(first)}


def _numbered(key: Integers) -> tuple[Integers, Integers]:
    """The different values, rising, and the position of each among them."""
    codes, values = pd.factorize(key)
    order = np.argsort(values, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return np.asarray(values)[order], rank[codes]


def _notifications(table: pa.Table, subscription: Integers) -> _Notifications:
    received, published = column_of(table, "received_at_seconds"), column_of(table, TIME)
    timed = ~np.isnan(received) & ~np.isnan(published)
    delay = np.full(len(received), NEVER)
    delay[timed] = np.rint((received - published)[timed] * NANOSECONDS).astype(np.int64)
    version = column_of(table, "configuration_version") * CLASSES + column_of(table, "priority")
    publication, names = codes_of(table, "publication_id")
    if "" in names:
        publication = np.where(publication == names.index(""), -1, publication)
    return _Notifications(
        subscription=subscription,
        version=version,
        publication=publication,
        when=np.where(np.isnan(published), received, published),
        delivered=delivered_rows(table),
        delay=delay,
    )


def _without_copies(rows: _Notifications) -> _Notifications:
    """One of each; what has no name has no copies."""
    key = rows.publication * (int(rows.subscription.max()) + 1) + rows.subscription
    copied = pd.Series(key).duplicated(keep=False).to_numpy() & (rows.publication >= 0)
    if not copied.any():
        return rows
    several = np.flatnonzero(copied)
    by = (rows.version, rows.delay, ~rows.delivered, key)  # the last decides first
    several = several[np.lexsort(tuple(column[several] for column in by))]
    first = np.concatenate([[True], key[several][1:] != key[several][:-1]])
    return rows.take(np.concatenate([np.flatnonzero(~copied), several[first]]))


def _exact_sums(group: Integers, values: Integers, groups: int) -> Integers:
    """Sums of whole numbers, in two parts that floating point holds exactly."""
    high, low = values >> LOW_BITS, values & (2**LOW_BITS - 1)
    tops = np.bincount(group, high, groups).astype(np.int64)
    return (tops << LOW_BITS) + np.bincount(group, low, groups).astype(np.int64)


def _slices(rows: _Notifications, placed: _Placed) -> tuple[Integers, Integers]:
    """The row of each cell, rising, and its numbers."""
    base = np.floor(placed.earliest / placed.width).astype(np.int64)
    span = MOST_SLICES + 1
    found, group = _numbered(placed.row * span + placed.slice_ - base[placed.row])
    timed, count = rows.delay != NEVER, len(found)
    row, within = np.divmod(found, span)
    numbers = [
        within + base[row],
        np.bincount(group, minlength=count),
        np.bincount(group[rows.delivered], minlength=count),
        np.bincount(group[timed], minlength=count),
        _exact_sums(group[timed], rows.delay[timed], count),
    ]
    return row, np.stack(numbers, axis=1)


def _buckets(rows: _Notifications, placed: _Placed) -> tuple[Integers, Integers]:
    """The row of each cell, rising, and its numbers."""
    timed = rows.delay != NEVER
    if not timed.any():
        return np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    row, bucket = placed.row[timed], bucket_of(rows.delay[timed])
    base = np.floor(placed.earliest / placed.width).astype(np.int64) // SLICES_OF_A_BATCH
    batch = placed.slice_[timed] // SLICES_OF_A_BATCH - base[row]
    batches = MOST_SLICES // SLICES_OF_A_BATCH + 1
    low, span = bucket.min(), int(bucket.max() - bucket.min()) + 1
    found, group = _numbered((row * batches + batch) * span + bucket - low)
    rest, offset = np.divmod(found, span)
    row, batch = np.divmod(rest, batches)
    numbers = [batch + base[row], offset + low, np.bincount(group, minlength=len(found))]
    return row, np.stack(numbers, axis=1)


def _packed(cells: tuple[Integers, Integers], rows: int) -> list[bytes]:
    row, numbers = cells
    bounds = np.searchsorted(row, np.arange(rows + 1))
    return [numbers[bounds[r] : bounds[r + 1]].tobytes() for r in range(rows)]
