"""Confidence intervals hold as often as they state."""

import numpy as np
import pytest
from scipy.stats import binomtest

from firedex_spark.calibration.intervals import (
    block_interval,
    count_interval,
    fraction_interval,
    maximum_interval,
    mean_interval,
)

DRAWS = 400


MIN_SHARE = 0.92

"""Fewer than 368 of 400 intervals of 95 % hold in less than one of two hundred tests."""


def share_of_intervals_with(intervals: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def test_zero_losses_have_an_interval() -> None:
    """Use 500 notifications without a loss, which are likely at a loss rate of 0.05 %."""
    found = fraction_interval(0, 500, 0.005)
    assert found.interval == (0.0, pytest.approx(1 - 0.025 ** (1 / 500)))
    assert found.p_value > 0.05
    assert fraction_interval(0, 5_000, 0.005).p_value < 1e-6
    assert fraction_interval(500, 500, 0.995).interval[1] == 1.0


@pytest.mark.parametrize("truth", [0.0005, 0.005, 0.03, 0.4])
def test_intervals_of_proportions_contain_the_true_value(truth: float) -> None:
    random = np.random.default_rng(11)
    found = [fraction_interval(int(n), 600, truth) for n in random.binomial(600, truth, DRAWS)]
    assert share_of_intervals_with([one.interval for one in found], truth) >= MIN_SHARE
    assert np.mean([one.p_value <= 0.05 for one in found]) <= 1 - MIN_SHARE


def test_interval_of_a_proportion_matches_scipy() -> None:
    exact = binomtest(7, 400).proportion_ci(0.95, "exact")
    assert fraction_interval(7, 400, 0.01).interval == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("truth", [0.5, 4.0, 60.0])
def test_intervals_of_counts_contain_the_true_value(truth: float) -> None:
    random = np.random.default_rng(12)
    found = [count_interval(float(n), truth) for n in random.poisson(truth, DRAWS)]
    assert share_of_intervals_with([one.interval for one in found], truth) >= MIN_SHARE
    assert np.mean([one.p_value <= 0.05 for one in found]) <= 1 - MIN_SHARE


def test_intervals_of_means_and_blocks_contain_the_true_value() -> None:
    random = np.random.default_rng(13)
    drawn = random.normal(10.0, 1.0, (DRAWS, 8))
    blocks = [block_interval(float(some.mean()), list(some), 10.0) for some in drawn]
    means = [mean_interval(float(some.mean()), 8**-0.5, 10.0) for some in drawn]
    for found in (blocks, means):
        certain = [one for one in found if one is not None]
        assert MIN_SHARE <= share_of_intervals_with([one.interval for one in certain], 10.0) <= 0.98
        assert 0.02 <= np.mean([one.p_value <= 0.05 for one in certain]) <= 1 - MIN_SHARE
    assert block_interval(1.0, [1.0, 1.0], 1.0) is None


def test_intervals_of_maxima_contain_the_true_value() -> None:
    random = np.random.default_rng(14)
    drawn = 3_000.0 * random.random((DRAWS, 8, 20)).max(axis=2)
    found = [maximum_interval(float(some.max()), list(some), 3_000.0) for some in drawn]
    certain = [one for one in found if one is not None]
    assert share_of_intervals_with([one.interval for one in certain], 3_000.0) >= MIN_SHARE
    assert 0.02 <= np.mean([one.p_value <= 0.05 for one in certain]) <= 1 - MIN_SHARE
    below = maximum_interval(3_000.0, [2_900.0, 2_990.0, 3_000.0], 2_000.0)
    assert below is not None
    assert below.p_value == 0.0
