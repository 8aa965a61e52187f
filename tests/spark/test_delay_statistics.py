"""The statistics under validate-delays, without Spark."""

import numpy as np
import pytest
from scipy.stats import binomtest

from firedex_spark.batch_means import batches_of, drift, holm, mean_of, wilson_half_width
from firedex_spark.delay_sketch import WIDTH, bucket_of, fraction_within, percentile

SLICES, IN_A_SLICE = 512, 20


def slow_series(
    random: np.random.Generator, runs: int, pace: float = 4.0, wander: float = 0.3
) -> np.ndarray:
    """Sums of slices whose means follow each other slowly; the true mean is 1."""
    keep = np.exp(-1 / pace)
    level = np.empty((runs, SLICES))
    level[:, 0] = random.normal(size=runs)
    for step in range(1, SLICES):
        fresh = random.normal(size=runs)
        level[:, step] = keep * level[:, step - 1] + np.sqrt(1 - keep**2) * fresh
    noise = random.exponential(1.0, (runs, SLICES, IN_A_SLICE)).sum(axis=2)
    return noise * np.exp(wander * level - wander**2 / 2)


def batches(totals: np.ndarray):
    run = np.zeros(SLICES, dtype=np.int64)
    return batches_of(run, np.arange(SLICES), np.full(SLICES, IN_A_SLICE), totals)


def test_percentiles_are_within_the_sketchs_width() -> None:
    random = np.random.default_rng(1)
    delays = random.lognormal(-4, 1.0, 200_000)
    bucket, count = np.unique(bucket_of((delays * 1e9).astype(np.int64)), return_counts=True)
    for level in (0.01, 0.5, 0.95, 0.999):
        assert percentile(bucket, count, level) == pytest.approx(
            np.quantile(delays, level), rel=WIDTH
        )
    assert fraction_within(bucket, count, 0.02) == pytest.approx((delays <= 0.02).mean(), abs=0.005)
    assert fraction_within(bucket, count, 1e-9) == 0.0
    assert fraction_within(bucket, count, 1e9) == 1.0


def test_intervals_hold_although_neighbours_resemble_each_other() -> None:
    random = np.random.default_rng(2)
    inside = naive = 0
    runs = slow_series(random, 300)
    for totals in runs:
        mean = mean_of(batches(totals))
        inside += abs(mean.value - 1.0) <= mean.half_width(0.95)
        each = totals[52:] / IN_A_SLICE
        naive += abs(each.mean() - 1.0) <= 1.96 * each.std() / np.sqrt(len(each))
    assert 0.91 <= inside / len(runs) <= 0.99
    assert naive / len(runs) < 0.8  # what would be claimed if they were taken for independent


@pytest.mark.parametrize("pace", [0.1, 4.0, 12.0])
def test_clean_series_are_rarely_said_to_drift(pace: float) -> None:
    random = np.random.default_rng(3)
    alarms = sum(drift(batches(totals))[1] <= 0.05 for totals in slow_series(random, 400, pace))
    assert alarms <= 36  # 20 are to be expected; 36 is four standard deviations more


@pytest.mark.parametrize("pace", [30.0, 60.0])
def test_what_wanders_is_seen_to_wander(pace: float) -> None:
    """At levels as small as each of many rows has: a test that is wrong is so in the tails."""
    made = [batches(totals) for totals in slow_series(np.random.default_rng(5), 600, pace)]
    assert np.mean([of.wanders for of in made]) > 0.95
    assert sum(drift(of)[1] <= 0.001 for of in made if not of.wanders) <= 4
    white = [batches(totals) for totals in slow_series(np.random.default_rng(6), 300, 0.1)]
    assert np.mean([of.wanders for of in white]) < 0.1


def test_independent_runs_are_batches_whatever_happens_inside() -> None:
    random = np.random.default_rng(7)
    inside = alarms = 0
    for _ in range(100):
        totals = slow_series(random, 12, 2_000.0)
        run, slice_ = np.divmod(np.arange(totals.size), SLICES)
        made = batches_of(run, slice_, np.full(totals.size, IN_A_SLICE), totals.ravel())
        mean = mean_of(made)
        inside += abs(mean.value - 1.0) <= mean.half_width(0.95)
        alarms += drift(made)[1] <= 0.05
        assert made.many
        assert not made.wanders
    assert inside >= 87
    assert alarms <= 13


@pytest.mark.parametrize("runs", [(500,) * 2, (170,) * 3, (90,) * 6, (400, *(3,) * 60)])
def test_runs_of_any_number_and_length_are_rarely_said_to_drift(runs: tuple[int, ...]) -> None:
    random = np.random.default_rng(8)
    run = np.repeat(np.arange(len(runs)), runs)
    slice_ = np.concatenate([np.arange(length) for length in runs])
    inside = alarms = 0
    for _ in range(200):
        totals = random.exponential(1.0, (len(run), 5)).sum(axis=1)
        made = batches_of(run, slice_, np.full(len(run), 5), totals)
        mean = mean_of(made)
        inside += abs(mean.value - 1.0) <= mean.half_width(0.95)
        alarms += drift(made)[1] <= 0.05
    assert inside >= 178  # 190 are to be expected; four standard deviations less
    assert alarms <= 22


def test_a_drift_is_found_and_measured() -> None:
    random = np.random.default_rng(4)
    growth = 1 + 0.15 * np.arange(SLICES) / SLICES
    found = [drift(batches(totals * growth)) for totals in slow_series(random, 100, 1.0, 0.05)]
    assert np.mean([chance <= 0.05 for _, chance in found]) > 0.8
    assert np.mean([rise for rise, _ in found]) == pytest.approx(0.15 * 0.9 / 1.075, abs=0.03)


def test_holm_by_its_definition() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.5])).tolist() == pytest.approx(
        [0.04, 0.09, 0.09, 0.5]
    )
    assert holm(np.array([])).tolist() == []


def test_the_beginning_of_a_run_is_not_looked_at() -> None:
    totals = np.full(SLICES, 20.0)
    totals[: SLICES // 10] = 2_000.0
    assert batches(totals).mean == pytest.approx(1.0)


def test_wilsons_interval_is_that_of_an_independent_implementation() -> None:
    for successes, number in ((0, 20), (20, 20), (3, 50), (990, 1_000)):
        low, high = binomtest(successes, number).proportion_ci(0.95, method="wilson")
        half = wilson_half_width(successes / number, number, 0.95)
        assert half == pytest.approx((high - low) / 2)
        assert half > 0
