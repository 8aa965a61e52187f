"""Percentiles and tail probabilities from two moments, checked for known gamma distributions."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex_models.delay_distribution import percentile, probability_within


def column(number: float) -> np.ndarray:
    return np.array([number], dtype=float)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_variance_equal_to_squared_mean_gives_exponential_percentiles(level: float) -> None:
    result = percentile(column(2.0), column(4.0), column(0.0), level)
    assert result == pytest.approx([-2 * log(1 - level)])


def test_fixed_delay_is_added_to_variable_delay() -> None:
    result = percentile(column(5.0), column(4.0), column(3.0), 0.95)
    assert result == pytest.approx([3 - 2 * log(0.05)])


def test_every_percentile_equals_mean_if_variance_is_0() -> None:
    assert percentile(column(5.0), column(0.0), column(3.0), 0.99).tolist() == [5.0]


def test_missing_delay_has_no_percentile() -> None:
    result = percentile(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), np.zeros(2), 0.95)
    assert np.isnan(result[0])
    assert result[1] == pytest.approx(-log(0.05))


def test_fraction_within_deadline_of_exponential_delay() -> None:
    result = probability_within(column(2.0), column(4.0), column(0.0), column(3.0))
    assert result == pytest.approx([1 - exp(-1.5)])


def test_deadline_below_fixed_delay_is_never_met() -> None:
    assert probability_within(column(5.0), column(4.0), column(3.0), column(2.9)).tolist() == [0.0]


@pytest.mark.parametrize(("deadline", "fraction"), [(4.9, 0.0), (5.0, 1.0), (5.1, 1.0)])
def test_delay_without_variance_meets_deadline_completely_or_not_at_all(
    deadline: float, fraction: float
) -> None:
    assert probability_within(column(5.0), column(0.0), column(5.0), column(deadline)).tolist() == [
        fraction
    ]


@given(
    varying=st.floats(0.01, 10),
    variability=st.floats(0.05, 5),
    fixed=st.floats(0, 5),
    level=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_percentile_and_probability_are_inverse_functions(
    varying: float, variability: float, fixed: float, level: float
) -> None:
    mean, variance = column(varying + fixed), column(variability * varying**2)
    deadline = percentile(mean, variance, column(fixed), level)
    assert probability_within(mean, variance, column(fixed), deadline) == pytest.approx([level])
