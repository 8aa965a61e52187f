"""Choosing by weight beside a plain search among the sums."""

import numpy as np
import pytest

from firedex_models.simulation.weighted_choice import WeightedChoice


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 1000, 20_000])
def test_it_chooses_what_a_search_would(count: int) -> None:
    random = np.random.default_rng(count)
    weights = random.exponential(size=count) ** 3 + 1e-9
    sums = np.cumsum(weights)
    borders = np.minimum(sums / sums[-1], np.nextafter(1.0, 0.0))  # where one ends, another begins
    uniform = np.concatenate([[0.0, np.nextafter(1.0, 0.0)], borders, random.random(50_000)])
    expected = np.minimum(np.searchsorted(sums, uniform * sums[-1]), count - 1)
    np.testing.assert_array_equal(WeightedChoice(weights).positions(uniform), expected)


def test_of_nothing_the_total_is_nothing() -> None:
    assert WeightedChoice(np.empty(0)).total == 0
