"""Intervals of estimates against draws whose truth is known."""

import numpy as np
import pytest
from scipy.stats import binomtest

from firedex_spark.parameter_intervals import of_blocks, of_count, of_highest, of_mean, of_part

DRAWS = 400
LEAST = 0.92
"""Of 400 draws with 95 % intervals, fewer than 368 hold once in two hundred tries."""


def share(intervals: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def test_nothing_lost_is_not_nothing_to_lose() -> None:
    """A twentieth of a percent of losses, and 500 notifications: most records have none."""
    found = of_part(0, 500, 0.005)
    assert found.interval == (0.0, pytest.approx(1 - 0.025 ** (1 / 500)))
    assert found.chance > 0.05
    assert of_part(0, 5_000, 0.005).chance < 1e-6
    assert of_part(500, 500, 0.995).interval[1] == 1.0


@pytest.mark.parametrize("truth", [0.0005, 0.005, 0.03, 0.4])
def test_parts_are_as_certain_as_they_say(truth: float) -> None:
    random = np.random.default_rng(11)
    found = [of_part(int(n), 600, truth) for n in random.binomial(600, truth, DRAWS)]
    assert share([one.interval for one in found], truth) >= LEAST
    assert np.mean([one.chance <= 0.05 for one in found]) <= 1 - LEAST


def test_a_part_is_what_another_library_says_of_it() -> None:
    exact = binomtest(7, 400).proportion_ci(0.95, "exact")
    assert of_part(7, 400, 0.01).interval == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("truth", [0.5, 4.0, 60.0])
def test_counts_are_as_certain_as_they_say(truth: float) -> None:
    random = np.random.default_rng(12)
    found = [of_count(float(n), truth) for n in random.poisson(truth, DRAWS)]
    assert share([one.interval for one in found], truth) >= LEAST
    assert np.mean([one.chance <= 0.05 for one in found]) <= 1 - LEAST


def test_means_and_blocks_are_as_certain_as_they_say() -> None:
    random = np.random.default_rng(13)
    drawn = random.normal(10.0, 1.0, (DRAWS, 8))
    blocks = [of_blocks(float(some.mean()), list(some), 10.0) for some in drawn]
    means = [of_mean(float(some.mean()), 8**-0.5, 10.0) for some in drawn]
    for found in (blocks, means):
        certain = [one for one in found if one is not None]
        assert LEAST <= share([one.interval for one in certain], 10.0) <= 0.98
        assert 0.02 <= np.mean([one.chance <= 0.05 for one in certain]) <= 1 - LEAST
    assert of_blocks(1.0, [1.0, 1.0], 1.0) is None


def test_a_most_is_a_lower_bound_and_the_truth_not_far_above_it() -> None:
    random = np.random.default_rng(14)
    drawn = 3_000.0 * random.random((DRAWS, 8, 20)).max(axis=2)
    found = [of_highest(float(some.max()), list(some), 3_000.0) for some in drawn]
    certain = [one for one in found if one is not None]
    assert share([one.interval for one in certain], 3_000.0) >= LEAST
    assert 0.02 <= np.mean([one.chance <= 0.05 for one in certain]) <= 1 - LEAST
    below = of_highest(3_000.0, [2_900.0, 2_990.0, 3_000.0], 2_000.0)
    assert below is not None
    assert below.chance == 0.0
