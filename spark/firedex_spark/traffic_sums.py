"""What the records of one window say of rates, sizes, losses and links: sums that add up. Pure.

A link shows its speed when packets leave it back to back: the size of one over the time since the
one before is then the bandwidth, and less whenever the link was idle between. The commonest such
ratio is the speed. A shaper that has saved up tokens lets more pass at once: how far arrivals run
ahead of the speed, at the most, is its burst.

A window is summed up whole; the earlier half of every run in it once more, and the delays of the
later half: estimates of one half can be held against what was measured in the other.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firedex_spark.record_columns import COLUMNS
from firedex_spark.record_rows import refused_rows

__all__ = [
    "CALIBRATION_COLUMNS",
    "EARLIER",
    "LATER",
    "SUMS_ORDER",
    "TRAFFIC_SCHEMA",
    "WHOLE",
    "traffic_sums",
]

Floats = NDArray[np.float64]
CALIBRATION_COLUMNS = (*COLUMNS, "topic", "publisher", "wire_bytes")
"""All that ``validate-delays`` looks at, since the same rows count; and what it does not need."""
WHOLE, EARLIER, LATER = "", "earlier half", "later half"
TRAFFIC_SCHEMA = pa.schema(
    [
        ("part", pa.string()),
        ("kind", pa.string()),
        ("run", pa.string()),
        ("name", pa.string()),
        ("of", pa.string()),
        ("stream", pa.string()),
        ("count", pa.int64()),
        ("total", pa.float64()),
        ("squares", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
"""``kind``: ``site`` (how many records), ``subscription`` (filter of subscriber: records),
``publications`` (topic of publisher: how many were seen, gaps between neighbours, how many gaps in
``low``), ``active`` (topic of publisher: first and last time), ``span`` (run: first and last time),
``numbered`` (topic of publisher: first and last number of a stream), ``sizes`` (topic of
subscriber: bytes), ``fan-out`` (topic: notifications), ``outcomes`` (outcome of subscriber),
``speed`` (switch: one estimate, ``low``: part of the gaps that show it, ``high``: how wide the peak
is), ``burst`` (switch: one estimate; ``high``: the largest packet), ``block-speed`` and
``block-burst`` (switch: the same of a part of the window), ``blurred`` (switch whose speed does not
show), ``refused`` (why: rows that do not count), ``delays`` (filter of subscriber, in one of the
blocks of the later half: notifications; ``total`` of the delays of the ``low`` that have one;
``high``: the class). In the earlier half what a window has of a run is a run of its own."""
SUMS_ORDER = ("part", "kind", "run", "name", "of", "stream", "low", "high", "count", "total")
NUMBERED = r"^([0-9a-f]{16})-([0-9]{1,15})$"
"""The id of a stamped event: a stream, and the how-manieth of it (``firedex.event_stamp``)."""
NARROW = 0.01
"""Width of the buckets in which the commonest ratio is looked for."""
TEXTS = ("category", "object", "str", "string")
AROUND = 30
CLEAR = 5.0
"""How much commoner than others around it the commonest ratio must be. Exact times of arrival show
a peak a hundred times as high; where hosts delay them by more than a packet takes, there is none,
and the highest of smooth counts says nothing of the link."""
FEWEST_GAPS = 200
LEAST_SHARE = 0.02
BLOCKS = 8
"""Parts of a window's time, for how much what is told of a link scatters."""
FEWEST_OF_A_BLOCK = 8


def traffic_sums(table: pa.Table, switch_of: Mapping[str, str], site: str | None) -> pa.Table:
    """The sums of a window, of the rows of one site (None: of all).

    ``switch_of``: behind which switch each subscriber is.
    """
    frame, refused = _usable(table)
    sites = frame["site"].astype(str).value_counts(sort=False)
    rows = [_row("site", "", str(name), count=int(n)) for name, n in sites.items() if n]
    rows += [_row("refused", "", reason, count=n) for reason, n in refused.items() if n]
    if site is not None:
        frame = frame[frame["site"] == site]
    frame = _without_copies(frame)
    rows += _sums(frame, switch_of)
    time = frame["published_at_seconds"]
    later = time > time.groupby(frame["run"]).transform("median")
    first = time.groupby(frame["run"]).transform("min").map("{:.6f}".format)
    earlier = frame.assign(run=frame["run"] + " from " + first)[~later]
    rows += [row | {"part": EARLIER} for row in _sums(earlier, switch_of)]
    rows += [row | {"part": LATER} for row in _delays(frame[later])]
    return pa.Table.from_pylist(rows, schema=TRAFFIC_SCHEMA)


def _sums(frame: pd.DataFrame, switch_of: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = [*_subscriptions(frame), *_publications(frame), *_sizes(frame), *_outcomes(frame)]
    arrived = frame[frame["outcome"] == "delivered"].drop_duplicates(
        ["run", "subscriber", "topic", "publication_id", "received_at_seconds"]
    )
    for (run, switch), group in arrived.groupby(["run", arrived["subscriber"].map(switch_of)]):
        rows += _link(str(run), str(switch), group)
    return rows


def _usable(table: pa.Table) -> tuple[pd.DataFrame, dict[str, int]]:
    """Rows that ``validate-delays`` counts, but for those without a topic or a size; the others."""
    contradicting, good = refused_rows(table)
    table = table.filter(pa.array(good))
    named = table.filter(pc.is_valid(table.column("topic")))
    sized = named.filter(pc.greater_equal(named.column("wire_bytes"), 0))  # drops nulls too
    refused = contradicting | {
        "topic is missing": table.num_rows - named.num_rows,
        "wire_bytes is missing or negative": named.num_rows - sized.num_rows,
    }
    frame = sized.to_pandas()
    texts = [name for name in CALIBRATION_COLUMNS if frame[name].dtype.name in TEXTS]
    return frame.assign(**{name: frame[name].astype(object) for name in texts}), refused


def _without_copies(frame: pd.DataFrame) -> pd.DataFrame:
    """In one order, whatever it was; of copies the one delivered first."""
    frame = frame.assign(
        publisher=frame["publisher"].fillna(""),
        late=frame["outcome"] != "delivered",
    )
    key = ["run", "subscriber", "filter", "publication_id"]
    rest = ["received_at_seconds", "published_at_seconds", "topic", "publisher", "wire_bytes"]
    frame = frame.sort_values([*key, "late", *rest, "outcome"], kind="stable")
    return frame[(frame["publication_id"] == "") | ~frame.duplicated(key)]


def _row(kind: str, run: str, name: str, of: str = "", **numbers: Any) -> dict[str, Any]:
    blank = {
        "part": WHOLE,
        "stream": "",
        "count": 0,
        "total": 0.0,
        "squares": 0.0,
        "low": 0.0,
        "high": 0.0,
    }
    return {"kind": kind, "run": run, "name": name, "of": of, **blank, **numbers}


def _subscriptions(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    counted = frame.groupby(["filter", "subscriber"]).size()
    for (filter_, subscriber), count in counted.items():
        yield _row("subscription", "", str(filter_), str(subscriber), count=int(count))


def _publications(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    timed = frame[frame["published_at_seconds"].notna()]
    once = timed.drop_duplicates(["run", "topic", "publication_id"])
    parts = once["publication_id"].str.extract(NUMBERED)
    once = once.assign(stream=parts[0].fillna(""), number=parts[1].fillna("0").astype(np.int64))
    for run, group in once.groupby("run"):
        times = group["published_at_seconds"]
        yield _row("span", str(run), "", low=float(times.min()), high=float(times.max()))
    for (run, topic, publisher), group in once.groupby(["run", "topic", "publisher"]):
        gaps = np.concatenate([_gaps(stream) for _, stream in group.groupby("stream")])
        times = group["published_at_seconds"]
        active = {"low": float(times.min()), "high": float(times.max())}
        yield _row("active", str(run), str(topic), str(publisher), count=len(group), **active)
        yield _row(
            "publications",
            str(run),
            str(topic),
            str(publisher),
            count=len(group),
            total=float(gaps.sum()),
            squares=float((gaps**2).sum()),
            low=float(len(gaps)),
        )
    numbered = once[once["stream"] != ""].groupby(["run", "topic", "publisher", "stream"])
    for (run, topic, publisher, stream), number in numbered["number"]:
        yield _row(
            "numbered",
            str(run),
            str(topic),
            str(publisher),
            stream=str(stream),
            count=len(number),
            low=float(number.min()),
            high=float(number.max()),
        )
    notified = timed.groupby(["run", "topic"]).size()
    for (run, topic), count in notified.items():
        yield _row("fan-out", str(run), str(topic), count=int(count))


def _gaps(stream: pd.DataFrame) -> Floats:
    """Times between neighbours; where events are numbered, between true neighbours only."""
    ordered = stream.sort_values(["published_at_seconds", "number"])
    gaps: Floats = np.diff(ordered["published_at_seconds"].to_numpy())
    if (ordered["stream"] != "").all():
        gaps = gaps[np.diff(ordered["number"].to_numpy()) == 1]
    return gaps


def _sizes(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    grouped = frame.groupby(["run", "topic", "subscriber"])["wire_bytes"]
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
    counted = frame.groupby(["run", "outcome", "subscriber"]).size()
    for (run, outcome, subscriber), count in counted.items():
        yield _row("outcomes", str(run), str(outcome), str(subscriber), count=int(count))


def _delays(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """By blocks of about as many records each, for how far means of them scatter."""
    rank = frame.groupby("run")["published_at_seconds"].rank(method="min", pct=True)
    block = np.minimum(np.ceil(rank * BLOCKS), BLOCKS).astype(np.int64)
    delay = frame["received_at_seconds"] - frame["published_at_seconds"]
    by = ["run", "filter", "subscriber", "priority", "block"]
    groups = frame.assign(block=block, delay=delay).groupby(by)["delay"]
    counted = groups.agg(["size", "count", "sum"])
    for (run, filter_, subscriber, priority, number), row in counted.iterrows():
        yield _row(
            "delays",
            str(run),
            str(filter_),
            str(subscriber),
            stream=str(number),
            count=int(row["size"]),
            low=float(row["count"]),
            total=float(row["sum"]),
            high=float(priority),
        )


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
    around = (bucket >= best - AROUND) & (bucket <= best + AROUND)
    beside = max((around.sum() - len(peak)) * 4 / (2 * AROUND - 3), 1.0)
    if len(peak) < CLEAR * beside:
        return [_row("blurred", run, switch, count=len(ratio), total=len(peak) / beside)]
    speed = float(np.median(peak))
    # where times are blurred the middle of the peak is a little off, and the same in every block
    wide = float(np.subtract(*np.percentile(peak, [75, 25]))) / 2
    burst = _ahead(np.append(0.0, gap), size, speed)
    return [
        _row("speed", run, switch, count=len(peak), total=speed, low=share, high=wide),
        _row("burst", run, switch, count=1, total=burst / 8, high=float(size.max()) / 8),
        *(
            _row("block-speed", run, switch, count=len(some), total=float(np.median(some)))
            for some in np.array_split(peak, BLOCKS)
            if len(some) >= FEWEST_OF_A_BLOCK
        ),
        *(
            _row("block-burst", run, switch, count=len(gaps), total=_ahead(gaps, bits, speed) / 8)
            for gaps, bits in zip(
                np.array_split(np.append(0.0, gap), BLOCKS),
                np.array_split(size, BLOCKS),
                strict=True,
            )
        ),
    ]


def _ahead(gap: Floats, size: Floats, speed: float) -> float:
    """How many bits arrivals run ahead of a link of that speed, at the most (Lindley)."""
    step = size - speed * gap
    total = np.cumsum(step)
    # the largest sum of consecutive steps, the first packet whole
    lowest = np.minimum.accumulate(np.append(0.0, total[:-1]) - speed * gap)
    return float((total - lowest).max())
