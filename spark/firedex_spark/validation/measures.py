"""Measured figures of the classes and subscriptions of one configuration. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firedex.wire import SubscriptionPrediction
from firedex_spark.records.delivery_cells import (
    NANOSECONDS,
    Cells,
    fraction_below,
    percentile,
    sum_by_key,
)
from firedex_spark.validation.batch_means import (
    MIN_OBSERVATIONS_PER_BATCH,
    Batches,
    Mean,
    drift,
    estimate_mean,
    make_batches,
    wilson_half_width,
)
from firedex_spark.validation.verdicts import Bounds, MeasuredRow

__all__ = ["Predicted", "Series", "measure"]

Integers = NDArray[np.int64]
Predicted = Mapping[tuple[str, str], SubscriptionPrediction]
"""By subscriber and filter."""
CONFIDENCE = 0.95
SLOW_SHARES_OF_CLASSES = (0.4, 0.3)
"""All classes of a network wander if the median of their shares is larger than this."""
MIN_CLASSES = 3
MIN_DRIFT_TEST_SECONDS = 300.0
"""A shorter run is not tested for drift, because varying load looks the same."""
WARM_UP_BATCHES = 1
MIN_BATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The sums of one subscription in one run, or in one window of it.

    All series of a run have slices of the same width.
    """

    subscriber: str
    filter: str
    priority: int
    run: str
    earliest: float
    latest: float
    cells: Cells

    @property
    def offered(self) -> int:
        """Return the number of notifications."""
        return int(self.cells.slices[:, 1].sum())

    @property
    def delivered(self) -> int:
        """Return the number of delivered notifications."""
        return int(self.cells.slices[:, 2].sum())


_MeasuredAndPredicted = tuple[Series, SubscriptionPrediction | None]
"""A measured series and its prediction, if any."""


def measure(
    site: str,
    version: int,
    series: Sequence[Series],
    predicted: Predicted,
    runs_with_losses: Collection[str],
    bounds: Bounds,
    wrong_clocks: Collection[str] = (),
) -> Iterator[MeasuredRow]:
    """Yield the rows of one configuration: classes, subscriptions, and those without records.

    ``runs_with_losses``: runs whose records include losses. ``wrong_clocks``: subscribers whose
    delays cannot be used. A class consists of the other subscriptions planned into it, or of all
    others if none was planned.
    """
    ordered = sorted(series, key=lambda s: (s.priority, s.subscriber, s.filter, s.run, s.earliest))
    classes: dict[int, list[_MeasuredAndPredicted]] = {}
    single: dict[tuple[int, str, str], list[_MeasuredAndPredicted]] = {}
    wrong: dict[int, set[str]] = {}
    for one in ordered:
        if one.subscriber in wrong_clocks:
            wrong.setdefault(one.priority, set()).add(one.subscriber)
        prediction = _prediction_of(predicted, one.subscriber, one.filter, one.priority)
        classes.setdefault(one.priority, []).append((one, prediction))
        single.setdefault((one.priority, one.subscriber, one.filter), []).append((one, prediction))
    for priority, members in classes.items():
        right = [each for each in members if each[0].subscriber not in wrong_clocks]
        classes[priority] = [each for each in right if each[1] is not None] or right
    wandering = _wandering(classes)
    for priority, members in classes.items():
        row = _empty_row(site, version, priority, None, None)
        row = replace(row, wrong_clocks=len(wrong.get(priority, ())))
        yield (
            _measure_row(row, members, runs_with_losses, bounds, wandering[priority])
            if members
            else row
        )
    for (priority, subscriber, filter_), members in single.items():
        row = _empty_row(site, version, priority, subscriber, filter_)
        if subscriber in wrong_clocks:
            yield _counts_only(row, members)
        else:
            yield _measure_row(row, members, runs_with_losses, bounds, wandering[priority])
    yield from _rows_without_records(site, version, ordered, predicted, wrong_clocks)


def _counts_only(row: MeasuredRow, members: Sequence[_MeasuredAndPredicted]) -> MeasuredRow:
    """Return counts and prediction only, for a subscriber with a wrong clock."""
    offered = sum(one.offered for one, _ in members)
    delivered = sum(one.delivered for one, _ in members)
    row = replace(row, offered=offered, delivered=delivered, wrong_clocks=1)
    beside = [
        (prediction, one.offered, one.delivered)
        for one, prediction in members
        if prediction is not None
    ]
    return _with_prediction(row, beside)


def _wandering(classes: Mapping[int, Sequence[_MeasuredAndPredicted]]) -> dict[int, bool]:
    """Return which classes wander: by themselves, or because most classes do."""
    batches = {
        priority: _delays([one for one, _ in of])[0] for priority, of in classes.items() if of
    }
    known = [of.slowness for of in batches.values() if of.has_enough_data]
    middle = np.median(known, axis=0) if len(known) >= MIN_CLASSES else np.zeros(2)
    together = bool((middle > SLOW_SHARES_OF_CLASSES).any())
    return {
        priority: together or (of.has_enough_data and of.wanders)
        for priority, of in batches.items()
    }


def _prediction_of(
    predicted: Predicted, subscriber: str, filter_: str, priority: int
) -> SubscriptionPrediction | None:
    """Return the prediction, or None if the subscription was planned into another class."""
    prediction = predicted.get((subscriber, filter_))
    return prediction if prediction is not None and prediction.priority == priority else None


def _empty_row(
    site: str, version: int, priority: int, subscriber: str | None, filter_: str | None
) -> MeasuredRow:
    return MeasuredRow(
        site=site,
        configuration_version=version,
        priority=priority,
        subscriber=subscriber,
        filter=filter_,
        offered=0,
        delivered=0,
    )


def _rows_without_records(
    site: str,
    version: int,
    series: Sequence[Series],
    predicted: Predicted,
    wrong_clocks: Collection[str],
) -> Iterator[MeasuredRow]:
    """Yield predicted subscriptions without records; judged if the subscriber has others."""
    seconds = _recorded_seconds(series)
    recorded = {(s.subscriber, s.filter) for s in series}
    for (subscriber, filter_), prediction in sorted(predicted.items()):
        if (subscriber, filter_) in recorded or not prediction.offered_events_per_second:
            continue
        row = _empty_row(site, version, prediction.priority, subscriber, filter_)
        row = _with_prediction(row, [(prediction, 0, 0)])
        arriving = prediction.offered_events_per_second * prediction.success_rate
        expected = arriving * seconds.get(subscriber, 0.0)
        if subscriber in wrong_clocks:
            row = replace(row, wrong_clocks=1)
        elif expected >= MIN_OBSERVATIONS_PER_BATCH:
            row = replace(row, success_p_value=float(np.exp(-expected)))
        yield row


def _recorded_seconds(series: Sequence[Series]) -> dict[str, float]:
    """Return the time that the records of each subscriber cover, over all runs."""
    seconds: dict[str, float] = {}
    spans = _spans(((s.subscriber, s.run), s.earliest, s.latest) for s in series)
    for (subscriber, _), (earliest, latest) in spans.items():
        seconds[subscriber] = seconds.get(subscriber, 0.0) + latest - earliest
    return seconds


def _spans(
    times: Iterable[tuple[tuple[str, ...], float, float]],
) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return the earliest and the latest time of each key."""
    spans: dict[tuple[str, ...], tuple[float, float]] = {}
    for what, earliest, latest in times:
        first, last = spans.get(what, (np.inf, -np.inf))
        spans[what] = min(first, earliest), max(last, latest)
    return spans


def _delays(series: Sequence[Series]) -> tuple[Batches, float]:
    """Return the batches of delays, and the total duration of the runs."""
    names = sorted({s.run for s in series})
    run, slices = _join_runs(names, [(s.run, s.cells.slices) for s in series], keys=1)
    timed = slices[:, 3] > 0
    run, slices = run[timed], slices[timed]
    batches = make_batches(run, slices[:, 0], slices[:, 3], slices[:, 4] / NANOSECONDS)
    spans = _spans(((s.run,), s.earliest, s.latest) for s in series)
    return batches, sum(latest - earliest for earliest, latest in spans.values())


def _measure_row(
    blank: MeasuredRow,
    members: Sequence[_MeasuredAndPredicted],
    runs_with_losses: Collection[str],
    bounds: Bounds,
    wandering: bool,
) -> MeasuredRow:
    series = [one for one, _ in members]
    names = sorted({s.run for s in series})
    run, slices = _join_runs(names, [(s.run, s.cells.slices) for s in series], keys=1)
    in_runs_with_losses = np.isin(
        run, [n for n, name in enumerate(names) if name in runs_with_losses]
    )
    row = replace(blank, offered=int(slices[:, 1].sum()), delivered=int(slices[:, 2].sum()))
    predicted = [
        (prediction, one.offered, one.delivered)
        for one, prediction in members
        if prediction is not None
    ]
    row = _with_prediction(row, predicted)
    row = _with_success(row, run[in_runs_with_losses], slices[in_runs_with_losses], bounds)
    delays, seconds = _delays(series)
    if not delays.count.sum():
        return row
    row = _with_delay(row, delays, seconds, bounds, wandering)
    deadlines = {prediction.deadline_seconds for prediction, _, _ in predicted}
    deadline = deadlines.pop() if len(deadlines) == 1 else None
    buckets = _join_runs(names, [(s.run, s.cells.buckets) for s in series], keys=2)
    return _with_percentiles(row, *buckets, deadline)


def _join_runs(
    names: list[str], numbers: list[tuple[str, Integers]], keys: int
) -> tuple[Integers, Integers]:
    """Return sums by run and key, in the order of both, and the run of each."""
    runs = {name: number for number, name in enumerate(names)}
    parts = [np.insert(part, 0, runs[name], axis=1) for name, part in numbers]
    whole = sum_by_key(np.concatenate(parts), keys + 1)
    return whole[:, 0], whole[:, 1:]


def _with_prediction(
    row: MeasuredRow, beside: Sequence[tuple[SubscriptionPrediction, int, int]]
) -> MeasuredRow:
    """Return the row with the prediction for all its subscriptions.

    Success rates are weighted by offered, delays by delivered notifications, so that the mix of a
    class causes no error, and subscriptions without deliveries do not affect its delay.
    """
    if not beside:
        return row
    predictions = [prediction for prediction, _, _ in beside]
    offered = np.array([count for _, count, _ in beside], dtype=float)
    arrived = np.array([count for _, _, count in beside], dtype=float)
    with_deliveries = [number for number, count in enumerate(arrived) if count] or list(
        range(len(predictions))
    )
    delaying, mean = [predictions[number] for number in with_deliveries], None
    if all(p.delay_mean_seconds is not None for p in delaying):
        mean = _weighted_mean(
            [p.delay_mean_seconds or 0.0 for p in delaying], arrived[with_deliveries]
        )
    only = predictions[0] if len({(p.subscriber, p.filter) for p in predictions}) == 1 else None
    methods = sorted({p.method for p in delaying})
    in_time = only is not None and only.deadline_seconds is not None
    return replace(
        row,
        predicted_delay_mean_seconds=mean,
        predicted_delay_p95_seconds=only.delay_p95_seconds if only else None,
        predicted_success_rate=_weighted_mean([p.success_rate for p in predictions], offered),
        predicted_timely_fraction=only.timely_fraction if only and in_time else None,
        method=methods[0] if len(methods) == 1 else "mixed",
    )


def _weighted_mean(values: list[float], weights: NDArray[np.float64]) -> float:
    if len(set(values)) == 1:
        return values[0]
    return float(np.average(values, weights=weights if weights.sum() else None))


def _with_success(row: MeasuredRow, run: Integers, slices: Integers, bounds: Bounds) -> MeasuredRow:
    batches = make_batches(run, slices[:, 0], slices[:, 1], slices[:, 2].astype(float))
    if not batches.count.sum():
        return row
    row = replace(row, success_rate=batches.mean)
    if not batches.has_enough_data:
        return row
    mean = estimate_mean(batches)
    half = wilson_half_width(mean.value, float(batches.count.sum()), CONFIDENCE)
    row = replace(row, success_rate_half_width=max(mean.half_width(CONFIDENCE), half))
    predicted = row.predicted_success_rate
    if predicted is None:
        return row
    beyond = abs(mean.value - predicted) - bounds.success
    edge = predicted + np.clip(mean.value - predicted, -bounds.success, bounds.success)
    # batches may be equal by chance, especially where nearly everything arrives
    least = float(np.sqrt(edge * (1 - edge) / batches.count.sum())) if 0 < edge < 1 else 0.0
    mean = replace(mean, error=max(mean.error, least))
    return replace(row, success_p_value=mean.p_value_beyond(beyond))


def _with_delay(
    row: MeasuredRow, batches: Batches, seconds: float, bounds: Bounds, wandering: bool
) -> MeasuredRow:
    row = replace(row, delay_mean_seconds=batches.mean)
    predicted = row.predicted_delay_mean_seconds
    if predicted is not None and predicted > 0:
        row = replace(row, relative_error=batches.mean / predicted - 1)
    if not batches.has_enough_data:
        return row
    wandering = not batches.has_many_runs and (wandering or batches.wanders)
    mean = estimate_mean(batches, wandering=wandering)
    rise, chance = drift(batches, bounds.drift, wandering=wandering)
    drift_is_tested = row.method is not None and (
        batches.has_many_runs or seconds >= MIN_DRIFT_TEST_SECONDS
    )
    row = replace(
        row,
        delay_mean_half_width_seconds=mean.half_width(CONFIDENCE),
        drift=rise,
        drift_p_value=chance if drift_is_tested else None,
        wanders=wandering,
        means=batches.means,
    )
    return replace(row, delay_p_value=_delay_p_value(row, mean, bounds))


def _delay_p_value(row: MeasuredRow, mean: Mean, bounds: Bounds) -> float | None:
    if row.predicted_delay_mean_seconds is None or row.method != "queueing":
        return None
    predicted = row.predicted_delay_mean_seconds
    return mean.p_value_beyond(abs(mean.value - predicted) - bounds.delay_allowed(predicted))


def _with_percentiles(
    row: MeasuredRow, run: Integers, buckets: Integers, deadline: float | None
) -> MeasuredRow:
    kept = _is_after_warm_up(run, buckets)
    run, buckets = run[kept], buckets[kept]
    whole = sum_by_key(buckets[:, 1:], keys=1)
    levels = [percentile(whole[:, 0], whole[:, 1], level) for level in (0.5, 0.95, 0.99)]
    row = replace(
        row,
        delay_p50_seconds=levels[0],
        delay_p95_seconds=levels[1],
        delay_p99_seconds=levels[2],
    )
    arrived = 1.0 if row.success_rate is None else row.success_rate
    if deadline is not None:
        within = fraction_below(whole[:, 0], whole[:, 1], deadline)
        row = replace(row, timely_fraction=arrived * within)
    batch = np.flatnonzero(np.diff(run) | np.diff(buckets[:, 0])) + 1
    parts = [
        part for part in np.split(buckets, batch) if part[:, 2].sum() >= MIN_OBSERVATIONS_PER_BATCH
    ]
    if len(parts) < MIN_BATCHES:
        return row
    p95s = [percentile(part[:, 1], part[:, 2], 0.95) for part in parts]
    row = replace(row, delay_p95_half_width_seconds=_half_width(p95s))
    if deadline is None:
        return row
    fractions = [fraction_below(part[:, 1], part[:, 2], deadline) for part in parts]
    # even if all are timely, the interval is not empty
    least = wilson_half_width(float(np.mean(fractions)), float(whole[:, 1].sum()), CONFIDENCE)
    half = arrived * max(_half_width(fractions), least)
    half = float(np.hypot(half, row.success_rate_half_width or 0.0))
    return replace(row, timely_fraction_half_width=half)


def _is_after_warm_up(run: Integers, buckets: Integers) -> NDArray[np.bool_]:
    """Return which rows remain without the first batch of each run that has enough batches."""
    kept = np.ones(len(run), dtype=bool)
    for number in np.unique(run):
        batches = np.unique(buckets[run == number, 0])
        if len(batches) > MIN_BATCHES:
            kept &= ~((run == number) & (buckets[:, 0] < batches[WARM_UP_BATCHES]))
    return kept


def _half_width(values: Sequence[float]) -> float:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return Mean(value=0.0, error=error, freedom=len(values) - 1).half_width(CONFIDENCE)
