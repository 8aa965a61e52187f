"""Sums over one window for rates, sizes, losses and links. Pure.

A link shows its bandwidth when packets leave it back to back: the size of a packet divided by the
time since the one before is then the bandwidth, and less if the link was idle. The most common such
ratio is the bandwidth. A token bucket that has collected tokens lets more pass at once: the largest
amount by which arrivals exceed the bandwidth is its burst.

Sums are made over the whole window, over the earlier half of every run, and for the delays of the
later half, so that estimates from one half can be checked against the other.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firedex_spark.records.columns import COLUMNS, check_rows

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
"""The columns of ``validate-delays``, which decide which rows count, and three more."""
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
"""Sums by ``kind``; ``name`` and ``of`` identify the object. Time spans are ``low`` to ``high``.

- ``site``: number of records of a site.
- ``subscription``: number of records by filter and subscriber.
- ``publications``: number of events by topic and publisher, sums of the gaps between them, and the
  number of gaps in ``low``.
- ``active``: first and last publication by topic and publisher.
- ``span``: first and last publication of a run.
- ``numbered``: first and last sequence number of a stream, by topic and publisher.
- ``sizes``: sums of the bytes by topic and subscriber.
- ``fan-out``: number of notifications by topic.
- ``outcomes``: number of notifications by outcome and subscriber.
- ``speed``: an estimate of the bandwidth of a switch; ``low`` is the share of gaps in the peak,
  ``high`` the width of the peak.
- ``burst``: an estimate of the burst of a switch; ``high`` is the largest packet.
- ``block-speed`` and ``block-burst``: the same estimates from a part of the window.
- ``blurred``: a switch whose bandwidth cannot be estimated.
- ``refused``: number of rows that do not count, by reason.
- ``delays``: number of notifications by filter and subscriber in a block of the later half;
  ``total`` is the sum of the ``low`` known delays, ``high`` the class.

In the earlier half, the part of a run in one window is a run of its own.
"""
SUMS_ORDER = ("part", "kind", "run", "name", "of", "stream", "low", "high", "count", "total")
NUMBERED = r"^([0-9a-f]{16})-([0-9]{1,15})$"
"""The id of a stamped event: the stream and the sequence number of the event."""
BUCKET_WIDTH = 0.01
"""Relative width of the buckets in which the most common ratio is searched."""
TEXTS = ("category", "object", "str", "string")
NEIGHBOUR_BUCKETS = 30
MIN_PEAK_RATIO = 5.0
"""Minimum ratio of the peak to its neighbours. Exact arrival times show a peak a hundred times as
high. If hosts delay packets by more than their transmission time, there is no peak, and the most
common ratio says nothing about the link."""
MIN_GAPS = 200
MIN_SHARE = 0.02
BLOCKS = 8
"""Number of parts of a window, from which the variance of link estimates is computed."""
MIN_PACKETS_PER_BLOCK = 8


def traffic_sums(table: pa.Table, switch_of: Mapping[str, str], site: str | None) -> pa.Table:
    """Return the sums of a window for the rows of one site (None: of all sites).

    ``switch_of``: the switch of each subscriber.
    """
    frame, refused = _usable_rows(table)
    sites = frame["site"].astype(str).value_counts(sort=False)
    rows = [_row("site", "", str(name), count=int(n)) for name, n in sites.items() if n]
    rows += [_row("refused", "", reason, count=n) for reason, n in refused.items() if n]
    if site is not None:
        frame = frame[frame["site"] == site]
    frame = _without_duplicates(frame)
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


def _usable_rows(table: pa.Table) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the rows to use, and the number of refused rows by reason.

    Rows are used if ``validate-delays`` counts them and they have topic and size.
    """
    contradicting, good = check_rows(table)
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


def _without_duplicates(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in a fixed order, with the first delivery of each group of duplicates."""
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
    """Return the times between neighbours; of numbered events between consecutive numbers only."""
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
    """Yield delays in blocks of equal numbers of records, to estimate their variance."""
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
    if len(gap) < MIN_GAPS:
        return []
    resolution = np.spacing(time[-1])
    clear = gap > 100 * resolution
    ratio = size[1:][clear] / gap[clear]
    if len(ratio) < MIN_GAPS:
        return []
    bucket = np.floor(np.log(ratio) / BUCKET_WIDTH).astype(np.int64)
    values, counts = np.unique(bucket, return_counts=True)
    # add two neighbouring buckets, because the edge between them may split the peak
    pairs = counts + np.where(np.diff(values, append=values[-1]) == 1, np.append(counts[1:], 0), 0)
    best = int(values[np.argmax(pairs)])
    peak = ratio[(bucket >= best - 1) & (bucket <= best + 2)]
    share = len(peak) / len(ratio)
    if share < MIN_SHARE:
        return []
    around = (bucket >= best - NEIGHBOUR_BUCKETS) & (bucket <= best + NEIGHBOUR_BUCKETS)
    neighbour_level = max((around.sum() - len(peak)) * 4 / (2 * NEIGHBOUR_BUCKETS - 3), 1.0)
    if len(peak) < MIN_PEAK_RATIO * neighbour_level:
        return [_row("blurred", run, switch, count=len(ratio), total=len(peak) / neighbour_level)]
    speed = float(np.median(peak))
    # with inexact times the peak is shifted by the same amount in every block
    peak_width = float(np.subtract(*np.percentile(peak, [75, 25]))) / 2
    burst = _largest_excess(np.append(0.0, gap), size, speed)
    return [
        _row("speed", run, switch, count=len(peak), total=speed, low=share, high=peak_width),
        _row("burst", run, switch, count=1, total=burst / 8, high=float(size.max()) / 8),
        *(
            _row("block-speed", run, switch, count=len(some), total=float(np.median(some)))
            for some in np.array_split(peak, BLOCKS)
            if len(some) >= MIN_PACKETS_PER_BLOCK
        ),
        *(
            _row(
                "block-burst",
                run,
                switch,
                count=len(gaps),
                total=_largest_excess(gaps, bits, speed) / 8,
            )
            for gaps, bits in zip(
                np.array_split(np.append(0.0, gap), BLOCKS),
                np.array_split(size, BLOCKS),
                strict=True,
            )
        ),
    ]


def _largest_excess(gap: Floats, size: Floats, speed: float) -> float:
    """Return by how many bits arrivals exceed what a link of this speed can send, at most.

    Computed with Lindley's recursion.
    """
    step = size - speed * gap
    total = np.cumsum(step)
    # the largest sum of consecutive steps, with the complete first packet
    lowest = np.minimum.accumulate(np.append(0.0, total[:-1]) - speed * gap)
    return float((total - lowest).max())
