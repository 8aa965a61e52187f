"""How long each run of a configuration lasted, and its sums by slices that fit. Pure.

A configuration that was in force for an hour is cut finer than one of a month, whatever else there
is in the input. What a wrong clock puts far away from the rest of a run is left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firedex_spark.delivery_cells import CELL_SCHEMA, ERA_SECONDS, Cells, added_up, slice_width

__all__ = ["Run", "RunPart", "Runs", "at_width_of_runs", "joined", "runs_of"]

Run = tuple[str, int, str]
"""Site, configuration version, run."""
FEW = 1e-3
"""A part of a run that is an era from the others and has less of its rows is a wrong clock."""
MONTH_SECONDS = 30 * 86_400.0
SMALL = 0.2
"""So is one that is a month from them, and has less than so much of the rows of the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """What there is of a run in one era."""

    run: Run
    earliest: float
    latest: float
    count: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """From when to when each run was, and which tell of losses (by site and run).

    ``far``: how many notifications are outside, far from the rest of their run.
    """

    spans: Mapping[Run, tuple[float, float]]
    telling: frozenset[tuple[str, str]]
    far: int


def runs_of(parts: Iterable[RunPart]) -> Runs:
    """All parts of all runs put together."""
    by_run: dict[Run, list[RunPart]] = {}
    for part in sorted(parts, key=lambda part: part.earliest):
        by_run.setdefault(part.run, []).append(part)
    spans = {run: _span(of) for run, of in by_run.items()}
    return Runs(
        spans=spans,
        telling=frozenset((r[0], r[2]) for r, of in by_run.items() if any(p.lost for p in of)),
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
    """Over all that lies together and is not next to nothing."""
    far_apart = _together(parts, MONTH_SECONDS)
    largest = max(_rows(some) for some in far_apart)
    near = [part for some in far_apart if _rows(some) >= SMALL * largest for part in some]
    together = _together(near, ERA_SECONDS)
    least = min(FEW * _rows(near), max(_rows(some) for some in together))
    kept = [part for some in together if _rows(some) >= least for part in some]
    return kept[0].earliest, max(part.latest for part in kept)


def _together(parts: Iterable[RunPart], seconds: float) -> list[list[RunPart]]:
    """Parts, in order of time, between which there is no gap of more than that."""
    together: list[list[RunPart]] = []
    latest = -np.inf
    for part in parts:
        if part.earliest - latest <= seconds:
            together[-1].append(part)
        else:
            together.append([part])
        latest = max(latest, part.latest)
    return together


def _rows(parts: Iterable[RunPart]) -> int:
    return sum(part.count for part in parts)


def at_width_of_runs(sums: pa.Table, runs: Runs) -> pa.Table:
    """Sums whose slices are as wide as the whole of their run asks for; without what is far."""
    return pa.Table.from_pylist(list(_fitted(sums.to_pylist(), runs)), schema=CELL_SCHEMA)


def _fitted(rows: Iterable[dict[str, Any]], runs: Runs) -> Iterator[dict[str, Any]]:
    for row in rows:
        span = runs.spans[row["site"], row["configuration_version"], row["run"]]
        if not _is_within(row["earliest"], span):
            continue
        width = float(slice_width(np.array(span[1] - span[0])))
        cells = Cells.unpacked(row["slices"], row["buckets"])
        cells = cells.coarser(round(width / row["slice_seconds"]))
        yield {**row, "slice_seconds": width, **_packed(cells)}


def joined(sums: pa.Table) -> pa.Table:
    """Sums of one subscription of one run, of all windows and eras, as one row."""
    rows = sums.to_pylist()
    cells = [Cells.unpacked(row["slices"], row["buckets"]) for row in rows]
    whole = Cells(
        slices=added_up(np.concatenate([each.slices for each in cells]), keys=1),
        buckets=added_up(np.concatenate([each.buckets for each in cells]), keys=2),
    )
    row = {
        **rows[0],
        "count": sum(row["count"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "earliest": min(row["earliest"] for row in rows),
        "latest": max(row["latest"] for row in rows),
        **_packed(whole),
    }
    return pa.Table.from_pylist([row], schema=CELL_SCHEMA)


def _packed(cells: Cells) -> dict[str, bytes]:
    return {"slices": cells.slices.tobytes(), "buckets": cells.buckets.tobytes()}
