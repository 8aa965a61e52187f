"""Percentiles and tail probabilities from two moments: a gamma distribution behind a fixed delay.

The fixed part is what every event pays (propagation, fixed transmission times); the rest is fitted.
Checked against simulation in ``tests/model/test_fan_out_model.py``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from firedex_models.grouping import group_sums

__all__ = ["Mixture", "percentile", "probability_within"]

Floats = NDArray[np.float64]
NO_SPREAD = 1e-12
"""A variance below this share of the squared mean is no variance."""


HALVINGS = 10
SEARCH_BELOW, SEARCH_ABOVE = 0.2, 3.0
"""Where a mixture's percentile is looked for, in units of the one fitted to the whole."""
UNEVEN = 0.05
"""From this share of the variance between its parts on, a mixture is worth searching in."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Delays that are drawn from one of several parts each: the topics of a filter.

    ``weight`` sums to 1 over the parts of each ``group``; ``whole_…`` are the groups' own moments,
    NaN for a group that has no delay.
    """

    whole_mean: Floats
    whole_variance: Floats
    whole_fixed: Floats
    group: NDArray[np.int64]
    weight: Floats
    mean: Floats
    variance: Floats
    fixed: Floats

    @cached_property
    def _uneven(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Groups whose parts differ, and the parts of those groups."""
        apart = self.weight * (self.mean - self.whole_mean[self.group]) ** 2
        between = group_sums(self.group, np.nan_to_num(apart), len(self.whole_mean))
        with np.errstate(invalid="ignore"):
            uneven = between > UNEVEN * self.whole_variance
        return uneven, np.flatnonzero(uneven[self.group])

    def percentile(self, level: float) -> Floats:
        """The delay that a fraction ``level`` of each group stays below."""
        fitted = percentile(self.whole_mean, self.whole_variance, self.whole_fixed, level)
        uneven, rows = self._uneven
        if not rows.size:
            return fitted
        low, high = SEARCH_BELOW * fitted, SEARCH_ABOVE * fitted
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            enough = self._within(rows, middle) >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(uneven, (low + high) / 2, fitted)

    def within(self, deadline: Floats) -> Floats:
        """The fraction of each group that arrives within its deadline."""
        whole = probability_within(self.whole_mean, self.whole_variance, self.whole_fixed, deadline)
        uneven, rows = self._uneven
        return np.where(uneven, self._within(rows, deadline), whole) if rows.size else whole

    def _within(self, rows: NDArray[np.int64], deadline: Floats) -> Floats:
        group = self.group[rows]
        part = probability_within(
            self.mean[rows], self.variance[rows], self.fixed[rows], deadline[group]
        )
        return group_sums(group, self.weight[rows] * part, len(self.whole_mean))


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
