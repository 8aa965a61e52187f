"""Statistics of correlated samples over time, and the verdict on a prediction. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = [
    "DELAY_TOLERANCE_SECONDS",
    "DELAY_TOLERANCE_SHARE",
    "SUCCESS_TOLERANCE",
    "Estimate",
    "longest_loss",
    "mean_over_time",
    "quantile",
    "verdict",
]

Floats = NDArray[np.float64]
SLICES = 20
MIN_SLICES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean and half the width of its 95 % confidence interval; None with too few batches."""

    mean: float
    half_width: float | None


def mean_over_time(values: Floats, at: Floats, began: float, ended: float) -> Estimate | None:
    """Return the mean of ``values`` with a confidence interval by batch means.

    The run is divided into time slices that are nearly independent of each other. None without
    values.
    """
    if not len(values):
        return None
    mean = float(values.mean())
    width = max(ended - began, 1e-9) / SLICES
    which = np.clip(((at - began) / width).astype(np.int64), 0, SLICES - 1)
    counts = np.bincount(which, minlength=SLICES).astype(float)
    sums = np.bincount(which, weights=values, minlength=SLICES)
    used = int((counts > 0).sum())
    if used < MIN_SLICES:
        return Estimate(mean=mean, half_width=None)
    # Slices are weighted by their number of events: the variance of a ratio of two sums.
    residuals = (sums - mean * counts)[counts > 0]
    error = float(np.sqrt((residuals**2).sum() * used / (used - 1))) / counts.sum()
    t_quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, used - 1))
    return Estimate(mean=mean, half_width=t_quantile * error)


def quantile(values: Floats, level: float) -> float | None:
    """Return a sample quantile; None without values."""
    return float(np.quantile(values, level)) if len(values) else None


def longest_loss(
    published: Floats, delivered: NDArray[np.bool_], began: float, ended: float
) -> float:
    """Return the longest time in which every published event was lost.

    Only events published between ``began`` and ``ended`` count; 0 if none was lost.
    """
    order = np.argsort(published, kind="stable")
    order = order[(published[order] >= began) & (published[order] <= ended)]
    longest, first_lost = 0.0, None
    for at, arrived in zip(published[order].tolist(), delivered[order].tolist(), strict=True):
        if not arrived and first_lost is None:
            first_lost = at
        elif arrived and first_lost is not None:
            longest, first_lost = max(longest, at - first_lost), None
    return longest if first_lost is None else max(longest, ended - first_lost)


DELAY_TOLERANCE_SHARE, DELAY_TOLERANCE_SECONDS = 0.2, 0.002
"""A mean delay agrees within this share of the measured one, or within these seconds."""
SUCCESS_TOLERANCE = 0.03


def verdict(
    success: Estimate | None,
    success_predicted: float | None,
    delay: Estimate | None,
    delay_predicted: float | None,
) -> str:
    """Return whether a prediction agrees with the measurement.

    The result is ``agrees``, ``not predicted``, a list of deviations, or ``run too short to
    decide`` where the confidence interval is wider than the bounds and contains the prediction.
    """
    if success is None or success_predicted is None:
        return "not predicted"
    findings = [_deviation("success", success, success_predicted, SUCCESS_TOLERANCE)]
    if delay is not None and delay_predicted is not None:
        bound = max(DELAY_TOLERANCE_SHARE * delay.mean, DELAY_TOLERANCE_SECONDS)
        findings.append(_deviation("delay", delay, delay_predicted, bound))
    elif delay is not None:
        findings.append("no delay predicted")
    deviations = [finding for finding in findings if finding]
    return "; ".join(deviations) if deviations else "agrees"


def _deviation(what: str, measured: Estimate, predicted: float, bound: float) -> str:
    deviation = predicted - measured.mean
    if abs(deviation) <= bound:
        return ""
    if measured.half_width is not None and abs(deviation) <= measured.half_width:
        return f"{what}: run too short to decide"
    return f"{what} predicted too {'high' if deviation > 0 else 'low'}"
