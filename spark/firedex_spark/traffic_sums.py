"""What the records of one window say of rates, sizes, losses and links: sums that add up. Pure.

A link shows its speed when packets leave it back to back: the size of one over the time since the
one before is then the bandwidth, and less whenever the link was idle between. The commonest such
ratio is the speed. A shaper that has saved up tokens lets more pass at once: how far arrivals run
ahead of the speed, at the most, is its burst.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["CALIBRATION_COLUMNS", "TRAFFIC_SCHEMA", "traffic_sums"]

Floats = NDArray[np.float64]
CALIBRATION_COLUMNS = (
    "site",
    "run",
    "publication_id",
    "topic",
    "publisher",
    "subscriber",
    "filter",
    "wire_bytes",
    "published_at_seconds",
    "received_at_seconds",
    "outcome",
)
TRAFFIC_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("run", pa.string()),
        ("name", pa.string()),
        ("of", pa.string()),
        ("count", pa.int64()),
        ("total", pa.float64()),
        ("squares", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
"""``kind``: ``publications`` (topic of publisher: gaps between them, first and last time),
``sizes`` (topic of subscriber: bytes), ``fan-out`` (topic: notifications), ``outcomes`` (outcome
of subscriber), ``speed`` (switch: one estimate, ``low``: part of the gaps that show it),
``burst`` (switch: one estimate; ``high``: the largest packet)."""
NARROW = 0.01
"""Width of the buckets in which the commonest ratio is looked for."""
FEWEST_GAPS = 200
LEAST_SHARE = 0.02


def traffic_sums(table: pa.Table, switch_of: Mapping[str, str]) -> pa.Table:
    """The sums of a window; ``switch_of``: behind which switch each subscriber is."""
    frame = table.to_pandas()
    key = ["run", "subscriber", "filter", "publication_id"]
    named = frame["publication_id"] != ""
    frame = frame[~(named & frame.duplicated(key))]
    rows = [*_publications(frame), *_sizes(frame), *_outcomes(frame)]
    arrived = frame[frame["outcome"] == "delivered"].drop_duplicates(
        ["run", "subscriber", "topic", "publication_id", "received_at_seconds"]
    )
    for (run, switch), group in arrived.groupby(
        ["run", arrived["subscriber"].astype(str).map(switch_of)], observed=True
    ):
        rows += _link(str(run), str(switch), group)
    return pa.Table.from_pylist(rows, schema=TRAFFIC_SCHEMA)


def _row(kind: str, run: str, name: str, of: str = "", **numbers: Any) -> dict[str, Any]:
    blank = {"count": 0, "total": 0.0, "squares": 0.0, "low": 0.0, "high": 0.0}
    return {"kind": kind, "run": run, "name": name, "of": of, **blank, **numbers}


def _publications(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    timed = frame[frame["published_at_seconds"].notna()]
    once = timed.drop_duplicates(["run", "topic", "publication_id"])
    who = once["publisher"].astype(object).where(once["publisher"].notna(), "")
    for (run, topic, publisher), group in once.groupby(["run", "topic", who], observed=True):
        times = np.sort(group["published_at_seconds"].to_numpy())
        gaps = np.diff(times)
        yield _row(
            "publications",
            str(run),
            str(topic),
            str(publisher),
            count=len(times),
            total=float(gaps.sum()),
            squares=float((gaps**2).sum()),
            low=float(times[0]),
            high=float(times[-1]),
        )
    notified = timed.groupby(["run", "topic"], observed=True).size()
    for (run, topic), count in notified.items():
        yield _row("fan-out", str(run), str(topic), count=int(count))


def _sizes(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    grouped = frame.groupby(["run", "topic", "subscriber"], observed=True)["wire_bytes"]
    for (run, topic, subscriber), sizes in grouped:
        bytes_ = sizes.to_numpy(dtype=float)
        yield _row(
            "sizes",
            str(run),
            str(topic),
            str(subscriber),
            count=len(bytes_),
            total=float(bytes_.sum()),
            squares=float((bytes_**2).sum()),
        )


def _outcomes(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    counted = frame.groupby(["run", "outcome", "subscriber"], observed=True).size()
    for (run, outcome, subscriber), count in counted.items():
        yield _row("outcomes", str(run), str(outcome), str(subscriber), count=int(count))


def _link(run: str, switch: str, arrived: pd.DataFrame) -> list[dict[str, Any]]:
    order = np.argsort(arrived["received_at_seconds"].to_numpy(), kind="stable")
    time = arrived["received_at_seconds"].to_numpy()[order]
    size = arrived["wire_bytes"].to_numpy(dtype=float)[order] * 8
    gap = np.diff(time)
    if len(gap) < FEWEST_GAPS:
        return []
    resolution = np.spacing(time[-1])
    clear = gap > 100 * resolution
    ratio = size[1:][clear] / gap[clear]
    if len(ratio) < FEWEST_GAPS:
        return []
    bucket = np.floor(np.log(ratio) / NARROW).astype(np.int64)
    values, counts = np.unique(bucket, return_counts=True)
    # two neighbours together, since the edge between them may cut the peak
    pairs = counts + np.where(np.diff(values, append=values[-1]) == 1, np.append(counts[1:], 0), 0)
    best = int(values[np.argmax(pairs)])
    peak = ratio[(bucket >= best - 1) & (bucket <= best + 2)]
    share = len(peak) / len(ratio)
    if share < LEAST_SHARE:
        return []
    speed = float(np.median(peak))
    burst = _ahead(np.append(0.0, gap), size, speed)
    return [
        _row("speed", run, switch, count=len(peak), total=speed, low=share),
        _row("burst", run, switch, count=1, total=burst / 8, high=float(size.max()) / 8),
    ]


def _ahead(gap: Floats, size: Floats, speed: float) -> float:
    """How many bits arrivals run ahead of a link of that speed, at the most (Lindley)."""
    step = size - speed * gap
    total = np.cumsum(step)
    # the largest sum of consecutive steps, the first packet whole
    lowest = np.minimum.accumulate(np.append(0.0, total[:-1]) - speed * gap)
    return float((total - lowest).max())
