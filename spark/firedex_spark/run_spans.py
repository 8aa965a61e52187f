"""How long each run of a configuration lasted, and its sums by slices that fit. Pure.

A configuration that was in force for an hour is cut finer than one of a month, whatever else there
is in the input.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firedex_spark.delivery_cells import CELL_SCHEMA, SUMS, Cells, slice_width

__all__ = ["Run", "Spans", "at_width_of_runs", "spans_of"]

Run = tuple[str, int, str]
"""Site, configuration version, run."""
Spans = Mapping[Run, tuple[float, float]]


def spans_of(sums: pa.Table) -> Spans:
    """From when to when, by sums that are all here."""
    found: dict[Run, tuple[float, float]] = {}
    for row in sums.drop_columns(["slices", "buckets"]).to_pylist():
        if row["kind"] == SUMS:
            run = row["site"], row["configuration_version"], row["run"]
            earliest, latest = found.get(run, (np.inf, -np.inf))
            found[run] = min(earliest, row["earliest"]), max(latest, row["latest"])
    return found


def at_width_of_runs(sums: pa.Table, spans: Spans) -> pa.Table:
    """Sums whose slices are as wide as the whole of their run asks for; without what was wrong."""
    rows = sums.filter(pc.equal(sums["kind"], SUMS)).to_pylist()
    return pa.Table.from_pylist(list(_fitted(rows, spans)), schema=CELL_SCHEMA)


def _fitted(rows: Iterable[dict[str, Any]], spans: Spans) -> Iterable[dict[str, Any]]:
    for row in rows:
        earliest, latest = spans[row["site"], row["configuration_version"], row["run"]]
        width = float(slice_width(np.array(latest - earliest)))
        cells = Cells.unpacked(row["slices"], row["buckets"])
        cells = cells.coarser(round(width / row["slice_seconds"]))
        yield {
            **row,
            "slice_seconds": width,
            "slices": cells.slices.tobytes(),
            "buckets": cells.buckets.tobytes(),
        }
