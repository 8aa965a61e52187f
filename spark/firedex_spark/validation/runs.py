"""Time spans of runs, slices that fit them, and subscribers with wrong clocks. Pure.

A configuration that was active for an hour gets narrower slices than one of a month. Records that a
wrong clock puts far from the rest of their run are dropped. A row that was received before it was
published is refused; if a subscriber has many of those, its other delays are wrong by as much.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firedex_spark.records.delivery_cells import (
    CELL_SCHEMA,
    ERA_SECONDS,
    Cells,
    slice_width,
    sum_by_key,
)

__all__ = [
    "DeliveryCounts",
    "Run",
    "RunPart",
    "Runs",
    "WrongClock",
    "find_run_spans",
    "join_sums",
    "widen_slices",
    "wrong_clocks",
]

Run = tuple[str, int, str]
"""Site, configuration version, run."""
MIN_FRACTION = 1e-3
"""A part of a run that is far from the rest and has a smaller fraction of its rows is dropped."""
MONTH_SECONDS = 30 * 86_400.0
MIN_FRACTION_OF_LARGEST = 0.2
"""A part a month from the rest is dropped if it has a smaller fraction of the largest part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """The records of a run within one period of ``ERA_SECONDS``."""

    run: Run
    earliest: float
    latest: float
    count: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The time span of each run, and the runs whose records include losses (by site and run).

    ``far``: number of notifications outside the span of their run.
    """

    spans: Mapping[Run, tuple[float, float]]
    runs_with_losses: frozenset[tuple[str, str]]
    far: int


def find_run_spans(parts: Iterable[RunPart]) -> Runs:
    """Return the spans of all runs from their parts."""
    by_run: dict[Run, list[RunPart]] = {}
    for part in sorted(parts, key=lambda part: part.earliest):
        by_run.setdefault(part.run, []).append(part)
    spans = {run: _span(of) for run, of in by_run.items()}
    return Runs(
        spans=spans,
        runs_with_losses=frozenset(
            (r[0], r[2]) for r, of in by_run.items() if any(p.lost for p in of)
        ),
        far=sum(
            part.count
            for run, of in by_run.items()
            for part in of
            if not _is_within(part.earliest, spans[run])
        ),
    )


def _is_within(earliest: float, span: tuple[float, float]) -> bool:
    return span[0] <= earliest <= span[1]


def _span(parts: Sequence[RunPart]) -> tuple[float, float]:
    """Return the span of a run without small parts that are far away."""
    distant_groups = _group_by_gaps(parts, MONTH_SECONDS)
    largest = max(_count_rows(some) for some in distant_groups)
    near = [
        part
        for some in distant_groups
        if _count_rows(some) >= MIN_FRACTION_OF_LARGEST * largest
        for part in some
    ]
    groups = _group_by_gaps(near, ERA_SECONDS)
    least = min(MIN_FRACTION * _count_rows(near), max(_count_rows(some) for some in groups))
    remaining = [part for some in groups if _count_rows(some) >= least for part in some]
    return remaining[0].earliest, max(part.latest for part in remaining)


def _group_by_gaps(parts: Iterable[RunPart], seconds: float) -> list[list[RunPart]]:
    """Group parts, ordered by time, between which there is no gap longer than ``seconds``."""
    groups: list[list[RunPart]] = []
    latest = -np.inf
    for part in parts:
        if part.earliest - latest <= seconds:
            groups[-1].append(part)
        else:
            groups.append([part])
        latest = max(latest, part.latest)
    return groups


def _count_rows(parts: Iterable[RunPart]) -> int:
    return sum(part.count for part in parts)


def widen_slices(sums: pa.Table, runs: Runs) -> pa.Table:
    """Return the sums with slices that fit the span of their run, without far records."""
    return pa.Table.from_pylist(list(_fit_rows(sums.to_pylist(), runs)), schema=CELL_SCHEMA)


def _fit_rows(rows: Iterable[dict[str, Any]], runs: Runs) -> Iterator[dict[str, Any]]:
    for row in rows:
        span = runs.spans[row["site"], row["configuration_version"], row["run"]]
        if not _is_within(row["earliest"], span):
            continue
        width = float(slice_width(np.array(span[1] - span[0])))
        cells = Cells.unpack(row["slices"], row["buckets"])
        cells = cells.coarser(round(width / row["slice_seconds"]))
        yield {**row, "slice_seconds": width, **_pack(cells)}


def join_sums(sums: pa.Table) -> pa.Table:
    """Join the sums of one subscription and run, of all windows and periods, into one row."""
    rows = sums.to_pylist()
    cells = [Cells.unpack(row["slices"], row["buckets"]) for row in rows]
    whole = Cells(
        slices=sum_by_key(np.concatenate([each.slices for each in cells]), keys=1),
        buckets=sum_by_key(np.concatenate([each.buckets for each in cells]), keys=2),
    )
    row = {
        **rows[0],
        "count": sum(row["count"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "earliest": min(row["earliest"] for row in rows),
        "latest": max(row["latest"] for row in rows),
        **_pack(whole),
    }
    return pa.Table.from_pylist([row], schema=CELL_SCHEMA)


def _pack(cells: Cells) -> dict[str, bytes]:
    return {"slices": cells.slices.tobytes(), "buckets": cells.buckets.tobytes()}


WrongClock = tuple[str, int, str]
"""Site, configuration version, subscriber."""
MAX_EARLY_FRACTION = 0.01
"""Maximum fraction of early deliveries to a subscriber in a run; with more its clock is wrong."""
MIN_EARLY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCounts:
    """Deliveries to a subscriber in a run: valid ones, and ones received too early."""

    site: str
    configuration_version: int
    run: str
    subscriber: str
    counted: int
    early: int


def wrong_clocks(parts: Iterable[DeliveryCounts]) -> frozenset[WrongClock]:
    """Return the subscribers with too many early deliveries in any run."""
    sums: dict[tuple[str, int, str, str], tuple[int, int]] = {}
    for part in parts:
        of = (part.site, part.configuration_version, part.subscriber, part.run)
        counted, early = sums.get(of, (0, 0))
        sums[of] = counted + part.counted, early + part.early
    return frozenset(
        of[:3]
        for of, (counted, early) in sums.items()
        if early >= MIN_EARLY and early > MAX_EARLY_FRACTION * (counted + early)
    )
