"""Sums of delivery records by slice of time and by bucket of delay. Pure.

Sums are integers (nanoseconds and counts), so sums of parts add up to the same whatever the order.
Of the duplicates of one notification the first delivery counts.

Slices are a power of two of seconds wide, as narrow as the time span of the row allows. Other
windows have other widths; narrower slices join exactly into wider ones (``Cells.coarser``).

Delays are counted in buckets of fixed relative width ``WIDTH``, which merge exactly. The relative
error of a percentile is below ``WIDTH``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from firedex_spark.records.columns import (
    CLASSES,
    TIME,
    check_rows,
    is_delivered,
    is_received_early,
    number_column,
    text_codes,
)

__all__ = [
    "CELL_SCHEMA",
    "EARLY",
    "ERA_SECONDS",
    "MAX_SLICES",
    "REFUSED",
    "SUMS",
    "WIDTH",
    "Cells",
    "delay_bucket",
    "fraction_below",
    "lower_edge_seconds",
    "percentile",
    "slice_width",
    "sum_by_key",
    "sum_up_records",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WIDTH = 0.03
_LOGARITHM = float(np.log1p(WIDTH))
NANOSECONDS = 1e9


def delay_bucket(delay_nanoseconds: Integers) -> Integers:
    """Return the bucket of each delay; delays below one nanosecond share the first."""
    delay = np.maximum(delay_nanoseconds, 1).astype(np.float64)
    return np.floor(np.log(delay) / _LOGARITHM).astype(np.int64)


def lower_edge_seconds(bucket: Floats | Integers) -> Floats:
    """Return the lower edge of a bucket; fractions interpolate the logarithm."""
    edges: Floats = np.exp(np.asarray(bucket, dtype=np.float64) * _LOGARITHM) / NANOSECONDS
    return edges


def percentile(bucket: Integers, count: Integers, level: float) -> float:
    """Return the delay in seconds that a fraction ``level`` does not exceed; buckets are sorted."""
    reached = np.cumsum(count)
    target = level * reached[-1]
    index = min(int(np.searchsorted(reached, target)), len(bucket) - 1)
    before = reached[index] - count[index]
    part = (target - before) / count[index]
    return float(lower_edge_seconds(np.array([bucket[index] + part]))[0])


def fraction_below(bucket: Integers, count: Integers, seconds: float) -> float:
    """Return the fraction of delays of at most ``seconds``."""
    position = np.log(max(seconds * NANOSECONDS, 1.0)) / _LOGARITHM
    part = np.clip(position - bucket, 0.0, 1.0)
    return float((part * count).sum() / count.sum())


Booleans = NDArray[np.bool_]

KEY_COLUMNS = ("site", "run", "subscriber", "filter")
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
"""One row for each subscription and era of a window: its packed sums (``Cells``), the number of its
notifications, and the number of those not delivered. Also rows for problems: ``refused`` rows
(``filter`` is the reason, ``count`` the number), and ``early`` rows by subscription, which are
refused because they were received before their publication time."""
SUMS, REFUSED, EARLY = "sums", "refused", "early"
ERA_SECONDS = 2.0**17
"""Length of an era, a day and a half. Eras separate times of a wrong clock from the others."""
SLICES_PER_BATCH = 32
MAX_SLICES = 512
NO_DELAY = np.iinfo(np.int64).max
LOW_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The sums of one subscription, in any order of rows.

    ``slices``: slice, offered, delivered, with a known delay, their sum in nanoseconds.
    ``buckets``: batch of ``SLICES_PER_BATCH`` slices, bucket of delay, count.
    """

    slices: Integers
    buckets: Integers

    @classmethod
    def unpack(cls, slices: bytes, buckets: bytes) -> "Cells":
        """Return the cells from the columns of ``CELL_SCHEMA``."""
        return cls(
            slices=np.frombuffer(slices, dtype=np.int64).reshape(-1, 5),
            buckets=np.frombuffer(buckets, dtype=np.int64).reshape(-1, 3),
        )

    def coarser(self, factor: int) -> "Cells":
        """Return the cells with slices ``factor`` times as wide."""
        slices, buckets = self.slices.copy(), self.buckets.copy()
        slices[:, 0] //= factor
        buckets[:, 0] //= factor
        return Cells(slices=sum_by_key(slices, keys=1), buckets=sum_by_key(buckets, keys=2))


def sum_by_key(numbers: Integers, keys: int) -> Integers:
    """Return the sums of rows with equal first ``keys`` columns, in ascending order of those."""
    if not len(numbers):
        return numbers
    numbers = numbers[np.lexsort([numbers[:, key] for key in reversed(range(keys))])]
    same = (np.diff(numbers[:, :keys], axis=0) == 0).all(axis=1)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    sums = np.add.reduceat(numbers[:, keys:], first, axis=0)
    return np.concatenate([numbers[first, :keys], sums], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notifications:
    """One row for each notification.

    ``version``: configuration version and class in one number; ``times``: published, else received;
    ``delay`` in nanoseconds, NO_DELAY if it is unknown.
    """

    subscription: Integers
    version: Integers
    publication: Integers
    times: Floats
    delivered: Booleans
    delay: Integers

    def take(self, rows: Any) -> "_Notifications":
        return _Notifications(
            subscription=self.subscription[rows],
            version=self.version[rows],
            publication=self.publication[rows],
            times=self.times[rows],
            delivered=self.delivered[rows],
            delay=self.delay[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positions:
    """The output row and the slice of each notification."""

    row: Integers
    slice_: Integers
    earliest: Floats
    latest: Floats
    width: Floats


def slice_width(seconds: Floats) -> Floats:
    """Return the width of slices for a time span."""
    target = np.maximum(seconds, 1e-3) / MAX_SLICES
    return np.asarray(2.0 ** np.ceil(np.log2(target)))


def sum_up_records(table: pa.Table, site: str | None) -> pa.Table:
    """Return the sums of the records of a window; ``site``: from the path, if it names one."""
    counts, good = check_rows(table)
    given = {"filter": list(counts), "count": list(counts.values())}
    refused = _rows(REFUSED, len(counts), given)
    if not good.all():
        early = _count_early(table.filter(pa.array(is_received_early(table))), site)
        refused = pa.concat_tables([refused, early])
        table = table.filter(pa.array(good))
    if not table.num_rows:
        return refused
    subscription, names = _subscriptions(table, site)
    found = _without_duplicates(_notifications(table, subscription))
    versions, version = _rank_values(found.version)
    eras, era = _rank_values(np.floor(found.times / ERA_SECONDS).astype(np.int64))
    keys, row = _rank_values((found.subscription * len(versions) + version) * len(eras) + era)
    rows = keys // len(eras)
    positions = _positions(row, found.times, len(rows))
    numbers = versions[rows % len(versions)]
    columns = {name: pa.array(texts).take(rows // len(versions)) for name, texts in names.items()}
    columns |= {"count": np.bincount(row), "lost": np.bincount(row, ~found.delivered).astype(int)}
    columns |= {"configuration_version": numbers // CLASSES, "priority": numbers % CLASSES}
    columns |= {"earliest": positions.earliest, "latest": positions.latest}
    columns |= {"slice_seconds": positions.width}
    columns |= {"slices": _pack(_slices(found, positions), len(rows))}
    columns |= {"buckets": _pack(_buckets(found, positions), len(rows))}
    return pa.concat_tables([refused, _rows(SUMS, len(rows), columns)])


def _count_early(table: pa.Table, site: str | None) -> pa.Table:
    """Count notifications that were received before they were published, duplicates once."""
    if not table.num_rows:
        return _rows(EARLY, 0, {})
    subscription, names = _subscriptions(table, site)
    found = _without_duplicates(_notifications(table, subscription))
    versions, version = _rank_values(found.version)
    keys, row = _rank_values(found.subscription * len(versions) + version)
    numbers = versions[keys % len(versions)]
    columns = {name: pa.array(texts).take(keys // len(versions)) for name, texts in names.items()}
    columns |= {"configuration_version": numbers // CLASSES, "priority": numbers % CLASSES}
    return _rows(EARLY, len(keys), columns | {"count": np.bincount(row)})


def _positions(row: Integers, times: Floats, rows: int) -> _Positions:
    earliest, latest = np.full(rows, np.inf), np.full(rows, -np.inf)
    np.minimum.at(earliest, row, times)
    np.maximum.at(latest, row, times)
    width = slice_width(latest - earliest)
    slice_ = np.floor(times / width[row]).astype(np.int64)
    return _Positions(row=row, slice_=slice_, earliest=earliest, latest=latest, width=width)


def _rows(kind: str, count: int, given: dict[str, Any]) -> pa.Table:
    columns = [
        pa.array(given[f.name], type=f.type)
        if f.name in given
        else pa.repeat(
            pa.scalar(kind if f.name == "kind" else _default_values(f.type), f.type), count
        )
        for f in CELL_SCHEMA
    ]
    return pa.table(columns, schema=CELL_SCHEMA)


def _default_values(of: pa.DataType) -> Any:
    return "" if pa.types.is_string(of) else b"" if pa.types.is_binary(of) else 0


def _subscriptions(table: pa.Table, site: str | None) -> tuple[Integers, dict[str, list[str]]]:
    """Return a number for each subscription of a run, and the names of each."""
    number = np.zeros(table.num_rows, dtype=np.int64)
    coded: dict[str, tuple[Integers, list[str]]] = {}
    for name in KEY_COLUMNS:
        if name != "site" or site is None:
            code, texts = coded[name] = text_codes(table, name)
            _, number = _rank_values(number * len(texts) + code)
    _, first = np.unique(number, return_index=True)
    names = {name: [texts[c] for c in code[first]] for name, (code, texts) in coded.items()}
    return number, names if site is None else {**names, "site": [site] * len(first)}


def _rank_values(key: Integers) -> tuple[Integers, Integers]:
    """Return the distinct values in ascending order, and the position of each value."""
    codes, values = pd.factorize(key)
    order = np.argsort(values, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return np.asarray(values)[order], rank[codes]


def _notifications(table: pa.Table, subscription: Integers) -> _Notifications:
    received, published = number_column(table, "received_at_seconds"), number_column(table, TIME)
    timed = ~np.isnan(received) & ~np.isnan(published)
    delay = np.full(len(received), NO_DELAY)
    delay[timed] = np.rint((received - published)[timed] * NANOSECONDS).astype(np.int64)
    version = number_column(table, "configuration_version") * CLASSES + number_column(
        table, "priority"
    )
    publication, names = text_codes(table, "publication_id")
    if "" in names:
        publication = np.where(publication == names.index(""), -1, publication)
    return _Notifications(
        subscription=subscription,
        version=version,
        publication=publication,
        times=np.where(np.isnan(published), received, published),
        delivered=is_delivered(table),
        delay=delay,
    )


def _without_duplicates(rows: _Notifications) -> _Notifications:
    """Return one row for each notification; rows without a publication id are no duplicates."""
    key = rows.publication * (int(rows.subscription.max()) + 1) + rows.subscription
    copied = pd.Series(key).duplicated(keep=False).to_numpy() & (rows.publication >= 0)
    if not copied.any():
        return rows
    duplicates = np.flatnonzero(copied)
    by = (rows.version, rows.delay, ~rows.delivered, key)  # the last key is the primary one
    duplicates = duplicates[np.lexsort(tuple(column[duplicates] for column in by))]
    first = np.concatenate([[True], key[duplicates][1:] != key[duplicates][:-1]])
    return rows.take(np.concatenate([np.flatnonzero(~copied), duplicates[first]]))


def _exact_sums(group: Integers, values: Integers, groups: int) -> Integers:
    """Return sums of integers, computed in two parts that floating point holds exactly."""
    high, low = values >> LOW_BITS, values & (2**LOW_BITS - 1)
    tops = np.bincount(group, high, groups).astype(np.int64)
    return (tops << LOW_BITS) + np.bincount(group, low, groups).astype(np.int64)


def _slices(rows: _Notifications, positions: _Positions) -> tuple[Integers, Integers]:
    """Return the output row of each slice cell, ascending, and its numbers."""
    base = np.floor(positions.earliest / positions.width).astype(np.int64)
    span = MAX_SLICES + 1
    found, group = _rank_values(positions.row * span + positions.slice_ - base[positions.row])
    timed, count = rows.delay != NO_DELAY, len(found)
    row, within = np.divmod(found, span)
    numbers = [
        within + base[row],
        np.bincount(group, minlength=count),
        np.bincount(group[rows.delivered], minlength=count),
        np.bincount(group[timed], minlength=count),
        _exact_sums(group[timed], rows.delay[timed], count),
    ]
    return row, np.stack(numbers, axis=1)


def _buckets(rows: _Notifications, positions: _Positions) -> tuple[Integers, Integers]:
    """Return the output row of each bucket cell, ascending, and its numbers."""
    timed = rows.delay != NO_DELAY
    if not timed.any():
        return np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    row, bucket = positions.row[timed], delay_bucket(rows.delay[timed])
    base = np.floor(positions.earliest / positions.width).astype(np.int64) // SLICES_PER_BATCH
    batch = positions.slice_[timed] // SLICES_PER_BATCH - base[row]
    batches = MAX_SLICES // SLICES_PER_BATCH + 1
    low, span = bucket.min(), int(bucket.max() - bucket.min()) + 1
    found, group = _rank_values((row * batches + batch) * span + bucket - low)
    rest, offset = np.divmod(found, span)
    row, batch = np.divmod(rest, batches)
    numbers = [batch + base[row], offset + low, np.bincount(group, minlength=len(found))]
    return row, np.stack(numbers, axis=1)


def _pack(cells: tuple[Integers, Integers], rows: int) -> list[bytes]:
    row, numbers = cells
    bounds = np.searchsorted(row, np.arange(rows + 1))
    return [numbers[bounds[r] : bounds[r + 1]].tobytes() for r in range(rows)]
