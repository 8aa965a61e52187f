"""Percentiles and tail probabilities from two moments: by hand where the gamma is a known one."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex_models.delay_distribution import percentile, probability_within


def one(number: float) -> np.ndarray:
    return np.array([number], dtype=float)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_variance_equal_to_the_squared_mean_is_an_exponential(level: float) -> None:
    found = percentile(one(2.0), one(4.0), one(0.0), level)
    assert found == pytest.approx([-2 * log(1 - level)])


def test_the_fixed_part_is_added_to_the_varying_one() -> None:
    found = percentile(one(5.0), one(4.0), one(3.0), 0.95)
    assert found == pytest.approx([3 - 2 * log(0.05)])


def test_without_spread_every_percentile_is_the_mean() -> None:
    assert percentile(one(5.0), one(0.0), one(3.0), 0.99).tolist() == [5.0]


def test_a_delay_that_does_not_exist_has_no_percentile() -> None:
    found = percentile(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), np.zeros(2), 0.95)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(-log(0.05))


def test_the_fraction_within_a_deadline() -> None:
    found = probability_within(one(2.0), one(4.0), one(0.0), one(3.0))
    assert found == pytest.approx([1 - exp(-1.5)])


def test_nothing_arrives_within_less_than_the_fixed_part() -> None:
    assert probability_within(one(5.0), one(4.0), one(3.0), one(2.9)).tolist() == [0.0]


@pytest.mark.parametrize(("deadline", "within"), [(4.9, 0.0), (5.0, 1.0), (5.1, 1.0)])
def test_without_spread_everything_arrives_at_once(deadline: float, within: float) -> None:
    assert probability_within(one(5.0), one(0.0), one(5.0), one(deadline)).tolist() == [within]


@given(
    varying=st.floats(0.01, 10),
    variability=st.floats(0.05, 5),
    fixed=st.floats(0, 5),
    level=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_percentile_and_probability_undo_each_other(
    varying: float, variability: float, fixed: float, level: float
) -> None:
    mean, variance = one(varying + fixed), one(variability * varying**2)
    deadline = percentile(mean, variance, one(fixed), level)
    assert probability_within(mean, variance, one(fixed), deadline) == pytest.approx([level])
