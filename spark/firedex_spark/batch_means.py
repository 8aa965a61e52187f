"""Means, intervals and drift of a series whose neighbours resemble each other. Pure.

A series comes as sums over slices of time. Slices are joined into batches until neighbouring
batches no longer resemble each other; batches then count as independent (the method of batch
means). Where too few would be left, what resemblance remains widens the interval.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

__all__ = ["FEWEST_OF_A_BATCH", "Batches", "Mean", "batches_of", "drift", "holm", "mean_of"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_BATCHES = 64
FEWEST_BATCHES = 8
FEWEST_OF_A_BATCH = 20
FEWEST_OF_A_RUN = 4
"""However many runs there are: a drift within them shows in no fewer."""
WARM_UP = 0.1
"""The part of each run at its beginning that is not looked at: queues still fill."""
RESEMBLANCE = 0.2
"""Neighbouring batches may be correlated by so much before they are joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Batches of slices: how many observations each holds, their sum, of which run, and when.

    When: from 0 to 1 over its run.
    """

    count: Floats
    total: Floats
    run: Integers
    when: Floats

    @property
    def mean(self) -> float:
        """Of all observations."""
        return float(self.total.sum() / self.count.sum())

    @property
    def enough(self) -> bool:
        """Whether anything can be said of uncertainty."""
        return len(self.count) >= FEWEST_BATCHES and not self.thin

    @property
    def thin(self) -> bool:
        """Whether there are too few observations in each."""
        return bool(len(self.count)) and bool(self.count.mean() < FEWEST_OF_A_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean with its standard error; ``freedom``: of Student's distribution."""

    value: float
    error: float
    freedom: int

    def half_width(self, confidence: float) -> float:
        """Half the width of the confidence interval."""
        return float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error

    def beyond(self, distance: float) -> float:
        """How likely a mean so far out is, if the truth is ``distance`` nearer."""
        if distance <= 0:
            return 1.0
        if self.error == 0:
            return 0.0
        return float(stdtr(self.freedom, -distance / self.error))


def batches_of(run: Integers, slice_: Integers, count: Integers, total: Floats) -> Batches:
    """Batches of the slices of one or more runs, each without its beginning.

    The last slice of a run ends somewhere within: it is left out too where there are enough.
    """
    parts = [_kept(slice_[run == r], count[run == r], total[run == r]) for r in np.unique(run)]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        nothing = np.zeros(0)
        return Batches(count=nothing, total=nothing, run=nothing.astype(np.int64), when=nothing)
    wanted = MOST_BATCHES
    while True:
        made = _cut(parts, wanted)
        if made.thin and wanted > FEWEST_BATCHES:
            wanted //= 2
        # joined until independent, as long as there are enough left
        elif wanted <= 2 * FEWEST_BATCHES or _resemblance(made) <= RESEMBLANCE:
            return made
        else:
            wanted //= 2


def _kept(slice_: Integers, count: Integers, total: Floats) -> tuple[Floats, Floats, Floats]:
    order = np.argsort(slice_, kind="stable")
    slice_, count, total = slice_[order], count[order], total[order]
    first, last = int(slice_[0]), int(slice_[-1])
    from_ = first + int(np.ceil(WARM_UP * (last - first)))
    kept = slice_ >= from_
    if last - first > FEWEST_BATCHES:
        kept &= slice_ < last
    span = max(last - from_, 1)
    when = (slice_[kept] - from_ + 0.5) / span
    return when, count[kept].astype(np.float64), total[kept].astype(np.float64)


def _cut(parts: list[tuple[Floats, Floats, Floats]], wanted: int) -> Batches:
    """About ``wanted`` batches of equal time, if there are few runs; none across runs or empty."""
    each = max(wanted // len(parts), FEWEST_OF_A_RUN)
    counts, totals, whens = [], [], []
    for when, count, total in parts:
        batch = np.minimum((when * each).astype(np.int64), each - 1)
        weight = np.bincount(batch, count, minlength=each)
        counts.append(weight)
        totals.append(np.bincount(batch, total, minlength=each))
        whens.append((np.arange(each) + 0.5) / each)
    count, total = np.concatenate(counts), np.concatenate(totals)
    some = count > 0
    return Batches(
        count=count[some],
        total=total[some],
        run=np.repeat(np.arange(len(parts)), each)[some],
        when=np.concatenate(whens)[some],
    )


def _resemblance(batches: Batches) -> float:
    """The correlation of neighbouring batch means, apart from any straight trend."""
    if len(batches.count) < FEWEST_BATCHES:
        return 0.0
    off = batches.total / batches.count - batches.mean
    when = batches.when - batches.when.mean()
    return _neighbours(off - off.mean() - when * float((when * off).sum() / (when**2).sum()))


def _neighbours(left: Floats) -> float:
    """The correlation of neighbours around a straight line."""
    square = float((left**2).sum())
    # what is left around a line of n points understates it by about 2/n
    return float((left[1:] * left[:-1]).sum()) / square + 2 / len(left) if square > 0 else 0.0


def _widening(correlation: float) -> float:
    """By how much a standard error grows when neighbours are so correlated."""
    kept = min(max(correlation, 0.0), 0.9)
    return float(np.sqrt((1 + kept) / (1 - kept)))


def mean_of(batches: Batches) -> Mean:
    """The mean of all observations, as a ratio of sums."""
    number = len(batches.count)
    off = batches.total - batches.mean * batches.count
    error = np.sqrt(number / (number - 1) * (off**2).sum()) / batches.count.sum()
    left = _resemblance(batches)
    return Mean(value=batches.mean, error=float(error) * _widening(left), freedom=number - 1)


def drift(batches: Batches) -> tuple[float, float]:
    """By what part the mean rises over the time of a run, and how likely that is by chance.

    A straight line through batch means, of one slope for all runs, each at its own level; steps
    show in it too.
    """
    weight = batches.count / batches.count.sum()
    when = _apart_from_runs(batches.when, weight, batches.run)
    off = _apart_from_runs(batches.total / batches.count, weight, batches.run)
    spread, mean = float((weight * when**2).sum()), batches.mean
    number = len(batches.count)
    freedom = number - len(np.unique(batches.run)) - 1
    if spread == 0 or mean == 0 or freedom < 1:
        return 0.0, 1.0
    slope = float((weight * when * off).sum()) / spread
    left = off - slope * when
    # weights are known up to a factor only: the sandwich form needs no more
    error = np.sqrt(((weight * when * left) ** 2).sum() * number / freedom) / spread
    error *= _widening(_neighbours(left))
    if error == 0:
        return slope / mean, 1.0 if slope == 0 else 0.0
    return slope / mean, float(2 * stdtr(freedom, -abs(slope) / error))


def _apart_from_runs(values: Floats, weight: Floats, run: Integers) -> Floats:
    """What is left of values when the mean of each run is taken off."""
    total = np.bincount(run, weight)
    means = np.bincount(run, weight * values) / np.where(total > 0, total, 1.0)
    return np.asarray(values - means[run])


def holm(likelihoods: Floats) -> Floats:
    """Adjusted for how many there are: all at or below a level are found at that level."""
    order = np.argsort(likelihoods, kind="stable")
    scaled = likelihoods[order] * np.arange(len(likelihoods), 0, -1)
    adjusted = np.empty_like(likelihoods)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted
