"""Percentiles and tail probabilities from two moments: a gamma distribution behind a fixed delay.

The fixed part is what every event pays (propagation, fixed transmission times); the rest is fitted.
Checked against simulation in ``tests/model/test_fan_out_model.py``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from firedex_models.grouping import group_sums

__all__ = ["Mixture", "percentile", "probability_within"]

Floats = NDArray[np.float64]
NO_SPREAD = 1e-12
"""A variance below this share of the squared mean is no variance."""


HALVINGS = 10
NARROW = 1.05
"""A mixture whose parts' percentiles lie this close together is not worth searching in."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Delays that are drawn from one of several parts each: the topics of a filter.

    ``weight`` sums to 1 over the parts of each ``group``.
    """

    groups: int
    group: NDArray[np.int64]
    weight: Floats
    mean: Floats
    variance: Floats
    fixed: Floats

    def percentile(self, level: float) -> Floats:
        """The delay that a fraction ``level`` of each group stays below; NaN for an empty group."""
        part = percentile(self.mean, self.variance, self.fixed, level)
        low, high = np.full(self.groups, np.inf), np.full(self.groups, -np.inf)
        np.minimum.at(low, self.group, part)
        np.maximum.at(high, self.group, part)
        low[~np.isfinite(low)], high[~np.isfinite(high)] = np.nan, np.nan
        with np.errstate(invalid="ignore"):
            wide = high > NARROW * low
        rows = np.flatnonzero(wide[self.group])
        group = self.group[rows]
        for _ in range(HALVINGS if rows.size else 0):
            middle = (low + high) / 2
            reached = group_sums(group, self.weight[rows] * self._within(rows, middle), self.groups)
            above = wide & (reached >= level)
            high = np.where(above, middle, high)
            low = np.where(wide & ~above, middle, low)
        mixed: Floats = np.where(wide, (low + high) / 2, self._average(part))
        return mixed

    def _within(self, rows: NDArray[np.int64], deadline: Floats) -> Floats:
        return probability_within(
            self.mean[rows], self.variance[rows], self.fixed[rows], deadline[self.group[rows]]
        )

    def within(self, deadline: Floats) -> Floats:
        """The fraction of each group that arrives within its deadline."""
        rows = np.arange(len(self.group))
        return group_sums(self.group, self.weight * self._within(rows, deadline), self.groups)

    def _average(self, part: Floats) -> Floats:
        sums = group_sums(self.group, self.weight * part, self.groups)
        heard = group_sums(self.group, self.weight, self.groups)
        sums[heard <= 0] = np.nan
        return sums


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
