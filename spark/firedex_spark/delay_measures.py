"""What was measured of a configuration's classes and subscriptions, not judged yet. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    wilson_half_width,
)
from firedex_spark.delay_sketch import NANOSECONDS, fraction_within, percentile
from firedex_spark.delivery_cells import Cells, added_up
from firedex_spark.measured_row import Bounds, MeasuredRow

__all__ = ["Predicted", "Series", "measure"]

Integers = NDArray[np.int64]
Predicted = Mapping[tuple[str, str], SubscriptionPrediction]
"""By subscriber and filter."""
CONFIDENCE = 0.95
SLOW_TOGETHER = (0.4, 0.3)
"""All that shares a network wanders if its classes do in the middle: each alone tells less."""
FEWEST_TOGETHER = 3
SHORTEST_SECONDS = 300.0
"""In less time a drift cannot be told from load that comes and goes, whatever it looks like."""
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
    def offered(self) -> int:
        """How many there were."""
        return int(self.cells.slices[:, 1].sum())

    @property
    def delivered(self) -> int:
        """How many of them arrived."""
        return int(self.cells.slices[:, 2].sum())


_Beside = tuple[Series, SubscriptionPrediction | None]
"""What was measured, and what was predicted of it."""


def measure(
    site: str,
    version: int,
    series: Sequence[Series],
    predicted: Predicted,
    telling: Collection[str],
    bounds: Bounds,
    wrong_clocks: Collection[str] = (),
) -> Iterator[MeasuredRow]:
    """The rows of one configuration: its classes, its subscriptions, and those without a record.

    ``telling``: runs that tell of losses. ``wrong_clocks``: subscribers whose delays say nothing.
    A class is of the others that were planned into it; only if there are none, of all others.
    """
    ordered = sorted(series, key=lambda s: (s.priority, s.subscriber, s.filter, s.run, s.earliest))
    classes: dict[int, list[_Beside]] = {}
    single: dict[tuple[int, str, str], list[_Beside]] = {}
    wrong: dict[int, set[str]] = {}
    for one in ordered:
        if one.subscriber in wrong_clocks:
            wrong.setdefault(one.priority, set()).add(one.subscriber)
        said = _said(predicted, one.subscriber, one.filter, one.priority)
        classes.setdefault(one.priority, []).append((one, said))
        single.setdefault((one.priority, one.subscriber, one.filter), []).append((one, said))
    for priority, members in classes.items():
        right = [each for each in members if each[0].subscriber not in wrong_clocks]
        classes[priority] = [each for each in right if each[1] is not None] or right
    wandering = _wandering(classes)
    for priority, members in classes.items():
        row = _blank(site, version, priority, None, None)
        row = replace(row, wrong_clocks=len(wrong.get(priority, ())))
        yield _measured(row, members, telling, bounds, wandering[priority]) if members else row
    for (priority, subscriber, filter_), members in single.items():
        row = _blank(site, version, priority, subscriber, filter_)
        if subscriber in wrong_clocks:
            yield _not_measured(row, members)
        else:
            yield _measured(row, members, telling, bounds, wandering[priority])
    yield from _without_records(site, version, ordered, predicted, wrong_clocks)


def _not_measured(row: MeasuredRow, members: Sequence[_Beside]) -> MeasuredRow:
    """How many there were, and what was predicted; nothing is said of what a wrong clock left."""
    offered = sum(one.offered for one, _ in members)
    delivered = sum(one.delivered for one, _ in members)
    row = replace(row, offered=offered, delivered=delivered, wrong_clocks=1)
    beside = [(said, one.offered, one.delivered) for one, said in members if said is not None]
    return _with_prediction(row, beside)


def _wandering(classes: Mapping[int, Sequence[_Beside]]) -> dict[int, bool]:
    """Which classes wander: by themselves, or because most do."""
    batches = {
        priority: _delays([one for one, _ in of])[0] for priority, of in classes.items() if of
    }
    known = [of.slowness for of in batches.values() if of.enough]
    middle = np.median(known, axis=0) if len(known) >= FEWEST_TOGETHER else np.zeros(2)
    together = bool((middle > SLOW_TOGETHER).any())
    return {priority: together or (of.enough and of.wanders) for priority, of in batches.items()}


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
    site: str,
    version: int,
    series: Sequence[Series],
    predicted: Predicted,
    wrong_clocks: Collection[str],
) -> Iterator[MeasuredRow]:
    """What was to arrive and is not on record; judged if the subscriber keeps records at all."""
    seconds = _seconds_on_record(series)
    recorded = {(s.subscriber, s.filter) for s in series}
    for (subscriber, filter_), said in sorted(predicted.items()):
        if (subscriber, filter_) in recorded or not said.offered_events_per_second:
            continue
        row = _blank(site, version, said.priority, subscriber, filter_)
        row = _with_prediction(row, [(said, 0, 0)])
        arriving = said.offered_events_per_second * said.success_rate
        expected = arriving * seconds.get(subscriber, 0.0)
        if subscriber in wrong_clocks:
            row = replace(row, wrong_clocks=1)
        elif expected >= FEWEST_OF_A_BATCH:
            row = replace(row, chance_of_success=float(np.exp(-expected)))
        yield row


def _seconds_on_record(series: Sequence[Series]) -> dict[str, float]:
    """How long each subscriber's records cover, over all runs."""
    seconds: dict[str, float] = {}
    spans = _spans(((s.subscriber, s.run), s.earliest, s.latest) for s in series)
    for (subscriber, _), (earliest, latest) in spans.items():
        seconds[subscriber] = seconds.get(subscriber, 0.0) + latest - earliest
    return seconds


def _spans(
    times: Iterable[tuple[tuple[str, ...], float, float]],
) -> dict[tuple[str, ...], tuple[float, float]]:
    """From the earliest to the latest of each."""
    spans: dict[tuple[str, ...], tuple[float, float]] = {}
    for what, earliest, latest in times:
        first, last = spans.get(what, (np.inf, -np.inf))
        spans[what] = min(first, earliest), max(last, latest)
    return spans


def _delays(series: Sequence[Series]) -> tuple[Batches, float]:
    """Batches of delays, and how many seconds the runs lasted together."""
    names = sorted({s.run for s in series})
    run, slices = _joined(names, [(s.run, s.cells.slices) for s in series], keys=1)
    timed = slices[:, 3] > 0
    run, slices = run[timed], slices[timed]
    batches = batches_of(run, slices[:, 0], slices[:, 3], slices[:, 4] / NANOSECONDS)
    spans = _spans(((s.run,), s.earliest, s.latest) for s in series)
    return batches, sum(latest - earliest for earliest, latest in spans.values())


def _measured(
    blank: MeasuredRow,
    members: Sequence[_Beside],
    telling: Collection[str],
    bounds: Bounds,
    wandering: bool,
) -> MeasuredRow:
    series = [one for one, _ in members]
    names = sorted({s.run for s in series})
    run, slices = _joined(names, [(s.run, s.cells.slices) for s in series], keys=1)
    told = np.isin(run, [n for n, name in enumerate(names) if name in telling])
    row = replace(blank, offered=int(slices[:, 1].sum()), delivered=int(slices[:, 2].sum()))
    predicted = [(said, one.offered, one.delivered) for one, said in members if said is not None]
    row = _with_prediction(row, predicted)
    row = _with_success(row, run[told], slices[told], bounds)
    delays, seconds = _delays(series)
    if not delays.count.sum():
        return row
    row = _with_delay(row, delays, seconds, bounds, wandering)
    deadlines = {said.deadline_seconds for said, _, _ in predicted}
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


def _with_prediction(
    row: MeasuredRow, beside: Sequence[tuple[SubscriptionPrediction, int, int]]
) -> MeasuredRow:
    """What was predicted of all of them, each with how many were offered and arrived.

    Success by what was offered, delay by what arrived: a class is not wrong by its mix, and its
    delay is as well predicted as that of those of whom anything came.
    """
    if not beside:
        return row
    said = [prediction for prediction, _, _ in beside]
    offered = np.array([count for _, count, _ in beside], dtype=float)
    arrived = np.array([count for _, _, count in beside], dtype=float)
    come = [number for number, count in enumerate(arrived) if count] or list(range(len(said)))
    delaying, mean = [said[number] for number in come], None
    if all(p.delay_mean_seconds is not None for p in delaying):
        mean = _weighted([p.delay_mean_seconds or 0.0 for p in delaying], arrived[come])
    only = said[0] if len({(p.subscriber, p.filter) for p in said}) == 1 else None
    methods = sorted({p.method for p in delaying})
    in_time = only is not None and only.deadline_seconds is not None
    return replace(
        row,
        predicted_delay_mean_seconds=mean,
        predicted_delay_p95_seconds=only.delay_p95_seconds if only else None,
        predicted_success_rate=_weighted([p.success_rate for p in said], offered),
        predicted_timely_fraction=only.timely_fraction if only and in_time else None,
        method=methods[0] if len(methods) == 1 else "mixed",
    )


def _weighted(values: list[float], weights: NDArray[np.float64]) -> float:
    if len(set(values)) == 1:
        return values[0]
    return float(np.average(values, weights=weights if weights.sum() else None))


def _with_success(row: MeasuredRow, run: Integers, slices: Integers, bounds: Bounds) -> MeasuredRow:
    batches = batches_of(run, slices[:, 0], slices[:, 1], slices[:, 2].astype(float))
    if not batches.count.sum():
        return row
    row = replace(row, success_rate=batches.mean)
    if not batches.enough:
        return row
    mean = mean_of(batches)
    half = wilson_half_width(mean.value, float(batches.count.sum()), CONFIDENCE)
    row = replace(row, success_rate_half_width=max(mean.half_width(CONFIDENCE), half))
    predicted = row.predicted_success_rate
    if predicted is None:
        return row
    beyond = abs(mean.value - predicted) - bounds.success
    edge = predicted + np.clip(mean.value - predicted, -bounds.success, bounds.success)
    # batches may agree by chance, above all where nearly everything arrives
    least = float(np.sqrt(edge * (1 - edge) / batches.count.sum())) if 0 < edge < 1 else 0.0
    mean = replace(mean, error=max(mean.error, least))
    return replace(row, chance_of_success=mean.beyond(beyond))


def _with_delay(
    row: MeasuredRow, batches: Batches, seconds: float, bounds: Bounds, wandering: bool
) -> MeasuredRow:
    row = replace(row, delay_mean_seconds=batches.mean)
    predicted = row.predicted_delay_mean_seconds
    if predicted is not None and predicted > 0:
        row = replace(row, relative_error=batches.mean / predicted - 1)
    if not batches.enough:
        return row
    wandering = not batches.many and (wandering or batches.wanders)
    mean = mean_of(batches, wandering=wandering)
    rise, chance = drift(batches, bounds.drift, wandering=wandering)
    told = row.method is not None and (batches.many or seconds >= SHORTEST_SECONDS)
    row = replace(
        row,
        delay_mean_half_width_seconds=mean.half_width(CONFIDENCE),
        drift=rise,
        chance_of_drift=chance if told else None,
        wanders=wandering,
        means=batches.means,
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
    # all of them in time is not certainty either
    least = wilson_half_width(float(np.mean(fractions)), float(whole[:, 1].sum()), CONFIDENCE)
    half = arrived * max(_half_width(fractions), least)
    half = float(np.hypot(half, row.success_rate_half_width or 0.0))
    return replace(row, timely_fraction_half_width=half)


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
