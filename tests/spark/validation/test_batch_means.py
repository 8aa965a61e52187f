"""Batch means, intervals and drift tests against known series."""

import numpy as np
import pytest
from scipy.stats import binomtest

from firedex_spark.records.delivery_cells import WIDTH, delay_bucket, fraction_below, percentile
from firedex_spark.validation.batch_means import (
    Batches,
    drift,
    estimate_mean,
    holm_adjusted,
    make_batches,
    wilson_half_width,
)

pytestmark = pytest.mark.slow

SLICES, OBSERVATIONS_PER_SLICE = 512, 20


def slow_series(
    random: np.random.Generator, runs: int, correlation_slices: float = 4.0, wander: float = 0.3
) -> np.ndarray:
    """Return sums of slices whose means vary slowly; the true mean is 1."""
    correlation = np.exp(-1 / correlation_slices)
    level = np.empty((runs, SLICES))
    level[:, 0] = random.normal(size=runs)
    for step in range(1, SLICES):
        innovation = random.normal(size=runs)
        level[:, step] = correlation * level[:, step - 1] + np.sqrt(1 - correlation**2) * innovation
    noise = random.exponential(1.0, (runs, SLICES, OBSERVATIONS_PER_SLICE)).sum(axis=2)
    return np.asarray(noise * np.exp(wander * level - wander**2 / 2))


def batches(totals: np.ndarray) -> Batches:
    run = np.zeros(SLICES, dtype=np.int64)
    return make_batches(run, np.arange(SLICES), np.full(SLICES, OBSERVATIONS_PER_SLICE), totals)


def test_percentiles_are_within_the_bucket_width() -> None:
    random = np.random.default_rng(1)
    delays = random.lognormal(-4, 1.0, 200_000)
    bucket, count = np.unique(delay_bucket((delays * 1e9).astype(np.int64)), return_counts=True)
    for level in (0.01, 0.5, 0.95, 0.999):
        assert percentile(bucket, count, level) == pytest.approx(
            np.quantile(delays, level), rel=WIDTH
        )
    assert fraction_below(bucket, count, 0.02) == pytest.approx((delays <= 0.02).mean(), abs=0.005)
    assert fraction_below(bucket, count, 1e-9) == 0.0
    assert fraction_below(bucket, count, 1e9) == 1.0


def test_intervals_of_autocorrelated_series_contain_the_mean() -> None:
    random = np.random.default_rng(2)
    inside = naive = 0
    runs = slow_series(random, 300)
    for totals in runs:
        mean = estimate_mean(batches(totals))
        inside += abs(mean.value - 1.0) <= mean.half_width(0.95)
        each = totals[52:] / OBSERVATIONS_PER_SLICE
        naive += abs(each.mean() - 1.0) <= 1.96 * each.std() / np.sqrt(len(each))
    assert 0.91 <= inside / len(runs) <= 0.99
    assert naive / len(runs) < 0.8  # with the wrong assumption of independence


@pytest.mark.parametrize("correlation_slices", [0.1, 4.0, 12.0])
def test_series_without_drift_rarely_have_an_alarm(correlation_slices: float) -> None:
    random = np.random.default_rng(3)
    alarms = sum(
        drift(batches(totals))[1] <= 0.05 for totals in slow_series(random, 400, correlation_slices)
    )
    assert alarms <= 36  # 20 are expected; 36 is four standard deviations more


@pytest.mark.parametrize("correlation_slices", [30.0, 60.0])
def test_slow_variation_is_detected(correlation_slices: float) -> None:
    """Test at the small levels of reports with many rows, where a wrong test shows."""
    all_batches = [
        batches(totals) for totals in slow_series(np.random.default_rng(5), 600, correlation_slices)
    ]
    assert np.mean([of.wanders for of in all_batches]) > 0.95
    assert sum(drift(of)[1] <= 0.001 for of in all_batches if not of.wanders) <= 4
    white = [batches(totals) for totals in slow_series(np.random.default_rng(6), 300, 0.1)]
    assert np.mean([of.wanders for of in white]) < 0.1


def test_independent_runs_are_single_observations() -> None:
    random = np.random.default_rng(7)
    inside = alarms = 0
    for _ in range(100):
        totals = slow_series(random, 12, 2_000.0)
        run, slice_ = np.divmod(np.arange(totals.size), SLICES)
        all_batches = make_batches(
            run, slice_, np.full(totals.size, OBSERVATIONS_PER_SLICE), totals.ravel()
        )
        mean = estimate_mean(all_batches)
        inside += abs(mean.value - 1.0) <= mean.half_width(0.95)
        alarms += drift(all_batches)[1] <= 0.05
        assert all_batches.has_many_runs
        assert not all_batches.wanders
    assert inside >= 87
    assert alarms <= 13


@pytest.mark.parametrize("runs", [(500,) * 2, (170,) * 3, (90,) * 6, (400, *(3,) * 60)])
def test_runs_of_any_number_and_length_rarely_have_an_alarm(runs: tuple[int, ...]) -> None:
    random = np.random.default_rng(8)
    run = np.repeat(np.arange(len(runs)), runs)
    slice_ = np.concatenate([np.arange(length) for length in runs])
    inside = alarms = 0
    for _ in range(200):
        totals = random.exponential(1.0, (len(run), 5)).sum(axis=1)
        all_batches = make_batches(run, slice_, np.full(len(run), 5), totals)
        mean = estimate_mean(all_batches)
        inside += abs(mean.value - 1.0) <= mean.half_width(0.95)
        alarms += drift(all_batches)[1] <= 0.05
    assert inside >= 178  # 190 are expected; 178 is four standard deviations less
    assert alarms <= 22


def test_drift_is_found_and_measured() -> None:
    random = np.random.default_rng(4)
    growth = 1 + 0.15 * np.arange(SLICES) / SLICES
    found = [drift(batches(totals * growth)) for totals in slow_series(random, 100, 1.0, 0.05)]
    assert np.mean([chance <= 0.05 for _, chance in found]) > 0.8
    assert np.mean([rise for rise, _ in found]) == pytest.approx(0.15 * 0.9 / 1.075, abs=0.03)


def test_holm_adjustment_matches_its_definition() -> None:
    assert holm_adjusted(np.array([0.01, 0.04, 0.03, 0.5])).tolist() == pytest.approx(
        [0.04, 0.09, 0.09, 0.5]
    )
    assert holm_adjusted(np.array([])).tolist() == []


def test_warm_up_is_ignored() -> None:
    totals = np.full(SLICES, 20.0)
    totals[: SLICES // 10] = 2_000.0
    assert batches(totals).mean == pytest.approx(1.0)


def test_wilson_interval_matches_scipy() -> None:
    for successes, number in ((0, 20), (20, 20), (3, 50), (990, 1_000)):
        low, high = binomtest(successes, number).proportion_ci(0.95, method="wilson")
        half = wilson_half_width(successes / number, number, 0.95)
        assert half == pytest.approx((high - low) / 2)
        assert half > 0
