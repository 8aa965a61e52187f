"""Utility functions: values, shape, and rejection of invalid parameters."""

from itertools import accumulate
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firedex.wire import (
    CappedUtility,
    InvalidValue,
    LinearUtility,
    LogUtility,
    PiecewiseLinearUtility,
    PowerUtility,
    Utility,
    from_plain,
)
from firedex_models import UtilityColumns, utility_of

LOG = LogUtility(weight=2.0)
LINEAR = LinearUtility(weight=3.0)
CAPPED = CappedUtility(weight=4.0, enough=0.5)
POWER = PowerUtility(weight=5.0, exponent=0.5)
PIECES = PiecewiseLinearUtility(weight=10.0, points=((0.0, 0.0), (0.25, 0.5), (1.0, 0.8)))


@pytest.mark.parametrize(
    ("utility", "success", "expected"),
    [
        (LOG, 0.0, 0.0),
        (LOG, 0.5, 2 * log(1.5)),
        (LOG, 1.0, 2 * log(2)),
        (LINEAR, 0.0, 0.0),
        (LINEAR, 0.4, 1.2),
        (LINEAR, 1.0, 3.0),
        (CAPPED, 0.0, 0.0),
        (CAPPED, 0.25, 2.0),
        (CAPPED, 0.5, 4.0),
        (CAPPED, 0.9, 4.0),
        (POWER, 0.0, 0.0),
        (POWER, 0.25, 2.5),
        (POWER, 1.0, 5.0),
        (PIECES, 0.0, 0.0),
        (PIECES, 0.125, 2.5),
        (PIECES, 0.25, 5.0),
        (PIECES, 0.625, 6.5),
        (PIECES, 1.0, 8.0),
    ],
)
def test_utility_equals_manual_calculation(
    utility: Utility, success: float, expected: float
) -> None:
    assert utility_of(utility, success) == pytest.approx(expected, abs=1e-12)


def test_utility_columns_keep_the_order_of_functions() -> None:
    columns = UtilityColumns([PIECES, LOG, POWER, CAPPED, LINEAR, LOG])
    success = np.array([0.25, 1.0, 0.25, 0.25, 1.0, 0.0])
    assert columns.evaluate(success) == pytest.approx([5.0, 2 * log(2), 2.5, 2.0, 3.0, 0.0])


def test_maximum_is_the_utility_at_success_rate_1() -> None:
    columns = UtilityColumns([LOG, LINEAR, CAPPED, POWER, PIECES])
    assert columns.maximum == pytest.approx([2 * log(2), 3.0, 4.0, 5.0, 8.0])


def test_utility_columns_without_functions_are_empty() -> None:
    assert UtilityColumns([]).maximum.tolist() == []


weights = st.floats(0, 100)
fractions = st.floats(0.01, 1)


@st.composite
def piecewise_linear_utilities(draw: st.DrawFn) -> PiecewiseLinearUtility:
    """Draw a piecewise linear utility with decreasing slopes."""
    steps = draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    slopes = sorted(
        draw(st.lists(st.integers(0, 50), min_size=len(steps), max_size=len(steps))), reverse=True
    )
    success = [done / sum(steps) for done in accumulate(steps, initial=0)]
    values = accumulate((a * b for a, b in zip(steps, slopes, strict=True)), initial=0)
    return PiecewiseLinearUtility(
        weight=draw(weights), points=tuple(zip(success, map(float, values), strict=True))
    )


utilities = st.one_of(
    st.builds(LogUtility, weight=weights),
    st.builds(LinearUtility, weight=weights),
    st.builds(CappedUtility, weight=weights, enough=fractions),
    st.builds(PowerUtility, weight=weights, exponent=fractions),
    piecewise_linear_utilities(),
)


# Rates below 1e-9 are replaced by 0, to avoid underflow.
rates = st.floats(0, 1).map(lambda rate: rate if rate > 1e-9 else 0.0)


@settings(deadline=None)
@given(utility=utilities, left=rates, right=rates, share=st.floats(0, 1))
def test_utility_functions_are_increasing_and_concave(
    utility: Utility, left: float, right: float, share: float
) -> None:
    low, high = sorted((left, right))
    at_low, at_high = utility_of(utility, low), utility_of(utility, high)
    scale = 1e-9 * (1 + utility_of(utility, 1.0))
    assert 0 <= at_low <= at_high + scale
    between = utility_of(utility, share * low + (1 - share) * high)
    assert between >= share * at_low + (1 - share) * at_high - scale


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([(0.0, 0.0), (0.5, 0.2), (1.0, 1.0)], "not concave"),
        ([(0.0, 0.0), (0.5, 1.0), (1.0, 0.5)], "not increasing"),
        ([(0.1, 0.0), (1.0, 1.0)], "the first point must have success 0"),
        ([(0.0, 0.0), (0.9, 1.0)], "the first point must have success 0"),
        ([(0.0, 0.0), (2.0, 1.0)], "the first point must have success 0"),
        ([(0.0, 0.0), (0.6, 0.5), (0.4, 0.6), (1.0, 1.0)], "strictly increasing"),
        ([(0.0, 0.0), (0.5, 0.5), (0.5, 0.6), (1.0, 1.0)], "strictly increasing"),
        ([(0.0, 0.0)], "at least 2 items"),
        ([], "at least 2 items"),
    ],
)
def test_invalid_points_are_rejected(points: list[tuple[float, float]], message: str) -> None:
    data = {"kind": "piecewise-linear", "weight": 1.0, "points": points}
    with pytest.raises(InvalidValue, match=message):
        from_plain(PiecewiseLinearUtility, data)


def test_collinear_points_are_accepted_as_concave() -> None:
    points = ((0.0, 0.0), (0.1, 0.03), (0.3, 0.09), (0.7, 0.21), (1.0, 0.3))
    assert PiecewiseLinearUtility(weight=1.0, points=points).points == points


@pytest.mark.parametrize(
    ("utility_type", "data", "field"),
    [
        (LogUtility, {"weight": -0.1}, "weight"),
        (LinearUtility, {"weight": -0.1}, "weight"),
        (CappedUtility, {"weight": 1.0, "enough": 0.0}, "enough"),
        (CappedUtility, {"weight": 1.0, "enough": 1.1}, "enough"),
        (PowerUtility, {"weight": 1.0, "exponent": 0.0}, "exponent"),
        (PowerUtility, {"weight": 1.0, "exponent": 1.5}, "exponent"),
        (PowerUtility, {"weight": 1.0, "exponent": -1.0}, "exponent"),
    ],
)
def test_parameter_out_of_range_is_rejected_with_its_name(
    utility_type: type[Any], data: dict[str, float], field: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        from_plain(utility_type, data)
    assert [problem.path for problem in caught.value.problems] == [(field,)]
