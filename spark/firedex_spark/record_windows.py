"""Cutting records by time into windows that can be worked on alone. Pure, but for reading files.

Copies of one notification carry the same publisher's stamp, so they fall into the same window:
windows need to know nothing of each other, and nothing is shuffled to find duplicates. Rows without
a stamp have no delay, cannot be duplicates of anything known, and make windows of their own.
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

from firedex_spark.errors import BadFile, unreadable
from firedex_spark.record_columns import LATEST_SECONDS, TIME, is_stamp
from firedex_spark.record_files import RecordFile, RowGroup

__all__ = ["Piece", "Window", "fixed_windows", "numbered_for", "read_window", "windows_of"]

ROWS_OF_A_WINDOW = 1_500_000
NEAR = 0.4
"""By what part of a window a cut may be moved to where a row group begins."""
WIDE_SECONDS = 86_400.0
"""In row groups that span more, rows' times are looked at: one wrong clock may be all it is."""
PARTS_OF_A_WIDE_GROUP = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file."""

    path: str
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rows of one site (None: the files say which) stamped from ``start`` on, before ``end``.

    ``untimed``: the rows without a stamp instead.
    """

    site: str | None
    start: float
    end: float
    untimed: bool
    pieces: tuple[Piece, ...]


Placed = tuple[RecordFile, RowGroup]


def windows_of(files: Sequence[RecordFile]) -> list[Window]:
    """Windows of about equal size, cut where row groups begin if that is near."""
    made: list[Window] = []
    for site, placed in _by_site(files):
        timed = [p for p in placed if p[1].earliest <= p[1].latest]
        cuts = [-inf, *_cuts([part for p in timed for part in _parts(*p)]), inf]
        made += _windows(site, timed, pairwise(cuts))
        made += _untimed(site, placed)
    return made


def _parts(file: RecordFile, group: RowGroup) -> list[RowGroup]:
    """A group as it is; or, if it spans long, in parts of about as many rows each."""
    if group.latest - group.earliest <= WIDE_SECONDS:
        return [group]
    try:
        times = np.sort(_times(str(file.path), group.number))
    except (OSError, pa.ArrowException):
        return [group]  # it is found to be unreadable when it is read
    parts = [part for part in np.array_split(times, PARTS_OF_A_WIDE_GROUP) if len(part)]
    return [
        replace(group, rows=len(part), earliest=float(part[0]), latest=float(part[-1]))
        for part in parts
    ]


def _times(path: str, group: int) -> NDArray[np.float64]:
    with pq.ParquetFile(path) as file:
        column = file.read_row_group(group, [TIME]).column(TIME)
    times = np.asarray(column.drop_null().to_numpy(), dtype=np.float64)
    return times[is_stamp(times)]


def _cuts(groups: list[RowGroup]) -> list[float]:
    """Times between which there are about as many rows as a window holds.

    Rows are taken to be spread evenly over the time of their group.
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
    number = ceil(rows.sum() / ROWS_OF_A_WINDOW)
    starts = np.unique(early)
    rows_before_start = np.interp(starts, times, before)
    cuts = set()
    for wanted in rows.sum() * np.arange(1, number) / number:
        nearest = int(np.abs(rows_before_start - wanted).argmin())
        near = abs(rows_before_start[nearest] - wanted) <= NEAR * ROWS_OF_A_WINDOW
        cuts.add(float(starts[nearest] if near else np.interp(wanted, before, times)))
    return sorted(cuts)


def numbered_for(file: RecordFile, seconds: float) -> RecordFile:
    """The file, with the fixed windows that its wide groups have rows in; it may be unreadable."""
    groups = tuple(
        group
        if group.latest - group.earliest <= WIDE_SECONDS
        else replace(group, windows=_numbers_of(str(file.path), group.number, seconds))
        for group in file.groups
    )
    return replace(file, groups=groups)


def _numbers_of(path: str, group: int, seconds: float) -> tuple[int, ...]:
    return tuple(np.unique(np.floor(_times(path, group) / seconds)).astype(np.int64).tolist())


def fixed_windows(files: Sequence[RecordFile], seconds: float) -> list[Window]:
    """Windows whose bounds do not depend on what else there is (``numbered_for`` the same)."""
    made: list[Window] = []
    for site, placed in _by_site(files):
        inside: dict[int, list[Placed]] = {}
        for each in placed:
            for number in _window_numbers(each[1], seconds):
                inside.setdefault(number, []).append(each)
        made += [
            Window(
                site=site,
                start=number * seconds,
                end=(number + 1) * seconds,
                untimed=False,
                pieces=_pieces(some),
            )
            for number, some in sorted(inside.items())
        ]
        made += _untimed(site, placed)
    return made


def _window_numbers(group: RowGroup, seconds: float) -> Iterable[int]:
    if group.windows is not None:
        return group.windows
    if group.earliest > group.latest:
        return ()
    return range(floor(group.earliest / seconds), floor(group.latest / seconds) + 1)


def _by_site(files: Sequence[RecordFile]) -> Iterator[tuple[str | None, list[Placed]]]:
    ordered = sorted(files, key=lambda file: (file.site or "", str(file.path)))
    for site, group in groupby(ordered, key=lambda file: file.site):
        yield site, [(file, rows) for file in group for rows in file.groups]


def _windows(
    site: str | None, placed: list[Placed], bounds: Iterable[tuple[float, float]]
) -> Iterator[Window]:
    for start, end in bounds:
        inside = [p for p in placed if p[1].earliest < end and p[1].latest >= start]
        if inside:
            yield Window(site=site, start=start, end=end, untimed=False, pieces=_pieces(inside))


def _untimed(site: str | None, placed: list[Placed]) -> Iterator[Window]:
    some = [p for p in placed if p[1].untimed]
    if some:
        yield Window(site=site, start=-inf, end=inf, untimed=True, pieces=_pieces(some))


def _pieces(placed: list[Placed]) -> tuple[Piece, ...]:
    by_path: dict[str, list[int]] = {}
    for file, group in placed:
        by_path.setdefault(str(file.path), []).append(group.number)
    return tuple(Piece(path, tuple(sorted(groups))) for path, groups in sorted(by_path.items()))


def read_window(
    window: Window, columns: Sequence[str], schema: pa.Schema
) -> tuple[pa.Table, list[BadFile]]:
    """The rows of a window, texts as dictionaries; and what turned out to be unreadable."""
    wanted = [name for name in columns if not (name == "site" and window.site is not None)]
    few = [name for name in wanted if _few(schema, name)]
    tables: list[pa.Table] = []
    bad: list[BadFile] = []
    for piece in window.pieces:
        try:
            with pq.ParquetFile(piece.path, read_dictionary=few) as file:
                tables += [_part(file, group, wanted, window, schema) for group in piece.groups]
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            bad.append(unreadable(Path(piece.path), error))
    if not tables:
        empty = pa.schema([schema.field(name) for name in wanted]).empty_table()
        return _typed(empty, schema), bad
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks(), bad


def _part(
    file: pq.ParquetFile, group: int, wanted: Sequence[str], window: Window, schema: pa.Schema
) -> pa.Table:
    """The rows of a row group that are in a window; no more of it is held than one group."""
    table = file.read_row_group(group, wanted, use_threads=False).select(wanted)
    table = _typed(_within(table, window), schema)
    table.validate(full=True)  # texts are text
    return table


def _within(table: pa.Table, window: Window) -> pa.Table:
    """Rows by their stamps; what is no stamp goes where the first real one of its group goes."""
    time = table.column(TIME)
    nothing = pc.is_null(time)
    real = pc.and_(pc.greater_equal(time, 0.0), pc.less_equal(time, LATEST_SECONDS))
    real = pc.fill_null(real, False)
    first = pc.min(time.filter(real)).as_py()
    if window.untimed:
        return table if first is None else table.filter(nothing)
    inside = pc.and_(pc.greater_equal(time, window.start), pc.less(time, window.end))
    inside = pc.and_(real, pc.fill_null(inside, False))
    if first is not None and window.start <= first < window.end:
        inside = pc.or_(inside, pc.and_not(pc.invert(nothing), real))
    return table if pc.all(inside).as_py() else table.filter(inside)


def _few(schema: pa.Schema, name: str) -> bool:
    """Whether a column holds the same few texts again and again."""
    return bool(pa.types.is_string(schema.field(name).type)) and name != "publication_id"


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field(name, dictionary if _few(schema, name) else schema.field(name).type)
        for name in table.column_names
    ]
    return table.cast(pa.schema(fields))
