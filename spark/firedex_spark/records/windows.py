"""Windows of time over delivery records, which can be processed independently.

Duplicates of one notification carry the same time of publication, so all of them are in one window,
and no shuffle is needed to find them. Rows without a time have no delay and cannot be duplicates of
rows with one: they form windows of their own. A window that turns out to be too large is read in
parts, by the same rule.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import ceil, floor, inf
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pandas.util import hash_array

from firedex_spark.errors import BadFile, unreadable_file
from firedex_spark.records.columns import (
    MAX_TIME_SECONDS,
    TIME,
    is_valid_time,
    plain_columns,
    text_bytes,
)
from firedex_spark.records.files import RecordFile, RowGroup
from firedex_spark.schemas import DELIVERY_SCHEMA

__all__ = [
    "Piece",
    "Window",
    "make_fixed_windows",
    "make_windows",
    "read_in_parts",
    "read_window",
    "with_window_numbers",
]

ROWS_PER_WINDOW = 1_500_000
CUT_TOLERANCE = 0.4
"""Fraction of a window by which a cut may be moved to the beginning of a row group."""
LONG_GROUP_SECONDS = 86_400.0
"""The times of rows are read in longer row groups, because one wrong clock may stretch them."""
PARTS_PER_LONG_GROUP = 64
MAX_OVERSIZE = 1.5
"""A window that is larger by more than this factor is read in parts."""
NAME = "publication_id"


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file, and the number of rows in them, inside the window or not."""

    path: str
    groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rows of one site with ``start`` <= time of publication < ``end``.

    ``site`` is None if the rows name their site. If ``untimed``, the window has the rows without a
    time instead. ``named`` then selects rows with or without a publication id (None: all), and
    ``share`` = (k, n) selects the k-th of n shares of the rows with an id.
    """

    site: str | None
    start: float
    end: float
    untimed: bool
    pieces: tuple[Piece, ...]
    named: bool | None = None
    share: tuple[int, int] = (0, 1)


GroupOfFile = tuple[RecordFile, RowGroup]


def make_windows(files: Sequence[RecordFile]) -> list[Window]:
    """Return windows of about equal size, cut at the beginning of a row group if one is near."""
    windows: list[Window] = []
    for site, groups in _by_site(files):
        timed = [p for p in groups if p[1].earliest <= p[1].latest]
        cut_times = [-inf, *_cut_times([part for p in timed for part in _group_parts(*p)]), inf]
        windows += _windows(site, timed, pairwise(cut_times))
        windows += _untimed_windows(site, groups)
    return windows


def _group_parts(file: RecordFile, group: RowGroup) -> list[RowGroup]:
    """Return a row group, split into parts of equal size if it spans a long time."""
    if group.latest - group.earliest <= LONG_GROUP_SECONDS:
        return [group]
    try:
        times = _read_times(str(file.path), group.number)
    except (OSError, pa.ArrowException):
        return [group]  # reading reports the error
    return _even_parts(group.number, times)


def _read_times(path: str, group: int) -> NDArray[np.float64]:
    with pq.ParquetFile(path) as file:
        column = file.read_row_group(group, [TIME]).column(TIME)
    times = np.asarray(column.drop_null().to_numpy(), dtype=np.float64)
    return times[is_valid_time(times)]


def _cut_times(groups: list[RowGroup]) -> list[float]:
    """Return times that cut the rows into windows of about the wanted size.

    Assumes that the rows of a group are spread evenly over its time.
    """
    if not groups:
        return []
    early, late = np.array([[g.earliest, g.latest] for g in groups]).T
    rows = np.array([g.rows for g in groups], dtype=np.float64)
    times = np.unique(np.concatenate([early, late]))
    first, last = np.searchsorted(times, early), np.searchsorted(times, late)
    lasting = last > first
    pace = np.zeros(len(times))
    np.add.at(pace, first[lasting], rows[lasting] / (late - early)[lasting])
    np.add.at(pace, last[lasting], -rows[lasting] / (late - early)[lasting])
    at_once = np.bincount(first[~lasting], rows[~lasting], len(times))
    between = np.cumsum(pace)[:-1] * np.diff(times)
    before = np.concatenate([[0.0], np.cumsum(between + at_once[:-1])])
    number = ceil(rows.sum() / ROWS_PER_WINDOW)
    starts = np.unique(early)
    rows_before_start = np.interp(starts, times, before)
    cut_times = set()
    for names_to_read in rows.sum() * np.arange(1, number) / number:
        nearest = int(np.abs(rows_before_start - names_to_read).argmin())
        near = abs(rows_before_start[nearest] - names_to_read) <= CUT_TOLERANCE * ROWS_PER_WINDOW
        cut_times.add(float(starts[nearest] if near else np.interp(names_to_read, before, times)))
    return sorted(cut_times)


def with_window_numbers(file: RecordFile, seconds: float) -> RecordFile:
    """Return the file with the fixed windows of its long row groups; may raise on reading."""
    groups = tuple(
        group
        if group.latest - group.earliest <= LONG_GROUP_SECONDS
        else replace(group, windows=_group_window_numbers(str(file.path), group.number, seconds))
        for group in file.groups
    )
    return replace(file, groups=groups)


def _group_window_numbers(path: str, group: int, seconds: float) -> tuple[int, ...]:
    return tuple(np.unique(np.floor(_read_times(path, group) / seconds)).astype(np.int64).tolist())


def make_fixed_windows(files: Sequence[RecordFile], seconds: float) -> list[Window]:
    """Return windows of fixed bounds (see ``with_window_numbers``), whatever other files exist."""
    windows: list[Window] = []
    for site, groups in _by_site(files):
        inside: dict[int, list[GroupOfFile]] = {}
        for each in groups:
            for number in _window_numbers(each[1], seconds):
                inside.setdefault(number, []).append(each)
        windows += [
            Window(
                site=site,
                start=number * seconds,
                end=(number + 1) * seconds,
                untimed=False,
                pieces=_pieces(some),
            )
            for number, some in sorted(inside.items())
        ]
        windows += _untimed_windows(site, groups)
    return windows


def _window_numbers(group: RowGroup, seconds: float) -> Iterable[int]:
    if group.windows is not None:
        return group.windows
    if group.earliest > group.latest:
        return ()
    return range(floor(group.earliest / seconds), floor(group.latest / seconds) + 1)


def _by_site(files: Sequence[RecordFile]) -> Iterator[tuple[str | None, list[GroupOfFile]]]:
    ordered = sorted(files, key=lambda file: (file.site or "", str(file.path)))
    for site, group in groupby(ordered, key=lambda file: file.site):
        yield site, [(file, rows) for file in group for rows in file.groups]


def _windows(
    site: str | None, groups: list[GroupOfFile], bounds: Iterable[tuple[float, float]]
) -> Iterator[Window]:
    for start, end in bounds:
        inside = [p for p in groups if p[1].earliest < end and p[1].latest >= start]
        if inside:
            yield Window(site=site, start=start, end=end, untimed=False, pieces=_pieces(inside))


def _untimed_windows(site: str | None, groups: list[GroupOfFile]) -> Iterator[Window]:
    some = [p for p in groups if p[1].untimed]
    if some:
        yield Window(site=site, start=-inf, end=inf, untimed=True, pieces=_pieces(some))


def _pieces(groups: list[GroupOfFile]) -> tuple[Piece, ...]:
    by_path: dict[str, dict[int, int]] = {}
    for file, group in groups:
        by_path.setdefault(str(file.path), {})[group.number] = group.rows
    return tuple(
        Piece(path, tuple(sorted(rows)), sum(rows.values()))
        for path, rows in sorted(by_path.items())
    )


def read_in_parts(
    window: Window, columns: Sequence[str], schema: pa.Schema
) -> Iterator[tuple[pa.Table, list[BadFile]]]:
    """Read the rows of a window, in parts if they are too many; duplicates are in one part."""
    for part in _split_window(window):
        yield read_window(part, columns, schema)


def _split_window(window: Window) -> list[Window]:
    """Split a window that is too large because most rows of long groups fall into it."""
    if sum(piece.rows for piece in window.pieces) <= MAX_OVERSIZE * ROWS_PER_WINDOW:
        return [window]
    try:
        return _untimed_parts(window) if window.untimed else _timed_parts(window)
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return [window]  # reading reports the error


def _timed_parts(window: Window) -> list[Window]:
    found: list[tuple[Piece, list[RowGroup]]] = []
    for piece in window.pieces:
        for group in piece.groups:
            times = _read_times(piece.path, group)
            times = times[(times >= window.start) & (times < window.end)]
            found.append((replace(piece, groups=(group,)), _even_parts(group, times)))
    all_parts = [part for _, parts in found for part in parts]
    if sum(part.rows for part in all_parts) <= MAX_OVERSIZE * ROWS_PER_WINDOW:
        return [window]
    windows = []
    for start, end in pairwise([window.start, *_cut_times(all_parts), window.end]):
        inside = tuple(
            piece
            for piece, parts in found
            if any(part.earliest < end and part.latest >= start for part in parts)
        )
        windows.append(replace(window, start=start, end=end, pieces=inside))
    return [part for part in windows if part.pieces]


def _even_parts(group: int, times: NDArray[np.float64]) -> list[RowGroup]:
    """Split a row group by time into parts with about equal numbers of rows."""
    some = [t for t in np.array_split(np.sort(times), PARTS_PER_LONG_GROUP) if len(t)]
    bounds = [(len(t), float(t[0]), float(t[-1])) for t in some]
    return [
        RowGroup(number=group, rows=rows, earliest=earliest, latest=latest, untimed=False)
        for rows, earliest, latest in bounds
    ]


def _untimed_parts(window: Window) -> list[Window]:
    """Split rows without a time.

    Rows with an id are split by shares (duplicates stay together), others by row group.
    """
    windows: list[Window] = []
    pieces: list[Piece] = []
    named = rows = 0
    for piece in window.pieces:
        for group in piece.groups:
            one = replace(piece, groups=(group,))
            with pq.ParquetFile(piece.path) as file:
                some = file.read_row_group(group, [TIME, NAME], use_threads=False)
            some = _rows_in_window(plain_columns(some, DELIVERY_SCHEMA), window)
            with_name = int(
                pc.sum(pc.greater(pc.binary_length(text_bytes(some[NAME])), 0)).as_py() or 0
            )
            named += with_name
            if pieces and rows + some.num_rows - with_name > ROWS_PER_WINDOW:
                windows.append(replace(window, pieces=tuple(pieces), named=False))
                pieces, rows = [], 0
            pieces.append(one)
            rows += some.num_rows - with_name
    windows.append(replace(window, pieces=tuple(pieces), named=False))
    shares = ceil(named / ROWS_PER_WINDOW)
    return windows + [replace(window, named=True, share=(k, shares)) for k in range(shares)]


def read_window(
    window: Window, columns: Sequence[str], schema: pa.Schema
) -> tuple[pa.Table, list[BadFile]]:
    """Return the rows of a window, texts dictionary-encoded, and the files that failed."""
    names_to_read = [name for name in columns if not (name == "site" and window.site is not None)]
    dictionary_columns = [name for name in names_to_read if _has_few_texts(schema, name)]
    tables: list[pa.Table] = []
    bad: list[BadFile] = []
    for piece in window.pieces:
        try:
            with pq.ParquetFile(piece.path, read_dictionary=dictionary_columns) as file:
                tables += [
                    _read_group(file, group, names_to_read, window, schema)
                    for group in piece.groups
                ]
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            bad.append(unreadable_file(Path(piece.path), error))
    if not tables:
        empty = pa.schema([schema.field(name) for name in names_to_read]).empty_table()
        return _with_types(empty, schema), bad
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks(), bad


def _read_group(
    file: pq.ParquetFile,
    group: int,
    names_to_read: Sequence[str],
    window: Window,
    schema: pa.Schema,
) -> pa.Table:
    """Return the rows of one row group that are in the window."""
    table = file.read_row_group(group, names_to_read, use_threads=False).select(names_to_read)
    table = _with_types(_rows_in_window(plain_columns(table, schema), window), schema)
    table.validate(full=True)  # texts are valid UTF-8
    return table if window.named is None else table.filter(_rows_in_share(table[NAME], window))


def _rows_in_share(names: pa.ChunkedArray, window: Window) -> pa.Array:
    """Return the rows of the share of a window; duplicates are in the same share."""
    names = names.fill_null("")
    named = pc.not_equal(names, "").to_numpy(zero_copy_only=False)
    if not window.named:
        return pa.array(~named)
    number, shares = window.share
    if shares > 1:
        code = hash_array(np.asarray(names.to_numpy(), dtype=object), categorize=False)
        named &= code % np.uint64(shares) == number
    return pa.array(named)


def _rows_in_window(table: pa.Table, window: Window) -> pa.Table:
    """Return the rows of the window; invalid times go with the first valid time of the group."""
    time = table.column(TIME)
    is_missing = pc.is_null(time)
    real = pc.and_(pc.greater_equal(time, 0.0), pc.less_equal(time, MAX_TIME_SECONDS))
    real = pc.fill_null(real, False)
    first = pc.min(time.filter(real)).as_py()
    if window.untimed:
        return table if first is None else table.filter(is_missing)
    inside = pc.and_(pc.greater_equal(time, window.start), pc.less(time, window.end))
    inside = pc.and_(real, pc.fill_null(inside, False))
    if first is not None and window.start <= first < window.end:
        inside = pc.or_(inside, pc.and_not(pc.invert(is_missing), real))
    return table if pc.all(inside).as_py() else table.filter(inside)


def _has_few_texts(schema: pa.Schema, name: str) -> bool:
    """Return whether a column holds few different texts."""
    return bool(pa.types.is_string(schema.field(name).type)) and name != NAME


def _with_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field(name, dictionary if _has_few_texts(schema, name) else schema.field(name).type)
        for name in table.column_names
    ]
    return table.cast(pa.schema(fields))
