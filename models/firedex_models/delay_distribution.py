"""Percentiles and tail probabilities from two moments: a gamma distribution behind a fixed delay.

The fixed part is what every event pays (propagation, fixed transmission times); the rest is fitted.
Checked against simulation in ``tests/model/test_fan_out_model.py``.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

__all__ = ["percentile", "probability_within"]

Floats = NDArray[np.float64]
NO_SPREAD = 1e-12
"""A variance below this share of the squared mean is no variance."""


def percentile(mean: Floats, variance: Floats, fixed: Floats, level: float) -> Floats:
    """The delay that a fraction ``level`` of delivered events stay below."""
    shape, scale, spread = _gamma(mean, variance, fixed)
    result = mean.copy()
    result[spread] = fixed[spread] + scale * gammaincinv(shape, level)
    return result


def probability_within(mean: Floats, variance: Floats, fixed: Floats, deadline: Floats) -> Floats:
    """The fraction of delivered events that arrive within ``deadline``."""
    shape, scale, spread = _gamma(mean, variance, fixed)
    result = np.where(mean <= deadline, 1.0, 0.0)
    left = np.maximum(deadline[spread] - fixed[spread], 0.0)
    result[spread] = gammainc(shape, left / scale)
    return result


def _gamma(
    mean: Floats, variance: Floats, fixed: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    varying = mean - fixed
    with np.errstate(invalid="ignore"):
        spread = (variance > NO_SPREAD * mean**2) & (varying > 0) & np.isfinite(variance)
    scale = variance[spread] / varying[spread]
    return varying[spread] / scale, scale, spread
