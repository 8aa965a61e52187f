"""Figures of a sample in time, with intervals that respect that neighbours are alike. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["Estimate", "longest_loss", "mean_over_time", "quantile"]

Floats = NDArray[np.float64]
SLICES = 20
LEAST_SLICES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean, and half the width of its 95 % interval; None where there is too little to say."""

    mean: float
    half_width: float | None


def mean_over_time(values: Floats, at: Floats, began: float, ended: float) -> Estimate | None:
    """The mean of ``values`` by batch means: the run is cut into slices, which are independent
    enough of each other; None without any value."""
    if not len(values):
        return None
    mean = float(values.mean())
    width = max(ended - began, 1e-9) / SLICES
    which = np.clip(((at - began) / width).astype(np.int64), 0, SLICES - 1)
    counts = np.bincount(which, minlength=SLICES).astype(float)
    sums = np.bincount(which, weights=values, minlength=SLICES)
    used = int((counts > 0).sum())
    if used < LEAST_SLICES:
        return Estimate(mean=mean, half_width=None)
    # Slices weigh by how many events they have: the variance of a ratio of two sums.
    residuals = (sums - mean * counts)[counts > 0]
    error = float(np.sqrt((residuals**2).sum() * used / (used - 1))) / counts.sum()
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, used - 1))
    return Estimate(mean=mean, half_width=reach * error)


def quantile(values: Floats, level: float) -> float | None:
    """A sample quantile; None of nothing."""
    return float(np.quantile(values, level)) if len(values) else None


def longest_loss(
    published: Floats, delivered: NDArray[np.bool_], began: float, ended: float
) -> float:
    """The longest time in which everything that was published was lost, until something came.

    Of what was published between ``began`` and ``ended``; 0 if nothing was lost.
    """
    order = np.argsort(published, kind="stable")
    order = order[(published[order] >= began) & (published[order] <= ended)]
    longest, first_lost = 0.0, None
    for at, came in zip(published[order].tolist(), delivered[order].tolist(), strict=True):
        if not came and first_lost is None:
            first_lost = at
        elif came and first_lost is not None:
            longest, first_lost = max(longest, at - first_lost), None
    return longest if first_lost is None else max(longest, ended - first_lost)
