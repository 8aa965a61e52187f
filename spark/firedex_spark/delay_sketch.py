"""Percentiles of delays from counts in buckets of fixed relative width. Pure.

Sketches of parts of the data merge by adding their counts, exactly and in any order. A percentile
lies in the bucket that holds it, whose ends are ``WIDTH`` apart: its relative error is below
``WIDTH`` in any case, and about half of that between.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["WIDTH", "bucket_of", "fraction_within", "lower_edge_seconds", "percentile"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WIDTH = 0.03
_LOGARITHM = float(np.log1p(WIDTH))
NANOSECONDS = 1e9


def bucket_of(delay_nanoseconds: Integers) -> Integers:
    """The bucket of each delay; delays of less than a nanosecond share the first."""
    delay = np.maximum(delay_nanoseconds, 1).astype(np.float64)
    return np.floor(np.log(delay) / _LOGARITHM).astype(np.int64)


def lower_edge_seconds(bucket: Floats | Integers) -> Floats:
    """Where a bucket begins; parts of a bucket are parts of its logarithm."""
    edges: Floats = np.exp(np.asarray(bucket, dtype=np.float64) * _LOGARITHM) / NANOSECONDS
    return edges


def percentile(bucket: Integers, count: Integers, level: float) -> float:
    """The delay in seconds that ``level`` of all stay below; buckets in rising order."""
    reached = np.cumsum(count)
    wanted = level * reached[-1]
    here = min(int(np.searchsorted(reached, wanted)), len(bucket) - 1)
    before = reached[here] - count[here]
    part = (wanted - before) / count[here]
    return float(lower_edge_seconds(np.array([bucket[here] + part]))[0])


def fraction_within(bucket: Integers, count: Integers, seconds: float) -> float:
    """The part of all that took at most ``seconds``."""
    position = np.log(max(seconds * NANOSECONDS, 1.0)) / _LOGARITHM
    part = np.clip(position - bucket, 0.0, 1.0)
    return float((part * count).sum() / count.sum())
