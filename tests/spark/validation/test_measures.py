"""Measured rows of one configuration, and their verdicts."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest

from firedex_spark.records.delivery_cells import SLICES_PER_BATCH, Cells, delay_bucket
from firedex_spark.validation.measures import Predicted, Series, measure
from firedex_spark.validation.verdicts import Bounds, MeasuredRow, judge
from tests.spark.simulated_deliveries import four_classes, predict_subscriptions

SLICES = 256


DELAY = 5_000_000


PREDICTED = {
    name: replace(predictions, delay_mean_seconds=DELAY / 1e9)
    for name, predictions in predict_subscriptions(four_classes()).items()
}


CREW, TOPIC = "crew0", "sensor2/floor1"


def series(
    *,
    offered: int = 10,
    delivered: np.ndarray | int = 10,
    run: str = "live",
    filter_: str = TOPIC,
    priority: int = 2,
    slices: int = SLICES,
    delay: np.ndarray | int = DELAY,
    seconds: float = 1.0,
) -> Series:
    """Return the sums of one subscription; a slice is ``seconds`` long."""
    slice_ = np.arange(slices)
    arrived = np.broadcast_to(delivered, slices)
    each = np.broadcast_to(delay, slices)
    buckets = np.stack([slice_ // SLICES_PER_BATCH, delay_bucket(each), arrived], axis=1)
    return Series(
        subscriber=CREW,
        filter=filter_,
        priority=priority,
        run=run,
        earliest=0.0,
        latest=slices * seconds,
        cells=Cells(
            slices=np.stack(
                [slice_, np.full(slices, offered), arrived, arrived, arrived * each], axis=1
            ).astype(np.int64),
            buckets=buckets.astype(np.int64),
        ),
    )


def judge_rows(*all_series: Series, success: float = 1.0) -> dict[str | None, MeasuredRow]:
    """Return the rows by filter; None is the class."""
    predictions = {
        n: replace(p, success_rate=success) for n, p in PREDICTED.items() if n[0] == CREW
    }
    return {row.filter: row for row in rows_of(all_series, predictions)}


def rows_of(
    all_series: Sequence[Series],
    predictions: Predicted,
    runs_with_losses: Collection[str] | None = None,
) -> list[MeasuredRow]:
    """Return judged rows; by default, runs with a loss count as runs that record losses."""
    if runs_with_losses is None:
        runs_with_losses = {one.run for one in all_series if one.delivered < one.offered}
    return judge(measure("site", 0, all_series, predictions, runs_with_losses, Bounds()), Bounds())


def test_success_is_unknown_if_only_deliveries_are_recorded() -> None:
    row = judge_rows(series(), success=0.8)[TOPIC]
    assert (row.success_rate, row.success_p_value) == (None, None)
    assert row.timely_fraction == pytest.approx(1.0)  # of the delivered events
    assert row.predicted_success_rate == pytest.approx(0.8)
    assert row.verdict == "within bounds"


def test_success_is_judged_if_a_loss_is_recorded() -> None:
    delivered = np.full(SLICES, 10)
    delivered[100] = 9
    assert judge_rows(series(delivered=delivered), success=1.0)[TOPIC].verdict == "within bounds"
    row = judge_rows(series(delivered=delivered), success=0.8)[TOPIC]
    assert row.verdict == "success out of bounds"


def test_success_is_not_judged_with_few_records() -> None:
    delivered = np.zeros(SLICES, dtype=np.int64)
    delivered[::32] = 1
    offered = series(offered=0, delivered=delivered)
    offered.cells.slices[::32, 1] = 1
    offered.cells.slices[32, 2] = 0
    row = judge_rows(offered, success=0.5)[TOPIC]
    assert row.success_p_value is None
    assert row.verdict == "too little data"


def test_equal_batches_do_not_make_an_interval_empty() -> None:
    """Use one loss in 210: 0.995 is above 0.94 + 0.05, but not significantly."""
    delivered = np.full(210, 1)
    delivered[150] = 0
    row = judge_rows(series(offered=1, delivered=delivered, slices=210), success=0.94)[TOPIC]
    assert row.success_p_value is not None
    assert row.success_p_value > 0.05


def test_success_of_0_or_1_has_an_interval() -> None:
    predictions = {n: row for n, row in PREDICTED.items() if n[0] == CREW}
    rows = {row.filter: row for row in rows_of([series()], predictions, runs_with_losses={"live"})}
    row = rows[TOPIC]
    assert (row.success_rate, row.timely_fraction) == (1.0, 1.0)
    assert row.success_rate_half_width == pytest.approx(1.92 / 2_290, rel=0.02)
    assert row.success_rate_half_width is not None
    assert row.timely_fraction_half_width is not None
    assert row.timely_fraction_half_width > row.success_rate_half_width
    late = rows_of([series(delay=10**9)], predictions, runs_with_losses={"live"})
    assert {row.timely_fraction for row in late if row.filter == TOPIC} == {0.0}
    assert all(row.timely_fraction_half_width for row in late if row.filter == TOPIC)


def test_insignificant_difference_is_inconclusive() -> None:
    random = np.random.default_rng(9)
    wild = (1.8 * DELAY * random.lognormal(-1.0, 1.4, SLICES)).astype(np.int64)
    row = judge_rows(series(delay=wild, offered=1, delivered=1))[TOPIC]
    assert row.relative_error is not None
    assert row.relative_error > Bounds().delay
    assert row.verdict == "inconclusive"
    assert not row.alarming


def test_subscribers_without_expected_deliveries_do_not_affect_the_class() -> None:
    """Drop all events of one filter: the delay of the class is that of the others."""
    other = "sensor2/floor2"
    predictions = {name: row for name, row in PREDICTED.items() if name == (CREW, TOPIC)}
    dropped = replace(
        predictions[CREW, TOPIC],
        filter=other,
        success_rate=0.0,
        delay_mean_seconds=None,
        delay_p95_seconds=None,
        method="nothing-delivered",
    )
    all_series = [series(), series(filter_=other, delivered=0)]
    rows = {row.filter: row for row in rows_of(all_series, predictions | {(CREW, other): dropped})}
    assert rows[other].verdict == "no deliveries expected"
    assert rows[None].verdict == "within bounds"
    assert rows[None].predicted_delay_mean_seconds == pytest.approx(DELAY / 1e9)


def test_missing_deliveries_of_a_recording_subscriber_are_an_alarm() -> None:
    rows = judge_rows(series())
    assert rows["sensor1/floor1"].verdict == "no deliveries"
    assert rows["sensor1/floor1"].alarming
    assert rows["sensor1/floor1"].offered == 0
    assert not judge_rows(series(slices=1))["sensor1/floor1"].alarming  # too short to judge


def test_subscriber_without_records_is_not_judged() -> None:
    rows = rows_of([series()], PREDICTED)
    others = {row.verdict for row in rows if row.subscriber not in (None, CREW)}
    assert others == {"no records"}


def test_delivery_in_another_class_is_not_predicted() -> None:
    rows = rows_of([series(priority=63)], PREDICTED)
    assert {row.verdict for row in rows if row.priority == 63} == {"not predicted"}


def test_drift_within_runs_is_found_for_any_number_of_runs() -> None:
    rising = (DELAY * np.linspace(1.0, 1.3, 64)).astype(np.int64)
    random = np.random.default_rng(7)

    def run(number: int, level: np.ndarray, seconds: float = 1.0) -> Series:
        noise = (level * random.normal(1.0, 0.05, 64)).astype(np.int64)
        return series(run=f"run{number}", delay=noise, slices=64, seconds=seconds)

    drifting_series = judge_rows(*(run(n, rising) for n in range(50)))[TOPIC]
    assert drifting_series.verdict == "drift"
    levels = judge_rows(*(run(n, rising * (1 + n % 2), 2.0) for n in range(4)))[TOPIC]
    assert levels.drift_p_value is not None
    assert levels.drift_p_value <= Bounds().level, "runs at different levels"
    short = judge_rows(*(run(n, rising) for n in range(4)))[TOPIC]
    assert short.drift_p_value is None, "varying load looks the same in a few minutes"
    steady = judge_rows(*(run(n, np.full(64, DELAY)) for n in range(50)))[TOPIC]
    assert steady.verdict == "within bounds"


@pytest.mark.parametrize(("runs", "slices"), [(10, 25), (50, 8), (300, 2)])
def test_many_short_runs_are_judged(runs: int, slices: int) -> None:
    random = np.random.default_rng(15)

    def judge_at(level: float) -> MeasuredRow:
        noise = [random.exponential(level * DELAY, slices).astype(np.int64) for _ in range(runs)]
        all_series = [series(run=f"run{n}", delay=noise[n], slices=slices) for n in range(runs)]
        return judge_rows(*all_series)[TOPIC]

    assert judge_at(1.0).verdict == "within bounds"
    assert judge_at(2.5).verdict == "delay out of bounds"


def test_prediction_of_a_class_is_weighted_by_its_deliveries() -> None:
    slow, fast = (CREW, "sensor2/floor1"), ("crew1", "sensor2/floor1")
    predictions = {
        fast: replace(PREDICTED[fast], delay_mean_seconds=0.010),
        slow: replace(PREDICTED[slow], delay_mean_seconds=0.100),
    }
    random = np.random.default_rng(14)
    noise = random.normal(1.0, 0.1, SLICES)
    much = replace(
        series(delivered=40, offered=40, delay=(1e7 * noise).astype(int)), subscriber="crew1"
    )
    little = series(delay=(1e8 * noise).astype(int))
    unpredicted_series = series(filter_="sensor9/floor1", delay=int(9e9), slices=4)
    rows = {
        (row.subscriber, row.filter): row
        for row in rows_of([much, little, unpredicted_series], predictions)
    }
    assert rows[None, None].verdict == "within bounds"
    assert rows[None, None].offered == 50 * SLICES
    assert rows[CREW, "sensor9/floor1"].verdict == "not predicted"


def test_subscription_without_losses_has_success_1_if_others_have_losses() -> None:
    predictions = {n: replace(p, success_rate=0.5) for n, p in PREDICTED.items() if n[0] == CREW}
    rows = rows_of([series()], predictions, runs_with_losses={"live"})
    assert {row.verdict for row in rows if row.filter == TOPIC} == {"success out of bounds"}


def slowly_varying_delays(
    random: np.random.Generator, pace: float, wander: float = 0.3
) -> np.ndarray:
    """Return delays of slices whose level varies with the correlation time ``pace``."""
    keep, level = np.exp(-1 / pace), [random.normal()]
    for _ in range(SLICES - 1):
        level.append(keep * level[-1] + np.sqrt(1 - keep**2) * random.normal())
    return (DELAY * np.exp(wander * np.array(level) - wander**2 / 2)).astype(np.int64)


def test_slow_variation_is_neither_drift_nor_within_bounds() -> None:
    random = np.random.default_rng(11)
    rows = [
        judge_rows(series(delay=slowly_varying_delays(random, 60.0), seconds=10.0))[TOPIC]
        for _ in range(50)
    ]
    assert np.mean([row.wanders for row in rows]) > 0.9
    assert sum(row.alarming for row in rows) <= 1
    quick = [
        judge_rows(series(delay=slowly_varying_delays(random, 0.5), seconds=10.0))[TOPIC]
        for _ in range(50)
    ]
    assert np.mean([row.verdict == "within bounds" for row in quick]) > 0.8


def test_slow_variation_far_out_of_bounds_is_an_alarm() -> None:
    random = np.random.default_rng(12)
    row = judge_rows(series(delay=10 * slowly_varying_delays(random, 60.0)))[TOPIC]
    assert (row.wanders, row.verdict) == (True, "delay out of bounds")


def drifting_series(growth: float) -> Series:
    noise = np.random.default_rng(13).normal(1.0, 0.02, SLICES)
    delay = DELAY * noise * np.linspace(1.0, 1.0 + growth, SLICES)
    return series(delay=delay.astype(np.int64), seconds=10.0)


def test_significant_drift_within_its_bound_is_no_alarm() -> None:
    small, large = (
        judge_rows(drifting_series(0.02))[TOPIC],
        judge_rows(drifting_series(0.15))[TOPIC],
    )
    assert (small.drift, small.verdict) == (pytest.approx(0.018, abs=0.005), "within bounds")
    assert large.verdict == "drift"
    predictions = {name: row for name, row in PREDICTED.items() if name[0] == CREW}
    strict, wide = (Bounds(drift=bound) for bound in (0.005, 0.3))
    for growth, bounds, verdict in ((0.02, strict, "drift"), (0.15, wide, "within bounds")):
        rows = judge(measure("site", 0, [drifting_series(growth)], predictions, (), bounds), bounds)
        assert {row.verdict for row in rows if row.filter == TOPIC} == {verdict}


def test_unpredicted_rows_are_not_tested_for_drift() -> None:
    unpredicted = [replace(drifting_series(1.0), filter=f"stray{n}") for n in range(40)]
    rows = judge_rows(drifting_series(0.15), *unpredicted)
    of_strays = [row for name, row in rows.items() if str(name).startswith("stray")]
    assert {row.verdict for row in of_strays} == {"not predicted"}
    assert not [row for row in of_strays if row.alarming]
    assert rows[TOPIC].drift_p_value == judge_rows(drifting_series(0.15))[TOPIC].drift_p_value
    assert rows[TOPIC].verdict == "drift"
