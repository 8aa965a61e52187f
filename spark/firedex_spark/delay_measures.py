"""What was measured of a configuration's classes and subscriptions, not judged yet. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firedex.wire import SubscriptionPrediction
from firedex_spark.batch_means import (
    FEWEST_OF_A_BATCH,
    Batches,
    Mean,
    batches_of,
    drift,
    mean_of,
)
from firedex_spark.delay_sketch import NANOSECONDS, fraction_within, percentile
from firedex_spark.delivery_cells import Cells, added_up
from firedex_spark.measured_row import Bounds, MeasuredRow

__all__ = ["Predicted", "Series", "measure"]

Integers = NDArray[np.int64]
Predicted = Mapping[tuple[str, str], SubscriptionPrediction]
"""By subscriber and filter."""
CONFIDENCE = 0.95
WARM_UP_BATCHES = 1
FEWEST_BATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One subscription's numbers of one run, or those of one window of it; and from when to when.

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
    def tells_of_losses(self) -> bool:
        """Whether something that did not arrive is on record."""
        return bool((self.cells.slices[:, 1] > self.cells.slices[:, 2]).any())


def measure(
    site: str, version: int, series: Sequence[Series], predicted: Predicted, bounds: Bounds
) -> Iterator[MeasuredRow]:
    """The rows of one configuration: its classes, its subscriptions, and those without a record."""
    ordered = sorted(series, key=lambda s: (s.priority, s.subscriber, s.filter, s.run, s.earliest))
    telling = {s.run for s in ordered if s.tells_of_losses}
    classes: dict[int, list[Series]] = {}
    single: dict[tuple[int, str, str], list[Series]] = {}
    for one in ordered:
        classes.setdefault(one.priority, []).append(one)
        single.setdefault((one.priority, one.subscriber, one.filter), []).append(one)
    for priority, members in classes.items():
        names = dict.fromkeys((s.subscriber, s.filter) for s in members)
        said = [p for name in names if (p := _said(predicted, *name, priority)) is not None]
        blank = _blank(site, version, priority, None, None)
        all_said = said if len(said) == len(names) else []
        yield _measured(blank, members, all_said, telling, bounds)
    for (priority, subscriber, filter_), members in single.items():
        blank = _blank(site, version, priority, subscriber, filter_)
        known = _said(predicted, subscriber, filter_, priority)
        yield _measured(blank, members, [known] if known else [], telling, bounds)
    yield from _without_records(site, version, ordered, predicted)


def _said(
    predicted: Predicted, subscriber: str, filter_: str, priority: int
) -> SubscriptionPrediction | None:
    """What was predicted of it; nothing of what came in another class than was planned."""
    said = predicted.get((subscriber, filter_))
    return said if said is not None and said.priority == priority else None


def _blank(
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


def _without_records(
    site: str, version: int, series: Sequence[Series], predicted: Predicted
) -> Iterator[MeasuredRow]:
    """What was to arrive and is not on record; judged if the subscriber keeps records at all."""
    seconds = _seconds_on_record(series)
    recorded = {(s.subscriber, s.filter) for s in series}
    for (subscriber, filter_), said in sorted(predicted.items()):
        if (subscriber, filter_) in recorded or not said.offered_events_per_second:
            continue
        row = _blank(site, version, said.priority, subscriber, filter_)
        row = _with_prediction(row, [said])
        arriving = said.offered_events_per_second * said.success_rate
        expected = arriving * seconds.get(subscriber, 0.0)
        if expected >= FEWEST_OF_A_BATCH:
            row = replace(row, chance_of_success=float(np.exp(-expected)))
        yield row


def _seconds_on_record(series: Sequence[Series]) -> dict[str, float]:
    """How long each subscriber's records cover, over all runs."""
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for one in series:
        earliest, latest = spans.get((one.subscriber, one.run), (np.inf, -np.inf))
        spans[one.subscriber, one.run] = min(earliest, one.earliest), max(latest, one.latest)
    seconds: dict[str, float] = {}
    for (subscriber, _), (earliest, latest) in spans.items():
        seconds[subscriber] = seconds.get(subscriber, 0.0) + latest - earliest
    return seconds


def _measured(
    blank: MeasuredRow,
    series: list[Series],
    predicted: list[SubscriptionPrediction],
    telling: set[str],
    bounds: Bounds,
) -> MeasuredRow:
    names = sorted({s.run for s in series})
    run, slices = _joined(names, [(s.run, s.cells.slices) for s in series], keys=1)
    told = np.isin(run, [n for n, name in enumerate(names) if name in telling])
    row = replace(blank, offered=int(slices[:, 1].sum()), delivered=int(slices[:, 2].sum()))
    row = _with_prediction(row, predicted)
    row = _with_success(row, run[told], slices[told], bounds)
    timed = slices[:, 3] > 0
    delays = batches_of(
        run[timed], slices[timed, 0], slices[timed, 3], slices[timed, 4] / NANOSECONDS
    )
    if not delays.count.sum():
        return row
    row = _with_delay(row, delays, bounds)
    deadlines = {p.deadline_seconds for p in predicted}
    deadline = deadlines.pop() if len(deadlines) == 1 else None
    buckets = _joined(names, [(s.run, s.cells.buckets) for s in series], keys=2)
    return _with_percentiles(row, *buckets, deadline)


def _joined(
    names: list[str], numbers: list[tuple[str, Integers]], keys: int
) -> tuple[Integers, Integers]:
    """Numbers of the same run and keys added up, in the order of both; the run of each beside."""
    runs = {name: number for number, name in enumerate(names)}
    parts = [np.insert(part, 0, runs[name], axis=1) for name, part in numbers]
    whole = added_up(np.concatenate(parts), keys + 1)
    return whole[:, 0], whole[:, 1:]


def _with_prediction(row: MeasuredRow, said: list[SubscriptionPrediction]) -> MeasuredRow:
    """What was predicted of all of them: success by offered rate, delay by delivered rate."""
    if not said:
        return row
    offered = np.array([p.offered_events_per_second for p in said])
    success = np.array([p.success_rate for p in said])
    methods = sorted({p.method for p in said})
    mean = p95 = None
    arriving = offered * success
    if arriving.sum() > 0 and all(p.delay_mean_seconds is not None for p in said):
        means = np.array([p.delay_mean_seconds for p in said], dtype=float)
        mean = float((arriving * means).sum() / arriving.sum())
    timely = None
    if len(said) == 1:
        p95 = said[0].delay_p95_seconds
        timely = said[0].timely_fraction if said[0].deadline_seconds is not None else None
    total = float(offered.sum())
    return replace(
        row,
        predicted_delay_mean_seconds=mean,
        predicted_delay_p95_seconds=p95,
        predicted_success_rate=float(arriving.sum() / total) if total else float(success.mean()),
        predicted_timely_fraction=timely,
        method=methods[0] if len(methods) == 1 else "mixed",
    )


def _with_success(row: MeasuredRow, run: Integers, slices: Integers, bounds: Bounds) -> MeasuredRow:
    batches = batches_of(run, slices[:, 0], slices[:, 1], slices[:, 2].astype(float))
    if not batches.count.sum():
        return row
    row = replace(row, success_rate=batches.mean)
    if not batches.enough:
        return row
    mean = mean_of(batches)
    row = replace(row, success_rate_half_width=mean.half_width(CONFIDENCE))
    predicted = row.predicted_success_rate
    if predicted is None:
        return row
    beyond = abs(mean.value - predicted) - bounds.success
    edge = predicted + np.clip(mean.value - predicted, -bounds.success, bounds.success)
    # batches may agree by chance, above all where nearly everything arrives
    least = float(np.sqrt(edge * (1 - edge) / batches.count.sum())) if 0 < edge < 1 else 0.0
    mean = replace(mean, error=max(mean.error, least))
    return replace(row, chance_of_success=mean.beyond(beyond))


def _with_delay(row: MeasuredRow, batches: Batches, bounds: Bounds) -> MeasuredRow:
    row = replace(row, delay_mean_seconds=batches.mean)
    predicted = row.predicted_delay_mean_seconds
    if predicted is not None and predicted > 0:
        row = replace(row, relative_error=batches.mean / predicted - 1)
    if not batches.enough:
        return row
    mean = mean_of(batches)
    rise, chance = drift(batches)
    row = replace(
        row,
        delay_mean_half_width_seconds=mean.half_width(CONFIDENCE),
        drift=rise,
        chance_of_drift=chance,
        means=tuple((batches.total / batches.count).tolist()),
    )
    return replace(row, chance_of_delay=_chance_of_delay(row, mean, bounds))


def _chance_of_delay(row: MeasuredRow, mean: Mean, bounds: Bounds) -> float | None:
    if row.predicted_delay_mean_seconds is None or row.method != "queueing":
        return None
    predicted = row.predicted_delay_mean_seconds
    return mean.beyond(abs(mean.value - predicted) - bounds.delay_allowed(predicted))


def _with_percentiles(
    row: MeasuredRow, run: Integers, buckets: Integers, deadline: float | None
) -> MeasuredRow:
    kept = _warm(run, buckets)
    run, buckets = run[kept], buckets[kept]
    whole = added_up(buckets[:, 1:], keys=1)
    levels = [percentile(whole[:, 0], whole[:, 1], level) for level in (0.5, 0.95, 0.99)]
    row = replace(
        row,
        delay_p50_seconds=levels[0],
        delay_p95_seconds=levels[1],
        delay_p99_seconds=levels[2],
    )
    arrived = 1.0 if row.success_rate is None else row.success_rate
    if deadline is not None:
        within = fraction_within(whole[:, 0], whole[:, 1], deadline)
        row = replace(row, timely_fraction=arrived * within)
    batch = np.flatnonzero(np.diff(run) | np.diff(buckets[:, 0])) + 1
    parts = [part for part in np.split(buckets, batch) if part[:, 2].sum() >= FEWEST_OF_A_BATCH]
    if len(parts) < FEWEST_BATCHES:
        return row
    p95s = [percentile(part[:, 1], part[:, 2], 0.95) for part in parts]
    row = replace(row, delay_p95_half_width_seconds=_half_width(p95s))
    if deadline is None:
        return row
    fractions = [fraction_within(part[:, 1], part[:, 2], deadline) for part in parts]
    half = np.hypot(arrived * _half_width(fractions), row.success_rate_half_width or 0.0)
    return replace(row, timely_fraction_half_width=float(half))


def _warm(run: Integers, buckets: Integers) -> NDArray[np.bool_]:
    """Without the first batch of each run that has enough of them."""
    kept = np.ones(len(run), dtype=bool)
    for number in np.unique(run):
        batches = np.unique(buckets[run == number, 0])
        if len(batches) > FEWEST_BATCHES:
            kept &= ~((run == number) & (buckets[:, 0] < batches[WARM_UP_BATCHES]))
    return kept


def _half_width(values: Sequence[float]) -> float:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return Mean(value=0.0, error=error, freedom=len(values) - 1).half_width(CONFIDENCE)
