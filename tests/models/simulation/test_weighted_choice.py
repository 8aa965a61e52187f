"""Weighted random choice, compared with binary search in the cumulative sums."""

import numpy as np
import pytest

from firedex_models.simulation.publications import WeightedChoice


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 1000, 20_000])
def test_weighted_choice_agrees_with_binary_search(count: int) -> None:
    random = np.random.default_rng(count)
    weights = random.exponential(size=count) ** 3 + 1e-9
    sums = np.cumsum(weights)
    borders = np.minimum(sums / sums[-1], np.nextafter(1.0, 0.0))  # boundaries between choices
    uniform = np.concatenate([[0.0, np.nextafter(1.0, 0.0)], borders, random.random(50_000)])
    expected = np.minimum(np.searchsorted(sums, uniform * sums[-1]), count - 1)
    np.testing.assert_array_equal(WeightedChoice(weights).positions(uniform), expected)


def test_weighted_choice_without_weights_has_total_0() -> None:
    assert WeightedChoice(np.empty(0)).total == 0
