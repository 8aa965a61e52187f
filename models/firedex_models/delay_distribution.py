"""Percentiles and tail probabilities from two moments: a gamma distribution plus a fixed delay.

The fixed part is common to all events (propagation, fixed transmission times); the rest is fitted.
Checked against simulation in ``tests/models/test_fan_out_model.py``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from firedex_models.columns import Floats, group_sums

__all__ = ["Mixture", "percentile", "probability_within"]

MIN_RELATIVE_VARIANCE = 1e-12
"""A variance below this fraction of the squared mean is treated as 0."""
BISECTION_STEPS = 10
SEARCH_START, SEARCH_END = 0.2, 3.0
"""The search range for a mixture's percentile, relative to the percentile of the whole group."""
MIN_SHARE_BETWEEN_PARTS = 0.05
"""The fraction of variance between parts above which the percentile of a mixture is searched."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The delays of a filter's events: a mixture of the delays of its topics (parts).

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
    def _groups_with_different_parts(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The groups whose parts differ, and the parts of those groups."""
        squared_difference = self.weight * (self.mean - self.whole_mean[self.group]) ** 2
        between = group_sums(self.group, np.nan_to_num(squared_difference), len(self.whole_mean))
        with np.errstate(invalid="ignore"):
            differs = between > MIN_SHARE_BETWEEN_PARTS * self.whole_variance
        return differs, np.flatnonzero(differs[self.group])

    def percentile(self, level: float) -> Floats:
        """Return the delay that a fraction ``level`` of each group's events does not exceed."""
        fitted = percentile(self.whole_mean, self.whole_variance, self.whole_fixed, level)
        differs, rows = self._groups_with_different_parts
        if not rows.size:
            return fitted
        low, high = SEARCH_START * fitted, SEARCH_END * fitted
        for _ in range(BISECTION_STEPS):
            middle = (low + high) / 2
            enough = self._fraction_of_parts_within(rows, middle) >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(differs, (low + high) / 2, fitted)

    def fraction_within(self, deadline: Floats) -> Floats:
        """Return the fraction of each group that arrives within its deadline."""
        whole = probability_within(self.whole_mean, self.whole_variance, self.whole_fixed, deadline)
        differs, rows = self._groups_with_different_parts
        return (
            np.where(differs, self._fraction_of_parts_within(rows, deadline), whole)
            if rows.size
            else whole
        )

    def _fraction_of_parts_within(self, rows: NDArray[np.int64], deadline: Floats) -> Floats:
        group = self.group[rows]
        part = probability_within(
            self.mean[rows], self.variance[rows], self.fixed[rows], deadline[group]
        )
        return group_sums(group, self.weight[rows] * part, len(self.whole_mean))


def percentile(mean: Floats, variance: Floats, fixed: Floats, level: float) -> Floats:
    """Return the delay that a fraction ``level`` of the delivered events does not exceed."""
    shape, scale, spread = _fit_gamma(mean, variance, fixed)
    result = mean.copy()
    result[spread] = fixed[spread] + scale * gammaincinv(shape, level)
    return result


def probability_within(mean: Floats, variance: Floats, fixed: Floats, deadline: Floats) -> Floats:
    """Return the fraction of delivered events that arrive within ``deadline``."""
    shape, scale, spread = _fit_gamma(mean, variance, fixed)
    result = np.where(mean <= deadline, 1.0, 0.0)
    variable = np.maximum(deadline[spread] - fixed[spread], 0.0)
    result[spread] = gammainc(shape, variable / scale)
    return result


def _fit_gamma(
    mean: Floats, variance: Floats, fixed: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    variable_mean = mean - fixed
    with np.errstate(invalid="ignore"):
        spread = (
            (variance > MIN_RELATIVE_VARIANCE * mean**2)
            & (variable_mean > 0)
            & np.isfinite(variance)
        )
    scale = variance[spread] / variable_mean[spread]
    return variable_mean[spread] / scale, scale, spread
