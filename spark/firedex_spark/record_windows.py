"""Cutting records by time into windows that can be worked on alone. Pure, but for reading files.

Copies of one notification carry the same publisher's stamp, so they fall into the same window:
windows need to know nothing of each other, and nothing is shuffled to find duplicates. Rows without
a stamp have no delay, cannot be duplicates of any with one, and make windows of their own. A window
that turns out too large is read in parts, by the same rule.
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

from firedex_spark.errors import BadFile, unreadable
from firedex_spark.raw_texts import raw_texts, usual_columns
from firedex_spark.record_columns import LATEST_SECONDS, TIME, is_stamp
from firedex_spark.record_files import RecordFile, RowGroup
from firedex_spark.schemas import DELIVERY_SCHEMA

__all__ = [
    "Piece",
    "Window",
    "fixed_windows",
    "numbered_for",
    "read_parts",
    "read_window",
    "windows_of",
]

ROWS_OF_A_WINDOW = 1_500_000
NEAR = 0.4
"""By what part of a window a cut may be moved to where a row group begins."""
WIDE_SECONDS = 86_400.0
"""In row groups that span more, rows' times are looked at: one wrong clock may be all it is."""
PARTS_OF_A_WIDE_GROUP = 64
TOO_LARGE = 1.5
"""By how much a window may be larger than it should be; more is read in parts."""
NAME = "publication_id"


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file, and how many rows those hold, in the window or not."""

    path: str
    groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rows of one site (None: the files say which) stamped from ``start`` on, before ``end``.

    ``untimed``: the rows without a stamp instead; of those, if ``named`` says so, the ones with or
    without the name of a publication, and of the named ones a share: which, of how many.
    """

    site: str | None
    start: float
    end: float
    untimed: bool
    pieces: tuple[Piece, ...]
    named: bool | None = None
    share: tuple[int, int] = (0, 1)


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
        times = _times(str(file.path), group.number)
    except (OSError, pa.ArrowException):
        return [group]  # it is found to be unreadable when it is read
    return _even_parts(group.number, times)


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
    by_path: dict[str, dict[int, int]] = {}
    for file, group in placed:
        by_path.setdefault(str(file.path), {})[group.number] = group.rows
    return tuple(
        Piece(path, tuple(sorted(rows)), sum(rows.values()))
        for path, rows in sorted(by_path.items())
    )


def read_parts(
    window: Window, columns: Sequence[str], schema: pa.Schema
) -> Iterator[tuple[pa.Table, list[BadFile]]]:
    """The rows of a window, a part at a time if they are too many; no copies are in two parts."""
    for part in _parts_of(window):
        yield read_window(part, columns, schema)


def _parts_of(window: Window) -> list[Window]:
    """It may be much larger than it seemed, when most rows of long groups are of the same time."""
    if sum(piece.rows for piece in window.pieces) <= TOO_LARGE * ROWS_OF_A_WINDOW:
        return [window]
    try:
        return _unstamped_parts(window) if window.untimed else _timed_parts(window)
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return [window]  # it is found to be unreadable when it is read


def _timed_parts(window: Window) -> list[Window]:
    found: list[tuple[Piece, list[RowGroup]]] = []
    for piece in window.pieces:
        for group in piece.groups:
            times = _times(piece.path, group)
            times = times[(times >= window.start) & (times < window.end)]
            found.append((replace(piece, groups=(group,)), _even_parts(group, times)))
    everything = [part for _, parts in found for part in parts]
    if sum(part.rows for part in everything) <= TOO_LARGE * ROWS_OF_A_WINDOW:
        return [window]
    made = []
    for start, end in pairwise([window.start, *_cuts(everything), window.end]):
        inside = tuple(
            piece
            for piece, parts in found
            if any(part.earliest < end and part.latest >= start for part in parts)
        )
        made.append(replace(window, start=start, end=end, pieces=inside))
    return [part for part in made if part.pieces]


def _even_parts(group: int, times: NDArray[np.float64]) -> list[RowGroup]:
    """A row group in parts of about as many rows each, by their times."""
    some = [t for t in np.array_split(np.sort(times), PARTS_OF_A_WIDE_GROUP) if len(t)]
    bounds = [(len(t), float(t[0]), float(t[-1])) for t in some]
    return [
        RowGroup(number=group, rows=rows, earliest=earliest, latest=latest, untimed=False)
        for rows, earliest, latest in bounds
    ]


def _unstamped_parts(window: Window) -> list[Window]:
    """Those with a name by shares, since they may have copies; the others by row groups."""
    made: list[Window] = []
    pieces: list[Piece] = []
    named = rows = 0
    for piece in window.pieces:
        for group in piece.groups:
            one = replace(piece, groups=(group,))
            with pq.ParquetFile(piece.path) as file:
                some = file.read_row_group(group, [TIME, NAME], use_threads=False)
            some = _within(usual_columns(some, DELIVERY_SCHEMA), window)
            with_name = int(
                pc.sum(pc.greater(pc.binary_length(raw_texts(some[NAME])), 0)).as_py() or 0
            )
            named += with_name
            if pieces and rows + some.num_rows - with_name > ROWS_OF_A_WINDOW:
                made.append(replace(window, pieces=tuple(pieces), named=False))
                pieces, rows = [], 0
            pieces.append(one)
            rows += some.num_rows - with_name
    made.append(replace(window, pieces=tuple(pieces), named=False))
    shares = ceil(named / ROWS_OF_A_WINDOW)
    return made + [replace(window, named=True, share=(k, shares)) for k in range(shares)]


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
    table = _typed(_within(usual_columns(table, schema), window), schema)
    table.validate(full=True)  # texts are text
    return table if window.named is None else table.filter(_shared(table[NAME], window))


def _shared(names: pa.ChunkedArray, window: Window) -> pa.Array:
    """Rows of a window's share; all copies of a publication are of the same."""
    names = names.fill_null("")
    named = pc.not_equal(names, "").to_numpy(zero_copy_only=False)
    if not window.named:
        return pa.array(~named)
    number, shares = window.share
    if shares > 1:
        code = hash_array(np.asarray(names.to_numpy(), dtype=object), categorize=False)
        named &= code % np.uint64(shares) == number
    return pa.array(named)


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
    return bool(pa.types.is_string(schema.field(name).type)) and name != NAME


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field(name, dictionary if _few(schema, name) else schema.field(name).type)
        for name in table.column_names
    ]
    return table.cast(pa.schema(fields))
