"""What was measured of a configuration beside what was predicted, and what follows. Pure.

A row is out of bounds when chance does not explain how far beyond them it is; it drifts when chance
does not explain how its delay rises or falls. Chance is judged for all rows of a report together
(Holm), at the report's level: with a model that is right, a report without any alarm has at least
the probability 1 − level.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firedex.wire import SubscriptionPrediction
from firedex_spark.batch_means import Batches, Mean, batches_of, drift, holm, mean_of
from firedex_spark.delay_sketch import NANOSECONDS, fraction_within, percentile
from firedex_spark.delivery_cells import Cells

__all__ = ["Bounds", "MeasuredRow", "Series", "judge", "measure"]

Integers = NDArray[np.int64]
CONFIDENCE = 0.95
FEWEST_OF_A_BATCH = 20
WARM_UP_BATCHES = 1
FEWEST_BATCHES = 4
ALARMS = ("delay out of bounds", "success out of bounds", "drifts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the model states of itself.

    A mean delay is within ``delay`` of the prediction, relatively, or within ``delay_seconds``;
    a success rate within ``success``. ``level``: the probability of any false alarm in a report.
    """

    delay: float = 0.25
    delay_seconds: float = 0.002
    success: float = 0.05
    level: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One subscription's numbers of one run."""

    subscriber: str
    filter: str
    priority: int
    run: str
    cells: Cells


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A subscription, or a class (without subscriber and filter), measured and predicted.

    Half-widths are of 95 % intervals. ``drift``: by what part the mean rises over the whole time.
    ``chance_…``: how likely as much is by chance alone; ``means``: batch means, for plots.
    """

    site: str
    configuration_version: int
    priority: int
    subscriber: str | None
    filter: str | None
    offered: int
    delivered: int
    success_rate: float
    success_rate_half_width: float | None = None
    delay_mean_seconds: float | None = None
    delay_mean_half_width_seconds: float | None = None
    delay_p50_seconds: float | None = None
    delay_p95_seconds: float | None = None
    delay_p95_half_width_seconds: float | None = None
    delay_p99_seconds: float | None = None
    timely_fraction: float | None = None
    timely_fraction_half_width: float | None = None
    predicted_delay_mean_seconds: float | None = None
    predicted_delay_p95_seconds: float | None = None
    predicted_success_rate: float | None = None
    predicted_timely_fraction: float | None = None
    method: str | None = None
    relative_error: float | None = None
    drift: float | None = None
    chance_of_delay: float | None = None
    chance_of_success: float | None = None
    chance_of_drift: float | None = None
    verdict: str = ""
    means: tuple[float, ...] = ()

    @property
    def alarming(self) -> bool:
        """Whether the model does not hold here."""
        return self.verdict in ALARMS


def measure(
    site: str,
    version: int,
    series: Sequence[Series],
    predicted: Mapping[tuple[str, str], SubscriptionPrediction],
    bounds: Bounds,
) -> Iterator[MeasuredRow]:
    """The rows of one configuration: its classes, then its subscriptions; not judged yet."""
    ordered = sorted(series, key=lambda s: (s.priority, s.subscriber, s.filter, s.run))
    classes: dict[int, list[Series]] = {}
    single: dict[tuple[int, str, str], list[Series]] = {}
    for one in ordered:
        classes.setdefault(one.priority, []).append(one)
        single.setdefault((one.priority, one.subscriber, one.filter), []).append(one)
    for priority, members in classes.items():
        names = dict.fromkeys((s.subscriber, s.filter) for s in members)
        said = [predicted[name] for name in names if name in predicted]
        blank = _blank(site, version, priority, None, None)
        yield _measured(blank, members, said if len(said) == len(names) else [], bounds)
    for (priority, subscriber, filter_), members in single.items():
        blank = _blank(site, version, priority, subscriber, filter_)
        known = predicted.get((subscriber, filter_))
        yield _measured(blank, members, [known] if known else [], bounds)


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
        success_rate=0.0,
    )


def _measured(
    blank: MeasuredRow,
    series: list[Series],
    predicted: list[SubscriptionPrediction],
    bounds: Bounds,
) -> MeasuredRow:
    runs = {name: number for number, name in enumerate(sorted({s.run for s in series}))}
    run = np.concatenate([np.full(len(s.cells.slices), runs[s.run]) for s in series])
    run, slices = _joined(run, np.concatenate([s.cells.slices for s in series]), keys=1)
    offered = batches_of(run, slices[:, 0], slices[:, 1], slices[:, 2].astype(float))
    timed = slices[:, 3] > 0
    delays = batches_of(
        run[timed], slices[timed, 0], slices[timed, 3], slices[timed, 4] / NANOSECONDS
    )
    row = _with_prediction(replace(blank, offered=int(slices[:, 1].sum())), predicted)
    row = _with_success(row, slices, offered, bounds)
    if not delays.count.sum():
        return row
    row = _with_delay(row, delays, bounds)
    bucket_run = np.concatenate([np.full(len(s.cells.buckets), runs[s.run]) for s in series])
    buckets = np.concatenate([s.cells.buckets for s in series])
    deadlines = {p.deadline_seconds for p in predicted}
    deadline = deadlines.pop() if len(deadlines) == 1 else None
    return _with_percentiles(row, *_joined(bucket_run, buckets, keys=2), deadline)


def _joined(run: Integers, numbers: Integers, keys: int) -> tuple[Integers, Integers]:
    """Rows of the same run and keys added up, in the order of both."""
    columns = [numbers[:, key] for key in reversed(range(keys))] + [run]
    order = np.lexsort(columns)
    run, numbers = run[order], numbers[order]
    if len(run) == 0:
        return run, numbers
    same = (np.diff(numbers[:, :keys], axis=0) == 0).all(axis=1) & (np.diff(run) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    sums = np.add.reduceat(numbers[:, keys:], first, axis=0)
    return run[first], np.concatenate([numbers[first, :keys], sums], axis=1)


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


def _with_success(
    row: MeasuredRow, slices: Integers, batches: Batches, bounds: Bounds
) -> MeasuredRow:
    delivered = int(slices[:, 2].sum())
    if not batches.count.sum():
        return replace(row, delivered=delivered, success_rate=delivered / max(row.offered, 1))
    row = replace(row, delivered=delivered, success_rate=batches.mean)
    if not batches.enough:
        return row
    mean = mean_of(batches)
    row = replace(row, success_rate_half_width=mean.half_width(CONFIDENCE))
    if row.predicted_success_rate is None:
        return row
    beyond = abs(mean.value - row.predicted_success_rate) - bounds.success
    return replace(row, chance_of_success=mean.beyond(beyond))


def _with_delay(row: MeasuredRow, batches: Batches, bounds: Bounds) -> MeasuredRow:
    row = replace(row, delay_mean_seconds=batches.mean)
    predicted = row.predicted_delay_mean_seconds
    if predicted is not None and predicted > 0:
        row = replace(row, relative_error=batches.mean / predicted - 1)
    if not batches.enough or batches.count.mean() < FEWEST_OF_A_BATCH:
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
    allowed = max(bounds.delay * row.predicted_delay_mean_seconds, bounds.delay_seconds)
    return mean.beyond(abs(mean.value - row.predicted_delay_mean_seconds) - allowed)


def _with_percentiles(
    row: MeasuredRow, run: Integers, buckets: Integers, deadline: float | None
) -> MeasuredRow:
    kept = _warm(run, buckets)
    run, buckets = run[kept], buckets[kept]
    _, whole = _joined(np.zeros(len(run), dtype=np.int64), buckets[:, 1:], keys=1)
    levels = [percentile(whole[:, 0], whole[:, 1], level) for level in (0.5, 0.95, 0.99)]
    row = replace(
        row,
        delay_p50_seconds=levels[0],
        delay_p95_seconds=levels[1],
        delay_p99_seconds=levels[2],
    )
    arrived = row.success_rate
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


def judge(rows: Iterable[MeasuredRow], bounds: Bounds) -> list[MeasuredRow]:
    """Every row with its verdict, chances adjusted for how many there are."""
    rows = list(rows)
    for name in ("chance_of_delay", "chance_of_success", "chance_of_drift"):
        known = [number for number, row in enumerate(rows) if getattr(row, name) is not None]
        # three questions are asked of a report; each gets a third of its level
        chances = np.array([3 * getattr(rows[number], name) for number in known], dtype=float)
        for number, chance in zip(known, holm(chances).tolist(), strict=True):
            rows[number] = replace(rows[number], **{name: chance})
    return [replace(row, verdict=_verdict(row, bounds)) for row in rows]


def _verdict(row: MeasuredRow, bounds: Bounds) -> str:
    found = [
        name
        for name, chance in zip(
            ALARMS, (row.chance_of_delay, row.chance_of_success, row.chance_of_drift), strict=True
        )
        if chance is not None and chance <= bounds.level
    ]
    if found:
        return found[0]
    if row.method is None:
        return "not predicted"
    if row.chance_of_success is None:
        return "too little data"
    if row.method != "queueing":
        return f"delay not judged ({row.method})"
    if row.chance_of_delay is None and row.predicted_delay_mean_seconds is not None:
        return "too little data"
    return "within bounds"
